"""Shims of tokenizers."""
