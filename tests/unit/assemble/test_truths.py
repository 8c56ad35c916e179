"""Whole rows of prompts that were worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
T0 = 1_700_000_000_000_000_000
US = 1000
NOT_JOINED: Row = {"joined_traces": [], "workflow_start": None, "workflow_end": None}
NO_STALLS: Row = {f"stall_causes.{name}": [] for name in ("at_us", "gap_us", "cause", "detail")}


def test_a_retried_prompt_through_gateway_and_router(make: Callable[..., Row], prompt: Callable[..., Row]) -> None:
    """Client -> gateway -> router -> engine on another host, the first attempt refused; times in µs.

    The engine's clock is 5 s ahead. What each owns before the first token at 500 µs is said beside each span.
    """

    def at(span_id: str, parent: str, start: int, end: int, stage: str, service: str, **more: Any) -> Row:
        host = "gpu-1" if service == "engine" else "web-1"
        more = {"streaming": True if stage == "client" else None} | more
        return make(span_id, parent, start * US, end * US, stage, service=service, host=host, **more)

    far = 5_000_000
    row = prompt(
        # 0-10, 495-500: network 15
        at(
            "c0",
            "",
            0,
            900,
            "client",
            "app",
            gaps_us=[500, 40, 60],
            request_model="small",
            model="small-1",
            operation="chat",
            finish_reason="stop",
            input_tokens=7,
            output_tokens=5,
            cached_tokens=2,
            counts=[1, 2, 2],
            conversation_id="talk",
        ),
        # 10-20, 60-70, 490-495: network 25
        at(
            "c1",
            "c0",
            10,
            890,
            "call",
            "app",
            gaps_us=[485, 40, 60],
            http_status=200,
            first_byte_ns=470 * US,
            tcp_rtt_us=80,
            tcp_retransmits=1,
        ),
        at("c2", "c1", 20, 25, "dns", "app"),  # network 5
        at("c3", "c1", 25, 60, "tcp", "app"),  # network 35
        # 70-75, 95-100, 480-490: gateway 20
        at("d0", "c1", 70, 880, "gateway", "gate", gaps_us=[420, 40, 60], http_status=200, tenant="acme"),
        at("d1", "d0", 75, 95, "gateway", "gate"),  # gateway 20
        at("d2", "d0", 100, 870, "call", "gate", gaps_us=[380, 40, 60]),  # 100-105, 475-480: network 10
        at("e0", "d2", 105, 860, "router", "route", gaps_us=[370, 40, 60]),  # 105-110, 470-475: router 10
        at("e1", "e0", 110, 140, "call", "route", failed=True, http_status=503, error_type="503"),  # lost: router 20
        at("f0", "e1", far + 1, far + 11, "server", "engine", failed=True, http_status=503),  # lost: router 10
        # back-off 140-200: router 60
        # 200-220, 450-470: network 40, the engine's 230 in the middle of the call's 270
        at("e2", "e0", 200, 850, "call", "route", gaps_us=[270, 40, 60]),
        at(
            "f1",
            "e2",
            far,
            far + 600,
            "server",
            "engine",
            gaps_us=[230, 40, 60],
            gpu_uuids=["GPU-b", "GPU-a"],
            request_model="small-1",
        ),  # 220-222, 442-443: unattributed 3
        at("f2", "f1", far + 2, far + 5, "parse", "engine"),  # tokenize 3
        at("f3", "f1", far + 5, far + 12, "tokenize", "engine"),  # tokenize 7
        at("f4", "f1", far + 12, far + 112, "queue", "engine"),  # queue 100
        at("f5", "f1", far + 112, far + 222, "prefill", "engine"),  # prefill 110
        at("f6", "f1", far + 222, far + 500, "decode", "engine", preemptions=1),
        at("f7", "f1", far + 223, far + 227, "detokenize", "engine"),  # post 4
        at("f8", "f1", far + 227, far + 230, "stream", "engine"),  # stream 3
    )
    segments = {name: row.pop(name) for name in list(row) if name.startswith("segments.")}
    assert row == {
        "prompt_id": "c0", "trace_id": "0" * 31 + "1", "root_span_id": "c0",
        "start_time": T0, "end_time": T0 + 900 * US, "assembled_at": T0, **NOT_JOINED, **NO_STALLS,
        "tenant": "acme", "service": "app", "model": "small-1", "operation": "chat", "streaming": True,
        "status": "ok", "error_type": "", "finish_reason": "stop",
        "input_tokens": 7, "cached_tokens": 2, "output_tokens": 5, "reasoning_tokens": None,
        "ttft_ns": 500 * US, "ttft_source": "client", "ttft_engine_ns": 222 * US, "e2e_ns": 900 * US,
        "tpot_ns": 25 * US,  # (40 + 60) / (5 - 1)
        # 20 20 30 30
        "itl_p50_ns": 25 * US, "itl_p99_ns": 30 * US, "itl_max_ns": 30 * US, "stalls": 0,
        "ttft_network_ns": 130 * US, "ttft_gateway_ns": 40 * US, "ttft_router_ns": 100 * US,
        "ttft_tokenize_ns": 10 * US, "ttft_queue_ns": 100 * US, "ttft_prefill_ns": 110 * US,
        "ttft_post_ns": 4 * US, "ttft_stream_ns": 3 * US, "ttft_unattributed_ns": 3 * US,
        "gaps_us": [40, 60], "gap_tokens": [2, 2], "first_tokens": 1, "first_byte_ns": 480 * US,
        "retry_ns": 90 * US, "gaps_source": "client", "request_model": "small",
        "hops": ["app", "gate", "route", "engine"], "hosts": ["web-1", "web-1", "web-1", "gpu-1"],
        "gpu_uuids": ["GPU-a", "GPU-b"], "attempts": 2, "preemptions": 1, "tcp_rtt_us": 80, "tcp_retransmits": 1,
        # 5 s ahead, and 220 µs of it are the time that had passed: 5,000,000 - 220; half of the call's spare 40 µs
        "clock_offset_ns": (far - 220) * US, "clock_error_ns": 20 * US,
        "joined_by": "", "completeness": 1.0,
        "workflow_id": "", "conversation_id": "talk", "agent_name": "", "cost_usd": None, "energy_j": None,
    }  # fmt: skip
    pieces = list(zip(*(segments[f"segments.{name}"] for name in ("stage", "hop", "span_id", "start_ns",
    "duration_ns")),
                      strict=True))  # fmt: skip
    critical = [piece for piece, on in zip(pieces, segments["segments.critical"], strict=True) if on]
    assert [(stage, hop, span, start // US, duration // US) for stage, hop, span, start, duration in critical] == [
        ("transit", "app", "c0", 0, 10),
        ("transit", "app", "c1", 10, 10),
        ("dns", "app", "c2", 20, 5),
        ("tcp", "app", "c3", 25, 35),
        ("transit", "app", "c1", 60, 10),
        ("gateway", "gate", "d0", 70, 5),
        ("gateway", "gate", "d1", 75, 20),
        ("gateway", "gate", "d0", 95, 5),
        ("transit", "gate", "d2", 100, 5),
        ("router", "route", "e0", 105, 5),
        ("router", "route", "e1", 110, 10),
        ("router", "engine", "f0", 120, 10),
        ("router", "route", "e1", 130, 10),
        ("router", "route", "e0", 140, 60),
        ("transit", "route", "e2", 200, 20),
        ("unattributed", "engine", "f1", 220, 2),
        ("parse", "engine", "f2", 222, 3),
        ("tokenize", "engine", "f3", 225, 7),
        ("queue", "engine", "f4", 232, 100),
        ("prefill", "engine", "f5", 332, 110),
        ("unattributed", "engine", "f1", 442, 1),
        ("detokenize", "engine", "f7", 443, 4),
        ("stream", "engine", "f8", 447, 3),
        ("transit", "route", "e2", 450, 20),
        ("router", "route", "e0", 470, 5),
        ("transit", "gate", "d2", 475, 5),
        ("gateway", "gate", "d0", 480, 10),
        ("transit", "app", "c1", 490, 5),
        ("transit", "app", "c0", 495, 5),
        # After the first token spans count to their ends.
        ("decode", "engine", "f6", 500, 220),
        ("unattributed", "engine", "f1", 720, 100),
        ("transit", "route", "e2", 820, 30),
        ("router", "route", "e0", 850, 10),
        ("transit", "gate", "d2", 860, 10),
        ("gateway", "gate", "d0", 870, 10),
        ("transit", "app", "c1", 880, 10),
        ("transit", "app", "c0", 890, 10),
    ]


def test_an_engines_span_alone(make: Callable[..., Row], prompt: Callable[..., Row]) -> None:
    """vLLM's native span as its rule reads it: stages as numbers, no gaps; times in ns."""
    row = prompt(
        make("a1", "gone", 0, 1000, "server", service="vllm", first_token_ns=300, input_tokens=4, output_tokens=8,
             part_stages=["queue", "prefill", "decode"], part_starts_ns=[150, 200, 300],
             part_durations_ns=[50, 100, 693])
    )  # fmt: skip
    assert row == {
        "prompt_id": "a1", "trace_id": "0" * 31 + "1", "root_span_id": "a1",
        "start_time": T0, "end_time": T0 + 1000, "assembled_at": T0, **NOT_JOINED, **NO_STALLS,
        "tenant": "", "service": "vllm", "model": "", "operation": "", "streaming": None,
        "status": "ok", "error_type": "", "finish_reason": "",
        "input_tokens": 4, "cached_tokens": None, "output_tokens": 8, "reasoning_tokens": None,
        "ttft_ns": 300, "ttft_source": "engine", "ttft_engine_ns": 300, "e2e_ns": 1000, "tpot_ns": 99,
        "itl_p50_ns": None, "itl_p99_ns": None, "itl_max_ns": None, "stalls": None,
        "ttft_network_ns": 0, "ttft_gateway_ns": 0, "ttft_router_ns": 0, "ttft_tokenize_ns": 0,
        "ttft_queue_ns": 50, "ttft_prefill_ns": 100, "ttft_post_ns": 0, "ttft_stream_ns": 0,
        "ttft_unattributed_ns": 150,
        "segments.stage": ["unattributed", "server", "queue", "prefill", "server", "decode", "unattributed"],
        "segments.hop": ["vllm"] * 7, "segments.span_id": ["a1"] * 7,
        "segments.start_ns": [0, 150, 150, 200, 300, 300, 993],
        "segments.duration_ns": [150, 150, 50, 100, 693, 693, 7],
        "segments.critical": [True, False, True, True, False, True, True],
        "gaps_us": [], "gap_tokens": [], "first_tokens": None, "first_byte_ns": None, "retry_ns": 0,
        "gaps_source": "", "request_model": "", "hops": ["vllm"], "hosts": ["host"], "gpu_uuids": [], "attempts": 1,
        "preemptions": None, "tcp_rtt_us": None, "tcp_retransmits": None, "clock_offset_ns": None,
        "clock_error_ns": None, "joined_by": "", "completeness": None, "workflow_id": "", "conversation_id": "",
        "agent_name": "", "cost_usd": None, "energy_j": None,
    }  # fmt: skip
