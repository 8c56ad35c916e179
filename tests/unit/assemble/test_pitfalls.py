"""What people reported going wrong in systems of this kind, as far as it is decided when spans become prompts.

Each test names the report. Spellings and numbers that a rule reads are tested against the database in
tests/integration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
Parts = Callable[[Row], Row]
Pieces = Callable[..., list[tuple[Any, ...]]]
S = 1_000_000_000
MS = 1_000_000


def test_queueing_again_is_no_second_queue(make: Make, prompt: Prompt, parts: Parts) -> None:
    """vllm-project/vllm#56238: queued at 1 s, scheduled at 2 s, queued again at 50 s while decoding."""
    row = prompt(
        make("a", "", 0, 60 * S, "server", first_token_ns=3 * S),
        make("b", "a", 1 * S, 2 * S, "queue"),
        make("c", "a", 2 * S, 3 * S, "prefill"),
        make("d", "a", 3 * S, 60 * S, "decode", preemptions=1),
        make("e", "a", 50 * S, 55 * S, "queue"),
    )
    assert parts(row) == {"queue": 1 * S, "prefill": 1 * S, "unattributed": 1 * S}
    assert row["preemptions"] == 1


def test_no_part_is_ever_negative(make: Make, prompt: Prompt, parts: Parts) -> None:
    """sgl-project/sglang#39312: a retracted request re-enters before it left."""
    row = prompt(
        make("a", "", 0, 20, "server", first_token_ns=12),
        make("b", "a", 8, 5, "queue", duration_ns=0),
        make("c", "a", 9, 12, "prefill"),
    )
    assert parts(row) == {"prefill": 3, "unattributed": 9}


def test_preemption_belongs_to_decode_and_is_counted(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    """vllm#13169."""
    row = prompt(
        make("a", "", 0, 100, "server", first_token_ns=10),
        make("b", "a", 0, 10, "prefill"),
        make("c", "a", 10, 100, "decode", preemptions=1),
    )
    assert row["preemptions"] == 1
    assert pieces(row)[-1] == ("decode", "c", 10, 90)
    assert prompt(make("a", "", 0, 100, "server"))["preemptions"] is None


def test_itl_and_tpot_are_two_quantities(make: Make, prompt: Prompt) -> None:
    """vllm#19776, #55283: three engine steps of three tokens each."""
    row = prompt(
        make("a", "", 0, 100 * MS, "client", gaps_us=[10_000, 30_000, 30_000], counts=[3, 3, 3], output_tokens=9)
    )
    assert row["itl_p50_ns"] == 10 * MS
    assert row["tpot_ns"] == 7_500_000  # 60 ms / 8


def test_a_chunk_is_no_token(make: Make, prompt: Prompt) -> None:
    """vllm#27485, #46652: a role-only chunk (no delivery), one chunk of four tokens, done."""
    row = prompt(
        make("a", "", 0, 100 * MS, "client", gaps_us=[10_000], counts=[4], output_tokens=4, first_byte_ns=5 * MS)
    )
    assert (row["ttft_ns"], row["first_tokens"], row["output_tokens"]) == (10 * MS, 4, 4)
    assert (row["itl_p50_ns"], row["gaps_us"]) == (None, [])


def test_gaps_are_one_fewer_than_deliveries(make: Make, prompt: Prompt) -> None:
    """vllm#7242: the TTFT is no inter-token latency."""
    row = prompt(make("a", "", 0, S, "client", gaps_us=[500_000, 1, 2, 3, 4], output_tokens=5))
    assert row["gaps_us"] == [1, 2, 3, 4]
    assert row["itl_max_ns"] == 4000


def test_without_streaming_there_is_no_ttft(make: Make, prompt: Prompt, parts: Parts) -> None:
    """Netis/heron#4, tingly-dev/tingly-box#1225: null, not the whole duration."""
    row = prompt(make("a", "", 0, S, "client", streaming=False, gaps_us=[1_000_000], output_tokens=5))
    assert (row["ttft_ns"], row["tpot_ns"], parts(row)) == (None, None, {})


def test_a_first_byte_is_no_first_token(make: Make, prompt: Prompt) -> None:
    """liaohch3/claude-tap#459, braintrustdata/braintrust-sdk-javascript#2110: headers at 20, the token at 70."""
    row = prompt(make("a", "", 0, 100_000, "client", first_byte_ns=20_000, gaps_us=[70]))
    assert (row["first_byte_ns"], row["ttft_ns"]) == (20_000, 70_000)


def test_tpot_of_an_unknown_ttft_is_unknown(make: Make, prompt: Prompt) -> None:
    """8monkey-ai/hebo-gateway#101."""
    row = prompt(make("a", "", 0, S, "client", output_tokens=9))
    assert (row["ttft_ns"], row["tpot_ns"]) == (None, None)


def test_ttfts_reconcile_with_aborts(make: Make, prompts: Callable[..., list[Row]]) -> None:
    """vllm#8115: two finished, one aborted before its first token."""
    rows = prompts(
        *(make(f"a{n}", "", 0, 100, "client", trace_id=f"{n:032x}", first_token_ns=9) for n in range(2)),
        make("b", "", 0, 100, "client", trace_id="f" * 32, streaming=True, abort="client"),
    )
    assert [row["status"] for row in rows] == ["ok", "ok", "client_abort"]
    assert [row["ttft_ns"] for row in rows] == [9, 9, None]


def test_what_no_span_covers_is_shown_as_unattributed(make: Make, prompt: Prompt, parts: Parts) -> None:
    """vllm#9952: one span covers a tenth of the time."""
    row = prompt(make("a", "", 0, 100, "server", first_token_ns=100), make("b", "a", 90, 100, "prefill"))
    assert parts(row) == {"prefill": 10, "unattributed": 90}


def test_a_child_may_outlive_its_parent(make: Make, prompt: Prompt, parts: Parts, pieces: Pieces) -> None:
    """llm-d/llm-d.github.io#469: decode nested under the prefill that handed its context on."""
    row = prompt(
        make("a", "", 0, 3200 * MS, "server", first_token_ns=60 * MS),
        make("b", "a", 0, 50 * MS, "prefill"),
        make("c", "b", 50 * MS, 3142 * MS, "decode"),
    )
    assert parts(row) == {"prefill": 50 * MS, "unattributed": 10 * MS}
    assert pieces(row) == [
        ("prefill", "b", 0, 50 * MS),
        ("unattributed", "a", 50 * MS, 10 * MS),
        ("decode", "c", 60 * MS, 3082 * MS),
        ("unattributed", "a", 3142 * MS, 58 * MS),
    ]


def test_a_child_that_outlives_its_root_is_shown_in_full(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    """An engine that goes on after its client has hung up: drawn, but the prompt is over."""
    row = prompt(
        make("a", "", 0, 100, "client", service="app", abort="client", first_token_ns=50),
        make("b", "a", 0, 300, "server", service="engine", first_token_ns=50),
        make("c", "b", 50, 300, "decode", service="engine"),
    )
    assert (row["status"], row["e2e_ns"]) == ("client_abort", 100)
    assert pieces(row) == [("unattributed", "b", 0, 50), ("decode", "c", 50, 50)]
    assert ("decode", "c", 100, 200) in pieces(row, critical=False)


def test_time_lost_in_retries_is_visible(make: Make, prompt: Prompt, parts: Parts) -> None:
    """sgl-project/sglang#28047, QwenLM/qwen-code#4413: two failed attempts, then success; the queue is its own."""
    row = prompt(
        make("a", "", 0, 1000, "client", service="app", first_token_ns=700),
        make("b", "a", 0, 100, "call", service="app", failed=True, http_status=503),
        make("c", "a", 150, 250, "call", service="app", failed=True, http_status=503),
        make("d", "a", 350, 900, "call", service="app", first_token_ns=350),
        make("e", "d", 350, 900, "server", service="engine", first_token_ns=350),
        make("f", "e", 350, 450, "queue", service="engine"),
        make("g", "e", 450, 700, "prefill", service="engine"),
    )
    assert parts(row) == {"router": 350, "queue": 100, "prefill": 250}
    assert (row["retry_ns"], row["attempts"]) == (350, 3)


def test_without_any_trace_header(make: Make, prompt: Prompt) -> None:
    """sglang#15693: a server alone."""
    assert prompt(make("a", "", 0, 100, "server", first_token_ns=5))["ttft_ns"] == 5


def test_a_clock_that_is_early_changes_nothing(make: Make, prompt: Prompt, parts: Parts) -> None:
    """jaegertracing/jaeger#961 and others: a callee 200 ms before its call; the offset is shown beside it."""

    def row_with(offset: int) -> Row:
        return prompt(
            make("a", "", 0, 100 * MS, "client", service="app", first_token_ns=80 * MS),
            make("b", "a", 10 * MS + offset, 90 * MS + offset, "server", service="engine", host="far",
                 first_token_ns=60 * MS),
        )  # fmt: skip

    early, right = row_with(-200 * MS), row_with(0)
    assert parts(early) == parts(right) == {"network": 20 * MS, "unattributed": 60 * MS}
    assert early["segments.start_ns"] == right["segments.start_ns"]
    assert (early["clock_offset_ns"], early["clock_error_ns"]) == (-200 * MS, 10 * MS)
