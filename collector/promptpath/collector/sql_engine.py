"""Queries of strangers on the embedded engine: on a handle each, bounded, read-only, streamed, stopped when told."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import chdb

from promptpath.collector import sql_guard, sql_settings
from promptpath.collector.sql_errors import (
    ACCESS_DENIED,
    UNKNOWN_DATABASE,
    UNKNOWN_EXCEPTION,
    UNKNOWN_FORMAT,
    SqlError,
)
from promptpath.collector.sql_settings import SqlLimits
from promptpath.storage.engine import ENGINE_DIR, ENGINE_OPTIONS

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: Output formats of the embedding library that are no formats of ClickHouse.
_NOT_FORMATS: Final = frozenset({"arrowtable", "dataframe", "datastore", "debug", "template"})
#: Views over tables that say whose a row is, which do not say it themselves.
_TENANT_VIEWS: Final = {"workflows": "prompts", "counters": "otel_metrics_gauge"}
#: Not for callers: what replaced rows are kept in, where requests enter, and what passes them on.
_HIDDEN: Final = re.compile(r"\..*|\w*_rows|otlp_\w+|\w+_mv")
_PIPE_BYTES: Final = 1 << 20
#: How long the names of tables are believed. Tables come with migrations, which run before this starts.
_SCHEMA_S: Final = 10.0
_KILL_EVERY_S: Final = 0.05
_F_SETPIPE_SZ: Final = getattr(fcntl, "F_SETPIPE_SZ", 1031)


@dataclass(frozen=True)
class Statistics:
    """What a query cost."""

    rows_read: int = 0
    bytes_read: int = 0
    elapsed_s: float = 0.0


@dataclass(frozen=True)
class Question:
    """One query and how it is to be answered.

    `database`: the current one; the store's own if empty. `default_format`: where the query names none. `settings`:
    ClickHouse's; bounds can be lowered, not raised. `params`: values of `{name:Type}`, escaped as in a TSV file.
    `tenant`: whose rows it may see; None for all. `compression`: of the answer, as ClickHouse names it, or "".
    """

    query: str
    database: str = ""
    default_format: str = "TabSeparated"
    settings: Mapping[str, str] | None = None
    params: Mapping[str, str] | None = None
    tenant: str | None = None
    compression: str = ""


class SqlEngine:
    """Runs queries on the engine of one store, which this process has open. Safe from any thread."""

    def __init__(self, directory: Path, *, database: str, limits: SqlLimits | None = None) -> None:
        self._connection = f"{directory.resolve() / ENGINE_DIR}?{urlencode(ENGINE_OPTIONS)}"
        self._database = database
        self._limits = limits or SqlLimits()
        self._lock = threading.Lock()
        self._killer_lock = threading.Lock()
        self._killer = _connect(self._connection)
        #: One handle for what this program asks by itself. It has no settings of a caller: `limit` or `offset` would
        #: cut off what is to be checked.
        self._own = _connect(self._connection)
        for assignments in (_assignments(sql_settings.applied(SqlLimits(), {}, frozenset())), "readonly = 1"):
            self._own.query(f"SET {assignments}", "TabSeparated")
        self.version, self.timezone = self._ask("SELECT version(), timezone()").strip().split("\t")
        families = ", ".join(_quoted(name) for name in sql_guard.FUNCTION_FAMILIES)
        refused = self._ask(
            f"SELECT lower(name) FROM system.functions WHERE categories IN ({families}) OR alias_to IN "
            f"(SELECT name FROM system.functions WHERE categories IN ({families}))"
        ).split()
        self._functions = sql_guard.FUNCTIONS | frozenset(refused)
        self._settings = frozenset(self._ask("SELECT name FROM system.settings").split())
        self._schema: tuple[float, dict[str, frozenset[str]], frozenset[str]] | None = None

    def start(self, question: Question) -> Running:
        """Checks a query and makes it ready to run.

        Raises:
            SqlError: as ClickHouse would refuse it.
        """
        if not _NAME.fullmatch(question.default_format) or question.default_format.lower() in _NOT_FORMATS:
            raise SqlError(UNKNOWN_FORMAT, f"Unknown format {question.default_format}")
        sql_guard.check_statement(question.query)
        database = self._current(question.database)
        access, filters = self._access(question.tenant)
        params = dict(question.params or {})
        canonical = self._canonical(question.query)
        checked = sql_guard.check_canonical(canonical, self._functions, access)
        sql_guard.check_identifiers(canonical, params)
        if checked.format.lower() in _NOT_FORMATS:
            raise SqlError(UNKNOWN_FORMAT, f"Unknown format {checked.format}")
        sql_guard.check_tree(self._tree(checked.body, params), access, database)
        tag = str(uuid.uuid4())
        settings = sql_settings.applied(self._limits, question.settings or {}, self._settings)
        settings["log_comment"] = tag
        handle = _connect(self._connection)
        try:
            handle.query(f"USE {_quoted_name(database)}", "TabSeparated")
            for assignments in (
                _assignments(settings),
                f"additional_table_filters = {_map(filters)}",
                "readonly = 1",  # last: nothing can be set any more
            ):
                handle.query(f"SET {assignments}", "TabSeparated")
            return Running(self, handle, checked, question, tag)
        except Exception as error:
            handle.close()
            raise error if isinstance(error, SqlError) else SqlError.of_engine(error) from None

    def ask(self, question: Question) -> bytes:
        """The whole answer of a small query, in memory."""
        running = self.start(question)
        answer = bytearray()
        os.set_blocking(running.reader, True)

        def read() -> None:
            while chunk := os.read(running.reader, _PIPE_BYTES):
                answer.extend(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            running.execute()
        finally:
            reader.join()
            running.close()
        return bytes(answer)

    def kill(self, tag: str) -> None:
        """Asks the engine to stop what runs under a tag."""
        with self._killer_lock:
            self._killer.query(f"KILL QUERY WHERE Settings['log_comment'] = {_quoted(tag)} ASYNC", "Null")

    def close(self) -> None:
        """Closes its handles, after the last query."""
        with self._lock, self._killer_lock:
            self._own.close()
            self._killer.close()

    def _current(self, database: str) -> str:
        """The current database: what clients send who were told none, `default`, is the store's own."""
        if database in ("", "default", self._database):
            return self._database
        if database in ("system", "information_schema", "INFORMATION_SCHEMA"):
            return database
        raise SqlError(UNKNOWN_DATABASE, f"Database {database[:100]} does not exist, or is not for callers")

    def _canonical(self, query: str) -> str:
        try:
            text = self._ask("SELECT formatQuerySingleLine({query:String})", {"query": _escaped(query)}, raw=True)
        except SqlError as error:
            # The engine's complaint about the query, without the words about the function that parsed it.
            message = error.message.split(": In scope SELECT formatQuerySingleLine(")[0]
            raise SqlError(error.code, message.rstrip(". "), error.name) from None
        if not text:
            raise SqlError(UNKNOWN_EXCEPTION, "the engine gave the query no canonical form")
        return text

    def _tree(self, body: str, params: Mapping[str, str]) -> str:
        tree = self._ask(f"EXPLAIN AST {body}", params, format_name="TabSeparatedRaw")
        if not tree:
            raise SqlError(UNKNOWN_EXCEPTION, "the engine made no tree of the query")
        return tree

    def _ask(
        self, query: str, params: Mapping[str, str] | None = None, *, raw: bool = False, format_name: str = ""
    ) -> str:
        with self._lock:
            try:
                result = self._own.query(
                    query, format_name or ("RawBLOB" if raw else "TabSeparated"), params=dict(params or {})
                )
                return str((result.bytes() or b"").decode("utf-8", "replace"))
            except Exception as error:
                raise SqlError.of_engine(error) from None

    def _access(self, tenant: str | None) -> tuple[sql_guard.Access, dict[str, str]]:
        columns, system = self._tables()
        open_tables = frozenset(name for name in columns if not _HIDDEN.fullmatch(name))
        if tenant is None:
            hidden = frozenset(columns) - open_tables
            return sql_guard.Access(self._database, open_tables, hidden, system), {}
        whose = {table: sql_guard.tenant_column(columns[table]) for table in open_tables}
        filters = {
            f"{self._database}.{table}": f"{column} = {_quoted(tenant)}" for table, column in whose.items() if column
        }
        if not filters:
            raise SqlError(ACCESS_DENIED, "no table says whose rows are: nothing is readable for one tenant")
        own = {table for table, column in whose.items() if column}
        tables = frozenset(own | {view for view, source in _TENANT_VIEWS.items() if source in own})
        hidden = frozenset(columns) - tables
        return sql_guard.Access(self._database, tables, hidden, system, is_tenant=True), filters

    def _tables(self) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
        """Columns of each table of the store, and the names of the engine's own tables."""
        schema = self._schema
        if schema is None or time.monotonic() - schema[0] > _SCHEMA_S:
            listed = self._ask(
                "SELECT t.name, arrayStringConcat(groupArray(c.name), ',') FROM system.tables AS t LEFT JOIN "
                "system.columns AS c ON c.database = t.database AND c.table = t.name "
                f"WHERE t.database = {_quoted(self._database)} GROUP BY t.name"
            )
            columns = {
                table: frozenset(names.split(","))
                for table, _, names in (line.partition("\t") for line in listed.splitlines())
            }
            system = frozenset(self._ask("SELECT name FROM system.tables WHERE database = 'system'").split())
            self._schema = schema = (time.monotonic(), columns, system)
        return schema[1], schema[2]


class Running:
    """A query that was found fit to run. `execute` it in one thread while another reads `reader`, then `close`."""

    def __init__(
        self, engine: SqlEngine, handle: Any, checked: sql_guard.Checked, question: Question, tag: str
    ) -> None:
        self._engine = engine
        self._handle = handle
        self._checked = checked
        self._question = question
        self._tag = tag
        self._over = threading.Event()
        self.format = checked.format or question.default_format
        #: Whether the answer is compressed as it was asked to be.
        self.is_compressed = bool(question.compression) and checked.is_select
        self.compression = question.compression
        #: Where the answer comes out, as it is made; ends when `execute` does. Does not block.
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        with contextlib.suppress(OSError):  # a limit of the system's: a small pipe does as well
            fcntl.fcntl(self.reader, _F_SETPIPE_SZ, _PIPE_BYTES)

    def execute(self) -> Statistics:
        """Runs it to its end.

        Raises:
            SqlError: as ClickHouse would fail. Part of the answer may have come out.
        """
        began = time.perf_counter()
        try:
            result = self._handle.query(self._statement(), self.format, params=dict(self._question.params or {}))
            if not self._checked.is_select:
                self._write(result.bytes() or b"")
            return Statistics(result.rows_read(), result.bytes_read(), time.perf_counter() - began)
        except SqlError:
            raise
        except Exception as error:  # the library's own, or RuntimeError from its depths
            raise SqlError.of_engine(error) from None
        finally:
            self._over.set()
            os.close(self._writer)
            self._handle.close()

    def cancel(self) -> None:
        """Stops it, and returns when it has stopped. Nobody may read any more."""
        self.close()
        while not self._over.wait(_KILL_EVERY_S):
            self._engine.kill(self._tag)

    def discard(self) -> None:
        """Gives back what a query holds that will not be executed."""
        if not self._over.is_set():
            self._over.set()
            os.close(self._writer)
            self._handle.close()
        self.close()

    def close(self) -> None:
        """Gives the reader back. Harmless when called twice."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def _statement(self) -> str:
        """What is run is what was checked, with the pipe as its output: the only way to have a whole answer, in any
        format, without holding it. (The library's own streams are many answers, one for each block.)"""
        checked, question = self._checked, self._question
        body = checked.body
        if checked.is_settings_probe:
            body = body.replace("readonly", f"{_READONLY_SQL} AS readonly", 1).replace(" AS readonly AS ", " AS ")
        if not checked.is_select:
            return f"{body} FORMAT {self.format}"
        compression = f"COMPRESSION {_quoted(question.compression)} LEVEL 1" if question.compression else ""
        return f"{body} INTO OUTFILE '/dev/fd/{self._writer}' TRUNCATE {compression} FORMAT {self.format}"

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._writer, view) :]
            except BrokenPipeError:
                return


#: 1 for a setting that a caller cannot set.
_READONLY_SQL: Final = (
    f"toUInt8(NOT (match(name, '^({sql_settings.SETTABLE})$') AND NOT match(name, '^({sql_settings.NOT_SETTABLE})$')))"
).replace("\\", "\\\\")


def _connect(connection: str) -> Any:
    return chdb.connect(connection)  # type: ignore[no-untyped-call]


def _assignments(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {_quoted(value)}" for name, value in settings.items())


def _map(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_quoted(key)}: {_quoted(value)}" for key, value in entries.items()) + "}"


def _escaped(text: str) -> str:
    return (
        text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted_name(text: str) -> str:
    return "`" + text.replace("\\", "\\\\").replace("`", "\\`") + "`"
