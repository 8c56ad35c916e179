"""What a reader may ask, by the engine's own spelling of the query."""

from __future__ import annotations

import pytest

from promptpath.collector.sql_errors import SqlError
from promptpath.collector.sql_guard import (
    FUNCTIONS,
    Access,
    Checked,
    check_identifiers,
    check_statement,
    check_tree,
)
from promptpath.collector.sql_guard import check_canonical as check

ACCESS = Access(
    "promptpath",
    tables=frozenset({"t", "prompts"}),
    hidden=frozenset({"prompts_rows", ".inner.x"}),
    system=frozenset({"one", "settings", "processes", "parts"}),
)


def check_canonical(query: str) -> Checked:
    return check(query, FUNCTIONS | {"aigenerate"}, ACCESS)


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
    check_canonical(query)


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
        ("SELECT 1 FORMAT JSON SETTINGS max_threads = 1", 164),
        ("SELECT * APPLY file FROM t", 164),
        ("SELECT * APPLY x -> (x IN (t)) FROM t", 48),
        ("SELECT * FROM system.processes", 497),
        ("SELECT * FROM `system`.`processes`", 497),
        ("SELECT * FROM promptpath.prompts_rows", 497),
        ("SELECT 1 IN (`prompts_rows`)", 497),
        ("SELECT `x\\n TableIdentifier y`", 164),
        ("SHOW PROCESSLIST", 164),
        ("SHOW CREATE USER x", 164),
        ("SHOW TABLES FROM default", 81),
        ("SHOW COLUMNS FROM t FROM default", 81),
        ("EXISTS TABLE default.`/etc/passwd`", 81),
        ("EXISTS DATABASE secret", 81),
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
        check_canonical(query)
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
        ("SELECT ' FORMAT CSV'", ""),
        ("SELECT `FORMAT` x FROM t", ""),
        ("SELECT 1 AS FORMAT FROM t", ""),
        ("SELECT * FROM format(CSV, 'a') AS FORMAT", ""),
    ],
)
def test_the_format_is_the_one_that_the_query_names(query: str, name: str) -> None:
    assert check_canonical(query).format == name


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
    assert check_canonical(query).is_settings_probe is probe


def tree(*lines: str) -> str:
    return "\n".join(("SelectWithUnionQuery (children 1)", *lines))


TABLE = (" ExpressionList (children 1)", "  SelectQuery (children 1)", "   TableExpression (children 1)")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ((*TABLE, "    TableIdentifier t (alias x)"), None),
        ((*TABLE, "    TableIdentifier system.one"), None),
        ((*TABLE, "    TableIdentifier nope"), None),  # the engine's to say
        ((*TABLE, "    TableIdentifier INFORMATION_SCHEMA.TABLES"), None),
        ((*TABLE, "    TableIdentifier system.processes (alias x)"), 497),
        ((*TABLE, "    TableIdentifier prompts_rows"), 497),
        ((*TABLE, "    TableIdentifier promptpath.prompts_rows"), 497),
        ((*TABLE, "    TableIdentifier default./etc/passwd"), 164),
        ((*TABLE, "    TableIdentifier .inner.x"), 164),
        ((*TABLE, "    Function numbers (alias n) (children 1)"), None),
        ((*TABLE, "    Function file (alias n) (children 1)"), 164),
        ((" Function file (children 1)",), None),  # a function, not a table function: check_canonical's
        ((" Function in (children 1)", "  ExpressionList (children 2)", "   Identifier a", "   Identifier x.y"), None),
        (
            (" Function globalNotIn (children 1)", "  ExpressionList (children 2)", "   Literal 1", "   Identifier t"),
            None,
        ),
        (
            (
                " Function in (children 1)",
                "  ExpressionList (children 2)",
                "   Function f (children 1)",
                "    ExpressionList (children 1)",
                "     Literal 1",
                "   Identifier system.processes",
            ),
            497,
        ),
        ((" InsertQuery  x (children 1)",), 164),
        ((" Set",), 164),
    ],
)
def test_a_tree_s_tables_and_table_functions(lines: tuple[str, ...], code: int | None) -> None:
    if code is None:
        check_tree(tree(*lines), ACCESS, "promptpath")
        return
    with pytest.raises(SqlError) as caught:
        check_tree(tree(*lines), ACCESS, "promptpath")
    assert caught.value.code == code


def test_names_are_looked_for_in_the_current_database() -> None:
    check_tree(tree(*TABLE, "    TableIdentifier prompts_rows"), ACCESS, "system")
    with pytest.raises(SqlError, match="ACCESS_DENIED"):
        check_tree(tree(*TABLE, "    TableIdentifier processes"), ACCESS, "system")


@pytest.mark.parametrize(
    "root", ["CreateQuery", "KillQueryQuery", "Explain EXPLAIN CURRENT TRANSACTION", "ShowProcesslistQuery"]
)
def test_trees_of_other_statements(root: str) -> None:
    with pytest.raises(SqlError, match="READONLY"):
        check_tree(root, ACCESS, "promptpath")


def test_settings_of_explain_are_its_own() -> None:
    check_tree("Explain EXPLAIN (children 2)\n Set\n SelectWithUnionQuery", ACCESS, "promptpath")
    with pytest.raises(SqlError, match="READONLY"):
        check_tree("Explain EXPLAIN (children 2)\n SelectWithUnionQuery\n Set", ACCESS, "promptpath")


@pytest.mark.parametrize("value", ["a\nb", "a\\nb", "a\x00"])
def test_a_name_given_as_a_parameter_is_a_name(value: str) -> None:
    check_identifiers("SELECT {a:String}", {"a": value})
    with pytest.raises(SqlError, match="READONLY"):
        check_identifiers("SELECT * FROM {a:Identifier}", {"a": value})


def test_layers_of_an_engine_error_are_one() -> None:
    text = (
        "Code: 164. DB::Exception: Code: 164. DB::Exception: Cannot modify 'a' (X) setting. (READONLY) "
        "(version 26.9.2.1 (official build)). (READONLY)"
    )
    error = SqlError.of_engine(RuntimeError(text))
    assert str(error) == "Code: 164. DB::Exception: Cannot modify 'a' (X) setting. (READONLY)"


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
