"""Two tenants with the same ids: their spans are never assembled together, joined, or withdrawn for one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from promptpath.collector.assembler import AssemblerService
from promptpath.collector.backfill import assemble_since
from promptpath.collector.otlp import tenant

from .test_service import T0, client, server

Send = Callable[..., None]


@pytest.fixture
def send(store: Any, put: Any, request_of: Any) -> Send:
    def insert(owner: str, *spans: Any, **more: Any) -> None:
        put(store, tenant.stamp(request_of(*spans, **more), owner))

    return insert


def prompts(store: Any) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = store.query(
        "SELECT token_tenant, tenant, prompt_id, arrayMap(s -> toString(s), hops), e2e_ns, joined_by, joined_traces"
        " FROM prompts ORDER BY 1, 3"
    ).result_rows
    return rows


def of(name: str) -> dict[str, Any]:
    return {"service.name": name, "promptpath.tenant": "forged"}


@pytest.mark.parametrize("again", [False, True])
def test_one_trace_id_of_two_tenants_is_two_traces(factory: Any, store: Any, send: Send, again: bool) -> None:
    for owner in ("acme", "globex", ""):
        send(owner, client(), resource=of(f"app-{owner}"))
        send(owner, server(), resource=of(f"engine-{owner}"))
    if again:
        assert assemble_since(store, T0 - 1, until_ns=T0 + 10**9) == 3
    else:
        service = AssemblerService(factory, grace_s=0)
        assert service.flush() == 3
        service.close()
    root = f"{1:016x}"
    assert prompts(store) == [
        ("", "", root, ["app-", "engine-"], 100_000_000, "", []),
        ("acme", "acme", root, ["app-acme", "engine-acme"], 100_000_000, "", []),
        ("globex", "globex", root, ["app-globex", "engine-globex"], 100_000_000, "", []),
    ]


def test_what_a_tenant_sends_later_leaves_the_prompts_of_others(factory: Any, store: Any, send: Send) -> None:
    service = AssemblerService(factory, grace_s=0)
    send("acme", client(), resource=of("app"))
    assert service.flush() == 1
    # In the same trace, so that a root above it would make the stored prompt a hop.
    send("mallory", client(9, id=f"{9:016x}", trace=f"{1:032x}"), resource=of("evil"))
    send("mallory", client(1, parent=f"{9:016x}"), resource=of("evil"))
    service.flush()
    service.close()
    assert [row[:3] for row in prompts(store)] == [
        ("acme", "acme", f"{1:016x}"),
        ("mallory", "mallory", f"{9:016x}"),
    ]


@pytest.mark.parametrize("together", [True, False])
def test_request_ids_join_the_traces_of_one_tenant_only(factory: Any, store: Any, send: Send, together: bool) -> None:
    def call(owner: str) -> None:
        name, kind, start, end, attributes, ids = client()
        send(owner, (name, kind, start, end, attributes | {"gen_ai.response.id": "r-1"}, ids), resource=of("app"))

    def answer(owner: str) -> None:
        name, kind, start, end, attributes, _ = server()
        ids = {"id": f"{77:016x}", "trace": f"{77:032x}"}
        send(owner, (name, kind, start, end, attributes | {"gen_ai.response.id": "r-1"}, ids), resource=of("engine"))

    service = AssemblerService(factory, grace_s=0)
    call("acme")
    if not together:
        service.flush()
    answer("globex")
    service.flush()
    assert [(row[0], row[5], row[6]) for row in prompts(store)] == [("acme", "", []), ("globex", "", [])]
    # Of one tenant they are one prompt: the same ids do join.
    answer("acme")
    service.flush()
    service.close()
    assert [(row[0], row[5], row[6]) for row in prompts(store)] == [
        ("acme", "response_id", [f"{77:032x}"]),
        ("globex", "", []),
    ]
