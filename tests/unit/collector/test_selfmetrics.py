"""The Prometheus text."""

from __future__ import annotations

import re

from promptpath.collector.selfmetrics import PREFIX, SelfMetrics

LABEL = r'[a-z_]+="(?:[^"\\]|\\.)*"'
LINE = re.compile(rf"[a-z_]+(?:\{{{LABEL}(?:,{LABEL})*\}})? \d+(?:\.\d+)?(?:e-?\d+)?")


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


def test_counters_have_labels_and_add_up() -> None:
    metrics = SelfMetrics()
    metrics.add("requests_total", 1, "traces", "http")
    metrics.add("requests_total", 2, "traces", "http")
    metrics.add("requests_total", 5, "traces", "grpc")
    found = samples(metrics.render())
    assert found[f'{PREFIX}requests_total{{signal="traces",protocol="http"}}'] == 3
    assert found[f'{PREFIX}requests_total{{signal="traces",protocol="grpc"}}'] == 5
    assert metrics.value("requests_total", "traces") == 8
    assert metrics.value("requests_total", "logs") == 0


def test_the_histogram_is_cumulative() -> None:
    metrics = SelfMetrics()
    for seconds in (0.0005, 0.001, 0.003, 100.0):
        metrics.observe_ack(seconds)
    found = samples(metrics.render())
    assert found[f'{PREFIX}ack_seconds_bucket{{le="0.001"}}'] == 2
    assert found[f'{PREFIX}ack_seconds_bucket{{le="0.004"}}'] == 3
    assert found[f'{PREFIX}ack_seconds_bucket{{le="5.0"}}'] == 3
    assert found[f'{PREFIX}ack_seconds_bucket{{le="+Inf"}}'] == 4
    assert found[f"{PREFIX}ack_seconds_count"] == 4


def test_gauges_are_read_when_asked_and_labels_are_escaped() -> None:
    metrics = SelfMetrics()
    value = [1.0]
    metrics.add_source(lambda: [("depth", "How deep.", "gauge", [({"path": 'a"b\\c\nd'}, value[0])])])
    assert f'{PREFIX}depth{{path="a\\"b\\\\c\\nd"}} 1' in metrics.render()
    value[0] = 2.5
    assert f'{PREFIX}depth{{path="a\\"b\\\\c\\nd"}} 2.5' in metrics.render()
    assert f"# TYPE {PREFIX}depth gauge" in metrics.render()
