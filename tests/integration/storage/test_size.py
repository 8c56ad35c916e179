"""`promptpath bench size` weighs what is really stored."""

from __future__ import annotations

from promptpath.cli.benches.size import measure


def test_figures() -> None:
    found = measure(40)
    assert found.name == "size"
    assert found.figures["prompts"] == 40
    assert found.figures["spans"] > 40
    assert 0 < found.figures["bytes_per_span_without_tokens"] < found.figures["bytes_per_span"]
    assert found.figures["bytes_per_span"] < found.figures["otlp_bytes_per_span"]
    assert 0 < found.figures["bytes_per_token"] < 4
    assert found.ratios["usual_schema"] is not None
