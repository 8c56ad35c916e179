"""Shims of inference engines: queue, prefill, decode, detokenize."""
