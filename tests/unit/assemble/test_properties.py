"""What holds for every trace: parts and pieces partition time, clocks and row order do not matter.

`reference` says whose each instant is in the plainest words, one instant at a time; the assembler must agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptpath.semconv import STAGE_PART, Stage

Row = dict[str, Any]
Make = Callable[..., Row]
Run = Callable[..., list[Row]]

CONTAINERS = ("client", "call", "edge", "gateway", "router", "server")
STAGES = (
    "",
    *CONTAINERS,
    "dns",
    "tcp",
    "parse",
    "tokenize",
    "queue",
    "prefill",
    "decode",
    "detokenize",
    "stream",
    "load",
)
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def traces(draw: st.DrawFn, hosts: int = 1, missing: bool = False, failures: bool = False) -> list[Row]:
    """Keyword arguments of `make` for one trace: a root and spans below it, in any relation of time."""
    count = draw(st.integers(1, 12))
    rows: list[Row] = []
    for index in range(count):
        above = draw(st.integers(0, index - 1)) if index else None
        start = draw(st.integers(0, 40))
        end = start + draw(st.integers(0, 40))
        stage = draw(st.sampled_from(STAGES if index else CONTAINERS))
        first = draw(st.one_of(st.none(), st.integers(0, 45))) if stage in CONTAINERS else None
        host = draw(st.integers(0, hosts - 1))
        row: Row = {
            "span_id": f"{index:016x}",
            "parent": "" if above is None else f"{above:016x}",
            "start": start,
            "end": end,
            "stage": stage,
            "host": f"host{host}",
            "service": f"service{draw(st.integers(0, 2))}",
            "first_token_ns": first,
        }
        if missing and index and draw(st.integers(0, 4)) == 0:
            row["parent"] = f"{99:016x}"
        if failures and stage == "call" and draw(st.booleans()):
            row |= {"failed": True, "first_token_ns": None}
        rows.append(row)
    return rows


def pieces(row: Row) -> list[tuple[str, str, int, int, bool]]:
    columns = ("stage", "span_id", "start_ns", "duration_ns", "critical")
    return list(zip(*(row[f"segments.{name}"] for name in columns), strict=True))


def found(row: Row) -> Row:
    """A row without where its pieces are drawn and what its clocks differ by; with whose time it was."""
    owned: dict[tuple[str, str], int] = {}
    for stage, span_id, start, duration, critical in pieces(row):
        if critical and (row["ttft_ns"] is None or start < row["ttft_ns"]):
            owned[stage, span_id] = owned.get((stage, span_id), 0) + duration
    rest = {name: value for name, value in row.items() if not name.startswith("segments.")}
    return rest | {"clock_offset_ns": None, "owned": owned}


def check_sums(row: Row) -> None:
    """The identities that every prompt row must satisfy."""
    assert row["e2e_ns"] >= 0
    critical = sorted((start, duration, stage) for stage, _, start, duration, on in pieces(row) if on)
    at = 0
    for start, duration, _ in critical:
        assert start == at
        assert duration > 0
        at += duration
    assert at == row["e2e_ns"]
    if row["ttft_ns"] is None:
        assert all(row[f"ttft_{part}_ns"] is None for part in PARTS)
        return
    assert 0 <= row["ttft_ns"] <= row["e2e_ns"]
    assert all(row[f"ttft_{part}_ns"] >= 0 for part in PARTS)
    assert sum(row[f"ttft_{part}_ns"] for part in PARTS) == row["ttft_ns"]
    before: dict[str, int] = dict.fromkeys(PARTS, 0)
    for start, duration, stage in critical:
        if start < row["ttft_ns"]:
            assert start + duration <= row["ttft_ns"]
            before[str(STAGE_PART[Stage(stage)])] += duration
    assert before == {part: row[f"ttft_{part}_ns"] for part in PARTS}
    assert 0 <= row["retry_ns"] <= row["ttft_router_ns"]


@SETTINGS
@given(spans=traces(hosts=3, missing=True, failures=True))
def test_parts_and_pieces_partition_time(make: Make, prompts: Run, spans: list[Row]) -> None:
    for row in prompts(*(make(**one) for one in spans)):
        check_sums(row)


@SETTINGS
@given(spans=traces(hosts=3, failures=True), shifts=st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=3))
def test_no_part_moves_with_a_hosts_clock(make: Make, prompts: Run, spans: list[Row], shifts: list[int]) -> None:
    shifts[0] = 0  # the root's host: its clock is the axis
    spans[0]["host"] = "host0"
    before = prompts(*(make(**one) for one in spans))
    moved = []
    for one in spans:
        by = shifts[int(one["host"][-1])]
        moved.append(make(**(one | {"start": one["start"] + by, "end": one["end"] + by})))
    after = prompts(*moved)
    for row in after:
        check_sums(row)
    # Where pieces are drawn depends on whether an offset exceeds its own error; what was found does not.
    assert [found(row) for row in after] == [found(row) for row in before]


@SETTINGS
@given(
    spans=traces(hosts=3, failures=True),
    shifts=st.lists(st.integers(1_000, 10**9), min_size=2, max_size=2, unique=True),
    more=st.integers(1_000, 10**9),
)
def test_nothing_moves_with_a_clock_that_is_wrong_beyond_its_error(
    make: Make, prompts: Run, spans: list[Row], shifts: list[int], more: int
) -> None:
    # Offsets of a microsecond and more between traces of a hundred nanoseconds: every one is corrected, however large.
    spans[0]["host"] = "host0"

    def shifted(by: list[int]) -> list[Row]:
        moved = []
        for one in spans:
            ns = by[int(one["host"][-1])]
            moved.append(make(**(one | {"start": one["start"] + ns, "end": one["end"] + ns})))
        return prompts(*moved)

    before, after = shifted([0, *shifts]), shifted([0, *(shift + more for shift in shifts)])
    for row in (*before, *after):
        row["clock_offset_ns"] = None
    assert after == before


@SETTINGS
@given(spans=traces(hosts=2, missing=True, failures=True), seed=st.integers(0, 10**6))
def test_the_order_of_rows_does_not_matter(make: Make, prompts: Run, spans: list[Row], seed: int) -> None:
    rows = [make(**one) for one in spans]
    shuffled = [*rows, *rows[: len(rows) // 2]]  # some sent twice
    random.Random(seed).shuffle(shuffled)
    assert prompts(*shuffled) == prompts(*rows)


@SETTINGS
@given(spans=traces(hosts=1))
def test_every_stage_span_is_cut_into_pieces_that_tile_it(make: Make, prompts: Run, spans: list[Row]) -> None:
    (row,) = prompts(*(make(**one) for one in spans))
    by_span: dict[str, list[tuple[int, int]]] = {}
    for _, span_id, start, duration, _ in pieces(row):
        by_span.setdefault(span_id, []).append((start, start + duration))
    origin = spans[0]["start"]
    for one in spans:
        if one["stage"] in ("", "load") or one["span_id"] == row["root_span_id"]:
            continue
        found = sorted(by_span.get(one["span_id"], []))
        assert all(left[1] == right[0] for left, right in pairwise(found))
        extent = (found[0][0], found[-1][1]) if found else None
        assert extent == ((one["start"] - origin, one["end"] - origin) if one["end"] > one["start"] else None)


def reference(spans: list[Row], ttft: int) -> dict[str, int]:
    """Parts of a trace on one host, without failures, one nanosecond at a time."""
    by_id = {one["span_id"]: one for one in spans}
    root = spans[0]
    origin = root["start"]

    def ancestors(one: Row) -> list[Row]:
        found = []
        while one["parent"]:
            one = by_id[one["parent"]]
            found.append(one)
        return found

    def seen(one: Row) -> int | None:
        """Its own first delivery, which it cannot have seen after its end."""
        first: int | None = one["first_token_ns"]
        return None if first is None else min(first, one["end"] - one["start"])

    def passed_on(one: Row) -> int | None:
        """Its first delivery; of a relay that saw none, when another server span of its hop did, the outermost, else
        when its only call brought one."""
        first = seen(one)
        if first is not None or one["stage"] not in ("edge", "gateway", "router") or entry(one) is not one:
            return first
        inner = [
            view
            for view in spans
            if one in ancestors(view) and view["stage"] in ("edge", "gateway", "router") and entry(view) is one
        ]
        views = [(sum(1 for above in ancestors(view) if above["stage"]), view["span_id"], view) for view in inner]
        views = sorted(view for view in views if seen(view[2]) is not None)
        if views:
            return max(views[0][2]["start"] + (seen(views[0][2]) or 0) - one["start"], 0)
        calls = []
        for call in spans:
            above = ancestors(call)
            if call is root or call["stage"] not in ("client", "call") or one not in above or entry(call) is not one:
                continue
            if not any(step["stage"] in ("client", "call") for step in above[: above.index(one)]):
                calls.append(call)
        first = seen(calls[0]) if len(calls) == 1 else None
        return None if first is None else max(calls[0]["start"] + first - one["start"], 0)

    def delivered(one: Row) -> float:
        first = passed_on(one)
        if first is None:
            return float("inf")
        return float(min(one["start"] + first, one["end"])) - origin if one is not root else ttft

    def counts_until(one: Row) -> float:
        own = delivered(one)
        own = one["end"] - origin if own == float("inf") else own
        return min([own, *(delivered(above) for above in ancestors(one))])

    def entry(one: Row) -> Row:
        """The span with which the request entered the process of `one`."""
        while one["parent"]:
            above = by_id[one["parent"]]
            from_call = one["stage"] in ("edge", "gateway", "router", "server") and above["stage"] in ("client", "call")
            if one["service"] != above["service"] or from_call:
                return one
            one = above
        return one

    engine = ("server", "queue", "prefill", "decode")

    def answered(call: Row) -> bool:
        for one in spans:
            line = [one, *ancestors(one)]
            if call not in line[1:] or one is call:
                continue
            between = line[: line.index(call)]
            same_hop = [step for step in between if entry(step) is not step]
            if one["stage"] in engine and len(same_hop) == len(between):
                return True
            if entry(one) is one and all(entry(step) is not step for step in between[1:]):
                return True
        return False

    parts = dict.fromkeys(PARTS, 0)
    for now in range(ttft):
        active = []
        for one in spans:
            stage = one["stage"]
            is_root = one is root
            if is_root or (stage not in ("", "decode", "load") and one["start"] - origin <= now < counts_until(one)):
                depth = sum(1 for above in ancestors(one) if above["stage"])
                until = ttft if is_root else counts_until(one)
                active.append((depth, until, one["start"], one["span_id"], one))
        owner = max(active, key=lambda claim: claim[:4])[4]
        stage = owner["stage"]
        if owner is root and stage == "call":
            stage = "client"
        if stage in ("client", "call"):
            stage = "transit" if answered(owner) else "unattributed"
        parts[str(STAGE_PART[Stage(stage)])] += 1
    return parts


@settings(SETTINGS, max_examples=400)
@given(spans=traces(hosts=1))
def test_each_instant_belongs_to_whom_the_definition_says(make: Make, prompts: Run, spans: list[Row]) -> None:
    (row,) = prompts(*(make(**one) for one in spans))
    if row["ttft_ns"] is None:
        return
    assert {part: row[f"ttft_{part}_ns"] for part in PARTS} == reference(spans, row["ttft_ns"])


def test_many_prompts_at_once_are_what_each_is_alone(make: Make, prompts: Run) -> None:
    rng = random.Random(7)
    rows: list[Row] = []
    alone: list[Row] = []
    for number in range(60):
        trace = [
            make(
                f"{index + 1:016x}",
                f"{rng.randint(1, index):016x}" if index else "",
                start := rng.randint(0, 50),
                start + rng.randint(0, 50),
                rng.choice(STAGES if index else CONTAINERS),
                trace_id=f"{number:032x}",
                first_token_ns=rng.choice([None, rng.randint(0, 30)]),
                host=f"host{rng.randint(0, 2)}",
                service=f"service{rng.randint(0, 2)}",
                failed=rng.random() < 0.2,
            )
            for index in range(rng.randint(1, 15))
        ]
        rows += trace
        alone += prompts(*trace)
    assert prompts(*rows) == alone


@pytest.mark.parametrize("count", [5_000])
def test_a_prompt_of_thousands_of_overlapping_spans(make: Make, prompts: Run, count: int) -> None:
    """Every span overlaps every other: the case in which comparing pairs would take gigabytes."""
    rows = [make("f" * 16, start=0, end=4 * count, stage="server", first_token_ns=3 * count)]
    rows += [
        make(f"{index:016x}", "f" * 16, index, 2 * count + index, "queue", service="svc") for index in range(1, count)
    ]
    (row,) = prompts(*rows)
    check_sums(row)
    # Of siblings at one depth the one that ends last owns: the latest started, so each owns from its start on.
    assert row["ttft_queue_ns"] == 3 * count - 1 - 1
    assert row["ttft_unattributed_ns"] == 2
