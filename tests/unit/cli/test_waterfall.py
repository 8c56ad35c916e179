"""The waterfall of a prompt, line by line."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.cli.waterfall import ASCII, UNICODE, _shares, bars, duration, render

MS = 1_000_000


def a_row(**changes: Any) -> dict[str, Any]:
    """A prompt of 100 ms to the first token and 300 ms in all, through client, gateway and engine."""
    pieces = [
        # stage, hop, span, start, duration, critical
        ("client", "demo-client", "c", 10, 290, False),
        ("transit", "demo-client", "c", 0, 10, True),
        ("gateway", "demo-gateway", "g", 12, 88, False),
        ("gateway", "demo-gateway", "g", 10, 2, True),
        ("server", "demo-engine", "s", 14, 286, False),
        ("unattributed", "demo-engine", "s", 12, 2, True),
        ("tokenize", "demo-engine", "t", 14, 1, True),
        ("queue", "demo-engine", "q", 15, 25, True),
        ("prefill", "demo-engine", "p", 40, 60, True),
        ("decode", "demo-engine", "d", 100, 200, True),
    ]
    stages, hops, spans, starts, durations, critical = zip(*pieces, strict=True)
    row: dict[str, Any] = {
        "prompt_id": "00f067aa0ba902b7",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "start_time": dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC),
        "tenant": "support",
        "service": "demo-client",
        "model": "smollm2-135m",
        "request_model": "smollm2-135m-small",
        "status": "ok",
        "error_type": "",
        "finish_reason": "stop",
        "agent_name": "",
        "streaming": True,
        "input_tokens": 37,
        "cached_tokens": None,
        "output_tokens": 5,
        "ttft_ns": 100 * MS,
        "ttft_source": "client",
        "e2e_ns": 300 * MS,
        "tpot_ns": 50 * MS,
        "itl_p99_ns": 112 * MS,
        "attempts": 2,
        "retry_ns": 5 * MS,
        "ttft_network_ns": 10 * MS,
        "ttft_gateway_ns": 2 * MS,
        "ttft_router_ns": 0,
        "ttft_tokenize_ns": 1 * MS,
        "ttft_queue_ns": 25 * MS,
        "ttft_prefill_ns": 60 * MS,
        "ttft_post_ns": 0,
        "ttft_stream_ns": 0,
        "ttft_unattributed_ns": 2 * MS,
        "gaps_us": [20_000, 20_000, 115_000, 25_000],
        "hops": ["demo-client", "demo-gateway", "demo-engine"],
        "hosts": ["a", "a", "a"],
        "segments.stage": list(stages),
        "segments.hop": list(hops),
        "segments.span_id": list(spans),
        "segments.start_ns": [start * MS for start in starts],
        "segments.duration_ns": [length * MS for length in durations],
        "segments.critical": list(critical),
    }
    return row | changes


def lines(row: dict[str, Any], **options: Any) -> list[str]:
    return [line.plain.rstrip() for line in render(row, width=100, glyphs=ASCII, **options)]


def test_a_whole_waterfall() -> None:
    names = {"c": "chat smollm2-135m", "g": "POST /v1/chat/completions", "q": "queue"}
    assert lines(a_row(), names=names) == EXPECTED.strip("\n").split("\n")


EXPECTED = """
prompt 00f067aa0ba902b7  |  smollm2-135m  |  ok  |  stop
trace 4bf92f3577b34da6a3ce929d0e0e4736  |  2026-01-02 03:04:05.678 UTC  |  demo-client
tenant support  |  asked for smollm2-135m-small
tokens 37 in, 5 out  |  TTFT 100 ms (seen by the client)  |  E2E 300 ms  |  TPOT 50.0 ms
2 attempts, 5.00 ms in retries

time to first token 100 ms
NNNNNNNNNNGGTQQQQQQQQQQQQQQQQQQQQQQQQQFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFUU
N network 10.0 ms 10 %   G gateway 2.00 ms 2 %   R router 0 0 %   T tokenize 1.00 ms 1 %
Q queue 25.0 ms 25 %   F prefill 60.0 ms 60 %   P post 0 0 %   S stream 0 0 %
U unattributed 2.00 ms 2 %

                          0                | first token                300 ms        own      start
demo-client
  client chat smollm2-13~ ##-------------------------------------------------     10.0 ms          0
  demo-gateway
    gateway POST /v1/cha~  ##--------------                                       2.00 ms    10.0 ms
    demo-engine
      server                #------------------------------------------------     2.00 ms    12.0 ms
      tokenize              #                                                     1.00 ms    14.0 ms
      queue                 #####                                                 25.0 ms    15.0 ms
      prefill                   ###########                                       60.0 ms    40.0 ms
      decode                               ##################################      200 ms     100 ms
                          # its own time   - open, while another has the time

tokens 5 deliveries, gaps between them: median 22.5 ms, ITL p99 112 ms, longest 115 ms
..#.
stalls 1: 115 ms at 140 ms
"""


def test_axis_to_the_first_token_leaves_out_what_comes_after() -> None:
    drawn = lines(a_row(), to_first_token=True)
    assert not any("decode" in line for line in drawn)
    assert any(line.lstrip().startswith("0 ") and "100 ms" in line for line in drawn)


def test_no_first_token() -> None:
    nothing: dict[str, Any] = {f"ttft_{part}_ns": None for part in ("network", "gateway", "queue")} | {
        "ttft_ns": None,
        "gaps_us": [],
    }
    whole = lines(a_row(streaming=False, ttft_source="", **nothing))
    assert "no time to first token: not streamed" in whole
    assert not any("deliveries" in line for line in whole)
    cut = lines(a_row(status="error", error_type="503", **nothing))
    assert "no time to first token: no first token was seen" in cut
    assert "error (503)" in cut[0]


def test_unicode_is_coloured_by_domain() -> None:
    drawn = render(a_row(), width=100, glyphs=UNICODE)
    prefill = next(line for line in drawn if line.plain.lstrip().startswith("prefill"))
    assert "█" in prefill.plain
    assert "green" in [str(span.style) for span in prefill.spans]


def test_stalls_are_told() -> None:
    told = lines(a_row())
    assert told[-1] == "stalls 1: 115 ms at 140 ms"
    assert lines(a_row(gaps_us=[20_000, 20_000]))[-1] == "no stalls"


def test_a_span_is_named_by_what_it_is_not_by_whose_its_own_time_is() -> None:
    assert [(bar.hop, bar.stage) for bar in bars(a_row())] == [
        ("demo-client", "client"),
        ("demo-gateway", "gateway"),
        ("demo-engine", "server"),
        ("demo-engine", "tokenize"),
        ("demo-engine", "queue"),
        ("demo-engine", "prefill"),
        ("demo-engine", "decode"),
    ]


def test_hosts_are_named_where_there_are_several() -> None:
    assert not any(" on a" in line for line in lines(a_row()))
    assert any(line.strip() == "demo-engine on b" for line in lines(a_row(hosts=["a", "a", "b"])))


@pytest.mark.parametrize("width", [20, 60, 80, 200])
@pytest.mark.parametrize("glyphs", [ASCII, UNICODE])
def test_no_line_is_wider_than_asked(width: int, glyphs: Any) -> None:
    drawn = render(a_row(), width=width, glyphs=glyphs)
    assert max(line.cell_len for line in drawn) <= max(60, width)
    if glyphs is ASCII:
        assert all(line.plain.isascii() for line in drawn)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1_234, "1.23 µs"),
        (12_345_678, "12.3 ms"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (999_499_999, "999 ms"),
        (999_500_000, "1.00 s"),
        (12_000_000_000, "12.0 s"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_duration(ns: int | None, text: str) -> None:
    assert duration(ns) == text


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=9), st.integers(60, 200))
def test_shares_fill_the_bar(values: list[int], cells: int) -> None:
    shares = _shares(values, cells)
    assert sum(shares) == (cells if any(values) else 0)
    assert all((share > 0) == (value > 0) for share, value in zip(shares, values, strict=True))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["client", "call", "transit", "prefill", "strange"]),
            st.sampled_from("abc"),
            st.integers(0, 10**9),
            st.integers(0, 10**9),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_whatever_the_segments_are(pieces: list[tuple[str, str, int, int, bool]]) -> None:
    row = a_row(
        **{
            "segments.stage": [piece[0] for piece in pieces],
            "segments.hop": [piece[1] for piece in pieces],
            "segments.span_id": [piece[0] + piece[1] for piece in pieces],
            "segments.start_ns": [piece[2] for piece in pieces],
            "segments.duration_ns": [piece[3] for piece in pieces],
            "segments.critical": [piece[4] for piece in pieces],
        }
    )
    for line in render(row, width=90, glyphs=ASCII):
        assert line.cell_len <= 90


def test_names_give_the_terminal_no_commands() -> None:
    row = a_row(
        model="\x1b]0;owned\x07m\x9b31m", tenant="a\u202eb\r\nc", hops=["demo-client", "demo-gateway", "demo-\x1b"]
    )
    text = "\n".join(line.plain for line in render(row, width=200, names={"t": "to\x1b[2Jkenize"}))
    assert r"\x1b]0;owned\x07m\x9b31m" in text
    assert r"tenant a\u202eb\r c" in text
    assert r"tokenize to\x1b[2Jkenize" in text
    assert not set(text) & {"\x1b", "\x9b", "\x07", "\r", "\u202e"}
