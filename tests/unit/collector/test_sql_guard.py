"""What a reader may ask, by the engine's own spelling of the query."""

from __future__ import annotations

import pytest

from promptpath.collector.sql_errors import SqlError
from promptpath.collector.sql_guard import check_canonical, check_statement

TABLE_FUNCTIONS = frozenset({"file", "url", "s3", "numbers", "view", "values", "remote", "eval", "python", "merge"})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SELECT file FROM t",
        "SELECT 'file(''/etc/passwd'') INTO OUTFILE'",
        "SELECT 'it\\'s file(x)', `my file (x)` FROM t",
        "SELECT * FROM numbers(10)",
        "SELECT count() FROM view(SELECT 1)",
        "SHOW TABLES",
        "DESCRIBE TABLE t",
        "EXPLAIN SELECT 1",
        "EXISTS TABLE t",
        "SELECT profile(1)",
        "SELECT `INTO` OUTFILE FROM t",
    ],
)
def test_reading_is_allowed(query: str) -> None:
    check_canonical(query, TABLE_FUNCTIONS)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT file('/etc/passwd')", 164),
        ("SELECT FILE ('/etc/passwd')", 164),
        ("SELECT `file`('/etc/passwd')", 164),
        ("SELECT \"file\"('/etc/passwd')", 164),
        ("SELECT `a'b`, file('/etc/passwd'), `c'd`", 164),
        ("SELECT \"a'b\", file('/etc/passwd'), 'c'", 164),
        ("SELECT 'a`b', file('/etc/passwd'), 'c`d'", 164),
        ("SELECT 'a", 164),
        ("SELECT 1 WHERE 'x' = 'file(' AND file('/x') = ''", 164),
        ("SELECT * FROM url('http://127.0.0.1/')", 164),
        ("SELECT * FROM eval('SELECT file(1)')", 164),
        ("DESCRIBE TABLE file('/etc/passwd')", 164),
        ("SELECT aiGenerate('x')", 164),
        ("SELECT hasColumnInTable('host', 'user', 'password', 'db', 't', 'c')", 164),
        ("SELECT 1 INTO OUTFILE '/tmp/x'", 48),
        ("EXPLAIN SELECT 1 INTO OUTFILE '/tmp/x' FORMAT CSV", 48),
        ("KILL QUERY WHERE 1 ASYNC", 164),
        ("DROP TABLE t", 164),
        ("SYSTEM SHUTDOWN", 164),
        ("SET readonly = 0", 164),
        ("USE default", 164),
    ],
)
def test_everything_else_is_refused(query: str, code: int) -> None:
    with pytest.raises(SqlError) as caught:
        check_canonical(query, TABLE_FUNCTIONS)
    assert caught.value.code == code


@pytest.mark.parametrize("query", ["INSERT INTO t VALUES (1)", "  -- c\n/* x */ insert into t", "# hm\nInsert into t"])
def test_an_insert_is_refused_before_it_is_parsed(query: str) -> None:
    with pytest.raises(SqlError, match="READONLY"):
        check_statement(query)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT 1", ""),
        ("SELECT 1 FORMAT JSON", "JSON"),
        ("SELECT 1 FORMAT JSON SETTINGS max_threads = 1", "JSON"),
        ("SELECT ' FORMAT CSV'", ""),
        ("SELECT `FORMAT` x FROM t", ""),
        ("SELECT 1 AS FORMAT FROM t", ""),
        ("SELECT * FROM format(CSV, 'a') AS FORMAT", ""),
    ],
)
def test_the_format_is_the_one_that_the_query_names(query: str, name: str) -> None:
    assert check_canonical(query, TABLE_FUNCTIONS | {"format"}).format == name


@pytest.mark.parametrize(
    ("query", "probe"),
    [
        ("SELECT name, value, readonly FROM system.settings LIMIT 10000 FORMAT Native", True),
        ("SELECT name, value, readonly AS readonly FROM system.settings", True),
        ("SELECT name, value, readonly FROM system.settings WHERE name = 'x'", False),
        ("SELECT name, value, readonly, now() FROM system.settings", False),
    ],
)
def test_the_settings_probe_is_recognised_exactly(query: str, probe: bool) -> None:
    assert check_canonical(query, frozenset()).is_settings_probe is probe


def test_an_engine_error_keeps_code_name_and_text() -> None:
    error = SqlError.of_engine(
        RuntimeError("Code: 60. DB::Exception: Unknown table 'x' (line 1). (UNKNOWN_TABLE) (version 26.9.2.1)")
    )
    assert (error.code, error.name, error.http_status) == (60, "UNKNOWN_TABLE", 404)
    assert str(error) == "Code: 60. DB::Exception: Unknown table 'x' (line 1). (UNKNOWN_TABLE)"


def test_an_error_without_a_code_is_an_unknown_exception() -> None:
    error = SqlError.of_engine(RuntimeError("out of luck"))
    assert (error.code, error.http_status) == (1002, 500)
    assert "out of luck" in str(error)
