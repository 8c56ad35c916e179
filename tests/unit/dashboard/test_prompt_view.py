"""What the Prompt page works out of a row."""

from __future__ import annotations

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.dashboard import prompt_view
from promptpath.dashboard.components import prompt_html
from promptpath.semconv import Part

from .examples import MS, prompt, spans


def test_the_breakdown_has_the_nine_parts_in_order() -> None:
    rows = prompt_view.breakdown(prompt())
    assert [row.part for row in rows] == list(Part)
    assert sum(row.ns for row in rows) == 100 * MS
    assert {row.part: row.share for row in rows}[Part.PREFILL] == pytest.approx(0.4)


def test_without_a_ttft_there_is_nothing_to_break_down() -> None:
    row = prompt(ttft_ns=None, tpot_ns=None, gaps_us=[], gap_tokens=[])
    assert prompt_view.breakdown(row) == []
    assert prompt_view.white_paper_terms(row) == []
    assert prompt_view.response(row) is None
    assert prompt_view.token_timeline(row) is None


@given(st.lists(st.integers(min_value=0, max_value=10**11), min_size=9, max_size=9))
def test_what_is_shown_adds_up_and_no_part_moves_a_microsecond(parts: list[int]) -> None:
    shown = prompt_view.apportion_us(parts, sum(parts))
    assert sum(shown) == prompt_view.round_us(sum(parts))
    assert all(abs(us * 1000 - ns) < 1000 for us, ns in zip(shown, parts, strict=True))


def test_parts_that_lack_something_are_not_made_to_add_up() -> None:
    assert prompt_view.apportion_us([1_000_000, 2_000_000], 9_000_000) == [1000, 2000]


@given(st.lists(st.integers(min_value=0, max_value=10**10), min_size=9, max_size=9))
def test_the_terms_of_the_latency_model_add_up_to_the_ttft(parts: list[int]) -> None:
    columns = {f"ttft_{part}_ns": ns for part, ns in zip(Part, parts, strict=True)}
    terms = prompt_view.white_paper_terms(prompt(ttft_ns=sum(parts), **columns))
    assert sum(term.ns for term in terms) == sum(parts)
    assert [term.symbol for term in terms] == ["T_queue", "T_tokenize", "T_prefill", "T_network", "T_other"]


def test_the_response_time_is_ttft_and_a_tpot_for_each_further_token() -> None:
    answer = prompt_view.response(prompt(e2e_ns=195 * MS))
    assert answer is not None
    assert (answer.tokens, answer.computed_ns, answer.tail_ns) == (10, 190 * MS, 5 * MS)


def test_tokens_of_a_delivery_are_counted_not_deliveries() -> None:
    # 3 tokens at first, then 2 gaps with 4 and 1 tokens.
    answer = prompt_view.response(prompt(first_tokens=3, gaps_us=[1, 1], gap_tokens=[4, 1]))
    assert answer is not None
    assert answer.tokens == 8


def test_deliveries_stand_where_they_came() -> None:
    tokens = prompt_view.token_timeline(prompt(gaps_us=[10_000, 20_000], gap_tokens=[1, 4]))
    assert tokens is not None
    assert [(d.at_ns, d.gap_us, d.tokens) for d in tokens.deliveries] == [
        (110 * MS, 10_000, 1),
        (130 * MS, 20_000, 4),
    ]
    assert tokens.median_us == 15_000


@pytest.mark.parametrize(
    ("gaps_us", "stalls"),
    [
        # Over 50 ms, but not over 4 times the median.
        ([20_000] * 9 + [79_000], 0),
        # Over 4 times the median, but not over 50 ms.
        ([5_000] * 9 + [49_000], 0),
        ([20_000] * 9 + [80_001], 1),
        ([5_000] * 9 + [50_001], 1),
        ([5_000] * 9 + [50_000], 0),
        ([60_000] * 3, 0),
    ],
)
def test_a_stall_is_over_both_four_medians_and_50_ms(gaps_us: list[int], stalls: int) -> None:
    tokens = prompt_view.token_timeline(prompt(gaps_us=gaps_us, gap_tokens=[1] * len(gaps_us)))
    assert tokens is not None
    assert len(tokens.stalls) == stalls


@given(st.lists(st.integers(min_value=0, max_value=10**7), min_size=1, max_size=200))
def test_deliveries_never_run_backwards_and_end_at_the_sum(gaps_us: list[int]) -> None:
    tokens = prompt_view.token_timeline(prompt(gaps_us=gaps_us, gap_tokens=[1] * len(gaps_us)))
    assert tokens is not None
    assert all(a.at_ns <= b.at_ns for a, b in pairwise(tokens.deliveries))
    assert tokens.deliveries[-1].at_ns == 100 * MS + sum(gaps_us) * 1000


def test_hosts_go_by_the_names_that_spans_give_them() -> None:
    assert [(hop.name, hop.host) for hop in prompt_view.hops(prompt(), spans())] == [
        ("client", "client-host"),
        ("engine", "engine-host"),
    ]
    assert [hop.host for hop in prompt_view.hops(prompt())] == ["h1", "h2"]
    assert [hop.host for hop in prompt_view.hops(prompt(hosts=[]))] == ["", ""]


def test_what_came_from_outside_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    row = prompt(model=evil, service=evil, tenant=evil, error_type=evil, hops=[evil], hosts=[evil])
    page = prompt_html.facts(row, prompt_view.hops(row), ZoneInfo("UTC"))
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_facts_say_what_was_asked_for_where_another_model_answered() -> None:
    page = prompt_html.facts(prompt(request_model="big"), [], ZoneInfo("Europe/Berlin"))
    assert "m (asked for big)" in page
    assert "2023-11-14 23:13:20.123" in page
    assert "50 % of calls seen from both ends" in page
    assert "10.0 ms lost in retries" in page


def test_the_breakdown_table_holds_exact_and_rounded_figures() -> None:
    row = prompt(ttft_ns=100 * MS + 999, ttft_queue_ns=25 * MS + 999)
    table = prompt_html.breakdown(prompt_view.breakdown(row), row["ttft_ns"])
    assert 'data-part="queue" data-ns="25000999"' in table
    assert 'data-part="ttft" data-ns="100000999"' in table
    assert '<td class="n">25.001</td>' in table
    assert '<td class="n">100.001</td>' in table
