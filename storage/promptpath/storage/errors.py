"""The one exception that storage raises at its callers."""

from __future__ import annotations

import re

_CODE = re.compile(r"^(Code: \d+\. DB::Exception: )+")


class StorageError(Exception):
    """Storage cannot do what was asked. The message is one line and says what to do about it."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def reason(error: BaseException, limit: int = 240) -> str:
    """The gist of a database or operating system error in one short line."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__ or _carried(inner)
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = _CODE.sub("", " ".join(lines[0].split())) if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _carried(error: BaseException) -> BaseException | None:
    """urllib3 keeps the error behind a failed connection in `reason`."""
    carried = getattr(error, "reason", None)
    return carried if isinstance(carried, BaseException) else None
