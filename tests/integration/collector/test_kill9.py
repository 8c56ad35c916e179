"""A few of the kills that `tests/bench/kill9.py` does fifty of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.bench.kill9 import run


@pytest.mark.parametrize(("storage", "victim"), [("embedded", "collector"), ("http", "both")])
def test_killed_at_any_moment_everything_is_there_once_and_prompts_are_the_same(
    tmp_path: Path, storage: str, victim: str
) -> None:
    seed = random.randrange(1 << 30)  # in the result, for `--seed`
    result = run(3, seed=seed, folder=tmp_path, storage=storage, victim=victim, senders=4)
    assert result.faults == [], result
    assert (sum(result.kills.values()), result.exit_code) == (3, 0)
    assert min(result.stored[kind] for kind in ("traces", "logs", "metrics", "prompts")) > 0
