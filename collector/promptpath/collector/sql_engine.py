"""Queries of strangers on the embedded engine: each on a fresh handle, bounded, read-only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import chdb

from promptpath.collector import sql_guard
from promptpath.collector.sql_errors import BAD_ARGUMENTS, UNKNOWN_FORMAT, SqlError
from promptpath.storage.engine import ENGINE_DIR, ENGINE_OPTIONS
from promptpath.storage.limits import READER_LIMITS

#: Bounds beside those of every reader, which a caller may lower but not raise.
_MORE_LIMITS: Final[Mapping[str, str]] = {
    "max_query_size": str(1 << 20),
    "max_parser_depth": "1000",
    "max_parser_backtracks": "1000000",
    "max_ast_elements": "50000",
    "max_expanded_ast_elements": "500000",
    "max_untracked_memory": str(4 << 20),
    "max_block_size": "1048576",
    "max_threads": "64",
}
_LIMITS: Final[Mapping[str, str]] = {**READER_LIMITS, **_MORE_LIMITS}
_CAPS: Final = {name: float(value) for name, value in _LIMITS.items() if value.replace(".", "").isdigit()}
#: A bound that is only applied where the caller asks for less.
_UNSET: Final = frozenset({"max_threads", "max_block_size", "max_untracked_memory"})
#: Where the embedding library's defaults are another program's than a server's.
_AS_A_SERVER: Final = {"implicit_select": "0"}
#: What a caller has no say in.
_FIXED: Final = frozenset({"readonly", "allow_ddl", "allow_introspection_functions"})
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: Output formats of the embedding library that are no formats of ClickHouse.
_NOT_FORMATS: Final = frozenset({"arrowtable", "dataframe", "datastore", "debug"})


@dataclass(frozen=True)
class Result:
    """An answer: its bytes in `format`, and what it cost."""

    data: bytes
    format: str
    rows_read: int
    bytes_read: int
    elapsed_s: float


class SqlEngine:
    """Runs queries on the engine of one store, which this process has open. Safe from any thread."""

    def __init__(self, directory: Path, *, database: str) -> None:
        self._connection = f"{directory.resolve() / ENGINE_DIR}?{urlencode(ENGINE_OPTIONS)}"
        self._database = database
        handle = _connect(self._connection)
        try:
            text = handle.query("SELECT version(), timezone()", "TabSeparated").bytes().decode()
            self.version, self.timezone = text.strip().split("\t")
            names = handle.query("SELECT name FROM system.table_functions", "TabSeparated").bytes().decode()
            self._table_functions = frozenset(names.split())
        finally:
            handle.close()

    def run(
        self,
        query: str,
        *,
        database: str = "",
        default_format: str = "TabSeparated",
        settings: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Result:
        """Answers one query.

        Args:
            database: the current database of the query; the store's own if empty.
            default_format: used where the query names none.
            settings: ClickHouse settings; bounds can be lowered, not raised.
            params: values of `{name:Type}`, escaped as in a TSV file.

        Raises:
            SqlError: as ClickHouse would fail.
        """
        if not _NAME.fullmatch(default_format) or default_format.lower() in _NOT_FORMATS:
            raise SqlError(UNKNOWN_FORMAT, f"Unknown format {default_format}")
        sql_guard.check_statement(query)
        handle = _connect(self._connection)
        try:
            return self._run(handle, query, database or self._database, default_format, settings or {}, params or {})
        except SqlError:
            raise
        except Exception as error:  # the library's own, or RuntimeError from its depths
            raise SqlError.of_engine(error) from None
        finally:
            handle.close()

    def _run(
        self,
        handle: Any,
        query: str,
        database: str,
        default_format: str,
        settings: Mapping[str, str],
        params: Mapping[str, str],
    ) -> Result:
        handle.query(f"USE {_quoted_name(database)}", "TabSeparated")
        applied = ", ".join(f"{name} = {_quoted(value)}" for name, value in _bounded(settings).items())
        handle.query(f"SET {applied}", "TabSeparated")
        checked = sql_guard.check_canonical(self._canonical(handle, query), self._table_functions)
        if checked.format.lower() in _NOT_FORMATS:
            raise SqlError(UNKNOWN_FORMAT, f"Unknown format {checked.format}")
        if not checked.is_settings_probe:
            handle.query("SET readonly = 1", "TabSeparated")
        result = handle.query(query, default_format, params=dict(params))
        return Result(
            data=result.bytes() or b"",
            format=checked.format or default_format,
            rows_read=result.rows_read(),
            bytes_read=result.bytes_read(),
            elapsed_s=result.elapsed(),
        )

    def _canonical(self, handle: Any, query: str) -> str:
        try:
            result = handle.query(
                "SELECT formatQuerySingleLine({query:String})", "RawBLOB", params={"query": _escaped(query)}
            )
        except Exception as error:
            raise _without_wrapper(SqlError.of_engine(error)) from None
        return str(result.bytes().decode("utf-8", "replace"))


def _connect(connection: str) -> Any:
    return chdb.connect(connection)  # type: ignore[no-untyped-call]


def _bounded(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings to apply: all bounds, and the caller's within them."""
    applied = {name: value for name, value in _LIMITS.items() if name not in _UNSET} | _AS_A_SERVER
    for name, value in settings.items():
        if name in _FIXED:
            continue
        if not _NAME.fullmatch(name):
            raise SqlError(BAD_ARGUMENTS, f"{name[:100]!r} is no name of a setting")
        cap = _CAPS.get(name)
        applied[name] = value if cap is None else _lowered(name, value, cap)
    return applied


def _lowered(name: str, value: str, cap: float) -> str:
    try:
        number = float(value)
    except ValueError:
        raise SqlError(BAD_ARGUMENTS, f"{value[:100]!r} is no value of setting {name}") from None
    # 0 means "no bound" to ClickHouse.
    return value if 0 < number <= cap else str(int(cap))


def _without_wrapper(error: SqlError) -> SqlError:
    """The engine's complaint about the query, without the words about the function that parsed it."""
    text = str(error).split(": In scope SELECT formatQuerySingleLine(")[0]
    if text != str(error):
        error.args = (f"{text.rstrip('. ')}. ({error.name})",)
    return error


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted_name(text: str) -> str:
    return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"
