"""The Prometheus text, as Prometheus's own parsers read it."""

from __future__ import annotations

import re

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from promptpath.collector.selfmetrics import COUNTERS, HISTOGRAMS, PREFIX, SelfMetrics, answer_to

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


def filled() -> SelfMetrics:
    metrics = SelfMetrics()
    for name, (_, labels) in COUNTERS.items():
        metrics.add(name, 2.5, *(f'a "{label}"\\ \n' for label in labels))
    for name, (_, labels, _) in HISTOGRAMS.items():
        metrics.observe(name, 0.02, *labels)
        metrics.observe(name, 999, *labels)
    metrics.add_source(
        lambda: [("things_total", "Things.", "counter", [({}, 3)]), ("size", "Size.", "gauge", [({}, 1)])]
    )
    return metrics


def test_prometheus_reads_the_text() -> None:
    families = {family.name: family for family in parse_text(filled().render())}
    assert len(families) == len(COUNTERS) + len(HISTOGRAMS) + 2
    refused = families[f"{PREFIX}refused_requests"].samples[0]
    assert refused.labels == {label: f'a "{label}"\\ \n' for label in ("signal", "protocol", "reason")}
    assert (refused.name, refused.value) == (f"{PREFIX}refused_requests_total", 2.5)
    for name, (_, labels, bounds) in HISTOGRAMS.items():
        family = families[PREFIX + name]
        assert family.type == "histogram"
        buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
        assert [sample.labels["le"] for sample in buckets] == [*(str(bound) for bound in bounds), "+Inf"]
        assert [sample.value for sample in buckets] == sorted(sample.value for sample in buckets)
        assert all(set(sample.labels) - {"le"} == set(labels) for sample in family.samples)
        assert family.samples[-1].value == 2


def test_openmetrics_is_read_by_its_strict_parser_and_says_the_same() -> None:
    metrics = filled()
    text = metrics.render(openmetrics=True)
    assert text.endswith("\n# EOF\n")
    found = {(s.name, *sorted(s.labels.items())): s.value for f in parse_openmetrics(text) for s in f.samples}
    plain = {(s.name, *sorted(s.labels.items())): s.value for f in parse_text(metrics.render()) for s in f.samples}
    assert found == plain


def test_a_scraper_gets_what_it_accepts() -> None:
    assert answer_to("text/plain") == (False, "text/plain; version=0.0.4; charset=utf-8")
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    assert answer_to(prometheus) == (True, "application/openmetrics-text; version=1.0.0; charset=utf-8")
