"""How long the queries of the dashboard and of people with SQL take: in the process of the store, and over HTTP."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from promptpath.cli.benches import Figures
from promptpath.cli.benches.machine import machine
from promptpath.cli.benches.programs import running
from promptpath.cli.benches.size import StoreSink
from promptpath.collector.simulate import Scenario, simulate
from promptpath.storage import connect, migrate
from promptpath.storage.queries import overview, prompts
from promptpath.storage.queries.dashboard import Filters

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_ROUNDS: Final = 7
_HOUR_NS: Final = 3_600 * 10**9
_STAGES: Final = """
SELECT segment.1 AS stage, quantiles(0.5, 0.95, 0.99)(segment.2)
FROM (SELECT arrayJoin(arrayZip(`segments.stage`, `segments.duration_ns`)) AS segment FROM prompts)
GROUP BY stage
"""
_SCAN: Final = """
SELECT ServiceName, SpanName, count(), avg(Duration), uniq(TraceId) FROM otel_traces GROUP BY ServiceName, SpanName
"""
_ONE: Final = (
    "SELECT prompt_id, trace_id, toUnixTimestamp64Nano(start_time) FROM prompts ORDER BY start_time DESC LIMIT 1"
)

_Query = Callable[["Client"], object]


def measure(count: int) -> Figures:
    """Simulates, stores and assembles `count` prompts, then asks.

    spans, prompts: in the store. Of each query NAME_direct_ms and NAME_http_ms: the median of some rounds, of wall
    time, as its caller waits; the first round is not counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"chdb://{Path(folder)}/store"
        client = connect(url)
        try:
            figures = _fill(client, count)
            queries = _queries(client)
            direct = {name: _median_ms(client, query) for name, query in queries.items()}
        finally:
            client.close()
        with running(url) as collector:
            reader = connect(f"clickhouse://127.0.0.1:{collector.ports['sql']}/promptpath", readonly=True)
            try:
                over_http = {name: _median_ms(reader, query) for name, query in queries.items()}
            finally:
                reader.close()
    for name in queries:
        figures[f"{name}_direct_ms"] = direct[name]
        figures[f"{name}_http_ms"] = over_http[name]
    return Figures("query", machine(), figures)


def _fill(client: Client, count: int) -> dict[str, float]:
    from promptpath.collector.backfill import assemble_since

    migrate(client)
    scenario = Scenario(prompts=count)
    simulate(scenario, [StoreSink(client)])
    day_ns = 24 * _HOUR_NS
    assemble_since(client, scenario.start_ns - day_ns, until_ns=scenario.start_ns + 30 * day_ns)
    spans = client.query("SELECT count() FROM otel_traces").result_rows[0][0]
    return {"spans": spans, "prompts": client.query("SELECT count() FROM prompts").result_rows[0][0]}


def _queries(client: Client) -> Mapping[str, _Query]:
    prompt_id, trace_id, newest_ns = client.query(_ONE).result_rows[0]
    last_hour = Filters(since_ns=newest_ns - _HOUR_NS, until_ns=newest_ns + 1)
    step_ns = _HOUR_NS // 60

    def page(asked: Client) -> None:
        overview.headline(asked, last_hour)
        overview.series(asked, last_hour, step_ns)
        overview.statuses(asked, last_hour, step_ns)
        overview.heat(asked, last_hour, step_ns)

    def raw(text: str) -> _Query:
        return lambda asked: asked.query_arrow(text)

    return {
        "prompt_by_id": lambda asked: prompts.get_prompt(asked, prompt_id),
        "overview_last_hour": page,
        "slowest_10": lambda asked: prompts.slowest(asked, limit=10),
        "stage_percentiles": raw(_STAGES),
        "spans_of_prompt": lambda asked: prompts.spans_of_trace(asked, trace_id),
        "scan_all_spans": raw(_SCAN),
    }


def _median_ms(client: Client, query: _Query) -> float:
    times = []
    for _ in range(_ROUNDS + 1):
        began = time.perf_counter()
        query(client)
        times.append(time.perf_counter() - began)
    return round(sorted(times[1:])[_ROUNDS // 2] * 1e3, 2)
