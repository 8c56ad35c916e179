"""The one exception that storage raises at its callers."""

from __future__ import annotations

import re

#: Errors of ClickHouse that say nothing of what was sent: it is busy, full, read-only, away, or not set up. In
#: order of their numbers, from its ErrorCodes: no such column, unknown table, unknown database, timeout exceeded,
#: readonly, unknown user, too many simultaneous queries, no free connection, socket timeout, network error, no
#: ZooKeeper, aborted, table is read-only, not enough space, too many parts, all connection tries failed, too few
#: live replicas, unsatisfied quorum, unknown status of insert, query was cancelled, cannot schedule task, access
#: denied, S3 error, authentication failed, server overloaded, Keeper exception.
_PASSING = frozenset(
    {16, 60, 81, 159, 164, 192, 202, 203, 209, 210, 225, 236, 242, 243, 252, 279, 285, 286, 319, 394, 439, 497, 499}
    | {516, 745, 999}
)
_CODES = re.compile(r"Code: (\d+)\.")
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


def is_passing(error: BaseException) -> bool:
    """Whether an error is the database's or the connection's own trouble, so that the same may succeed later."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) or any(int(code) in _PASSING for code in _CODES.findall(str(at))):
            return True
        at = at.__cause__ or _carried(at)
    return False
