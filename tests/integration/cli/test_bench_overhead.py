"""`promptpath bench overhead` at a small size, with what is installed."""

from __future__ import annotations

import importlib.util
import json

import pytest
from click.testing import CliRunner

from promptpath.cli.bench import bench
from promptpath.cli.benches import overhead

COSTS = {"us_per_bare_prompt", "us_per_prompt", "us_per_stage", "ns_per_token"}


def test_all_recorders_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "_ROUNDS", 1)
    ran = CliRunner().invoke(bench, ["overhead", "--prompts", "5", "--format", "json"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    names = COSTS | {f"sdk_{cost}" for cost in COSTS}
    for other, more in (("logfire", COSTS), ("ddtrace", {"us_per_bare_prompt", "us_per_stage"})):
        installed = importlib.util.find_spec(other) is not None
        assert (found["ratios"][f"{other}_cpu"] is None) is not installed
        names |= {f"{other}_{cost}" for cost in more} if installed else set()
    assert set(found["figures"]) == names
    assert all(cost > 0 for cost in found["figures"].values())
    assert found["ratios"]["sdk_cpu"] > 0


def test_what_goes_wrong_in_a_recorder_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"^other could not be measured: KeyError: 'other'$"):
        overhead._run("other", 1, 0)
