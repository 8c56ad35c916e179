"""/metrics of a running collector, read by Prometheus's own parsers, and compared with the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from promptpath.collector.selfmetrics import PREFIX

from .running import RunningCollector, fetch, make_spans

DOC = Path(__file__).parents[3] / "docs" / "running.md"


def test_every_metric_is_documented_and_can_be_read(tmp_path: Path) -> None:
    with RunningCollector(tmp_path, assemble=True, grace_s=0.1) as collector:
        assert collector.post(make_spans(3).SerializeToString()).status == 200
        assert collector.post(b"\xff").status == 400
        collector.wait_stored(3)
        assert collector.sql("SELECT count() FROM otel_traces") == [[3]]
        text = collector.get("/metrics").body.decode()
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        strict = fetch(f"http://127.0.0.1:{collector.ports.http}/metrics", headers=accept)
        assert (collector.get("/healthz").status, collector.get("/readyz").status) == (200, 200)
    assert strict.headers["content-type"].startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(strict.body.decode()))) > 40

    values = {sample.name: sample.value for family in parse_text(text) for sample in family.samples}
    for name, value in (
        ("received_items_total", 3),
        ("stored_items_total", 3),
        ("refused_requests_total", 1),
        ("store_seconds_count", 1),
        ("sql_query_seconds_count", 1),
        ("ack_seconds_count", 1),
        ("storage_up", 1),
        ("journal_up", 1),
    ):
        assert values[PREFIX + name] == value, name
    assert values[f"{PREFIX}resident_memory_bytes"] > 1 << 20

    described = set(re.findall(r"`(\w+)`", DOC.read_text().partition("## What the collector says")[2]))
    told = {line.split()[2].removeprefix(PREFIX) for line in text.splitlines() if line.startswith("# TYPE ")}
    assert told - described == set()
