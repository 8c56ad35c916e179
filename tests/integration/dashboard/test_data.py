"""The pages' data on a real store: clients that are reused, answers that are kept, errors that say what is wrong."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from promptpath.dashboard import data
from promptpath.storage import StorageError, connect
from promptpath.storage.queries import dashboard
from promptpath.storage.queries.dashboard import Filters

from .conftest import COUNT, SINCE_NS, UNTIL_NS, S

ALL = Filters(SINCE_NS, UNTIL_NS)


@pytest.fixture(autouse=True)
def fresh(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store under test, and nothing remembered of another."""
    monkeypatch.setenv("PROMPTPATH_STORAGE", url)
    data.refresh()
    yield
    data.pool(url).clear()


def test_a_client_is_reused_and_never_by_two_threads_at_once(url: str) -> None:
    opened: list[Any] = []

    def open_client() -> Any:
        opened.append(connect(url, readonly=True, settings=dashboard.LIMITS))
        return opened[-1]

    pool = data.ClientPool(open_client)
    with pool.client() as first, pool.client() as second:
        assert first is not second
    for _ in range(5):
        with pool.client() as again:
            assert again in (first, second)
    assert len(opened) == 2
    pool.clear()


def test_a_client_whose_query_failed_is_not_used_again(url: str) -> None:
    pool = data.ClientPool(lambda: connect(url, readonly=True))
    with pytest.raises(RuntimeError), pool.client() as broken:
        raise RuntimeError
    with pool.client() as other:
        assert other is not broken
    pool.clear()


def test_many_threads_ask_at_once() -> None:
    counts: list[int] = []

    def ask(hour: int) -> None:
        counts.append(data.count_prompts(Filters(SINCE_NS - hour * S, UNTIL_NS)))

    threads = [threading.Thread(target=ask, args=(hour,)) for hour in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [COUNT] * 12


def test_prompts_are_found_and_read_whole() -> None:
    listed = data.list_prompts(ALL, "ttft_ns", True, 3, 0)
    prompt = data.prompt(listed[0]["prompt_id"])
    assert prompt is not None
    assert (prompt["prompt_id"], prompt["start_ns"]) == (listed[0]["prompt_id"], listed[0]["start_ns"])
    assert data.find(listed[0]["trace_id"]) == [listed[0]["prompt_id"]]
    assert data.find("no such id") == []
    assert data.prompt("ffffffffffffffff") is None
    assert data.spans(prompt["trace_id"], (), "") == []


def test_storage_that_is_not_there_is_one_line_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPATH_STORAGE", "clickhouse://127.0.0.1:9/promptpath")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9") as raised:
        data.count_prompts(ALL)
    assert "\n" not in str(raised.value)


def test_a_query_over_its_bounds_is_refused_in_one_line(url: str) -> None:
    small = data.ClientPool(lambda: connect(url, readonly=True, settings={"max_result_rows": 10}))
    with pytest.raises(Exception, match="Limit for result exceeded"), small.client() as client:
        dashboard.list_prompts(client, ALL, limit=200)
    small.clear()


def test_what_the_database_refuses_is_told_apart_from_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "sql", lambda name: "SELECT nonsense FROM prompts")
    with pytest.raises(data.QueryFailed, match="nonsense") as raised:
        data.count_prompts(Filters(1, 2))
    assert "\n" not in str(raised.value)
