"""One process at a time migrates a database, also over HTTP, and also after one of them died while it did.

ClickHouse has no locks to take, but creating a table is atomic: of several that create `schema_lock_7`, one does. The
holder touches its table while it works; the database says when that last happened, so that clients' clocks do not
matter. A lock that was not touched for `LEASE_S` is a dead process's: whoever then creates the next number takes over.
Between a look and a creation others may have come and gone, so each looks again behind its own creation, and gives way
if another live lock is there.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from promptpath.storage.errors import StorageError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

LEASE_S: Final = 60
#: How long to wait for others: several live holders one after the other, or a dead one's lease.
PATIENCE_S: Final = 300.0
_PREFIX: Final = "schema_lock_"
_LOOK: Final = """
SELECT name, comment, toInt64(now()) - toInt64(metadata_modification_time)
FROM system.tables
WHERE database = currentDatabase() AND startsWith(name, {prefix:String})
"""


@dataclass(frozen=True)
class _Lock:
    number: int
    holder: str
    untouched_s: int


class Held:
    """The lock, while it is held: `touch` it between statements."""

    def __init__(self, client: Client, number: int, on_cluster: str) -> None:
        self._client = client
        self._on_cluster = on_cluster
        self.number = number

    def touch(self) -> None:
        """Says that the holder is alive.

        Raises:
            StorageError: the lock was taken over: this process slept for longer than the lease.
        """
        try:
            self._client.command(
                f"ALTER TABLE {_PREFIX}{self.number}{self._on_cluster} MODIFY COMMENT {_quoted(_holder())}"
            )
        except Exception as error:
            if "UNKNOWN_TABLE" in str(error):
                raise StorageError("another process took over the migration: run it again") from error
            raise

    def release(self) -> None:
        self._client.command(f"DROP TABLE IF EXISTS {_PREFIX}{self.number}{self._on_cluster} SYNC")


@contextmanager
def held(client: Client, *, cluster: str = "", lease_s: int = LEASE_S) -> Iterator[Held]:
    """Waits for the lock of the client's database, and gives it back.

    Raises:
        StorageError: others held it for longer than `PATIENCE_S`.
    """
    on_cluster = f" ON CLUSTER '{cluster}'" if cluster else ""
    deadline = time.monotonic() + PATIENCE_S
    while (lock := _take(client, on_cluster, lease_s)) is None:
        if time.monotonic() > deadline:
            others = ", ".join(one.holder for one in _look(client)) or "somebody"
            raise StorageError(
                f"{others} has been migrating this database for {PATIENCE_S:g} s: look what it does, try again"
            )
        time.sleep(random.uniform(0.05, 0.5))
    try:
        yield lock
    finally:
        with suppress(Exception):  # not given back, it ends with its lease
            lock.release()


def _take(client: Client, on_cluster: str, lease_s: int) -> Held | None:
    before = _look(client)
    if any(one.untouched_s < lease_s for one in before):
        return None
    number = max((one.number for one in before), default=0) + 1
    try:
        client.command(
            f"CREATE TABLE {_PREFIX}{number}{on_cluster} (nothing UInt8) ENGINE = Null COMMENT {_quoted(_holder())}"
        )
    except Exception as error:
        if "TABLE_ALREADY_EXISTS" in str(error):
            return None
        raise
    mine = Held(client, number, on_cluster)
    if any(one.untouched_s < lease_s for one in _look(client) if one.number != number):
        mine.release()
        return None
    for dead in before:
        client.command(f"DROP TABLE IF EXISTS {_PREFIX}{dead.number}{on_cluster} SYNC")
    return mine


def _look(client: Client) -> list[_Lock]:
    rows = client.query(_LOOK, parameters={"prefix": _PREFIX}).result_rows
    found = [(re.fullmatch(rf"{_PREFIX}(\d+)", str(name)), holder, age) for name, holder, age in rows]
    return [_Lock(int(match[1]), str(holder), int(age)) for match, holder, age in found if match is not None]


def _holder() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
