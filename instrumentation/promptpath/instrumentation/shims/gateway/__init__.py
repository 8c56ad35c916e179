"""Shims of what stands before the model: ASGI servers, and the checks of a gateway."""
