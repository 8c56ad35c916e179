"""HTTP's own corners: pipelining, keep-alive, slow senders, full answers, and a stop in the middle."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from promptpath.collector import http_limits, http_receiver, intake
from promptpath.collector.errors import JournalFull, JournalUnavailable
from promptpath.collector.otlp import Signal

from .running import RunningCollector, make_spans, wait_for

HEAD = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n"


@pytest.fixture
def connection(collector: RunningCollector) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", collector.ports.http), 20) as opened:
        yield opened


def post(body: bytes) -> bytes:
    return HEAD.format(len(body)).encode() + body


def answers(connection: socket.socket, count: int) -> list[bytes]:
    """Status lines of the next answers, none of which has a body."""
    data = b""
    while data.count(b"\r\n\r\n") < count:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return [part.split(b"\r\n")[0] for part in data.split(b"\r\n\r\n")[:count]]


def closed(connection: socket.socket) -> bool:
    """Whether the server hangs up."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def test_pipelined_requests_are_answered_each_and_in_order(
    collector: RunningCollector, connection: socket.socket
) -> None:
    bodies = [make_spans(1, first=60_000 + number, name="pipelined").SerializeToString() for number in range(8)]
    requests = [post(body) for body in bodies]
    requests[3] = post(b"\x0a\xff")
    connection.sendall(b"".join(requests))
    data = b""
    while data.count(b"HTTP/1.1 ") < 8:
        data += connection.recv(65536)
    assert [part[:3] for part in data.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"200", b"400"] + [b"200"] * 4
    wait_for(
        lambda: collector.sql("SELECT count() FROM otel_traces WHERE SpanName = 'pipelined'") == [[7]], "the good ones"
    )


def test_a_connection_is_kept_alive_after_faults(collector: RunningCollector) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", collector.ports.http, timeout=20)
    kept.connect()
    ours = kept.sock
    for body, status in ((b"", 200), (b"\x0a\xff", 400), (b"", 200)):
        kept.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = kept.getresponse()
        answer.read()
        assert (answer.status, kept.sock is ours) == (status, True)
    kept.close()


def test_a_full_success_is_an_empty_message_in_the_request_s_type(collector: RunningCollector) -> None:
    for signal in Signal:
        answer = collector.post(b"", signal=signal)
        assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"", "application/x-protobuf")
        answer = collector.post(b"{}", signal=signal, content_type="application/json")
        assert (answer.status, json.loads(answer.body), answer.headers["content-type"]) == (200, {}, "application/json")


@pytest.mark.parametrize("sent", [b"", b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_ends_the_connection(
    collector: RunningCollector, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_limits, "HEAD_S", 0.2)
    with socket.create_connection(("127.0.0.1", collector.ports.http), 20) as slow:
        slow.sendall(sent)
        assert closed(slow)
    # And the same where a good request came before it on the connection.
    with socket.create_connection(("127.0.0.1", collector.ports.http), 20) as slow:
        slow.sendall(post(b""))
        assert answers(slow, 1) == [b"HTTP/1.1 200 OK"]
        slow.sendall(b"POST /v1/tra")
        assert closed(slow)


def test_a_body_that_does_not_come_is_408(
    collector: RunningCollector, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_receiver, "PIECE_S", 0.2)
    connection.sendall(HEAD.format(1000).encode() + b"\x0a")
    answer = b""
    while piece := connection.recv(65536):  # and then it hangs up
        answer += piece
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()
    assert b"1 bytes so far" in answer


def test_a_body_by_drops_is_408_though_each_piece_is_in_time(
    collector: RunningCollector, connection: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_receiver, "BODY_S", 0.3)
    connection.sendall(HEAD.format(100_000).encode())
    connection.settimeout(0.02)
    answer = b""
    deadline = time.monotonic() + 20
    while not answer and time.monotonic() < deadline:
        connection.sendall(b"\0")
        with contextlib.suppress(TimeoutError):
            answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("fails", "status", "code"),
    [(JournalFull("full"), 429, 8), (JournalUnavailable("the disk is full"), 503, 14)],
)
def test_a_refusal_for_now_says_when_to_come_back(
    collector: RunningCollector, monkeypatch: pytest.MonkeyPatch, fails: Exception, status: int, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise fails

    monkeypatch.setattr(intake.Intake, "keep", refuse)
    answer = collector.post(make_spans(1).SerializeToString())
    assert (answer.status, answer.headers["retry-after"]) == (status, "1")
    said = status_pb2.Status.FromString(answer.body)
    retry = error_details_pb2.RetryInfo()
    assert (said.code, said.message, said.details[0].Unpack(retry)) == (code, str(fails), True)
    assert retry.retry_delay == duration_pb2.Duration(seconds=1)


def test_more_than_memory_is_there_for_is_503(collector: RunningCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "HELD_BYTES", 0)
    first = socket.create_connection(("127.0.0.1", collector.ports.http), 20)
    with first:
        first.sendall(HEAD.format(1000).encode() + b"\0" * 10)  # one body is under way
        counter = 'refused_requests_total{signal="traces",protocol="http",reason="busy"}'

        def busy() -> bool:
            answer = collector.post(make_spans(1, padding=10_000).SerializeToString())
            return answer.status == 503 and answer.headers["retry-after"] == "1"

        wait_for(busy, "it is busy")
        assert collector.metric(counter) >= 1
    # Whoever hangs up gives its room back.
    wait_for(lambda: collector.post(make_spans(1, first=2).SerializeToString()).status == 200, "room again")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda span: span.update(traceId="zz"), "resourceSpans[0].scopeSpans[0].spans[0].traceId: "),
        (
            lambda span: span.update(startTimeUnixNano="x"),
            "resourceSpans[0].scopeSpans[0].spans[0].startTimeUnixNano: ",
        ),
        (
            lambda span: span.update(attributes=[{"key": 3}]),
            "resourceSpans[0].scopeSpans[0].spans[0].attributes[0].key: ",
        ),
    ],
)
def test_faults_in_json_are_named_with_their_place(
    collector: RunningCollector, change: Callable[[dict[str, object]], None], place: str
) -> None:
    span: dict[str, object] = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "startTimeUnixNano": 1, "new": {}}
    tree = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}], "unknownField": [1]}]}
    good = collector.post(json.dumps(tree).encode(), content_type="application/json")
    assert (good.status, json.loads(good.body)) == (200, {})
    change(span)
    answer = collector.post(json.dumps(tree).encode(), content_type="application/json")
    assert answer.status == 400
    assert json.loads(answer.body)["message"].startswith(place)
