"""Import, export, import elsewhere: the same rows, and the requests that came, value by value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.storage.nesting import flatten

from .test_import import CAPTURES, promptpath, rows

FILES = sorted(CAPTURES.glob("*/*.pb"))
BY_SIGNAL = {s: [file for file in FILES if file.stem == s] for s in ("traces", "metrics", "logs")}
TABLES = {
    "traces": ["otel_traces"],
    "logs": ["otel_logs"],
    "metrics": [f"otel_metrics_{kind}" for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")],
}

#: When points were taken, ns since the epoch.
AT = 1_760_000_000_123_456_789


def everything() -> ExportTraceServiceRequest:
    """A request with every field that a span can have, and every kind of value."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add(schema_url="resource-schema")
    resource.resource.dropped_attributes_count = 4
    fill(resource.resource.attributes)
    scope = resource.scope_spans.add(schema_url="scope-schema")
    scope.scope.name, scope.scope.version, scope.scope.dropped_attributes_count = "scope", "1.2", 5
    fill(scope.scope.attributes)
    for number in range(1, 4):
        span = scope.spans.add(
            trace_id=bytes([number]) * 16,
            span_id=bytes([number]) * 8,
            parent_span_id=b"parent!!",
            trace_state="a=b",
            flags=0x301,
            name='a "name"\n\\ and 日本 /',
            kind=number,
            start_time_unix_nano=1_760_000_000_123_456_789 + number,
            end_time_unix_nano=1_760_000_001_987_654_321,
            dropped_attributes_count=1,
            dropped_events_count=2,
            dropped_links_count=3,
        )
        span.status.code, span.status.message = number - 1, "why" if number == 3 else ""
        fill(span.attributes)
        for name, values in (("promptpath.token.gaps_us", (1, 2, 3_000_000_000)), ("promptpath.token.counts", (1, 7))):
            added = span.attributes.add(key=name).value.array_value.values
            for value in values:
                added.add().int_value = value
        for at in range(2):
            event = span.events.add(time_unix_nano=1_760_000_000_500_000_000 + at, name=f"e{at}")
            event.dropped_attributes_count = at
            if at:
                fill(event.attributes)
            link = span.links.add(trace_id=b"l" * 16, span_id=b"k" * 8, trace_state="c=d", flags=0x100 * at)
            link.dropped_attributes_count = 9 * at
            if at:
                fill(link.attributes)
    return request


def fill(attributes: Any) -> None:
    attributes.add(key="string").value.string_value = 'x "y" \\ \t\n/\u2028'
    attributes.add(key="empty").value.string_value = ""
    attributes.add(key="like.int").value.string_value = "17"
    attributes.add(key="int").value.int_value = -(2**63)
    attributes.add(key="big").value.int_value = 2**53 + 1
    attributes.add(key="true").value.bool_value = True
    attributes.add(key="false").value.bool_value = False
    attributes.add(key="double").value.double_value = 0.1
    attributes.add(key="whole").value.double_value = 3.0
    attributes.add(key="huge").value.double_value = 1e300
    attributes.add(key="infinite").value.double_value = float("-inf")
    attributes.add(key="bytes").value.bytes_value = b"\0\xff\x80"
    attributes.add(key="none").value.SetInParent()
    attributes.add(key="empty.list").value.array_value.SetInParent()
    attributes.add(key="empty.map").value.kvlist_value.SetInParent()
    pairs = attributes.add(key="map").value.kvlist_value.values
    pairs.add(key='a "key"').value.int_value = 2**60
    pairs.add(key="b").value.string_value = "2"
    pairs.add(key="c").value.double_value = 2.5
    ints = attributes.add(key="ints").value.array_value.values
    for value in (1, -2, 2**62):
        ints.add().int_value = value
    mixed = attributes.add(key="mixed").value.array_value.values
    mixed.add().string_value = "1"
    mixed.add().int_value = 1
    mixed.add().double_value = 1.0
    mixed.add().bool_value = False
    mixed.add().bytes_value = b"\1"
    mixed.add()


def framed(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    while data:
        size = int.from_bytes(data[:4], "big")
        yield data[4 : 4 + size]
        data = data[4 + size :]


def everything_of_metrics() -> ExportMetricsServiceRequest:
    """A request with every field that a point of each kind can have, and points that have none."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add(schema_url="resource-schema")
    resource.resource.dropped_attributes_count = 4
    fill(resource.resource.attributes)
    scope = resource.scope_metrics.add(schema_url="scope-schema")
    scope.scope.name, scope.scope.version, scope.scope.dropped_attributes_count = "scope", "1.2", 5
    fill(scope.scope.attributes)
    gauge, total, histogram, exponential, summary = (
        scope.metrics.add(name=name, unit="By", description=f'a "{name}"')
        for name in ("gauge", "sum", "histogram", "exponential", "summary")
    )
    fill(gauge.metadata)
    fill(summary.metadata)
    total.sum.aggregation_temporality, total.sum.is_monotonic = 2, True
    histogram.histogram.aggregation_temporality = exponential.exponential_histogram.aggregation_temporality = 1
    numbers = (0, -1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0.0, 0.1, 3.0, float("inf"), None)
    for points in (gauge.gauge.data_points, total.sum.data_points):
        for number in numbers:
            put_number(stamped(points.add()), number)
        for number in numbers:
            put_number(points[0].exemplars.add(time_unix_nano=AT, trace_id=b"t" * 16, span_id=b"s" * 8), number)
        fill(points[0].exemplars[1].filtered_attributes)
        fill(points[1].attributes)
        points[2].flags = 1
    for said in ({"sum": 0.0, "min": 0.0, "max": 0.0}, {"sum": 2.5}, {"min": -1.0}, {"max": 1e300}, {}):
        point = stamped(histogram.histogram.data_points.add(count=2**63, **said))
        point.bucket_counts.extend([0, 2**63])
        point.explicit_bounds.append(0.5)
        put_number(point.exemplars.add(time_unix_nano=AT), 7)
        wide = stamped(exponential.exponential_histogram.data_points.add(count=5, scale=-3, zero_count=2, **said))
        wide.positive.offset, wide.negative.offset = -4, 9
        wide.positive.bucket_counts.extend([1, 2])
        wide.negative.bucket_counts.append(0)
        wide.zero_threshold = 0.25 if said else 0.0
        fill(wide.attributes)
        put_number(wide.exemplars.add(time_unix_nano=AT), 7.5)
    point = stamped(summary.summary.data_points.add(count=3, sum=4.5))
    point.quantile_values.add(quantile=0.5, value=1.5)
    fill(point.attributes)
    stamped(summary.summary.data_points.add())
    return request


def stamped(point: Any) -> Any:
    point.start_time_unix_nano, point.time_unix_nano = AT - 5, AT
    return point


def put_number(point: Any, number: float | None) -> None:
    if isinstance(number, int):
        point.as_int = number
    elif number is not None:
        point.as_double = number


def items(message: type[Any], bodies: Iterator[bytes]) -> Counter[str]:
    """Every span, record or point with what stands above it, as text in which order does not matter but where it
    should."""
    found: Counter[str] = Counter()
    for body in bodies:
        for resource in MessageToDict(message.FromString(body)).values():
            for one in resource:
                for scope in one.get("scopeSpans") or one.get("scopeLogs") or one.get("scopeMetrics", []):
                    above = [one.get("resource") or None, one.get("schemaUrl"), scope.get("scope") or None]
                    above.append(scope.get("schemaUrl"))
                    for metric in scope.get("metrics", []):
                        for kind, held in metric.items():
                            for point in held.pop("dataPoints", []) if isinstance(held, dict) else []:
                                item = [point, kind, {name: said for name, said in metric.items() if said}]
                                found[json.dumps(sorted_attributes([item, *above]), sort_keys=True)] += 1
                    for item in scope.get("spans", scope.get("logRecords", [])):
                        found[json.dumps(sorted_attributes([item, *above]), sort_keys=True)] += 1
    return found


def sorted_attributes(value: Any) -> Any:
    if isinstance(value, list):
        return [sorted_attributes(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: sorted_attributes(item) for key, item in value.items() if item not in ({}, [])}
    for key in ("attributes", "filteredAttributes", "metadata"):
        if key in found:
            found[key] = sorted(found[key], key=lambda pair: json.dumps(pair, sort_keys=True))
    return found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("first")
    made = {"traces": everything(), "metrics": everything_of_metrics()}
    for signal, request in made.items():
        whole = request.SerializeToString()
        (folder / f"{signal}-everything.pb").write_bytes(len(whole).to_bytes(4, "big") + whole)
    store = f"chdb://{folder}/store"
    files = [str(file) for file in (*FILES, *(folder / f"{signal}-everything.pb" for signal in made))]
    done = promptpath("import", *files, "--storage", store, "--format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, store


@pytest.mark.parametrize(("signal", "encoding"), [("traces", "protobuf"), ("metrics", "json"), ("logs", "json")])
def test_what_is_exported_gives_the_same_rows_elsewhere(
    first: tuple[Path, str], tmp_path: Path, signal: str, encoding: str
) -> None:
    folder, store = first
    file = tmp_path / f"{signal}.{'jsonl' if encoding == 'json' else 'pb'}"
    done = promptpath(
        "export", "--storage", store, "--signal", signal, "--encoding", encoding, "-o", str(file), cwd=folder
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    other = f"chdb://{tmp_path}/other"
    done = promptpath("import", str(file), "--storage", other, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for table in TABLES[signal]:
        query = f"SELECT * EXCEPT (IngestedAt) FROM {table} ORDER BY ALL"
        assert rows(other, query, tmp_path) == rows(store, query, folder), table
    if signal == "traces":
        query = "SELECT * EXCEPT (assembled_at) FROM prompts ORDER BY prompt_id"
        assert rows(other, query, tmp_path) == rows(store, query, folder)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        ("traces", ExportTraceServiceRequest),
        ("logs", ExportLogsServiceRequest),
        ("metrics", ExportMetricsServiceRequest),
    ],
)
def test_what_is_exported_is_what_came(first: tuple[Path, str], signal: Any, message: type[Any]) -> None:
    folder, store = first
    done = promptpath("export", "--storage", store, "--signal", signal, cwd=folder)
    assert done.returncode == 0, done.stderr
    # A list or map that holds another is JSON text in storage, and stays that.
    sent = (
        flatten(signal, body) for file in (*BY_SIGNAL[signal], *folder.glob(f"{signal}-*.pb")) for body in framed(file)
    )
    given = (to_protobuf(Signal(signal), line.encode()) for line in done.stdout.splitlines())
    before, after = items(message, sent), items(message, given)
    assert sum(after.values()) == sum(before.values()) > 0
    assert sorted((before - after).elements()) == sorted((after - before).elements())


def test_filters_and_parquet(first: tuple[Path, str], tmp_path: Path) -> None:
    folder, store = first

    def spans(*argv: str) -> list[Any]:
        done = promptpath("export", "--storage", store, *argv, cwd=folder)
        assert done.returncode == 0, done.stderr
        return [
            (span["traceId"], span["spanId"])
            for line in done.stdout.splitlines()
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    assert spans("--trace", "01" * 16) == [("01" * 16, "01" * 8)]
    assert spans("--since", "2025-10-09T08:53:20", "--until", "2025-10-09T08:53:21") == [
        (f"0{n}" * 16, f"0{n}" * 8) for n in (1, 2, 3)
    ]
    assert spans("--service", "nobody") == []
    assert spans("--tenant", "nobody") == []
    counted = rows(
        store, "SELECT ServiceName AS s, count() AS n FROM otel_traces GROUP BY s ORDER BY n DESC LIMIT 1", folder
    )
    assert len(spans("--service", counted[0]["s"])) == counted[0]["n"]

    file = tmp_path / "prompts.parquet"
    done = promptpath(
        "export", "--storage", store, "--signal", "prompts", "--format", "parquet", "-o", str(file), cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert pq.read_table(file).num_rows == rows(store, "SELECT count() AS n FROM prompts", folder)[0]["n"]


def test_wrong_use(tmp_path: Path) -> None:
    for argv, words in (
        (["--signal", "prompts"], "--format parquet"),
        (["--signal", "metrics", "--format", "parquet"], "five tables"),
        (["--since", "soon"], "no time"),
        (["--storage", f"chdb://{tmp_path}/none"], "no data"),
    ):
        done = promptpath("export", *argv, cwd=tmp_path)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
