"""One collector for the tests that only send to it and read from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .running import RunningCollector

MAX_BODY_BYTES = 1 << 20


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCollector]:
    with RunningCollector(tmp_path_factory.mktemp("store"), max_body_bytes=MAX_BODY_BYTES) as running:
        yield running
