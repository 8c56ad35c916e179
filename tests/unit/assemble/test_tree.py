"""Parents, roots, cycles, missing parents, repeated spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector.assemble import PROMPT_SCHEMA, SPAN_SCHEMA, AssembleConfig, AssembleError, assemble

Row = dict[str, Any]
Make = Callable[..., Row]
Run = Callable[..., list[Row]]


def test_no_spans_no_prompts() -> None:
    assert assemble(SPAN_SCHEMA.empty_table()) == PROMPT_SCHEMA.empty_table()


def test_no_inference_no_prompts(make: Make, prompts: Run) -> None:
    assert prompts(make("a", "", 0, 100), make("b", "a", 0, 50, "queue")) == []


def test_the_outermost_inference_span_is_the_root(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "", 0, 100),
        make("b", "a", 0, 90),
        make("c", "b", 10, 90, "client"),
        make("d", "c", 20, 80, "server", service="engine"),
        make("e", "b", 10, 90, "client"),
    )
    assert [row["prompt_id"] for row in rows] == ["c", "e"]


def test_a_cycle_is_cut_at_its_earliest_span(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "c", 20, 100, "gateway"),
        make("b", "a", 10, 100, "gateway"),
        make("c", "b", 30, 100, "gateway"),
        make("d", "c", 40, 50, "queue"),
        make("e", "e", 5, 50, "gateway"),
    )
    assert [row["prompt_id"] for row in rows] == ["e", "b"]
    assert set(rows[1]["segments.span_id"]) == {"a", "b", "c", "d"}


def test_several_cycles_in_one_trace_survive(make: Make, prompts: Run) -> None:
    pairs = [(f"{2 * n:016x}", f"{2 * n + 1:016x}") for n in range(50)]
    rows = prompts(*(make(one, other, n, 99, "gateway") for n, pair in enumerate(pairs)
                     for one, other in (pair, pair[::-1])))  # fmt: skip
    assert len(rows) == 50


def test_a_chain_of_thousands(make: Make, prompts: Run) -> None:
    count = 2000
    spans = [make(f"{n:016x}", f"{n - 1:016x}" if n else "", n, 2 * count - n, "gateway") for n in range(count)]
    (row,) = prompts(*spans)
    assert len(row["segments.span_id"]) == 3 * count - 2  # both sides of each but the innermost, and what it held
    assert sum(row["segments.duration_ns"][i] for i, on in enumerate(row["segments.critical"]) if on) == 2 * count


def test_a_span_sent_twice_counts_once_the_longer(make: Make, prompts: Run) -> None:
    rows = prompts(make("a", "", 0, 100, "client"), make("a", "", 0, 120, "client"), make("a", "", 0, 100, "client"))
    assert [row["e2e_ns"] for row in rows] == [120]


def test_the_same_span_id_in_two_traces_is_two_spans(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "", 0, 100, "client", trace_id="1" * 32),
        make("b", "a", 0, 50, "server", service="engine", trace_id="1" * 32),
        make("a", "", 0, 70, "client", trace_id="2" * 32),
    )
    assert [(row["trace_id"][0], row["e2e_ns"], row["hops"]) for row in rows] == [
        ("1", 100, ["svc", "engine"]),
        ("2", 70, ["svc"]),
    ]


def test_zero_durations(make: Make, prompts: Run) -> None:
    rows = prompts(make("a", "", 5, 5, "client", gaps_us=[0]), make("b", "a", 5, 5, "server", service="engine"))
    assert [(row["e2e_ns"], row["ttft_ns"], row["ttft_network_ns"], row["segments.stage"]) for row in rows] == [
        (0, 0, 0, [])
    ]


def test_a_long_agent_trace_keeps_nanoseconds(make: Make, prompts: Run) -> None:
    """Hours apart, each prompt to the nanosecond: nothing passes through floating point."""
    hour = 3_600 * 10**9
    spans = [make("a", "", 0, 100 * hour, agent=True)]
    for number in range(1, 90):
        at = number * hour + number
        spans += [
            make(f"c{number:02}", "a", at, at + hour // 2 + number, "client", service="app", first_token_ns=hour // 3),
            make(f"s{number:02}", f"c{number:02}", at + 7, at + hour // 2, "server", service="engine"),
        ]
    rows = prompts(*spans)
    assert [row["e2e_ns"] for row in rows] == [hour // 2 + number for number in range(1, 90)]
    assert {row["ttft_network_ns"] for row in rows} == {7}
    assert {row["ttft_unattributed_ns"] for row in rows} == {hour // 3 - 7}


def test_columns_that_are_missing_or_wrong_are_named(make: Make) -> None:
    table = pa.Table.from_pylist([make("a", "", 0, 100, "client")], schema=SPAN_SCHEMA)
    with pytest.raises(AssembleError, match="'stage' is missing"):
        assemble(table.drop_columns(["stage"]))
    wrong = table.set_column(table.schema.get_field_index("start_ns"), "start_ns", pa.array(["soon"]))
    with pytest.raises(AssembleError, match="'start_ns' is string, not int64"):
        assemble(wrong)


def test_other_encodings_of_the_same_columns(make: Make) -> None:
    """What ClickHouse sends depends on its settings: dictionaries, large or chunked columns."""
    rows = [make("a", "", 0, 10**6, "client", gaps_us=[5, 5]), make("b", "a", 10, 90, "server", service="engine")]
    table = pa.Table.from_pylist(rows, schema=SPAN_SCHEMA)
    config = AssembleConfig(assembled_at_ns=1)
    encoded = pa.table(
        [
            column.dictionary_encode() if column.type == pa.string() else column
            for column in pa.concat_tables([table.slice(0, 1), table.slice(1)]).columns
        ],
        names=table.column_names,
    )
    assert assemble(encoded, config) == assemble(table, config)
    assert assemble(pa.concat_tables([table, table]).slice(2), config) == assemble(table, config)


def test_a_root_whose_id_another_span_uses_again(make: Make, prompts: Run) -> None:
    (row,) = prompts(
        make("a", "", 0, 100, "client", service="app"),
        make("a", "a", 20, 900, "queue", service="engine"),
        make("b", "a", 10, 90, "server", service="engine"),
    )
    assert (row["prompt_id"], row["e2e_ns"], row["hops"]) == ("a", 100, ["app", "engine"])
