"""A server span of an HTTP instrumentation beside the hop's own, of one request: one hop, whichever holds the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.reference.assemble_reference import assemble_reference

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
Parts = Callable[[Row], Row]
Pieces = Callable[..., list[tuple[Any, ...]]]

#: What the other instrumentation's span has to do with the hop's own, which is from 10 to 90.
EXTENTS = {"around": (8, 93), "the same": (10, 90), "within": (12, 88), "ends later": (12, 92), "ends sooner": (8, 88)}


def spans_of(make: Make, theirs: tuple[int, int], stage: str, first: int | None = None) -> list[Row]:
    return [
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", *theirs, "inbound", service="gate", scope="asgi"),
        make("c", "a", 10, 90, stage, service="gate", scope="promptpath", first_token_ns=first),
        make("d", "c", 20, 80, "call", service="gate", scope="promptpath"),
        make("e", "d", 25, 75, "server", service="engine", scope="vllm"),
    ]


@pytest.mark.parametrize("stage", ["gateway", "router", "inbound"])
@pytest.mark.parametrize("theirs", EXTENTS.values(), ids=EXTENTS)
@pytest.mark.parametrize("first", [None, 40])
def test_one_hop_with_one_attempt(
    make: Make, prompt: Prompt, parts: Parts, theirs: tuple[int, int], stage: str, first: int | None
) -> None:
    row = prompt(*spans_of(make, theirs, stage, first))
    assert (row["hops"], row["attempts"], row["retry_ns"]) == (["app", "gate", "engine"], 1, 0)
    assert row["completeness"] == 1.0
    found = parts(row)
    own = found.pop("router", 0) + found.pop("gateway", 0)
    # The hop's own time is up to its call, which begins at 20; then its transit to the engine.
    assert own == 20 - min(theirs[0], 10)
    rest = 60 - own - found["unattributed"]
    assert found == {"network": rest, "unattributed": (60 if first is None else 50) - 25}


def test_a_span_that_says_nothing_of_its_own_owns_nothing(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    row = prompt(*spans_of(make, (12, 88), "gateway"))
    assert "b" not in row["segments.span_id"]
    assert [piece for piece in pieces(row) if piece[2] >= 60] == [
        ("unattributed", "e", 60, 15),
        ("transit", "d", 75, 5),
        ("gateway", "c", 80, 10),
        ("transit", "a", 90, 10),
    ]
    # What it says of the request counts all the same.
    refused = [one | {"http_status": 429, "failed": True} if one["span_id"] == "b" else one
               for one in spans_of(make, (12, 88), "gateway")[:3]]  # fmt: skip
    assert prompt(*refused)["status"] == "rate_limited"


def test_what_is_known_of_it_counts(make: Make, prompt: Prompt, parts: Parts) -> None:
    """An engine in the process of its gateway, of which the HTTP span is the server."""
    row = prompt(
        make("a", "", 0, 100, "gateway", service="all", scope="promptpath", first_token_ns=60),
        make("b", "a", 10, 90, "inbound", service="all", scope="asgi"),
        make("c", "b", 20, 50, "prefill", service="all", scope="engine"),
    )
    assert parts(row) == {"gateway": 10, "prefill": 30, "unattributed": 20}
    assert row["attempts"] == 1


def test_the_parent_in_its_own_process_does_for_a_sibling(make: Make, prompt: Prompt) -> None:
    spans = spans_of(make, (12, 88), "gateway")
    spans[1] |= {"parent_id": "c"}
    row = prompt(*spans)
    assert (row["attempts"], row["completeness"]) == (1, 1.0)
    (same,) = assemble_reference(spans)
    assert {name: same[name] for name in ("attempts", "ttft_gateway_ns", "ttft_network_ns", "segments.span_id")} == {
        name: row[name] for name in ("attempts", "ttft_gateway_ns", "ttft_network_ns", "segments.span_id")
    }
