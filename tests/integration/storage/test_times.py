"""Times that cannot be: kept beside times that can, flagged, in few partitions, and never at the cost of the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.storage import ingest
from promptpath.storage.exporting import export_json

from .otlp_metric_rows import metric_rows
from .otlp_rows import RECEIVED_NS, log_rows, moved, same_rows, span_rows, span_times, stored

_NOW_NS = RECEIVED_NS - 10**9
_DAY_NS = 86_400 * 10**9
_1970_NS, _2100_NS, _2107_NS, _2262_NS = _DAY_NS, 4_110_000_000 * 10**9, 4_330_000_000 * 10**9, 2**63
_LAST_NS = 2**64 - 1
_ABSURD_NS = (0, 1, _1970_NS, 946_684_800 * 10**9 - 1, _2100_NS, _2107_NS, _2262_NS - 1, _2262_NS, _LAST_NS)
_SPAN_TABLES = ("otel_traces", "otel_traces_trace_id_ts", "trace_arrivals")
_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
#: What the collector puts before what it received at RECEIVED_NS.
_WINDOW = {"oldest_ns": RECEIVED_NS - ingest.MAX_AGE_NS, "newest_ns": RECEIVED_NS + ingest.MAX_AHEAD_NS}
_HEAD = ingest.envelope(RECEIVED_NS)


@pytest.fixture
def store(shared_store: Any) -> Any:
    """The store of this module, emptied: making one takes longer than most of these tests."""
    for table in (*_SPAN_TABLES, "otel_logs", *(f"otel_metrics_{kind}" for kind in _KINDS)):
        shared_store.client.command(f"TRUNCATE TABLE {table}")
    return shared_store


def _insert(store: Any, signal: ingest.Signal, body: bytes, *, times: int = 1) -> None:
    """One batch, as often as it may be sent again."""
    token = random.randbytes(8).hex()
    for _ in range(times):
        ingest.insert(store.client, signal, body, token)


def _spans(pairs: list[tuple[int, int]]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number, (start_ns, end_ns) in enumerate(pairs, 1):
        spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name="s",
            start_time_unix_nano=start_ns,
            end_time_unix_nano=end_ns,
        )
    return request


def _times(store: Any) -> list[dict[str, Any]]:
    return list(
        store.dicts(
            "SELECT toUnixTimestamp64Nano(t.Timestamp) AS Timestamp, Duration, Clamped, SentStart, SentEnd "
            "FROM otel_traces AS t ORDER BY TraceId"
        )
    )


def _partitions(store: Any, table: str) -> int:
    return int(
        store.client.command(
            "SELECT uniqExact(partition) FROM system.parts "
            f"WHERE active AND database = currentDatabase() AND table = '{table}'"
        )
    )


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "at_ns", "duration_ns", "clamped"),
    [
        (_NOW_NS - 5, _NOW_NS, _NOW_NS - 5, 5, ""),
        (_NOW_NS - 30 * _DAY_NS, _NOW_NS, _NOW_NS - 30 * _DAY_NS, 30 * _DAY_NS, ""),
        (_WINDOW["oldest_ns"], _WINDOW["oldest_ns"] + 1, _WINDOW["oldest_ns"], 1, ""),
        (_WINDOW["newest_ns"], _WINDOW["newest_ns"], _WINDOW["newest_ns"], 0, ""),
        # An end that cannot be.
        (_NOW_NS, _NOW_NS - 5, _NOW_NS, 0, "end"),
        (_NOW_NS, 0, _NOW_NS, 0, "end"),
        (_NOW_NS, _2100_NS, _NOW_NS, 0, "end"),
        (_NOW_NS, _LAST_NS, _NOW_NS, 0, "end"),
        # A start that cannot be; of two that are years apart the later one counts.
        (0, _NOW_NS, _NOW_NS, 0, "start"),
        (_WINDOW["oldest_ns"] - 1, _NOW_NS, _NOW_NS, 0, "start"),
        (_2107_NS, _NOW_NS, _NOW_NS, 0, "start"),
        (_NOW_NS - 400 * _DAY_NS, _NOW_NS, _NOW_NS, 0, "start"),
        (_NOW_NS - 30 * _DAY_NS - 1, _NOW_NS, _NOW_NS, 0, "start"),
        # Neither can be, and how long it took is not known.
        (0, 0, RECEIVED_NS, 0, "start,end"),
        (0, 7, RECEIVED_NS, 0, "start,end"),
        (1, 1, RECEIVED_NS, 0, "start,end"),
        (_1970_NS, 0, RECEIVED_NS, 0, "start,end"),
        (_1970_NS, _2100_NS, RECEIVED_NS, 0, "start,end"),
        (_2100_NS + 7, _2100_NS, RECEIVED_NS, 0, "start,end"),
        (0, _LAST_NS, RECEIVED_NS, 0, "start,end"),
        # A clock that is set to another year.
        (_1970_NS, _1970_NS + 7, moved(_1970_NS), 7, "moved"),
        (_LAST_NS - 1, _LAST_NS, moved(_LAST_NS - 1), 1, "moved"),
        (RECEIVED_NS - 7300 * _DAY_NS, RECEIVED_NS - 7300 * _DAY_NS + 9, RECEIVED_NS, 9, "moved"),
        (RECEIVED_NS + 9000 * _DAY_NS, RECEIVED_NS + 9000 * _DAY_NS + 9, RECEIVED_NS, 9, "moved"),
    ],
)
def test_times_that_cannot_be_are_kept_beside_ones_that_can(
    store: Any, start_ns: int, end_ns: int, at_ns: int, duration_ns: int, clamped: str
) -> None:
    good = (_NOW_NS, _NOW_NS + 3)
    body = _spans([(start_ns, end_ns), good]).SerializeToString()
    _insert(store, "traces", ingest.envelope(RECEIVED_NS, **_WINDOW) + body, times=2)
    sent = (start_ns, end_ns) if clamped else (0, 0)
    names = ("Timestamp", "Duration", "Clamped", "SentStart", "SentEnd")
    expected = [(at_ns, duration_ns, clamped, *sent), (*(_NOW_NS, 3, ""), 0, 0)]
    assert _times(store) == [dict(zip(names, one, strict=True)) for one in expected]
    assert span_times(start_ns, end_ns, **_WINDOW) == _times(store)[0]
    assert store.dicts(
        "SELECT toUnixTimestamp(Start) AS s, toUnixTimestamp(End) AS e FROM otel_traces_trace_id_ts ORDER BY TraceId"
    ) == [{"s": at // 10**9, "e": at // 10**9} for at in (at_ns, _NOW_NS)]


def test_what_one_wrong_clock_said_keeps_its_order(store: Any) -> None:
    """A host that believes it is 1970, whose spans come in two batches: what lies where among them stays as it was."""
    began = (_NOW_NS - 10**9) % _DAY_NS
    pairs = [(began + n * 10**8, began + n * 10**8 + 5) for n in range(10)]
    for number, part in enumerate((pairs[:5], pairs[5:])):
        body = _spans(part).SerializeToString()
        _insert(store, "traces", ingest.envelope(RECEIVED_NS + number * 10**9) + body)
    at = sorted(row["Timestamp"] for row in _times(store))
    assert [one - at[0] for one in at] == [n * 10**8 for n in range(10)]


def test_the_first_envelope_counts(store: Any) -> None:
    """A sender's own does not change what the collector said."""
    forged = ingest.envelope(1, 0, 2**63)
    _insert(store, "traces", _HEAD + forged + _spans([(5, _NOW_NS)]).SerializeToString())
    assert [row["Clamped"] for row in _times(store)] == ["start"]


def test_an_older_collectors_envelope_is_understood(store: Any) -> None:
    """Its journal may be there when the new one starts: two numbers, and a day ahead is believed."""
    old = b"\xea\x7f\x10" + RECEIVED_NS.to_bytes(8, "little") + (RECEIVED_NS - 10**18).to_bytes(8, "little")
    assert ingest.envelope_bytes(old + b"\x0a\x00") == len(old)
    pairs = [(_NOW_NS, _NOW_NS + 1), (RECEIVED_NS - 10**18 - 1, _NOW_NS), (_NOW_NS, RECEIVED_NS + _DAY_NS + 1)]
    _insert(store, "traces", old + _spans(pairs).SerializeToString())
    assert [row["Clamped"] for row in _times(store)] == ["", "start", "end"]


def test_an_envelope_stays_where_values_are_flattened(store: Any) -> None:
    deep = AnyValue(array_value=ArrayValue(values=[AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)]))]))
    request = _spans([(0, 0)])
    request.resource_spans[0].scope_spans[0].spans[0].attributes.append(
        KeyValue(key="deep", value=AnyValue(array_value=ArrayValue(values=[deep])))
    )
    _insert(store, "traces", _HEAD + request.SerializeToString())
    assert [row["Timestamp"] for row in _times(store)] == [RECEIVED_NS]


def test_without_an_envelope_what_has_no_time_is_of_now(store: Any) -> None:
    _insert(store, "traces", _spans([(0, 0)]).SerializeToString())
    ((is_now, clamped),) = store.client.query(
        "SELECT abs(dateDiff('second', Timestamp, now())) < 3600, Clamped FROM otel_traces"
    ).result_rows
    assert (is_now, clamped) == (1, "start,end")


def test_many_days_in_one_batch_are_one_batch(store: Any) -> None:
    """More partitions than ClickHouse takes at once by default (100); it remembers more than five years of them."""
    days = 150
    body = _spans([(_NOW_NS - n * _DAY_NS, _NOW_NS - n * _DAY_NS + 1) for n in range(days)]).SerializeToString()
    _insert(store, "traces", ingest.envelope(RECEIVED_NS, **_WINDOW) + body, times=2)
    assert store.count("otel_traces") == days
    windows = store.dicts(
        "SELECT toUInt32(extract(engine_full, 'non_replicated_deduplication_window = (\\\\d+)')) AS blocks "
        "FROM system.tables "
        "WHERE database = currentDatabase() AND engine = 'MergeTree' AND match(name, '^(otel_|trace_arrivals)')"
    )
    assert len(windows) == 9
    assert min(row["blocks"] for row in windows) > 2 * (ingest.MAX_AGE_NS + ingest.MAX_AHEAD_NS) // _DAY_NS


def test_years_of_a_wild_clock_are_few_partitions(store: Any) -> None:
    """One second of every week from 1970 to 2554, beside good spans."""
    week = 7 * _DAY_NS
    starts = [n * week + 5 for n in range(_LAST_NS // week)]
    wild = [start for start in starts if not _WINDOW["oldest_ns"] <= start <= _WINDOW["newest_ns"]]
    body = _spans([(start, start + 1) for start in wild] + [(_NOW_NS, _NOW_NS + 1)] * 10).SerializeToString()
    _insert(store, "traces", ingest.envelope(RECEIVED_NS, **_WINDOW) + body, times=2)
    assert store.count("otel_traces") == len(wild) + 10
    assert _partitions(store, "otel_traces") <= 2
    assert _partitions(store, "otel_traces_trace_id_ts") <= 2


# --- points and records -----------------------------------------------------------------------------------------------


def _metrics(times_ns: list[int]) -> ExportMetricsServiceRequest:
    """Of every kind a point at each of some times, which its exemplar and its start have too."""
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for kind in _KINDS:
        data = getattr(scope.metrics.add(name=kind), kind)
        for at in times_ns:
            point = data.data_points.add(time_unix_nano=at, start_time_unix_nano=at)
            if kind != "summary":
                point.exemplars.add(time_unix_nano=at, as_double=1.5)
    return request


def _logs(pairs: list[tuple[int, int]]) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number, (own_ns, observed_ns) in enumerate(pairs):
        records.add(time_unix_nano=own_ns, observed_time_unix_nano=observed_ns, body=AnyValue(string_value=f"{number}"))
    return request


def test_points_of_times_that_cannot_be_are_kept(store: Any) -> None:
    body = _metrics([*_ABSURD_NS, _NOW_NS]).SerializeToString()
    _insert(store, "metrics", _HEAD + body, times=2)
    rows = list(metric_rows([body]))
    for kind in _KINDS:
        expected = [row for table, row in rows if table == f"otel_metrics_{kind}"]
        assert [row["Clamped"] for row in expected].count("") == 1
        same_rows(stored(store, f"otel_metrics_{kind}"), expected, "SentTime", "TimeUnix")
        assert _partitions(store, f"otel_metrics_{kind}") <= 3


def test_records_of_times_that_cannot_be_are_kept(store: Any) -> None:
    times = [*_ABSURD_NS, _NOW_NS]
    body = _logs([(own, observed) for own in times for observed in times]).SerializeToString()
    _insert(store, "logs", _HEAD + body, times=2)
    expected = list(log_rows([body]))
    assert {row["Clamped"] for row in expected} == {"", "time", "moved"}
    same_rows(stored(store, "otel_logs"), expected, "Body")
    assert _partitions(store, "otel_logs") <= 3


# --- anything, and back again -----------------------------------------------------------------------------------------

_ns = st.one_of(
    st.sampled_from(_ABSURD_NS),
    st.integers(0, _LAST_NS),
    st.integers(_NOW_NS, _NOW_NS + 10**10),
    st.integers(_2100_NS, _2100_NS + 10**10),
)


def _sent(store: Any, signal: ingest.Signal, request: Any) -> Iterator[Any]:
    for line in export_json(store.client, signal):
        yield type(request).FromString(to_protobuf(Signal(signal), line))


class TestAnyTimes:
    """Generated requests. The store is shared by the examples; each example looks at its own batch only."""

    _settings = settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )

    @_settings
    @given(pairs=st.lists(st.tuples(_ns, _ns), min_size=1, max_size=20), events=st.lists(_ns, max_size=3))
    def test_spans(self, store: Any, pairs: list[tuple[int, int]], events: list[int]) -> None:
        request = _spans([*pairs, (_NOW_NS, _NOW_NS + 7)])
        for at in events:
            request.resource_spans[0].scope_spans[0].spans[0].events.add(time_unix_nano=at, name="e")
        store.client.command("TRUNCATE TABLE otel_traces")
        _insert(store, "traces", _HEAD + request.SerializeToString())
        same_rows(stored(store, "otel_traces"), list(span_rows([request.SerializeToString()])), "TraceId")
        found = [
            span
            for line in _sent(store, "traces", request)
            for resource in line.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        found.sort(key=lambda span: span.trace_id)
        for one, sent in zip(found, request.resource_spans[0].scope_spans[0].spans, strict=True):
            one.ClearField("status")
            assert one == sent

    @_settings
    @given(pairs=st.lists(st.tuples(_ns, _ns), min_size=1, max_size=20))
    def test_records(self, store: Any, pairs: list[tuple[int, int]]) -> None:
        request = _logs(pairs)
        store.client.command("TRUNCATE TABLE otel_logs")
        _insert(store, "logs", _HEAD + request.SerializeToString())
        same_rows(stored(store, "otel_logs"), list(log_rows([request.SerializeToString()])), "Body")
        found = [
            record
            for line in _sent(store, "logs", request)
            for resource in line.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]
        found.sort(key=lambda record: int(record.body.string_value))
        assert found == list(request.resource_logs[0].scope_logs[0].log_records)

    @_settings
    @given(times=st.lists(_ns, min_size=1, max_size=5, unique=True))
    def test_points(self, store: Any, times: list[int]) -> None:
        request = _metrics(times)
        for kind in _KINDS:
            store.client.command(f"TRUNCATE TABLE otel_metrics_{kind}")
        _insert(store, "metrics", _HEAD + request.SerializeToString())
        rows = list(metric_rows([request.SerializeToString()]))
        for kind in _KINDS:
            expected = [row for table, row in rows if table == f"otel_metrics_{kind}"]
            same_rows(stored(store, f"otel_metrics_{kind}"), expected, "SentTime", "TimeUnix")
        found = {
            (metric.name, point.time_unix_nano, point.start_time_unix_nano, *(e.time_unix_nano for e in exemplars))
            for line in _sent(store, "metrics", request)
            for resource in line.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in getattr(metric, metric.WhichOneof("data")).data_points
            for exemplars in ([] if metric.name == "summary" else point.exemplars,)
        }
        assert found == {(kind, at, at, *([] if kind == "summary" else [at])) for kind in _KINDS for at in times}
