"""Answers of any size pass through; what nobody reads is stopped."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clickhouse_connect
import lz4.frame
import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError

from promptpath.collector.otlp.encoding import zstd_module

from .running import RunningCollector, fetch, wait_for
from .test_sql_endpoint import url

ROW = 1000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def request(collector: RunningCollector, query: str, **params: Any) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", collector.ports.sql or 0, timeout=60)
    connection.request("POST", "/?" + url(collector, **params).partition("?")[2], query)
    return connection


def test_a_large_answer_is_never_held(collector: RunningCollector) -> None:
    rows = 1_500_000
    connection = request(collector, f"SELECT repeat('x', {ROW - 1}) FROM numbers({rows})")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Transfer-Encoding")) == (200, "chunked")
    before, most, size = resident_bytes(), 0, 0
    while chunk := answer.read(1 << 20):
        size += len(chunk)
        if size % (64 << 20) < (1 << 20):
            most = max(most, resident_bytes())
    connection.close()
    assert size == rows * ROW
    assert most - before < 400 << 20


@pytest.mark.parametrize(
    ("encoding", "decompress"),
    [
        ("gzip", gzip.decompress),
        ("deflate", zlib.decompress),
        ("lz4", lz4.frame.decompress),
        ("zstd", lambda data: zstd_module().decompress(data)),  # type: ignore[union-attr]
    ],
)
def test_compressed_as_it_is_made(
    collector: RunningCollector, encoding: str, decompress: Callable[[bytes], bytes]
) -> None:
    query = "SELECT number, repeat('x', 500) FROM numbers(100000)"
    plain = fetch(url(collector), query.encode()).body
    answer = fetch(url(collector, enable_http_compression=1), query.encode(), {"Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert len(answer.body) < len(plain) / 4
    assert decompress(answer.body) == plain
    assert "content-encoding" not in fetch(url(collector), query.encode(), {"Accept-Encoding": encoding}).headers
    refused = {"Accept-Encoding": f"{encoding};q=0"}
    assert "content-encoding" not in fetch(url(collector, enable_http_compression=1), b"SELECT 1", refused).headers


LATE = "SELECT number, throwIf(number = 3000000, 'too far') FROM numbers(4000000)"


def test_an_error_in_the_middle_is_said_and_breaks_the_answer_off(collector: RunningCollector) -> None:
    connection = request(collector, LATE)
    answer = connection.getresponse()
    assert answer.status == 200
    tag = answer.getheader("X-ClickHouse-Exception-Tag")
    assert tag
    with pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    connection.close()
    tail = broken.value.partial[-2000:].decode()
    assert tail.endswith(f" {tag}\r\n__exception__\r\n")
    assert tail.count("__exception__") == 2
    assert "Code: 395. DB::Exception: " in tail
    assert "too far" in tail
    assert fetch(url(collector, wait_end_of_query=1), LATE.encode()).status == 500
    whole = fetch(url(collector, wait_end_of_query=1), b"SELECT number FROM numbers(4000000)")
    assert (whole.status, whole.body.count(b"\n"), whole.body[-8:]) == (200, 4_000_000, b"3999999\n")
    assert int(whole.headers["content-length"]) == len(whole.body)


def test_clients_raise_the_error_of_the_middle(collector: RunningCollector) -> None:
    client = clickhouse_connect.get_client(host="127.0.0.1", port=collector.ports.sql)
    try:
        with pytest.raises(ClickHouseError, match="too far"):
            client.query(LATE, settings={"max_block_size": 1000})
        assert client.command("SELECT 1") == 1
    finally:
        client.close()


def running_queries(collector: RunningCollector) -> float:
    return collector.metric("sql_queries_running")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(sipHash64(number)) FROM numbers(2000000000)",
        "SELECT repeat('x', 1000) FROM numbers(2000000)",
        "SELECT count() FROM numbers(100000) AS a, numbers(100000) AS b WHERE sipHash64(a.number, b.number) = 1",
        "SELECT sleepEachRow(0.1) FROM numbers(250)",
    ],
    ids=["computing", "sending", "joining", "sleeping"],
)
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_caller_who_hangs_up_stops_the_query(collector: RunningCollector, query: str, how: str) -> None:
    hung_up = 'sql_queries_total{outcome="hung_up"}'
    before = collector.metric(hung_up)
    body = query.encode()
    with socket.create_connection(("127.0.0.1", collector.ports.sql or 0)) as line:
        target = b"/?max_block_size=1" if "sleep" in query else b"/"
        head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (target, len(body))
        line.sendall(head + body)
        wait_for(lambda: running_queries(collector) == 1, "it runs")
        if "repeat" in query:
            assert line.recv(1000).startswith(b"HTTP/1.1 200")
        if how == "reset":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    began = time.monotonic()
    wait_for(lambda: running_queries(collector) == 0, "it has stopped")
    assert time.monotonic() - began < 15  # on its own it would take longer, or its 30 seconds
    assert collector.metric(hung_up) == before + 1
    assert collector.sql("SELECT 1") == [[1]]


def test_more_callers_than_places_all_get_their_answer(collector: RunningCollector) -> None:
    connections = [request(collector, "SELECT sleep(0.2)") for _ in range(20)]
    assert [connection.getresponse().status for connection in connections] == [200] * 20
    for connection in connections:
        connection.close()


def test_many_hang_up_at_once_and_nothing_is_left(collector: RunningCollector) -> None:
    for _ in range(3):
        lines = [socket.create_connection(("127.0.0.1", collector.ports.sql or 0)) for _ in range(20)]
        query = b"SELECT+sum(sipHash64(number))+FROM+numbers(2000000000)"
        for line in lines:
            line.sendall(b"GET /?query=%b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % query)
        wait_for(lambda: running_queries(collector) >= 8, "they run")
        for line in lines:
            line.close()
        wait_for(lambda: running_queries(collector) == 0, "they have stopped")
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert collector.sql("SELECT 1") == [[1]]
    assert len(os.listdir("/proc/self/fd")) <= files + 4
