"""How a command says that it cannot do what it was asked: one line, exit code 2, no traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click


class Wrong(click.ClickException):
    """What the user can put right. The message is made one line, and says what to do."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
        #: Whose fault it was: the message begins with the command's name.
        self.ctx = click.get_current_context(silent=True)


#: Exceptions of other parts whose message is already one line that says what to do. They are looked up only where their
#: module is loaded, so that a light command loads none of them.
_ONE_LINERS = (
    ("promptpath.storage.errors", "StorageError"),
    ("promptpath.collector.errors", "CollectorError"),
    ("promptpath.collector.errors", "PortTaken"),
    ("promptpath.cli.demo.model", "ModelNotFound"),
    ("clickhouse_connect.driver.exceptions", "ClickHouseError"),
)
#: How ClickHouse begins an error and what its client adds to the end.
_DATABASE_HEAD = re.compile(r".*DB::Exception: ", re.DOTALL)
_DATABASE_TAIL = re.compile(r"(\s*\((?:version [^()]*(?:\([^()]*\))?|for url [^()]*)\)\.?)+\s*$")
#: After a syntax error: every word of the grammar that could have stood there.
_DATABASE_GRAMMAR = re.compile(r" Expected one of: .*?(?= \([A-Z_]+\)$|$)")
_DATABASE_CODE = re.compile(r"(\s*\(([A-Z_]+)\)\.?)+$")


def one_line(failure: BaseException) -> str | None:
    """The message to print for `failure`, or None if it is a fault in the program."""
    if isinstance(failure, click.ClickException):
        return failure.format_message()
    for name in _known(failure):
        return name
    if isinstance(failure, OSError) and failure.strerror:
        where = f"{failure.filename}: " if failure.filename else ""
        return f"{where}{failure.strerror}"
    return None


def database_error(text: str) -> str:
    """The gist of a ClickHouse error: what is wrong and its name, without the frames around it."""
    told = _DATABASE_TAIL.sub("", _DATABASE_HEAD.sub("", " ".join(text.split())))
    return _DATABASE_GRAMMAR.sub("", _DATABASE_CODE.sub(r" (\2)", told))


def _known(failure: BaseException) -> Iterator[str]:
    for module, name in _ONE_LINERS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(failure, kind):
            text = " ".join(str(failure).split())
            yield database_error(text) if "DB::Exception" in text else text
