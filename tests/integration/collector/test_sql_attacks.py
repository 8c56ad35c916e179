"""Statements that try to read what is not the store, to change it, or to get around the bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .running import Answer, RunningCollector, fetch, make_spans
from .test_sql_endpoint import url

SPANS = 20
SECRET = "the secret of the machine"


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secret") / "secret.txt"
    file.write_text(SECRET)
    return file


@pytest.fixture(scope="module")
def filled(collector: RunningCollector) -> Iterator[RunningCollector]:
    assert collector.post(make_spans(SPANS).SerializeToString()).status == 200
    collector.wait_stored(SPANS)
    yield collector
    assert collector.sql("SELECT count() FROM otel_traces") == [[SPANS]]
    assert collector.sql("SELECT 1") == [[1]]


def ask(collector: RunningCollector, query: str, **params: Any) -> Answer:
    return fetch(url(collector, **params), query.encode())


FORBIDDEN = [
    # Files, by every way to write a name.
    "SELECT * FROM file('{secret}', 'LineAsString')",
    "SELECT * FROM/**/file/**/('{secret}', LineAsString)",
    "SELECT * FROM `file`('{secret}', 'LineAsString')",
    'SELECT * FROM "file"($${secret}$$, $$LineAsString$$)',
    "SELECT file($heredoc${secret}$heredoc$)",
    "SELECT FILE('{secret}')",
    "select -- ' \n file /* \" */ ( '{secret}' ) # `",
    "SELECT arrayMap(x -> file(x), ['{secret}'])",
    "SELECT * APPLY(file) FROM (SELECT '{secret}')",
    "SELECT * APPLY(x -> file(x)) FROM (SELECT '{secret}')",
    "SELECT COLUMNS('.') APPLY(`file`) FROM (SELECT '{secret}')",
    "SELECT * REPLACE(file(a) AS a) FROM (SELECT '{secret}' AS a)",
    "WITH file('{secret}') AS x SELECT x",
    "WITH (SELECT file('{secret}')) AS x SELECT x",
    "WITH '{secret}' AS p SELECT file(p)",
    "WITH x AS (SELECT * FROM file('{secret}', 'LineAsString')) SELECT * FROM x",
    "SELECT 1 WHERE 'a' IN (SELECT line FROM file('{secret}', 'LineAsString'))",
    "SELECT 1 ORDER BY file('{secret}')",
    "SELECT 1 FROM (SELECT 1 AS a) GROUP BY file('{secret}') HAVING file('{secret}') != ''",
    "SELECT sum(1) OVER (PARTITION BY file('{secret}'))",
    "SELECT 1 LIMIT length(file('{secret}'))",
    "SELECT * FROM view(SELECT file('{secret}'))",
    "SELECT * FROM view(SELECT * FROM file('{secret}', 'LineAsString'))",
    "SELECT * FROM viewExplain('EXPLAIN', '', (SELECT file('{secret}')))",
    "SELECT * FROM (EXPLAIN SELECT file('{secret}'))",
    "SELECT * FROM viewIfPermitted(SELECT 1 ELSE null('x Int8'))",
    "SELECT 1 UNION ALL SELECT * FROM file('{secret}', 'LineAsString')",
    "SELECT 1 INTERSECT SELECT length(file('{secret}'))",
    "EXPLAIN SELECT file('{secret}')",
    "EXPLAIN PIPELINE SELECT * FROM file('{secret}', 'LineAsString')",
    "EXPLAIN QUERY TREE SELECT (SELECT file('{secret}'))",
    "EXPLAIN TABLE OVERRIDE mysql('127.0.0.1:1', 'd', 't', 'u', 'p') COLUMNS (a Int8)",
    "DESCRIBE file('{secret}')",
    "DESCRIBE (SELECT file('{secret}'))",
    "DESCRIBE TABLE s3('http://127.0.0.1:1/x')",
    "SELECT * FROM default.`{secret}`",
    "SELECT * FROM `default`.`{secret}`",
    "SELECT * FROM filesystem('/')",
    "SELECT 1 IN `default`.`{secret}`",
    "SHOW CREATE TABLE default.`{secret}`",
    "EXISTS TABLE default.`{secret}`",
    "SHOW TABLES FROM default",
    "SHOW COLUMNS FROM `{secret}` FROM default",
    # Other servers, programs, languages.
    "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
    "SELECT * FROM remote('127.0.0.1', system.one)",
    "SELECT * FROM remoteSecure('127.0.0.1', system.one)",
    "SELECT * FROM cluster('default', system.one)",
    "SELECT * FROM clusterAllReplicas('default', system, one)",
    "SELECT * FROM mysql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "SELECT * FROM postgresql('127.0.0.1:1', 'd', 't', 'u', 'p')",
    "SELECT * FROM sqlite('{secret}', 't')",
    "SELECT * FROM jdbc('x', 'y', 'z')",
    "SELECT * FROM hdfs('hdfs://127.0.0.1:1/x', 'TSV')",
    "SELECT * FROM executable('id', 'TSV', 'a String')",
    "SELECT * FROM python('x')",
    "SELECT * FROM eval('SELECT 1')",
    "SELECT * FROM loop(promptpath.otel_traces) LIMIT 1",
    "SELECT * FROM merge('.*', '.*')",
    "SELECT * FROM merge('promptpath', 'prompts_rows')",
    "SELECT * FROM mergeTreeIndex(promptpath, otel_traces)",
    "SELECT * FROM mergeTreeProjection(promptpath, otel_traces, x)",
    "SELECT * FROM dictionary('x')",
    "SELECT * FROM format(LineAsString, 'x')",
    "SELECT * FROM fuzzQuery('SELECT 1')",
    "SELECT * FROM input('a Int8')",
    "SELECT dictGet('d', 'a', 1)",
    "SELECT dictGetOrDefault('d', 'a', 1, 2)",
    "SELECT DICTHAS('d', 1)",
    "SELECT joinGet('promptpath.prompts_rows', 'model', 1)",
    "SELECT hasColumnInTable('127.0.0.1', 'u', 'p', 'd', 't', 'c')",
    "SELECT catboostEvaluate('{secret}', 1)",
    "SELECT aiGenerate('x')",
    "SELECT AIGenerate('x')",
    "SELECT getMacro('x'), serverUUID()",
    "SELECT getServerSetting('path')",
    "SELECT addressToSymbol(1)",
    "SELECT __getScalar('x')",
    "SELECT naiveBayesClassifier('{secret}', 'x')",
    # Writing, and the rest of what is no reading.
    "INSERT INTO otel_traces SELECT * FROM otel_traces",
    "EXPLAIN INSERT INTO otel_traces SELECT * FROM otel_traces",
    "EXPLAIN CREATE TABLE x (a Int8) ENGINE = Memory",
    "CREATE FUNCTION f AS x -> file(x)",
    "CREATE DICTIONARY d (a Int8) PRIMARY KEY a SOURCE(FILE(path '{secret}' format 'TSV')) LAYOUT(FLAT()) LIFETIME(1)",
    "CREATE USER x",
    "GRANT ALL ON *.* TO default",
    "ATTACH TABLE x FROM '/' (a Int8) ENGINE = File('TSV')",
    "DETACH TABLE otel_traces",
    "RENAME TABLE otel_traces TO x",
    "EXCHANGE TABLES otel_traces AND otel_logs",
    "DELETE FROM otel_traces WHERE 1",
    "UPDATE otel_traces SET SpanName = '' WHERE 1",
    "MOVE USER x TO y",
    "CHECK TABLE otel_traces",
    "SYSTEM RELOAD DICTIONARIES",
    "SYSTEM STOP MERGES",
    "KILL MUTATION WHERE 1",
    "BEGIN TRANSACTION",
    "SET max_memory_usage = 0",
    "SET ROLE NONE",
    "USE system",
    "WATCH x",
    "UNDROP TABLE x",
    "EXECUTE AS x SELECT 1",
    "SELECT 1 SETTINGS max_memory_usage = 0",
    "SELECT 1 FORMAT JSON SETTINGS max_result_rows = 0",
    "SELECT * FROM (SELECT 1 SETTINGS max_execution_time = 0)",
    "SELECT 1 SETTINGS additional_table_filters = {}",
    "SELECT * FROM (SELECT * FROM otel_traces SETTINGS additional_table_filters = {})",
    "SELECT 1 IN (SELECT 1 SETTINGS max_threads = 1)",
    "WITH x AS (SELECT 1 SETTINGS max_threads = 1) SELECT * FROM x",
    "SELECT 1 UNION ALL SELECT 2 SETTINGS max_threads = 1",
    "EXPLAIN SELECT 1 SETTINGS max_threads = 1",
    "EXPLAIN SELECT 1 FORMAT JSON SETTINGS max_threads = 1",
    "SHOW TABLES SETTINGS max_threads = 1",
    # What of the engine and the store is not for callers.
    "SELECT * FROM system.processes",
    "SELECT * FROM `system`.`processes`",
    'SELECT * FROM "system"."processes"',
    "SELECT * FROM system . processes",
    "SELECT * FROM system./**/processes",
    "SELECT * FROM system.\nprocesses",
    "SELECT x.query FROM system.processes AS x",
    "SELECT 'x' IN system.processes",
    "SELECT in('x', system.processes)",
    "SELECT globalNotIn('x', system.processes)",
    "SELECT * APPLY(x -> x IN system.processes) FROM (SELECT 1)",
    "SELECT * FROM prompts JOIN system.processes AS p ON 1",
    "SELECT * FROM numbers(1) AS n, system.processes",
    "SELECT * FROM system.users",
    "SELECT * FROM system.query_log",
    "SELECT * FROM system.disks",
    "SELECT * FROM system.server_settings",
    "SELECT * FROM system.clusters",
    "SELECT * FROM system.dictionaries",
    "SELECT * FROM system.stack_trace",
    "SELECT * FROM system.contributors",
    "DESCRIBE system.processes",
    "SHOW CREATE TABLE system.processes",
    "SHOW PROCESSLIST",
    "SHOW ACCESS",
    "SHOW GRANTS",
    "SHOW USERS",
    "SHOW CLUSTERS",
    "SHOW FILESYSTEM CACHES",
    "SHOW DICTIONARIES",
    "SELECT * FROM prompts_rows",
    "SELECT * FROM promptpath.`prompts_rows`",
    "SELECT 1 IN prompts_rows",
    "SELECT * FROM otlp_traces",
    "WITH prompts_rows AS (SELECT 1) SELECT * FROM (SELECT * FROM promptpath.prompts_rows)",
    "SHOW CREATE TABLE prompts_rows",
    "SELECT 1 AS `x\n TableIdentifier y`",
    "SELECT * FROM _temporary_and_external_tables.x",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_nothing_gets_out_of_the_store(filled: RunningCollector, secret: Path, statement: str) -> None:
    answer = ask(filled, statement.replace("{secret}", str(secret)))
    assert 400 <= answer.status < 500 or answer.status == 501, answer.body
    assert SECRET.encode() not in answer.body
    assert answer.body.count(b"DB::Exception") == 1, answer.body
    assert b"127.0.0.1:1/" not in answer.body or b"onnection" not in answer.body, "it was tried"
    code = answer.headers["x-clickhouse-exception-code"]
    # READONLY, ACCESS_DENIED, NOT_IMPLEMENTED, UNKNOWN_DATABASE; SYNTAX_ERROR and UNKNOWN_TABLE where there is no such.
    assert code in ("164", "497", "48", "81", "62", "60", "46"), answer.body


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("SELECT * FROM {t:Identifier}", {"param_t": "system.processes"}),
        ("SELECT * FROM {d:Identifier}.{t:Identifier}", {"param_d": "system", "param_t": "processes"}),
        ("SELECT * FROM {d:Identifier}.{t:Identifier}", {"param_d": "default", "param_t": "/etc/hostname"}),
        ("SELECT 1 IN {t:Identifier}", {"param_t": "system.processes"}),
        ("SELECT * FROM {t:Identifier}", {"param_t": "prompts_rows"}),
        ("SELECT * FROM {t:Identifier}", {"param_t": "one\\n TableIdentifier system.one"}),
        ("SELECT {f:Identifier}('/etc/hostname')", {"param_f": "file"}),
        ("SELECT * FROM processes", {"database": "system"}),
        ("SELECT 1 IN processes", {"database": "system"}),
        ("SELECT * FROM `/etc/hostname`", {"database": "default"}),
        ("SELECT * FROM `/etc/hostname`", {}),
    ],
)
def test_neither_parameters_nor_the_current_database_lead_out(
    filled: RunningCollector, query: str, params: dict[str, str]
) -> None:
    answer = ask(filled, query, **params)
    assert 400 <= answer.status < 500, answer.body


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dialect", "prql"),
        ("additional_table_filters", "{}"),
        ("additional_result_filter", "1"),
        ("format_schema", "/etc/hostname:x"),
        ("format_template_row", "/etc/hostname"),
        ("output_format_schema", "/tmp/out.proto"),
        ("allow_experimental_analyzer", "0"),
        ("enable_analyzer", "0"),
        ("compatibility", "21.1"),
        ("profile", "default"),
        ("enable_parallel_replicas", "1"),
        ("s3_max_connections", "1"),
        ("max_bytes_before_external_sort", "1"),
        ("use_query_condition_cache", "1"),
        ("ai_max_tokens_per_query", "1"),
        ("storage_file_read_method", "mmap"),
    ],
)
def test_settings_that_are_not_for_callers(filled: RunningCollector, name: str, value: str) -> None:
    answer = ask(filled, "SELECT 1", **{name: value})
    assert answer.status in (403, 404), answer.body  # 404: the engine has no such setting


@pytest.mark.parametrize("settings", [{"limit": 1}, {"offset": 5}, {"limit": 1, "offset": 1}])
def test_settings_that_cut_answers_do_not_cut_what_is_checked(
    filled: RunningCollector, settings: dict[str, Any]
) -> None:
    assert ask(filled, "SELECT * FROM system.processes", **settings).status == 403
    assert ask(filled, "SELECT 1, (SELECT count() FROM prompts_rows)", **settings).status == 403


@pytest.mark.parametrize("name", ["readonly", "use_query_cache", "allow_ddl", "log_comment", "implicit_select"])
def test_settings_that_are_read_over(filled: RunningCollector, name: str) -> None:
    assert ask(filled, "SELECT 1", **{name: "1"}).body == b"1\n"
    assert ask(filled, "1", **{name: "1"}).status == 400
    assert ask(filled, "CREATE TABLE x (a Int8) ENGINE = Memory", **{name: "0"}).status == 403


@pytest.mark.parametrize(
    "query",
    [
        "SELECT file FROM (SELECT 'x' AS file)",
        "SELECT 'SELECT * FROM file()', 'INTO OUTFILE', '''`'",
        "WITH system AS (SELECT 1 AS processes) SELECT processes FROM system",
        "SELECT system.processes FROM (SELECT 1 AS processes) AS s, (SELECT 2 AS one) AS system_",
        "SELECT number FROM numbers(3) WHERE number IN (SELECT number FROM numbers_mt(2))",
        "SELECT * FROM generateSeries(1, 3)",
        "SELECT * FROM view(SELECT count() FROM otel_traces)",
        "SELECT * FROM values('a Int8', 1, 2)",
        "SELECT * APPLY(toString) FROM (SELECT 1)",
        "SELECT COLUMNS('T') APPLY(max) FROM otel_traces",
        "SELECT format('{} {}', 'a', 'b'), url(1) FROM (SELECT 1) WHERE 0",
        "SELECT count() FROM information_schema.tables",
        "SELECT TABLE_NAME FROM INFORMATION_SCHEMA.COLUMNS LIMIT 1",
        "SELECT name FROM system.tables WHERE database = 'promptpath'",
        "SELECT name, type FROM system.columns WHERE table = 'prompts'",
        "SELECT count() FROM system.parts",
        "SHOW TABLES",
        "SHOW FULL TABLES FROM promptpath LIKE 'otel%'",
        "SHOW DATABASES",
        "SHOW COLUMNS FROM prompts",
        "SHOW CREATE TABLE otel_traces",
        "SHOW CREATE VIEW prompts",
        "SHOW FUNCTIONS LIKE 'count'",
        "SHOW SETTINGS LIKE 'max_threads'",
        "SHOW INDEXES FROM otel_traces",
        "EXISTS TABLE prompts",
        "EXISTS DATABASE system",
        "DESCRIBE prompts",
        "DESC TABLE (SELECT 1)",
        "EXPLAIN SELECT count() FROM prompts",
        "EXPLAIN indexes = 1 SELECT * FROM otel_traces WHERE TraceId = 'x'",
        "EXPLAIN AST SELECT 1",
        "EXPLAIN SYNTAX SELECT 1",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT 1 FORMAT JSON",
        "SELECT 1;",
        "SELECT * FROM trace_join_keys AS t FINAL WHERE 0",
        "SELECT `a.b` FROM (SELECT 1 AS `a.b`)",
    ],
)
def test_what_reads_the_store_is_let_through(filled: RunningCollector, query: str) -> None:
    answer = ask(filled, query)
    if "system.processes FROM (SELECT" in query or "url(1)" in query:
        assert answer.status in (403, 404)  # a column like a table of the engine: refused rather than guessed
        return
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
        "SELECT " + "-" * 100_000 + "1",
        "SELECT " + "[" * 50_000,
        "SELECT " + "a." * 50_000 + "a",
        "SELECT " + "x -> " * 20_000 + "1",
        "SELECT " + "NOT " * 50_000 + "1",
        "SELECT * FROM " + "(SELECT * FROM " * 5_000 + "numbers(1)" + ")" * 5_000,
        "SELECT " + " + ".join(["1"] * 100_000),
        "SELECT 1 IN (" + ",".join(["1"] * 400_000) + ")",
        "SELECT '" + "x" * 2_000_000 + "'",
        "SELECT 1 " + "UNION ALL SELECT 1 " * 20_000,
        "WITH " + ", ".join(f"x{n} AS (SELECT * FROM x{n - 1}, x{n - 1})" for n in range(1, 40)) + " SELECT * FROM x39",
        "SELECT " + "CASE WHEN 1 THEN " * 5_000 + "1" + " END" * 5_000,
        "/*" * 100_000,
        "\\" * 100_000,
        "\u202e" * 10_000,
        "SELECT `" + "`" * 99_999,
        "SELECT * FROM system.one " * 10_000,
        "{" * 10_000,
        "SELECT {x:" + "Array(" * 10_000 + "Int8" + ")" * 10_000 + "}",
    ],
    ids=lambda query: query[:24].replace(" ", "_"),
)
def test_statements_that_are_huge_or_deep_are_refused_and_do_no_harm(filled: RunningCollector, query: str) -> None:
    answer = ask(filled, query)
    assert answer.status != 200
    assert answer.body.count(b"DB::Exception") == 1, answer.body[:2000]
    assert filled.sql("SELECT 1") == [[1]]


def test_bodies_that_are_no_queries(filled: RunningCollector) -> None:
    bound = "multipart/form-data; boundary=x"
    part = b'--x\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT 1\r\n--x--\r\n'
    table = b'--x\r\nContent-Disposition: form-data; name="t"; filename="t"\r\n\r\n1\n\r\n--x--\r\n'
    for body, headers, status in (
        (part, {"Content-Type": bound}, 200),
        (table, {"Content-Type": bound}, 501),
        (part[:40], {"Content-Type": bound}, 400),
        (b"x", {"Content-Type": "multipart/form-data"}, 400),
        (b"SELECT '\xff'", {}, 400),
        (b"SELECT 1\0", {}, 400),
        (b"", {}, 400),
        (b"SELECT 1", {"Content-Encoding": "gzip"}, 400),
        (b"SELECT 1", {"Content-Encoding": "lz4"}, 400),
        (b"SELECT 1", {"Content-Encoding": "nope"}, 400),
    ):
        answer = fetch(url(filled), body, headers)
        assert answer.status == status, (body, answer.body)
