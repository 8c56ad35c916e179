"""What the Prompt page shows, worked out of one row of `prompts` and the raw spans of its trace. Pure, no I/O.

A prompt is a mapping as Arrow's `to_pylist()` gives it for one row; the `segments.*` columns are lists of equal length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from promptpath.semconv import HOST_ID, HOST_NAME, Part

Prompt = Mapping[str, Any]
Span = Mapping[str, Any]

#: A stall is a gap over both so many times the median gap and so many microseconds (design, section 2).
STALL_TIMES_MEDIAN: Final = 4
STALL_MIN_US: Final = 50_000


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """One part of a TTFT: exact, as shown in microseconds that add up to the TTFT as shown, and as a share."""

    part: Part
    ns: int
    shown_us: int
    share: float


def parts_ns(prompt: Prompt) -> dict[str, int] | None:
    """The nine parts in ns by name, None where the prompt has no TTFT."""
    if prompt["ttft_ns"] is None:
        return None
    return {part.value: int(prompt[f"ttft_{part.value}_ns"] or 0) for part in Part}


def breakdown(prompt: Prompt) -> list[BreakdownRow]:
    """The nine parts in order; empty where there is no TTFT. `shown_us` sums to `round_us(ttft_ns)`."""
    parts = parts_ns(prompt)
    if parts is None:
        return []
    ttft_ns = int(prompt["ttft_ns"])
    shown = apportion_us(list(parts.values()), ttft_ns)
    return [
        BreakdownRow(Part(name), ns, us, ns / ttft_ns if ttft_ns else 0.0)
        for (name, ns), us in zip(parts.items(), shown, strict=True)
    ]


def round_us(ns: int) -> int:
    """Nanoseconds to the nearest microsecond, halves away from zero."""
    return (abs(ns) + 500) // 1000 * (1 if ns >= 0 else -1)


def apportion_us(parts_ns: Sequence[int], total_ns: int) -> list[int]:
    """Round parts to microseconds so that they add up to the rounded total (largest remainder).

    No part moves by as much as a microsecond. What the parts lack of `total_ns` is not hidden: it stays lacking.
    """
    floors = [ns // 1000 for ns in parts_ns]
    missing = round_us(total_ns) - sum(floors) if sum(parts_ns) == total_ns else 0
    by_remainder = sorted(range(len(parts_ns)), key=lambda index: -(parts_ns[index] % 1000))
    for index in by_remainder[: max(missing, 0)]:
        floors[index] += 1
    return floors


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the white paper's sum."""

    symbol: str
    meaning: str
    ns: int


def white_paper_terms(prompt: Prompt) -> list[Term]:
    """TTFT = T_queue + T_tokenize + T_prefill + T_network + T_other; empty where there is no TTFT.

    T_network holds the way to the engine and back: `network` and `stream`. T_other is what the four do not name:
    `gateway`, `router`, `post`, and what no stage explains.
    """
    parts = parts_ns(prompt)
    if parts is None:
        return []
    return [
        Term("T_queue", "waiting in the scheduler", parts["queue"]),
        Term("T_tokenize", "reading the request, text to tokens", parts["tokenize"]),
        Term("T_prefill", "prompt tokens through the model", parts["prefill"]),
        Term("T_network", "to the engine and back, first token sent", parts["network"] + parts["stream"]),
        Term(
            "T_other",
            "gateway, router, post-processing, unattributed",
            parts["gateway"] + parts["router"] + parts["post"] + parts["unattributed"],
        ),
    ]


@dataclass(frozen=True, slots=True)
class Response:
    """T_response = TTFT + (N - 1) * TPOT, beside the end-to-end time that was measured. All ns."""

    ttft_ns: int
    tokens: int
    tpot_ns: int
    computed_ns: int
    e2e_ns: int

    @property
    def tail_ns(self) -> int:
        """From the last token to the end of the call."""
        return self.e2e_ns - self.computed_ns


def response(prompt: Prompt) -> Response | None:
    """The formula's terms, None where one of them is not known."""
    ttft_ns, tpot_ns, e2e_ns = prompt["ttft_ns"], prompt["tpot_ns"], prompt["e2e_ns"]
    if ttft_ns is None or tpot_ns is None or e2e_ns is None:
        return None
    tokens = int(prompt["first_tokens"] or 1) + sum(int(count) for count in prompt["gap_tokens"])
    return Response(ttft_ns, tokens, tpot_ns, ttft_ns + (tokens - 1) * tpot_ns, int(e2e_ns))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of tokens after the first. `at_ns` is since the prompt's start, `gap_us` since the delivery before."""

    at_ns: int
    gap_us: int
    tokens: int
    stall: bool


@dataclass(frozen=True, slots=True)
class TokenTimeline:
    """The deliveries of an answer. Where only gaps are known `first_ns` is None, and times count from the first one."""

    first_ns: int | None
    first_tokens: int
    deliveries: tuple[Delivery, ...]
    median_us: float
    threshold_us: float

    @property
    def stalls(self) -> tuple[Delivery, ...]:
        """Deliveries that came after a stall."""
        return tuple(delivery for delivery in self.deliveries if delivery.stall)


def token_timeline(prompt: Prompt) -> TokenTimeline | None:
    """Every delivery with its gap; None where no hop saw more than one delivery."""
    gaps = [int(gap) for gap in prompt["gaps_us"]]
    if not gaps:
        return None
    counts = [int(count) for count in prompt["gap_tokens"]] or [1] * len(gaps)
    ordered = sorted(gaps)
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    threshold = max(STALL_TIMES_MEDIAN * median, STALL_MIN_US)
    at_ns = int(prompt["ttft_ns"] or 0)
    deliveries = []
    for gap, tokens in zip(gaps, counts, strict=True):
        at_ns += gap * 1000
        deliveries.append(Delivery(at_ns, gap, tokens, gap > threshold))
    return TokenTimeline(prompt["ttft_ns"], int(prompt["first_tokens"] or 1), tuple(deliveries), median, threshold)


@dataclass(frozen=True, slots=True)
class Hop:
    """A process that the prompt passed."""

    name: str
    host: str


def hops(prompt: Prompt, spans: Sequence[Span] = ()) -> list[Hop]:
    """The hops in the order the prompt passed them. A host goes by the name that its spans give it, else by its id."""
    names = [str(name) for name in prompt["hops"]]
    named = _host_names(spans)
    hosts = [named.get(str(host), str(host)) for host in prompt["hosts"]]
    hosts += [""] * (len(names) - len(hosts))
    return [Hop(name, host) for name, host in zip(names, hosts, strict=False)]


def _host_names(spans: Sequence[Span]) -> dict[str, str]:
    said = ((attribute(span, key, "ResourceAttributes") for key in (HOST_ID, HOST_NAME)) for span in spans)
    return {host_id: name for host_id, name in said if host_id and name}


def attribute(span: Span, key: str, of: str = "SpanAttributes") -> str:
    """An attribute of a span (or of its resource: `of="ResourceAttributes"`) as stored, "" where it is missing."""
    attributes = span.get(of) or {}
    if isinstance(attributes, Mapping):
        return str(attributes.get(key, ""))
    # Arrow gives a map as a list of pairs.
    return next((str(value) for name, value in attributes if name == key), "")
