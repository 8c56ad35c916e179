"""What `error.type` says of an exception or an answer."""

from __future__ import annotations


def error_type(error: BaseException) -> str:
    """The HTTP status that an exception carries (`status_code`), else its class's name."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and not isinstance(status, bool) and status >= 400:
        return str(status)
    return type(error).__qualname__


def is_timeout(error: BaseException) -> bool:
    """Whether an exception says that time ran out: `TimeoutError`, or a class named so by an HTTP library."""
    return isinstance(error, TimeoutError) or any("Timeout" in kind.__name__ for kind in type(error).__mro__)
