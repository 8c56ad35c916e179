"""Rows of a collector that asks for tokens."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.collector.running import RunningCollector, fetch

from .conftest import TOKEN


def rows(collector: RunningCollector, query: str) -> list[list[Any]]:
    """The rows of a query, as lists."""
    url = f"http://127.0.0.1:{collector.ports.sql}/?default_format=JSONCompact"
    answer = fetch(url, query.encode(), {"Authorization": f"Bearer {TOKEN}"})
    assert answer.status == 200, answer.body
    found: list[list[Any]] = json.loads(answer.body)["data"]
    return found
