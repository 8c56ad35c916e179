"""Shims of the calling side: LLM clients and the HTTP clients below them."""
