"""What rules make of some spans, in a store of its own that is gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from promptpath.collector.assemble.rules_model import RuleFile, SpanRule
from promptpath.collector.assemble.rules_sql import compile_select
from promptpath.collector.assemble.store import read_spans
from promptpath.collector.assembler import AssemblerService
from promptpath.storage import client_factory, migrate
from promptpath.storage.ingest import insert


@dataclass(frozen=True)
class Explained:
    """spans: columns of SPAN_SCHEMA and `rule` (index into `rules`, from 1; 0: none matched) and `name`, by trace and
    start; prompts: columns of the table `prompts`, by start; rules: in the order in which they are tried."""

    spans: pa.Table
    prompts: pa.Table
    rules: tuple[tuple[RuleFile, SpanRule], ...]


def explain(body: bytes, rules: Sequence[RuleFile]) -> Explained:
    """The spans of an OTLP export request (protobuf; several may follow each other), and their prompts.

    A process can open one embedded store: this must not run where another is open.
    """
    with tempfile.TemporaryDirectory(prefix="promptpath-rules-") as directory:
        factory = client_factory(f"chdb://{directory}")
        client = factory()
        try:
            migrate(client)
            insert(client, "traces", body, "rules")
            traces = [str(row[0]) for row in client.query("SELECT DISTINCT TraceId FROM otel_traces").result_rows]
            spans = read_spans(client, traces, compile_select(rules, explain=True))
            service = AssemblerService(factory, select=compile_select(rules))
            service.flush()
            service.close()
            prompts = client.query_arrow("SELECT * FROM prompts ORDER BY start_time, prompt_id")
        finally:
            client.close()
    order = [("trace_id", "ascending"), ("start_ns", "ascending"), ("span_id", "ascending")]
    return Explained(spans.sort_by(order), prompts, tuple((file, rule) for file in rules for rule in file.spans))
