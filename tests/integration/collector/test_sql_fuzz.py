"""A small run of tests/bench/fuzz_sql.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from .running import RunningCollector

_FILE = Path(__file__).parents[2] / "bench" / "fuzz_sql.py"


def _bench() -> Any:
    spec = importlib.util.spec_from_file_location("promptpath_fuzz_sql", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_that_is_sent_does_harm(collector: RunningCollector) -> None:
    found = _bench().fuzz(collector.ports.sql, 600, seed=20)
    assert found.findings == []
    assert sum(found.statuses.values()) == 600
    assert found.statuses["200"] > 0
    assert found.statuses["400"] > 0
