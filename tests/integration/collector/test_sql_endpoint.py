"""The SQL endpoint, by the clients that will use it."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import clickhouse_connect
import lz4.frame
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from promptpath import storage

from .running import RunningCollector, fetch, make_spans

SPANS = 50


@pytest.fixture(scope="module")
def filled(collector: RunningCollector) -> RunningCollector:
    assert collector.post(make_spans(SPANS).SerializeToString()).status == 200
    collector.wait_stored(SPANS)
    return collector


@pytest.fixture
def client(filled: RunningCollector) -> Iterator[Client]:
    opened = clickhouse_connect.get_client(host="127.0.0.1", port=filled.ports.sql, database="promptpath")
    yield opened
    opened.close()


def url(collector: RunningCollector, query: str = "", **params: Any) -> str:
    parts = ([f"query={quote(query)}"] if query else []) + [
        f"{key}={quote(str(value))}" for key, value in params.items()
    ]
    return f"http://127.0.0.1:{collector.ports.sql}/?{'&'.join(parts)}"


# --- clickhouse-connect -----------------------------------------------------------------------------------------------


def test_query_in_every_form(client: Client) -> None:
    query = "SELECT SpanName, toUnixTimestamp64Nano(Timestamp) AS ns FROM otel_traces ORDER BY ns LIMIT 2"
    expected = [("chat", 1_760_000_000_000_000_001), ("chat", 1_760_000_000_000_000_002)]
    assert client.query(query).result_rows == expected
    assert client.query_arrow(query).to_pydict() == {"SpanName": ["chat"] * 2, "ns": [ns for _, ns in expected]}
    assert client.query_df(query).values.tolist() == [list(row) for row in expected]
    assert client.query_np(query)["ns"].tolist() == [ns for _, ns in expected]
    with client.query_rows_stream(query) as stream:
        assert list(stream) == expected
    assert client.raw_query(query, fmt="CSV") == b'"chat",1760000000000000001\n"chat",1760000000000000002\n'


def test_commands_ping_and_server_facts(client: Client) -> None:
    assert client.ping()
    assert client.command("SELECT count() FROM otel_traces") == SPANS
    assert client.command("SELECT currentDatabase()") == "promptpath"
    assert client.server_version == client.command("SELECT version()")
    assert "otel_traces" in client.command("SHOW TABLES").split()
    assert client.query("EXISTS TABLE prompts").result_rows == [(1,)]
    assert client.query("SELECT * FROM otel_traces LIMIT 0").column_names[0] == "Timestamp"


def test_parameters(client: Client) -> None:
    values = {"text": "it's \\ a\ttab\nand 日本", "number": -5, "list": [1, 2], "none": None}
    query = "SELECT {text:String}, {number:Int64}, {list:Array(UInt8)}, {none:Nullable(String)}"
    assert client.query(query, parameters=values).result_rows == [(values["text"], -5, [1, 2], None)]
    assert client.query(
        "SELECT count() FROM otel_traces WHERE SpanName = %(name)s", parameters={"name": "chat"}
    ).result_rows == [(SPANS,)]


def test_long_parameters_come_as_a_form(client: Client) -> None:
    text = "x" * 20_000
    assert client.query("SELECT {text:String}", parameters={"text": text}).result_rows == [(text,)]


def test_settings_are_applied(client: Client) -> None:
    assert client.query("SELECT getSetting('max_threads')", settings={"max_threads": 3}).result_rows == [(3,)]
    assert client.query("SELECT getSetting('max_block_size')", settings={"max_block_size": 100}).result_rows == [(100,)]
    with pytest.raises(DatabaseError, match="UNKNOWN_SETTING"):
        client.raw_query("SELECT 1", settings={"no_such_setting_at_all": 1}, transport_settings=None)


@pytest.mark.parametrize("compress", [True, False, "gzip", "lz4", "zstd", "deflate"])
def test_compressed_answers(filled: RunningCollector, compress: bool | str) -> None:
    opened = clickhouse_connect.get_client(host="127.0.0.1", port=filled.ports.sql, compress=compress)
    rows = opened.query("SELECT number, repeat('x', 100) FROM numbers(20000)").result_rows
    assert (len(rows), rows[-1]) == (20_000, (19_999, "x" * 100))
    opened.close()


async def test_the_async_client(filled: RunningCollector) -> None:
    async with await clickhouse_connect.get_async_client(
        host="127.0.0.1", port=filled.ports.sql, database="promptpath"
    ) as opened:
        assert await opened.ping()
        assert (await opened.query("SELECT count() FROM otel_traces")).result_rows == [(SPANS,)]
        assert (await opened.query_arrow("SELECT {n:UInt8} AS n", parameters={"n": 3})).to_pydict() == {"n": [3]}
        with pytest.raises(DatabaseError, match="READONLY"):
            await opened.command("DROP TABLE otel_traces")


def test_storage_connects_to_it_like_to_a_server(filled: RunningCollector) -> None:
    reader = storage.connect(filled.collector.sql_url, readonly=True)
    assert reader.query("SELECT count() FROM otel_traces").result_rows == [(SPANS,)]
    reader.close()


def test_many_clients_at_once(filled: RunningCollector) -> None:
    def ask(n: int) -> Any:
        opened = clickhouse_connect.get_client(host="127.0.0.1", port=filled.ports.sql)
        try:
            return opened.query(f"SELECT {n}, count() FROM promptpath.otel_traces").result_rows
        finally:
            opened.close()

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(40))) == [[(n, SPANS)] for n in range(40)]


# --- read-only and bounded --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO otel_traces (TraceId) VALUES ('x')",
        "INSERT INTO FUNCTION file('{out}') SELECT 1",
        "CREATE TABLE t (a Int8) ENGINE = Memory",
        "CREATE TEMPORARY TABLE t (a Int8)",
        "DROP TABLE otel_traces",
        "TRUNCATE TABLE otel_traces",
        "ALTER TABLE otel_traces DELETE WHERE 1",
        "OPTIMIZE TABLE otel_traces",
        "SYSTEM SHUTDOWN",
        "KILL QUERY WHERE 1",
        "SET readonly = 0",
        "USE default",
        "BACKUP TABLE otel_traces TO File('{out}')",
        "SELECT * FROM file('/etc/hostname', 'LineAsString')",
        "SELECT file('/etc/hostname')",
        "SELECT `file`('/etc/hostname')",
        "SELECT /* '*/ file /* ' */ ('/etc/hostname')",
        "SELECT `a'b`, file('/etc/hostname') FROM (SELECT 1 AS `a'b`) WHERE 'c' = 'c'",
        "SELECT “file”('/etc/hostname')",
        "SELECT * FROM default.`/etc/hostname`",
        "DESCRIBE TABLE file('/etc/hostname')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT * FROM s3('http://127.0.0.1:1/bucket/x')",
        "SELECT * FROM remote('127.0.0.1:9000', 'system.one')",
        "SELECT * FROM executable('id', 'TSV', 'a String')",
        "SELECT * FROM python('x')",
        "SELECT * FROM eval('SELECT 1')",
        "SELECT hasColumnInTable('127.0.0.1', 'u', 'p', 'd', 't', 'c')",
        "EXPLAIN SELECT file('/etc/hostname')",
        "SELECT 1 SETTINGS readonly = 0",
    ],
)
def test_whatever_is_not_reading_the_store_is_refused(filled: RunningCollector, tmp_path: Path, statement: str) -> None:
    out = tmp_path / "out"
    answer = fetch(url(filled), statement.replace("{out}", str(out)).encode())
    assert (answer.status, answer.headers["x-clickhouse-exception-code"]) == (403, "164"), answer.body
    assert answer.body.startswith(b"Code: 164. DB::Exception: ")
    assert b"(READONLY)" in answer.body
    assert not out.exists()
    assert filled.sql("SELECT count() FROM otel_traces") == [[SPANS]]


@pytest.mark.parametrize("query", ["SELECT 1 INTO OUTFILE '{out}'", "SELECT 1 into /**/ outfile '{out}' format CSV"])
def test_nothing_is_written_to_files(filled: RunningCollector, tmp_path: Path, query: str) -> None:
    out = tmp_path / "out"
    answer = fetch(url(filled), query.replace("{out}", str(out)).encode())
    assert (answer.status, answer.headers["x-clickhouse-exception-code"]) == (501, "48")
    assert not out.exists()


@pytest.mark.parametrize(
    ("query", "params", "status", "name"),
    [
        ("SELECT sum(number) FROM numbers(100000000000)", {}, 500, "TOO_MANY_ROWS"),
        ("SELECT number FROM numbers(30000000)", {"wait_end_of_query": 1}, 500, "TOO_MANY_ROWS_OR_BYTES"),
        (
            "SELECT number FROM numbers(100)",
            {"max_result_rows": 10, "max_block_size": 5},
            500,
            "TOO_MANY_ROWS_OR_BYTES",
        ),
        (
            "SELECT number FROM numbers(30000000)",
            {"max_result_rows": 0, "wait_end_of_query": 1},
            500,
            "TOO_MANY_ROWS_OR_BYTES",
        ),
        (
            "SELECT number FROM numbers(30000000)",
            {"max_result_rows": 99999999, "wait_end_of_query": 1},
            500,
            "TOO_MANY_ROWS_OR_BYTES",
        ),
        (
            "SELECT sleepEachRow(0.1) FROM numbers(50)",
            {"max_execution_time": 0.3, "max_block_size": 1},
            408,
            "TIMEOUT_EXCEEDED",
        ),
        (
            "SELECT groupArray(number) FROM numbers(100000000)",
            {"max_memory_usage": 50_000_000},
            500,
            "MEMORY_LIMIT_EXCEEDED",
        ),
        ("SELECT " + "(" * 2000 + "1" + ")" * 2000, {}, 500, "TOO_DEEP_RECURSION"),
    ],
)
def test_a_query_over_a_limit_is_a_clear_error(
    filled: RunningCollector, query: str, params: dict[str, Any], status: int, name: str
) -> None:
    """langfuse#7986, #7764: every query is bounded; a caller may lower a limit, not raise it."""
    answer = fetch(url(filled, **params), query.encode())
    assert (answer.status, f"({name})".encode() in answer.body) == (status, True), answer.body
    assert filled.sql("SELECT 1") == [[1]]


@pytest.mark.parametrize(
    ("query", "code", "status"),
    [
        ("SELECT", "62", 400),
        ("SELECT 1; SELECT 2", "62", 400),
        ("nonsense", "62", 400),
        ("SELECT nope", "47", 404),
        ("SELECT * FROM nope", "60", 404),
        ("SELECT nope(1)", "46", 404),
        ("SELECT 1 FORMAT Nope", "73", 404),
        ("SELECT {x:UInt8}", "456", 400),
        ("SELECT toUInt8('x')", "6", 400),
    ],
)
def test_errors_are_as_clickhouse_gives_them(
    client: Client, filled: RunningCollector, query: str, code: str, status: int
) -> None:
    answer = fetch(url(filled), query.encode())
    assert (answer.headers["x-clickhouse-exception-code"], answer.status) == (code, status), answer.body
    assert answer.body.startswith(f"Code: {code}. DB::Exception: ".encode())
    assert f"(version {client.server_version})".encode() in answer.body


# --- plain HTTP -------------------------------------------------------------------------------------------------------


def test_curl(filled: RunningCollector) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl here")
    done = subprocess.run(
        [curl, "-sS", f"http://127.0.0.1:{filled.ports.sql}/?query=SELECT+1"],
        capture_output=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == b"1\n"
    done = subprocess.run(
        [curl, "-sS", f"http://127.0.0.1:{filled.ports.sql}/", "--data", "SELECT 2"],
        capture_output=True,
        check=True,
        timeout=20,
    )
    assert done.stdout == b"2\n"


def test_ping_and_the_empty_root(filled: RunningCollector) -> None:
    base = f"http://127.0.0.1:{filled.ports.sql}"
    assert fetch(f"{base}/ping").body == b"Ok.\n"
    assert fetch(f"{base}/replicas_status").body == b"Ok.\n"
    assert fetch(f"{base}/").body == b"Ok.\n"


def test_the_query_is_the_parameter_and_then_the_body(filled: RunningCollector) -> None:
    assert fetch(url(filled, "SELECT"), b"1 + 1").body == b"2\n"
    assert fetch(url(filled, "SELECT 3 AS x FORMAT JSONEachRow")).body == b'{"x":3}\n'
    assert fetch(url(filled, "SELECT {x:String}", param_x="a\\tb")).body == b"a\\tb\n"


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("lz4", lz4.frame.compress), ("identity", bytes)]
)
def test_compressed_queries(filled: RunningCollector, encoding: str, compress: Any) -> None:
    assert fetch(url(filled), compress(b"SELECT 1"), {"Content-Encoding": encoding}).body == b"1\n"


def test_a_query_that_is_a_bomb(filled: RunningCollector) -> None:
    for encoding, compress in (("gzip", gzip.compress), ("lz4", lz4.frame.compress)):
        answer = fetch(url(filled), compress(b"SELECT 1 " + b" " * (20 << 20)), {"Content-Encoding": encoding})
        assert (answer.status, b"(QUERY_IS_TOO_LARGE)" in answer.body) == (413, True)


def test_formats_and_headers(filled: RunningCollector) -> None:
    query = "SELECT 1 AS a, 'x' AS b"
    for where, answer in {
        "in the query": fetch(url(filled, f"{query} FORMAT JSON", query_id="q-1")),
        "parameter": fetch(url(filled, query, default_format="JSON", query_id="q-1")),
        "header": fetch(url(filled, query, query_id="q-1"), headers={"X-ClickHouse-Format": "JSON"}),
    }.items():
        assert json.loads(answer.body)["data"] == [{"a": 1, "b": "x"}], where
        assert answer.headers["x-clickhouse-format"] == "JSON", where
        assert answer.headers["content-type"] == "application/json; charset=UTF-8", where
        assert answer.headers["x-clickhouse-query-id"] == "q-1", where
        assert json.loads(answer.headers["x-clickhouse-summary"])["read_rows"] == "1", where
        assert answer.headers["x-clickhouse-timezone"], where
    for name in ("ArrowTable", "DataFrame", "no such", "debug"):
        assert fetch(url(filled, "SELECT 1", default_format=name)).status == 404


@pytest.mark.parametrize("query_id", ["a\r\nX-Evil: 1", "\u4f60", " ", "x" * 10_000])
def test_a_query_id_that_is_no_header_is_replaced(filled: RunningCollector, query_id: str) -> None:
    response = fetch(url(filled, "SELECT 1", query_id=query_id))
    assert (response.status, response.body) == (200, b"1\n")
    assert len(response.headers["x-clickhouse-query-id"]) == 36
    assert "x-evil" not in response.headers


def test_the_database_can_be_chosen(filled: RunningCollector) -> None:
    assert fetch(url(filled, "SELECT currentDatabase()", database="system")).body == b"system\n"
    header = {"X-ClickHouse-Database": "system"}
    assert fetch(url(filled, "SELECT currentDatabase()"), headers=header).body == b"system\n"
    assert fetch(url(filled, "SELECT 1", database="nope")).status == 404


def test_a_web_page_cannot_read_through_a_name_of_its_own(filled: RunningCollector) -> None:
    assert filled.ports.sql is not None
    for host, status in (("evil.example", 403), (f"localhost:{filled.ports.sql}", 200), ("127.0.0.1", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", filled.ports.sql, timeout=20)
        connection.request("GET", "/?query=SELECT+1", headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()


def test_the_native_compression_of_old_clients_is_refused_with_the_reason(filled: RunningCollector) -> None:
    answer = fetch(url(filled, "SELECT 1", compress=1))
    assert (answer.status, b"use Accept-Encoding" in answer.body) == (501, True)
