"""What became of numbered requests in storage: each exactly once, in every table that a view fills, and as prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.numbered import ITEM, REQUEST
from tests.bench.retrying import Entry

from promptpath.collector.otlp import Signal

#: Numbers of requests that a finding names.
_SHOWN: Final = 5
_METRICS: Final = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
#: request -> (rows, different items)
_COUNTS: Final = {
    Signal.TRACES: f"""
        SELECT toUInt64(SpanAttributes['{REQUEST}']) AS request, count(), uniqExact(SpanId)
        FROM otel_traces GROUP BY request""",
    Signal.LOGS: f"""
        SELECT toUInt64(LogAttributes['{REQUEST}']) AS request, count(), uniqExact(LogAttributes['{ITEM}'])
        FROM otel_logs GROUP BY request""",
    Signal.METRICS: "SELECT request, count(), uniqExact(item) FROM ("
    + " UNION ALL ".join(
        f"SELECT toUInt64(Attributes['{REQUEST}']) AS request, Attributes['{ITEM}'] AS item FROM otel_metrics_{kind}"
        for kind in _METRICS
    )
    + ") GROUP BY request",
}
#: Traces whose span counts, ends, or rows differ between the spans and the two tables that views fill from them.
_TRACE_TABLES: Final = """
    SELECT TraceId FROM
    (SELECT TraceId, count() AS spans, toUnixTimestamp(min(Timestamp)) AS first, toUnixTimestamp(max(Timestamp)) AS last
        FROM otel_traces GROUP BY TraceId) AS s
    FULL OUTER JOIN
    (SELECT TraceId, sum(Spans) AS spans, count() AS rows FROM trace_arrivals GROUP BY TraceId) AS a USING (TraceId)
    FULL OUTER JOIN
    (SELECT TraceId, toUnixTimestamp(min(Start)) AS first, toUnixTimestamp(max(End)) AS last, count() AS rows
        FROM otel_traces_trace_id_ts GROUP BY TraceId) AS t USING (TraceId)
    WHERE s.spans != a.spans OR s.first != t.first OR s.last != t.last OR a.rows != t.rows
"""
_PROMPTS: Final = "SELECT * EXCEPT (assembled_at) FROM prompts ORDER BY prompt_id"


@dataclass
class Verdict:
    """Requests (by number), traces and prompts that are not as they must be.

    lost: acknowledged, not all there. doubled: there more than once although it was sent once only. torn: some items
    more often than others. doubled_retries: the same of requests that were sent again because no answer had come.
    """

    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    doubled_retries: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    trace_tables: list[str] = field(default_factory=list)
    prompts_missing: list[str] = field(default_factory=list)
    prompts_doubled: list[str] = field(default_factory=list)
    prompts_different: list[str] = field(default_factory=list)
    minutes_different: list[str] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)

    def faults(self) -> list[str]:
        """One line for each kind of fault; none where all is as it must be."""
        return [
            f"{name}: {len(found)}, such as {found[:_SHOWN]}"
            for name, found in vars(self).items()
            if isinstance(found, list) and found
        ]


@dataclass
class Rows:
    """Prompts by their id, and minutes, as text: rows of two stores can be compared."""

    prompts: dict[str, list[str]]
    minutes: dict[str, str]


def rows(client: Any) -> Rows:
    prompts: dict[str, list[str]] = {}
    for line in _lines(client, _PROMPTS):
        prompts.setdefault(str(json.loads(line)["prompt_id"]), []).append(line)
    return Rows(prompts, _minutes(client))


def judge(client: Any, ledger: Mapping[int, Entry], reference: Rows | None = None) -> Verdict:
    """Compares what is stored with what the senders know, and prompts with those of a run without kills."""
    verdict = Verdict()
    for signal, statement in _COUNTS.items():
        found = {int(number): (int(rows), int(items)) for number, rows, items in client.query(statement).result_rows}
        expected = {number: entry for number, entry in ledger.items() if entry.signal is signal}
        verdict.unknown += sorted(found.keys() - expected.keys())
        verdict.stored[signal.value] = sum(rows for rows, _ in found.values())
        for number, entry in expected.items():
            count, items = found.get(number, (0, 0))
            if items < entry.items and (entry.acknowledged or items):
                verdict.lost.append(number)
            elif count % entry.items:
                verdict.torn.append(number)
            elif count > entry.items:
                (verdict.doubled_retries if entry.lost else verdict.doubled).append(number)
    verdict.trace_tables = [str(row[0]) for row in client.query(_TRACE_TABLES).result_rows]
    have = rows(client)
    verdict.stored["prompts"] = len(have.prompts)
    verdict.prompts_doubled = [one for one, lines in have.prompts.items() if len(lines) > 1]
    if reference is not None:
        verdict.prompts_missing = sorted(reference.prompts.keys() - have.prompts.keys())
        verdict.prompts_different = [
            one for one, lines in have.prompts.items() if lines[0] != reference.prompts.get(one, [""])[0]
        ]
        both = have.minutes.keys() | reference.minutes.keys()
        verdict.minutes_different = sorted(one for one in both if have.minutes.get(one) != reference.minutes.get(one))
    return verdict


def _minutes(client: Any) -> dict[str, str]:
    """minute, model, service and tenant -> figures, those of the quantile states read."""
    names = [str(row[0]) for row in client.query("DESCRIBE TABLE prompt_minutes").result_rows]
    figures = [
        f"finalizeAggregation({name})" if name.endswith("_q") else name
        for name in names
        if name not in ("minute", "model", "service", "tenant", "computed_at")
    ]
    table = client.query(
        f"SELECT toString(tuple(minute, model, service, tenant)), toString(tuple({', '.join(figures)})) "
        "FROM prompt_minutes"
    ).result_rows
    return {str(key): str(value) for key, value in table}


def _lines(client: Any, statement: str) -> list[str]:
    data: bytes = client.raw_query(statement, fmt="JSONEachRow")
    return data.decode().splitlines()
