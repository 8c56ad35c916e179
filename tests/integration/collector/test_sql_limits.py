"""Bounds of a collector's own choice, and one tenant's view of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from promptpath import storage
from promptpath.collector.sql_engine import Question, SqlEngine
from promptpath.collector.sql_errors import SqlError
from promptpath.collector.sql_settings import SqlLimits

from .running import RunningCollector, fetch
from .test_sql_endpoint import url


def test_an_operator_s_limits_hold_and_callers_may_ask_for_less(tmp_path: Path) -> None:
    limits = SqlLimits(result_rows=100, seconds=1.0, memory_bytes=50_000_000)
    with RunningCollector(tmp_path, sql_limits=limits) as collector:
        for query, params, name in (
            ("SELECT number FROM numbers(101)", {}, b"TOO_MANY_ROWS_OR_BYTES"),
            ("SELECT number FROM numbers(101)", {"max_result_rows": 1000}, b"TOO_MANY_ROWS_OR_BYTES"),
            (
                "SELECT number FROM numbers(60)",
                {"max_result_rows": 50, "max_block_size": 10},
                b"TOO_MANY_ROWS_OR_BYTES",
            ),
            ("SELECT sleepEachRow(0.2) FROM numbers(20)", {"max_block_size": 1}, b"TIMEOUT_EXCEEDED"),
            ("SELECT sleepEachRow(0.2) FROM numbers(20)", {"max_block_size": 1, "max_execution_time": 9}, b"TIMEOUT"),
            ("SELECT groupArray(number) FROM numbers(20000000)", {}, b"MEMORY_LIMIT_EXCEEDED"),
            ("SELECT groupArray(number) FROM numbers(20000000)", {"max_memory_usage": 0}, b"MEMORY_LIMIT_EXCEEDED"),
        ):
            answer = fetch(url(collector, **params), query.encode())
            assert name in answer.body, (query, params, answer)
        assert collector.sql("SELECT getSetting('max_execution_time')", max_execution_time="0.5") == [[0.5]]
        assert collector.sql("SELECT count() FROM numbers(1000000)") == [[1_000_000]]


SCHEMA = """
CREATE TABLE otel_traces (TraceId String, n Int32, Tenant String) ENGINE = MergeTree ORDER BY n
CREATE TABLE prompts_rows (id Int32, model String, token_tenant String) ENGINE = ReplacingMergeTree ORDER BY id
CREATE VIEW prompts AS SELECT * FROM prompts_rows FINAL
CREATE VIEW workflows AS SELECT model, count() AS calls, (SELECT max(id) FROM prompts) AS newest FROM prompts GROUP BY 1
CREATE TABLE assembler_state (name String) ENGINE = MergeTree ORDER BY name
INSERT INTO otel_traces VALUES ('a1', 1, 'a'), ('b1', 2, 'b'), ('a2', 3, 'a'), ('b2', 4, 'b'), ('c', 9, '')
INSERT INTO prompts_rows VALUES (1, 'x', 'a'), (2, 'x', 'b'), (3, 'y', 'b'), (9, 'z', '')
INSERT INTO assembler_state VALUES ('main')
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlEngine]:
    directory = tmp_path_factory.mktemp("store")
    client = storage.connect(f"chdb://{directory}")
    for statement in SCHEMA.strip().splitlines():
        client.command(statement)
    opened = SqlEngine(directory, database="promptpath")
    yield opened
    opened.close()
    client.close()


def rows(engine: SqlEngine, query: str, tenant: str | None, **settings: str) -> list[str]:
    return engine.ask(Question(query, tenant=tenant, settings=settings)).decode().splitlines()


@pytest.mark.parametrize(
    ("query", "a", "b"),
    [
        ("SELECT TraceId FROM otel_traces ORDER BY n", ["a1", "a2"], ["b1", "b2"]),
        ("SELECT TraceId FROM promptpath.otel_traces AS t ORDER BY t.n", ["a1", "a2"], ["b1", "b2"]),
        ("SELECT TraceId FROM `promptpath`.`otel_traces` PREWHERE n > 0 ORDER BY n", ["a1", "a2"], ["b1", "b2"]),
        ("SELECT count() FROM otel_traces", ["2"], ["2"]),
        ("SELECT max(n), min(n) FROM otel_traces", ["3\t1"], ["4\t2"]),
        ("SELECT count() FROM otel_traces WHERE Tenant != 'a' OR 1", ["2"], ["2"]),
        ("SELECT (SELECT sum(n) FROM otel_traces)", ["4"], ["6"]),
        ("SELECT 9 IN (SELECT n FROM otel_traces), 3 IN (SELECT n FROM otel_traces)", ["0\t1"], ["0\t0"]),
        ("SELECT sum(n) FROM view(SELECT * FROM otel_traces)", ["4"], ["6"]),
        ("WITH prompts AS (SELECT * FROM otel_traces) SELECT sum(n) FROM prompts", ["4"], ["6"]),
        ("SELECT sum(a.n + b.n) FROM otel_traces AS a, otel_traces AS b", ["16"], ["24"]),
        (
            "SELECT * FROM (SELECT n FROM otel_traces UNION ALL SELECT id FROM prompts) ORDER BY 1",
            ["1", "1", "3"],
            ["2", "2", "3", "4"],
        ),
        ("SELECT id FROM prompts ORDER BY id", ["1"], ["2", "3"]),
        ("SELECT model, calls, newest FROM workflows ORDER BY 1", ["x\t1\t1"], ["x\t1\t3", "y\t1\t3"]),
        ("SELECT groupArray(model) FROM (SELECT model FROM workflows ORDER BY 1)", ["['x']"], ["['x','y']"]),
        ("SELECT n FROM otel_traces ORDER BY n LIMIT 1 BY Tenant", ["1"], ["2"]),
        ("SELECT uniqExact(Tenant) FROM otel_traces", ["1"], ["1"]),
    ],
)
def test_a_tenant_sees_its_own_rows_however_it_asks(engine: SqlEngine, query: str, a: list[str], b: list[str]) -> None:
    assert rows(engine, query, "a") == a
    assert rows(engine, query, "b") == b
    assert rows(engine, query, "a") == a  # nothing of b's answer is kept for it


def test_who_is_bound_to_no_tenant_sees_all(engine: SqlEngine) -> None:
    assert rows(engine, "SELECT count() FROM otel_traces", None) == ["5"]
    assert rows(engine, "SELECT count() FROM prompts", None) == ["4"]
    assert rows(engine, "SELECT name FROM assembler_state", None) == ["main"]


def test_a_tenant_s_name_is_text(engine: SqlEngine) -> None:
    for name in ("a' OR 1 OR '", "", "a\\", "x'}, 'y", "%"):
        assert rows(engine, "SELECT count() FROM otel_traces WHERE Tenant != ''", name) == ["0"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM prompts_rows",
        "SELECT * FROM assembler_state",
        "SELECT 1 IN assembler_state",
        "SELECT * FROM system.parts",
        "EXPLAIN ESTIMATE SELECT * FROM otel_traces",
        "EXPLAIN indexes = 1 SELECT * FROM otel_traces WHERE n = 9",
        "EXPLAIN QUERY TREE SELECT (SELECT count() FROM otel_traces)",
        "SELECT * FROM merge('promptpath', 'otel_traces')",
        "SELECT * FROM mergeTreeIndex(promptpath, otel_traces)",
        "SELECT * FROM loop(otel_traces) LIMIT 9",
        "SELECT * FROM remote('127.0.0.1', promptpath.otel_traces)",
        "SELECT * FROM otel_traces SETTINGS additional_table_filters = {}",
        "SELECT * FROM (SELECT * FROM otel_traces SETTINGS additional_table_filters = {})",
        "SELECT * FROM otel_traces SETTINGS enable_analyzer = 0",
    ],
)
def test_what_a_tenant_may_not_read_or_set(engine: SqlEngine, query: str) -> None:
    with pytest.raises(SqlError) as caught:
        rows(engine, query, "a")
    assert caught.value.http_status == 403


@pytest.mark.parametrize(
    "settings",
    [
        {"additional_table_filters": "{}"},
        {"enable_analyzer": "0"},
        {"allow_experimental_analyzer": "0"},
        {"compatibility": "23.1"},
        {"query_plan_enable_optimizations": "0"},
        {"optimize_trivial_count_query": "1"},
        {"optimize_use_implicit_projections": "1"},
        {"final": "1"},
        {"use_query_cache": "1"},
        {"limit": "9", "offset": "0"},
        {"optimize_move_to_prewhere": "0"},
        {"max_rows_to_read": "0"},
    ],
)
def test_no_setting_shows_a_tenant_more(engine: SqlEngine, settings: dict[str, str]) -> None:
    for tenant, expected in (("b", ["6\t2\t4"]), ("a", ["4\t2\t3"])):
        found: list[str] | int
        try:
            found = rows(engine, "SELECT sum(n), count(), max(n) FROM otel_traces", tenant, **settings)
        except SqlError as error:
            found = error.http_status
        assert found in (expected, 403)
