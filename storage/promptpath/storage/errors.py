"""The one exception that storage raises at its callers."""

from __future__ import annotations


class StorageError(Exception):
    """Storage cannot do what was asked. The message is one line and says what to do about it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def reason(error: BaseException, limit: int = 240) -> str:
    """The gist of a database or operating system error in one short line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[0].split()) if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"
