"""From spans that are sent to prompts that are read, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from promptpath import semconv

from .running import RunningCollector, make_spans, wait_for

MS = 1_000_000


def _prompt(number: int, streaming: bool) -> Any:
    """A client's call, a server inside it, and the first of three tokens after 40 ms at the client."""
    request = make_spans(2, first=number)
    client, server = request.resource_spans[0].scope_spans[0].spans
    start = client.start_time_unix_nano
    client.trace_id = server.trace_id
    client.end_time_unix_nano = start + 100 * MS
    server.parent_span_id = client.span_id
    server.start_time_unix_nano, server.end_time_unix_nano = start + 10 * MS, start + 90 * MS
    client.kind, server.kind = 3, 2
    for span, stage, gaps in (
        (client, "client", [40_000, 20_000, 20_000]),
        (server, "server", [25_000, 20_000, 20_000]),
    ):
        span.attributes.add(key=semconv.STAGE).value.string_value = stage
        span.attributes.add(key=semconv.GEN_AI_OPERATION_NAME).value.string_value = "chat"
        span.attributes.add(key=semconv.GEN_AI_REQUEST_MODEL).value.string_value = "m"
        if streaming:
            values = span.attributes.add(key=semconv.TOKEN_GAPS_US).value.array_value.values
            for gap in gaps:
                values.add().int_value = gap
    return request


def test_prompts_come_of_spans_without_further_doing(tmp_path: Path) -> None:
    with RunningCollector(tmp_path, assemble=True, grace_s=0.2) as collector:
        assert collector.post(_prompt(1, streaming=True).SerializeToString()).status == 200
        assert collector.post(_prompt(3, streaming=False).SerializeToString()).status == 200
        wait_for(lambda: collector.sql("SELECT count() FROM prompts") == [[2]], "two prompts")
        parts = " + ".join(f"ttft_{part.value}_ns" for part in semconv.Part)
        rows = collector.sql(f"SELECT prompt_id, model, ttft_ns, {parts}, e2e_ns FROM prompts ORDER BY prompt_id")
        assert rows == [
            [format(1, "016x"), "m", 40 * MS, 40 * MS, 100 * MS],
            [format(3, "016x"), "m", None, None, 100 * MS],
        ]
        wait_for(lambda: collector.metric("assembler_prompts_total") == 2, "counted")
