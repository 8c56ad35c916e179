"""Views: rates of counters, which are never negative, and the agent runs that prompts were part of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from promptpath.storage.rows import insert_prompts

from .prompt_rows import T0_NS, prompt, table

_CUMULATIVE, _DELTA = 2, 1


def _points(
    store: Any, values: list[float], *, kind: str = "sum", temporality: int = _CUMULATIVE, **columns: Any
) -> None:
    """One point a second from second 1000 on; `start` (second) and the rest as given."""
    known = {"device": "gpu0", "host": "h", "metric": "m", "start": 0, "monotonic": True, "flags": 0} | columns
    extra = ", AggregationTemporality, IsMonotonic" if kind == "sum" else ""
    extra_values = f", {temporality}, {known['monotonic']}" if kind == "sum" else ""
    store.client.command(
        f"INSERT INTO otel_metrics_{kind} (ServiceName, ResourceAttributes, MetricName, MetricUnit, Attributes, "
        f"StartTimeUnix, TimeUnix, Value, Flags{extra}) "
        "SELECT 'agent', map('host.id', {host:String}, 'host.name', 'name'), {metric:String}, 'By', "
        "map('hw.id', {device:String}), toDateTime64({start:Float64}, 9), toDateTime64(1000 + n, 9), value, "
        f"{{flags:UInt32}}{extra_values} FROM (SELECT arrayJoin(arrayEnumerate({{values:Array(Float64)}})) - 1 AS n, "
        "{values:Array(Float64)}[n + 1] AS value)",
        parameters={**known, "values": values},
    )


def _rates(store: Any, where: str = "1") -> list[float | None]:
    return [row["rate"] for row in store.dicts(f"SELECT rate FROM counters WHERE {where} ORDER BY device, time")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([10, 30, 30, 80], [None, 20, 0, 50]),
        # A counter of 32 bits wraps; a driver's reset; neither is a rate, and neither is negative.
        ([2**32 - 10, 20, 25], [None, None, 5]),
        ([1000, 5, 7], [None, None, 2]),
    ],
)
def test_rates_of_cumulative_counters(store: Any, values: list[float], expected: list[float | None]) -> None:
    _points(store, values)
    assert _rates(store) == expected


def test_a_counter_that_says_it_started_anew_has_no_rate_then(store: Any) -> None:
    _points(store, [100, 110])
    store.client.command(
        "INSERT INTO otel_metrics_sum SELECT * REPLACE (TimeUnix + 2 AS TimeUnix, "
        "toDateTime64(1001.5, 9) AS StartTimeUnix, Value + 900 AS Value) FROM otel_metrics_sum"
    )
    assert _rates(store) == [None, 10, None, 10]


def test_rates_of_delta_counters(store: Any) -> None:
    _points(store, [8, 9], temporality=_DELTA, start=998)
    assert _rates(store) == [4, 3]


def test_series_are_told_apart(store: Any) -> None:
    _points(store, [10, 20])
    _points(store, [1000, 1001], device="gpu1")
    _points(store, [5, 6], host="other")
    assert _rates(store, "host = 'h'") == [None, 10, None, 1]
    assert _rates(store, "host = 'other' AND metric = 'm'") == [None, 1]


def test_gauges_and_what_may_fall_have_no_rate(store: Any) -> None:
    _points(store, [5, 3], kind="gauge", metric="temperature")
    _points(store, [5, 3], monotonic=False)
    columns = "metric, value, rate, unit, host, host_name, device, service"
    rows = store.dicts(f"SELECT {columns} FROM counters ORDER BY metric, time")
    common = {"rate": None, "unit": "By", "host": "h", "host_name": "name", "device": "gpu0", "service": "agent"}
    assert rows == [
        {"metric": metric, "value": value, **common} for metric in ("m", "temperature") for value in (5.0, 3.0)
    ]


def test_a_point_without_a_recorded_value_is_null(store: Any) -> None:
    _points(store, [0], kind="gauge", flags=1)
    assert store.dicts("SELECT value FROM counters") == [{"value": None}]


def test_hosts_and_devices_fall_back(store: Any) -> None:
    store.client.command(
        "INSERT INTO otel_metrics_gauge (ServiceName, ResourceAttributes, MetricName, Attributes, TimeUnix, Value) "
        "VALUES ('s', map('host.name', 'n'), 'a', map('network.interface.name', 'eth0'), 1, 1), "
        "('s', map(), 'b', map(), 1, 1)"
    )
    assert store.dicts("SELECT metric, host, device FROM counters ORDER BY metric") == [
        {"metric": "a", "host": "n", "device": "eth0"},
        {"metric": "b", "host": "s", "device": ""},
    ]


def _call(number: int, start_ns: int, *segments: tuple[str, int, int, bool], **values: Any) -> dict[str, Any]:
    stages, starts, durations, critical = zip(*segments, strict=True)
    columns = {
        "segments.stage": list(stages),
        "segments.hop": ["h"] * len(stages),
        "segments.span_id": ["s"] * len(stages),
        "segments.start_ns": list(starts),
        "segments.duration_ns": list(durations),
        "segments.critical": list(critical),
    }
    times = {"start_time": T0_NS + start_ns, "end_time": T0_NS + start_ns + 1000}
    return prompt(number, workflow_id="run", agent_name="agent", **(times | columns | values))


def test_workflows(store: Any) -> None:
    insert_prompts(
        store.client,
        table(
            _call(1, 0, ("transit", 0, 10, True), ("prefill", 10, 50, True), ("gateway", 60, 5, True), input_tokens=3),
            # At the same time as the first: counted once in the unions, twice in the sums.
            _call(2, 0, ("transit", 0, 10, True), ("decode", 30, 40, True), ("server", 0, 900, False), output_tokens=4),
            _call(3, 5000, ("dns", 0, 100, True), status="error"),
            prompt(4),
        ),
    )
    (row,) = store.dicts("SELECT * EXCEPT (start_time, end_time, trace_id, conversation_id) FROM workflows")
    assert math.isclose(row.pop("share"), 110 / (110 + 60))
    assert math.isclose(row.pop("inference_share"), 60 / (110 + 60))
    assert row == {
        "workflow_id": "run",
        "agent_name": "agent",
        "total_ns": 6000,
        "calls": 3,
        "failed_calls": 1,
        "input_tokens": 3,
        "output_tokens": 4,
        "network_ns": 110,
        "inference_ns": 60,
        "calls_ns": 2000,
        "gaps_ns": 4000,
        "network_sum_ns": 120,
        "inference_sum_ns": 90,
        "cost_usd": None,
    }


def test_a_run_without_segments_has_no_share(store: Any) -> None:
    insert_prompts(store.client, table(prompt(1, workflow_id="w")))
    assert store.dicts("SELECT network_ns, inference_ns, share FROM workflows") == [
        {"network_ns": 0, "inference_ns": 0, "share": None}
    ]
