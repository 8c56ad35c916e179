"""Some thousand of the inputs that `tests/bench/fuzz_receivers.py` sends a hundred thousand of."""

from __future__ import annotations

from tests.bench.fuzz_receivers import run


def test_bad_input_neither_breaks_nor_hangs_the_receivers() -> None:
    result = run(4_000, seed=7)
    assert result.faults == []
    assert result.exit_code == 0
    assert sum(result.answers.values()) == 4_000
    # Of everything that may be answered something was.
    assert {"http 200", "http 400", "http 413", "http 415", "grpc OK", "grpc INVALID_ARGUMENT"} <= set(result.answers)
