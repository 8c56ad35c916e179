"""OTLP through ClickHouse's own decoder: exactly the values that were sent, and each batch once."""

from __future__ import annotations

import json
import math
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from promptpath.storage import StorageError, ingest

from .otlp_metric_rows import metric_rows
from .otlp_rows import CAPTURES, RECEIVED_NS, log_rows, requests, same_rows, span_rows, stored

_KEYS = ("TraceId", "SpanId", "Timestamp", "SpanName")
_NOW_NS = 1_796_000_000_123_456_789
#: Tables that one batch of spans reaches, through one view or two.
_SPAN_TABLES = ("otel_traces", "otel_traces_trace_id_ts", "trace_arrivals")


def _request(*spans: Span, service: str = "svc") -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value=service)))
    resource.scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


def _span(number: int = 1, **fields: Any) -> Span:
    defaults = {
        "trace_id": number.to_bytes(16, "big"),
        "span_id": number.to_bytes(8, "big"),
        "name": "s",
        "start_time_unix_nano": _NOW_NS,
        "end_time_unix_nano": _NOW_NS + 1,
    }
    return Span(**(defaults | fields))


def _ints(*items: int) -> AnyValue:
    return AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=item) for item in items]))


# --- each batch once --------------------------------------------------------------------------------------------------


def test_a_repeated_token_reaches_no_table_twice(store: Any) -> None:
    body = b"".join(requests(CAPTURES / "vllm-default" / "traces.pb"))
    ingest.insert(store.client, "traces", body, "batch-1")
    before = {table: store.count(table) for table in _SPAN_TABLES}
    assert before["otel_traces"] == len(list(span_rows([body])))
    for _ in range(2):
        ingest.insert(store.client, "traces", body, "batch-1")
        ingest.insert(store.open(), "traces", body, "batch-1")
    assert {table: store.count(table) for table in _SPAN_TABLES} == before
    ingest.insert(store.client, "traces", body, "batch-2")
    assert {table: store.count(table) for table in _SPAN_TABLES} == {k: 2 * v for k, v in before.items()}


def test_the_same_bytes_under_two_tokens_are_two_batches(store: Any) -> None:
    for token in ("a", "b"):
        ingest.insert(store.client, "traces", _request(_span()), token)
    assert store.count("otel_traces") == 2


@pytest.mark.parametrize("signal_name", ["metrics", "logs"])
def test_tokens_hold_for_metrics_and_logs(store: Any, signal_name: ingest.Signal) -> None:
    body = b"".join(requests(CAPTURES / "litellm-v1-metrics" / f"{signal_name}.pb"))
    tables = [
        name
        for (name,) in store.client.query(
            "SELECT name FROM system.tables "
            "WHERE database = currentDatabase() AND engine = 'MergeTree' AND name LIKE 'otel%'"
        ).result_rows
    ]
    ingest.insert(store.client, signal_name, body, "t")
    before = {table: store.count(table) for table in tables}
    expected = len(list(log_rows([body]) if signal_name == "logs" else metric_rows([body])))
    assert sum(before.values()) == expected
    ingest.insert(store.client, signal_name, body, "t")
    assert {table: store.count(table) for table in tables} == before


def test_a_batch_of_several_blocks_is_still_one_batch(store: Any) -> None:
    # More rows than one block holds (65,409), on two days.
    spans = [_span(n + 1, start_time_unix_nano=_NOW_NS + n * 2_000_000_000) for n in range(70_000)]
    body = _request(*spans)
    for _ in range(2):
        ingest.insert(store.client, "traces", body, "large")
    assert store.count("otel_traces") == 70_000
    assert store.count("trace_arrivals") == 70_000


_FEED = """
import sys
from promptpath.storage import connect, ingest
from pathlib import Path
client = connect(sys.argv[1])
body = Path(sys.argv[2])
print("ready", flush=True)
for token in sys.argv[3:]:
    ingest.insert(client, "traces", body, token)
    print(token, flush=True)
"""


def test_killed_in_the_middle_and_sent_again(tmp_path: Path) -> None:
    """Kills at random moments; then every batch that was begun is sent again, and every table has each once."""
    from promptpath.storage import connect, migrate

    rng = random.Random(5)
    url = f"chdb://{tmp_path / 'store'}"
    body = b"".join(requests(CAPTURES / "vllm-default" / "traces.pb"))
    (tmp_path / "body").write_bytes(body)
    client = connect(url)
    migrate(client)
    client.close()
    tokens = [f"token-{n}" for n in range(40)]
    left = list(tokens)
    for _ in range(3):
        command = [sys.executable, "-c", _FEED, url, str(tmp_path / "body"), *left]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(rng.randint(1, 4)):
                assert process.stdout.readline().strip() == left.pop(0)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
    client = connect(url)
    try:
        for token in tokens:
            ingest.insert(client, "traces", body, token)
        rows = len(list(span_rows([body])))
        traces = len({row["TraceId"] for row in span_rows([body])})
        counts = [int(str(client.command(f"SELECT count() FROM {table}"))) for table in _SPAN_TABLES]
        assert counts == [40 * rows, 40 * traces, 40 * traces]
    finally:
        client.close()


_MIGRATE_AND_FEED = """
import sys
from promptpath.storage import connect, ingest, migrate
from pathlib import Path
client = connect(sys.argv[1])
migrate(client)
for file in sys.argv[2:]:
    ingest.insert(client, Path(file).stem, Path(file), "t")
client.close()
"""


def test_tokens_hold_from_one_process_to_the_next(tmp_path: Path) -> None:
    """Also where the first one made the schema, whose views changed their queries on the way."""
    from promptpath.storage import connect

    url = f"chdb://{tmp_path / 'store'}"
    folder = CAPTURES / "litellm-v1-metrics"
    files = []
    for signal_name in ("traces", "metrics", "logs"):
        files.append(tmp_path / f"{signal_name}.bodies")
        files[-1].write_bytes(b"".join(requests(folder / f"{signal_name}.pb")))
    counts = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", _MIGRATE_AND_FEED, url, *map(str, files)], check=True)
        client = connect(url)
        counts.append(
            client.query(
                "SELECT name, total_rows FROM system.tables WHERE database = currentDatabase() "
                "AND engine LIKE '%MergeTree' AND name != 'schema_migrations' ORDER BY name"
            ).result_rows
        )
        client.close()
    assert counts[0] == counts[1]
    filled = {name for name, rows in counts[0] if rows}
    assert filled > {"otel_traces", "trace_arrivals", "otel_metrics_histogram", "otel_logs"}


# --- exactly what was sent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_ns", [ingest.RECORDED_FROM_NS, 2**60 + 1, _NOW_NS, ingest.RECORDED_TO_NS - 1])
def test_times_are_exact_to_the_nanosecond(store: Any, start_ns: int) -> None:
    span = _span(start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + 1)
    span.events.add(time_unix_nano=start_ns + 1, name="e")
    ingest.insert(store.client, "traces", _request(span), "t")
    same_rows(stored(store, "otel_traces"), list(span_rows([_request(span)])), *_KEYS)


def test_token_lists_have_columns_of_their_own(store: Any) -> None:
    span = _span()
    span.attributes.extend(
        [
            KeyValue(key="promptpath.token.gaps_us", value=_ints(120_000, 0, 4_294_967_296, -1)),
            KeyValue(key="promptpath.token.counts", value=_ints(1, 65_536, 3, 0)),
            KeyValue(key="other", value=_ints(1, 2)),
        ]
    )
    ingest.insert(store.client, "traces", _request(span, _span(2)), "t")
    assert store.dicts("SELECT TokenGapsUs, TokenCounts, SpanAttributes FROM otel_traces ORDER BY TraceId") == [
        {
            "TokenGapsUs": [120_000, 0, 4_294_967_295, 0],
            "TokenCounts": [1, 65_535, 3, 0],
            "SpanAttributes": {"other": "[1,2]"},
        },
        {"TokenGapsUs": [], "TokenCounts": [], "SpanAttributes": {}},
    ]


@pytest.mark.parametrize(
    "value",
    [AnyValue(string_value="[1,2]"), AnyValue(array_value=ArrayValue(values=[AnyValue(double_value=1.5)]))],
)
def test_token_lists_of_another_type_stay_attributes(store: Any, value: AnyValue) -> None:
    span = _span(attributes=[KeyValue(key="promptpath.token.gaps_us", value=value)])
    ingest.insert(store.client, "traces", _request(span), "t")
    (row,) = store.dicts("SELECT TokenGapsUs, SpanAttributes['promptpath.token.gaps_us'] AS kept FROM otel_traces")
    assert row == {"TokenGapsUs": [], "kept": "[1,2]" if value.HasField("string_value") else "[1.5]"}


def test_values_become_text(store: Any) -> None:
    values = {
        "string": AnyValue(string_value='with "quotes", / and ü'),
        "empty": AnyValue(string_value=""),
        "none": AnyValue(),
        "true": AnyValue(bool_value=True),
        "int": AnyValue(int_value=-(2**63)),
        "double": AnyValue(double_value=0.1),
        "whole": AnyValue(double_value=3.0),
        "bytes": AnyValue(bytes_value=b"\x00\xff"),
        "list": AnyValue(
            array_value=ArrayValue(
                values=[
                    AnyValue(string_value='a"/b'),
                    AnyValue(int_value=2**53 + 1),
                    AnyValue(bool_value=False),
                    AnyValue(double_value=1.5),
                    AnyValue(bytes_value=b"\x01"),
                    AnyValue(),
                ]
            )
        ),
        "map": AnyValue(
            kvlist_value=KeyValueList(values=[KeyValue(key='k"', value=AnyValue(int_value=1)), KeyValue(key="z")])
        ),
        "no items": AnyValue(array_value=ArrayValue()),
        "no pairs": AnyValue(kvlist_value=KeyValueList()),
    }
    span = _span(attributes=[KeyValue(key=key, value=value) for key, value in values.items()])
    ingest.insert(store.client, "traces", _request(span), "t")
    (row,) = store.dicts("SELECT SpanAttributes AS a FROM otel_traces")
    assert row["a"] == {
        "string": 'with "quotes", / and ü',
        "empty": "",
        "none": "",
        "true": "true",
        "int": "-9223372036854775808",
        "double": "0.1",
        "whole": "3",
        "bytes": "AP8=",
        "list": '["a\\"/b",9007199254740993,false,1.5,"AQ==",null]',
        "map": '{"k\\"":1,"z":null}',
        "no items": "[]",
        "no pairs": "{}",
    }


def test_deeper_values_are_kept_as_json(store: Any) -> None:
    inner = AnyValue(array_value=ArrayValue(values=[AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="a")]))]))
    deep = AnyValue(array_value=ArrayValue(values=[inner, AnyValue(int_value=1)]))
    flat = AnyValue(int_value=7)
    span = _span(attributes=[KeyValue(key="deep", value=deep), KeyValue(key="flat", value=flat)])
    span.links.add(trace_id=b"\x01" * 16, attributes=[KeyValue(key="deep", value=deep)])
    for _ in range(2):
        ingest.insert(store.client, "traces", _request(span), "t")
    (row,) = store.dicts("SELECT SpanAttributes AS a, `Links.Attributes` AS links FROM otel_traces")
    assert json.loads(row["a"]["deep"]) == [[{"a": None}], 1]
    assert row["a"]["flat"] == "7"
    assert json.loads(row["links"][0]["deep"]) == [[{"a": None}], 1]


def test_ids_are_lower_hexadecimal(store: Any) -> None:
    span = _span(trace_id=bytes(range(0xA0, 0xB0)), span_id=b"\xff" * 8, parent_span_id=b"")
    ingest.insert(store.client, "traces", _request(span), "t")
    assert store.dicts("SELECT TraceId, SpanId, ParentSpanId FROM otel_traces") == [
        {"TraceId": "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "SpanId": "f" * 16, "ParentSpanId": ""}
    ]


def test_arrivals_say_when_a_trace_changed(store: Any) -> None:
    spans = [_span(1), _span(1, span_id=b"2" * 8, start_time_unix_nano=_NOW_NS - 50, end_time_unix_nano=_NOW_NS - 20)]
    ingest.insert(store.client, "traces", _request(*spans, _span(2)), "t")
    rows = store.dicts(
        "SELECT TraceId, Spans, toUnixTimestamp64Nano(FirstStart) AS a, toUnixTimestamp64Nano(LastEnd) AS b, "
        "abs(date_diff('second', ArrivedAt, now64(9))) < 60 AS now FROM trace_arrivals ORDER BY TraceId"
    )
    assert rows == [
        {"TraceId": "1".zfill(32), "Spans": 2, "a": _NOW_NS - 50, "b": _NOW_NS + 1, "now": 1},
        {"TraceId": "2".zfill(32), "Spans": 1, "a": _NOW_NS, "b": _NOW_NS + 1, "now": 1},
    ]


def test_nothing_is_left_in_the_working_directory(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    ingest.insert(store.client, "traces", _request(_span()), "t")
    assert list((tmp_path / "empty").iterdir()) == []


# --- what is no request -----------------------------------------------------------------------------------------------


def test_nothing_is_a_batch_of_nothing(store: Any) -> None:
    assert ingest.insert(store.client, "traces", b"", "t") == 0
    assert ingest.insert(store.client, "logs", ExportLogsServiceRequest().SerializeToString(), "t") == 0


@pytest.mark.parametrize("damage", ["cut", "random", "text", "tail"])
def test_garbage_is_named_and_nothing_of_it_is_stored(store: Any, damage: str) -> None:
    body = b"".join(requests(CAPTURES / "vllm-default" / "traces.pb"))
    bad = {
        "cut": body[:-3],
        "random": random.Random(1).randbytes(3000),
        "text": b"hello, world",
        "tail": body + b"\x0a\x05abc",
    }[damage]
    with pytest.raises(ingest.BadBody, match="no OTLP traces request"):
        ingest.insert(store.client, "traces", bad, "bad")
    assert store.count("otel_traces") == 0
    # The client is as good as before.
    ingest.insert(store.client, "traces", body, "good")
    assert store.count("otel_traces") == len(list(span_rows([body])))


def test_a_store_without_schema_is_no_bad_body(store: Any) -> None:
    store.client.command("DROP TABLE otlp_traces")
    with pytest.raises(StorageError) as caught:
        ingest.insert(store.client, "traces", _request(_span()), "t")
    assert not isinstance(caught.value, ingest.BadBody)


# --- everything else --------------------------------------------------------------------------------------------------

_text = st.text(st.characters(codec="utf-8"), max_size=12)
_leaves = st.one_of(
    st.just(AnyValue()),
    st.builds(AnyValue, string_value=_text),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=st.floats(width=64)),
    st.builds(AnyValue, bytes_value=st.binary(max_size=8)),
)


def _containers(inner: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
    lists = st.lists(inner, max_size=3).map(lambda items: AnyValue(array_value=ArrayValue(values=items)))
    maps = st.dictionaries(_text, inner, max_size=3).map(
        lambda items: AnyValue(
            kvlist_value=KeyValueList(values=[KeyValue(key=key, value=value) for key, value in items.items()])
        )
    )
    return lists | maps


_values = st.recursive(_leaves, _containers, max_leaves=6)
_attributes = st.dictionaries(
    _text | st.sampled_from(["promptpath.token.gaps_us", "promptpath.token.counts", "service.name"]),
    _values,
    max_size=4,
).map(lambda items: [KeyValue(key=key, value=value) for key, value in items.items()])
_ns = st.integers(0, 2**64 - 1) | st.integers(_NOW_NS, _NOW_NS + 10**12)
_u32 = st.integers(0, 2**32 - 1)
_spans = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16) | st.just(b""),
    span_id=st.binary(min_size=8, max_size=8),
    parent_span_id=st.binary(min_size=8, max_size=8) | st.just(b""),
    trace_state=_text,
    flags=_u32,
    name=_text,
    kind=st.integers(0, 7),
    start_time_unix_nano=_ns,
    end_time_unix_nano=_ns,
    attributes=_attributes,
    dropped_attributes_count=_u32,
    events=st.lists(st.builds(Span.Event, time_unix_nano=_ns, name=_text, attributes=_attributes), max_size=2),
    dropped_events_count=_u32,
    links=st.lists(
        st.builds(
            Span.Link,
            trace_id=st.binary(max_size=16),
            span_id=st.binary(max_size=8),
            trace_state=_text,
            attributes=_attributes,
        ),
        max_size=2,
    ),
    dropped_links_count=_u32,
    status=st.builds(Status, message=_text, code=st.integers(0, 3)),
)


@st.composite
def _bodies(draw: st.DrawFn) -> list[bytes]:
    bodies = []
    for _ in range(draw(st.integers(1, 3))):
        request = ExportTraceServiceRequest()
        for _ in range(draw(st.integers(0, 2))):
            resource = request.resource_spans.add(schema_url=draw(_text))
            resource.resource.attributes.extend(draw(_attributes))
            for _ in range(draw(st.integers(0, 2))):
                scope = resource.scope_spans.add(schema_url=draw(_text))
                scope.scope.name, scope.scope.version = draw(_text), draw(_text)
                scope.scope.attributes.extend(draw(_attributes))
                scope.spans.extend(draw(st.lists(_spans, max_size=3)))
        bodies.append(request.SerializeToString())
    return bodies


class TestAnyRequest:
    """Generated requests. The store is shared by the examples; each example looks at its own batch only."""

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(bodies=_bodies())
    def test_whole_rows(self, store: Any, bodies: list[bytes]) -> None:
        expected = list(span_rows(bodies))
        store.client.command("TRUNCATE TABLE otel_traces")
        body = ingest.envelope(RECEIVED_NS) + b"".join(bodies)
        ingest.insert(store.client, "traces", body, random.randbytes(8).hex())
        same_rows(stored(store, "otel_traces"), expected, *_KEYS, "ParentSpanId", "Flags", "Duration", "StatusMessage")


def test_metrics_of_all_five_kinds(store: Any) -> None:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add(schema_url="r")
    resource.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value="svc")))
    scope = resource.scope_metrics.add(schema_url="s")
    scope.scope.name, scope.scope.dropped_attributes_count = "scope", 3
    label = [KeyValue(key="hw.id", value=AnyValue(string_value="gpu0"))]
    common = {"start_time_unix_nano": _NOW_NS - 7, "time_unix_nano": _NOW_NS, "attributes": label}
    exemplar = {"time_unix_nano": _NOW_NS - 1, "span_id": b"\xab" * 8, "trace_id": b"\xcd" * 16}

    gauge = scope.metrics.add(name="gauge", unit="1", description="d").gauge
    gauge.data_points.add(as_int=-5, **common).exemplars.add(as_int=-9, filtered_attributes=label, **exemplar)
    gauge.data_points.add(as_double=0.25, flags=1, time_unix_nano=_NOW_NS + 1)
    gauge.data_points.add(time_unix_nano=_NOW_NS + 2)
    total = scope.metrics.add(name="sum", unit="By").sum
    total.aggregation_temporality, total.is_monotonic = 2, True
    total.data_points.add(as_int=2**40, **common).exemplars.add(as_double=1.5, **exemplar)
    histogram = scope.metrics.add(name="histogram").histogram
    histogram.aggregation_temporality = 1
    histogram.data_points.add(
        count=3, sum=4.5, min=1, max=2, bucket_counts=[1, 2], explicit_bounds=[1.5], **common
    ).exemplars.add(as_double=2.5, **exemplar)
    histogram.data_points.add(count=0, time_unix_nano=_NOW_NS + 1)
    exponential = scope.metrics.add(name="exponential").exponential_histogram
    exponential.aggregation_temporality = 2
    point = exponential.data_points.add(count=9, sum=-1.5, scale=-2, zero_count=4, min=-3, max=8, **common)
    point.positive.offset, point.negative.offset = -7, 5
    point.positive.bucket_counts.extend([1, 2])
    point.negative.bucket_counts.extend([2])
    summary = scope.metrics.add(name="summary").summary
    summary.data_points.add(count=2, sum=3.5, flags=1, **common).quantile_values.add(quantile=0.5, value=1.75)
    scope.metrics.add(name="empty").gauge.SetInParent()

    body = request.SerializeToString()
    ingest.insert(store.client, "metrics", body, "t")
    expected: dict[str, list[dict[str, Any]]] = {}
    for table, row in metric_rows([body]):
        expected.setdefault(table, []).append(row)
    assert {table: len(rows) for table, rows in expected.items()} == {
        "otel_metrics_gauge": 3,
        "otel_metrics_sum": 1,
        "otel_metrics_histogram": 2,
        "otel_metrics_exponential_histogram": 1,
        "otel_metrics_summary": 1,
    }
    for table, rows in expected.items():
        same_rows(stored(store, table), rows, "MetricName", "TimeUnix")


def test_points_at_the_edges_of_what_they_may_say(store: Any) -> None:
    """No attributes at all, infinities, the largest integers, exemplars of every kind, buckets on one side only."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    ids = {"span_id": b"\x01" * 8, "trace_id": b"\xfe" * 16}
    gauge = scope.metrics.add(name="gauge").gauge
    for offset, value in enumerate((math.inf, -math.inf, -0.0, 5e-324)):
        gauge.data_points.add(as_double=value, time_unix_nano=_NOW_NS + offset)
    gauge.data_points.add(as_int=2**63 - 1, time_unix_nano=_NOW_NS + 4).exemplars.add(as_int=-(2**63), **ids)
    gauge.data_points.add(as_int=0, time_unix_nano=_NOW_NS + 5, flags=2**32 - 1).exemplars.add(as_double=math.inf)
    down = scope.metrics.add(name="down").sum
    down.aggregation_temporality = 2
    down.data_points.add(as_int=-1, start_time_unix_nano=_NOW_NS, time_unix_nano=_NOW_NS)
    one_sided = scope.metrics.add(name="one-sided").exponential_histogram
    one_sided.aggregation_temporality = 1
    point = one_sided.data_points.add(count=2**64 - 1, sum=-3.0, scale=20, time_unix_nano=_NOW_NS)
    point.negative.offset = -(2**31)
    point.negative.bucket_counts.extend([2**64 - 1, 0])
    point.exemplars.add(as_double=-1.5, time_unix_nano=_NOW_NS - 5, **ids)
    point.exemplars.add(as_int=7)
    plain = scope.metrics.add(name="plain").histogram.data_points.add(count=1, flags=1, time_unix_nano=_NOW_NS)
    plain.bucket_counts.extend([1])
    scope.metrics.add(name="none").summary.data_points.add(flags=1, time_unix_nano=_NOW_NS)

    body = request.SerializeToString()
    ingest.insert(store.client, "metrics", body, "t")
    expected: dict[str, list[dict[str, Any]]] = {}
    for table, row in metric_rows([body]):
        expected.setdefault(table, []).append(row)
    assert len(expected) == 5
    for table, rows in expected.items():
        same_rows(stored(store, table), rows, "MetricName", "TimeUnix")
    # What a point says was not recorded is no reading.
    ((unrecorded,),) = store.client.query(
        "SELECT value FROM counters WHERE metric = 'gauge' ORDER BY time DESC LIMIT 1"
    ).result_rows
    assert unrecorded is None


def test_logs_of_all_shapes(store: Any) -> None:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.log_records.add(time_unix_nano=_NOW_NS, body=AnyValue(string_value="plain"), severity_number=9, flags=257)
    scope.log_records.add(observed_time_unix_nano=_NOW_NS + 1, body=_ints(1, 2), severity_text="WARN", event_name="e")
    scope.log_records.add(
        time_unix_nano=_NOW_NS + 2,
        body=AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(double_value=0.5))])),
        trace_id=b"\xaa" * 16,
        span_id=b"\xbb" * 8,
    )
    scope.log_records.add(
        time_unix_nano=_NOW_NS + 3, body=AnyValue(array_value=ArrayValue(values=[_ints(1)])), attributes=[]
    )
    body = request.SerializeToString()
    ingest.insert(store.client, "logs", body, "t")
    same_rows(stored(store, "otel_logs"), list(log_rows([body])), "Timestamp")
