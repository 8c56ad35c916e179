"""Scenarios as they are written."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from promptpath.collector.simulate.run import arrival_times
from promptpath.collector.simulate.scenario import (
    Regression,
    Scenario,
    ScenarioError,
    parse_regressions,
    parse_topology,
)


def test_topology() -> None:
    assert parse_topology("full") == {"full": 1.0}
    assert parse_topology("full=3, agent=0.5") == {"full": 3.0, "agent": 0.5}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fool", "topology 'fool' is not known: use full, direct"),
        ("full=x", "the weight of topology full is 'x': it must be a number"),
        ("full=0", "not all 0"),
        ("full=2,direct=-1", "must not be negative"),
    ],
)
def test_wrong_topology(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse_topology(text)


def test_regressions() -> None:
    assert parse_regressions("") == ()
    assert parse_regressions("stage=prefill,factor=1.2") == (Regression("prefill", 1.2, 0.5, ""),)
    assert parse_regressions("stage=dns,factor=3,at=0.2,model=m; stage=decode,factor=2") == (
        Regression("dns", 3.0, 0.2, "m"),
        Regression("decode", 2.0, 0.5, ""),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prefill", "'prefill' is not known: write stage=prefill"),
        ("stage=queue,factor=2", "stage 'queue' is none of"),
        ("stage=prefill", "factor is '': it must be a number"),
        ("stage=prefill,factor=0", "factor must be above 0"),
        ("stage=prefill,factor=2,at=2", "at from 0 to 1"),
    ],
)
def test_wrong_regressions(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse_regressions(text)


@pytest.mark.parametrize(
    "knobs", [{"late": 2}, {"lost": -0.1}, {"prompts": 0}, {"engines": 0}, {"arrival_rate": 0}, {"arrivals": "x"}]
)
def test_wrong_knobs(knobs: dict[str, Any]) -> None:
    (name,) = knobs
    with pytest.raises(ScenarioError, match=f"^{name} is "):
        Scenario(**knobs)


@pytest.mark.parametrize("arrivals", ["poisson", "burst", "diurnal"])
def test_arrivals_come_in_order_and_at_their_rate(arrivals: str) -> None:
    scenario = Scenario(prompts=4000, arrivals=arrivals, arrival_rate=40, start_ns=0, topology={"full": 1.0})
    times = list(islice(arrival_times(scenario, random.Random(1)), 4000))
    assert times == sorted(times)
    assert 40 * 0.9 < 4000 / (times[-1] / 1e9) < 40 * 1.1


def test_bursts_are_denser_than_the_rest() -> None:
    scenario = Scenario(prompts=8000, arrivals="burst", arrival_rate=40, start_ns=0, topology={"full": 1.0})
    times = list(islice(arrival_times(scenario, random.Random(1)), 8000))
    inside = sum(time % 20e9 < 4e9 for time in times) / len(times)
    assert inside == pytest.approx(0.6, abs=0.05)
