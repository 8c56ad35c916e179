"""Spans of the collector's own work: there when asked for, of every kind, and they cause no more of themselves."""

from __future__ import annotations

import time
from pathlib import Path

from .running import RunningCollector, make_spans, wait_for

OWN = "FROM otel_traces WHERE ServiceName = 'promptpath-collector'"
#: Longer than it takes own spans to be flushed, stored and assembled, several times over.
QUIET_S = 6.0


def test_work_makes_spans_and_they_make_none(tmp_path: Path) -> None:
    with RunningCollector(tmp_path, assemble=True, grace_s=0.1, own_spans=True) as collector:
        assert collector.post(make_spans(3).SerializeToString()).status == 200
        assert collector.post(b"\xff").status == 400
        names = ["assemble batch", "journal commit", "receive traces", "write segment"]
        query = f"SELECT DISTINCT SpanName {OWN} ORDER BY SpanName"
        wait_for(lambda: collector.sql(query) == [[name] for name in names], "every kind of own span", 60)
        time.sleep(QUIET_S)
        before = collector.sql(f"SELECT count() {OWN}")
        time.sleep(QUIET_S)
        assert collector.sql(f"SELECT count() {OWN}") == before
        refused = collector.sql(f"SELECT StatusMessage {OWN} AND StatusCode = 'Error'")
        assert refused == [["malformed"]]
        joined = collector.sql(
            f"SELECT count() {OWN} AND SpanName = 'journal commit' AND ParentSpanId IN "
            f"(SELECT SpanId {OWN} AND SpanName = 'receive traces')"
        )
        assert joined == [[1]]
        assert collector.sql("SELECT count() FROM otel_traces WHERE ServiceName = 'test'") == [[3]]
        assert collector.sql("SELECT count() FROM prompts") == [[0]]


def test_without_the_option_there_are_none(tmp_path: Path) -> None:
    with RunningCollector(tmp_path, assemble=True, grace_s=0.1) as collector:
        assert collector.post(make_spans(3).SerializeToString()).status == 200
        collector.wait_stored(3)
        time.sleep(QUIET_S / 2)
        assert collector.sql(f"SELECT count() {OWN}") == [[0]]
