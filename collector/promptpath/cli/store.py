"""A store that a command may write to, and the rules it assembles by: what `import` and `assemble` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from promptpath.cli.errors import Wrong


@contextmanager
def writable(storage: str | None) -> Iterator[Any]:
    """A migrated client that may write.

    Raises:
        Wrong: a collector owns the embedded store.
    """
    from promptpath.storage import migrate
    from promptpath.storage.connection import cluster_of

    with opened(storage) as client:
        migrate(client, cluster=cluster_of(storage))
        yield client


@contextmanager
def opened(storage: str | None) -> Iterator[Any]:
    """A client that may write, of a store as it is.

    Raises:
        Wrong: a collector owns the embedded store.
    """
    from promptpath.storage import DEFAULT_URL, connect, data_dir, owner

    url = storage or DEFAULT_URL
    directory = data_dir(url)
    if directory is not None:
        running = owner.find(directory)
        if running is not None:
            raise Wrong(
                f"a collector (process {running.pid}) has {directory} open: stop it first, or choose another --storage"
            )
    client = connect(url)
    try:
        yield client
    finally:
        client.close()


def select_of(rules: Path | None) -> str:
    """The SQL that reads spans by the built-in rules and, beside or in place of them, the user's."""
    from promptpath.collector.assemble.rules_sql import select_of as compiled

    return compiled(rules)
