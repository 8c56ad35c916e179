"""From OTLP with times that cannot be to prompts: one row a prompt, no E2E of decades, null what is not known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from promptpath.collector.backfill import assemble_since, assemble_traces
from promptpath.storage import ingest

from .conftest import T0

MS = 1_000_000
DAY = 86_400 * 10**9
RECEIVED = T0 + 60_000 * MS
YEARS = {
    "0": 0,
    "1970": DAY,
    "2000": 946_684_800 * 10**9 - 1,
    "2100": 4_110_000_000 * 10**9,
    "2106": 4_294_967_296 * 10**9,
    "2262": 2**63,
    "2554": 2**64 - 1,
}
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")


def pair(key: str, *values: int | str) -> KeyValue:
    if len(values) == 1 and isinstance(values[0], str):
        return KeyValue(key=key, value=AnyValue(string_value=values[0]))
    listed = ArrayValue(values=[AnyValue(int_value=int(value)) for value in values])
    return KeyValue(key=key, value=AnyValue(array_value=listed))


class Trace:
    """A prompt: its client on one host, its server on another, a prefill in that. Times are the spans' to change."""

    def __init__(self, number: int) -> None:
        self.id = f"{number:032x}"
        self.request = ExportTraceServiceRequest()
        self.client = self._span("app", number, 0, "client", Span.SPAN_KIND_CLIENT, 0, 100)
        self.client.attributes.append(pair("promptpath.token.gaps_us", 30_000, 10_000, 10_000))
        self.client.attributes.append(pair("promptpath.token.counts", 1, 1, 1))
        self.server = self._span("engine", number + 10**6, number, "server", Span.SPAN_KIND_SERVER, 5, 95)
        self.prefill = self._span(
            "engine", number + 2 * 10**6, number + 10**6, "prefill", Span.SPAN_KIND_INTERNAL, 10, 29
        )

    def _span(self, service: str, own: int, parent: int, stage: str, kind: Any, start: int, end: int) -> Span:
        resource = self.request.resource_spans.add()
        resource.resource.attributes.extend([pair("service.name", service), pair("host.name", service)])
        return resource.scope_spans.add().spans.add(
            trace_id=bytes.fromhex(self.id),
            span_id=own.to_bytes(8, "big"),
            parent_span_id=parent.to_bytes(8, "big") if parent else b"",
            name="chat m",
            kind=kind,
            start_time_unix_nano=T0 + start * MS,
            end_time_unix_nano=T0 + end * MS,
            attributes=[pair("promptpath.stage", stage)],
        )


_token = itertools.count()


def send(store: Any, *traces: Trace) -> None:
    head = ingest.envelope(RECEIVED, RECEIVED - ingest.MAX_AGE_NS, RECEIVED + ingest.MAX_AHEAD_NS)
    body = b"".join(trace.request.SerializeToString() for trace in traces)
    ingest.insert(store, "traces", head + body, f"absurd-{next(_token)}")


def check(row: dict[str, Any]) -> None:
    """What holds of any prompt here."""
    assert row["e2e_ns"] in (None, 100 * MS)
    assert row["ttft_ns"] in (None, 30 * MS)
    assert RECEIVED - DAY <= row["start_time"] <= row["end_time"] <= RECEIVED + DAY
    parts = [row[f"ttft_{part}_ns"] for part in PARTS]
    if row["ttft_ns"] is None:
        assert parts == [None] * len(PARTS)
    else:
        assert sum(parts) == row["ttft_ns"]
        assert min(parts) >= 0
    assert all(ns >= 0 for ns in row["segments.duration_ns"])


@pytest.mark.parametrize("hop", ["client", "server", "prefill"])
@pytest.mark.parametrize("which", ["start", "end", "both", "moved", "swapped"])
def test_prompts_with_times_that_cannot_be(store: Any, stored: Any, hop: str, which: str) -> None:
    """A trace for each absurd year, beside a good one; read back by id and by time."""
    traces = [Trace(number) for number in range(1, len(YEARS) + 2)]
    for trace, year_ns in zip(traces, YEARS.values(), strict=False):
        span = getattr(trace, hop)
        length = span.end_time_unix_nano - span.start_time_unix_nano
        if which == "swapped":
            span.end_time_unix_nano = span.start_time_unix_nano - 1
        if which in ("start", "both"):
            span.start_time_unix_nano = year_ns
        if which in ("end", "both"):
            span.end_time_unix_nano = year_ns
        if which == "moved":
            span.start_time_unix_nano = max(min(year_ns, 2**64 - 1 - length), 1)
            span.end_time_unix_nano = span.start_time_unix_nano + length
    send(store, *traces)
    spans, written = assemble_traces(store, [trace.id for trace in traces])
    assert (spans, written) == (3 * len(traces), len(traces))
    rows = stored()
    assert {row["trace_id"] for row in rows} == {trace.id for trace in traces}
    for row in rows:
        check(row)
    good = next(row for row in rows if row["trace_id"] == traces[-1].id)
    assert (good["e2e_ns"], good["ttft_ns"], good["start_time"]) == (100 * MS, 30 * MS, T0)
    others = [row for row in rows if row is not good]
    # What a lost time of the root leaves unknown; a clock that is set to another year leaves nothing unknown.
    no_e2e = hop == "client" and which in ("start", "end", "both", "swapped")
    no_ttft = hop == "client" and which in ("start", "both")
    assert {row["e2e_ns"] is None for row in others} == {no_e2e}
    assert {row["ttft_ns"] is None for row in others} == {no_ttft}
    assert assemble_since(store, RECEIVED - 2 * DAY, until_ns=RECEIVED + 2 * DAY) == len(traces)
    assert len(stored()) == len(traces)


def test_events_decades_away_are_no_first_token(store: Any, stored: Any) -> None:
    traces = [Trace(number) for number in range(1, len(YEARS) + 1)]
    for trace, year_ns in zip(traces, YEARS.values(), strict=True):
        del trace.client.attributes[1:]
        trace.client.events.add(name="gen_ai.content.completion.chunk", time_unix_nano=year_ns)
        trace.server.events.add(name="first_token", time_unix_nano=year_ns)
        trace.prefill.end_time_unix_nano = 0
    send(store, *traces)
    assemble_traces(store, [trace.id for trace in traces])
    assert [(row["ttft_ns"], row["e2e_ns"]) for row in stored()] == [(None, 100 * MS)] * len(traces)


def test_events_of_a_clock_that_is_set_to_another_year(store: Any, stored: Any) -> None:
    """They are of the same clock as the span that they are in."""
    trace = Trace(1)
    del trace.client.attributes[1:]
    shift = 20_000 * DAY
    for span in (trace.client, trace.server, trace.prefill):
        span.start_time_unix_nano += shift
        span.end_time_unix_nano += shift
    trace.client.events.add(name="gen_ai.content.completion.chunk", time_unix_nano=T0 + shift + 30 * MS)
    send(store, trace)
    assemble_traces(store, [trace.id])
    (row,) = stored()
    assert (row["e2e_ns"], row["start_time"]) == (100 * MS, T0)
    assert (row["ttft_ns"], row["ttft_source"]) == (30 * MS, "client")
