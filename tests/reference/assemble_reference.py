"""Spans to prompts in plain Python, one span at a time, as design §9 says it: what `assemble` must agree with.

Rows in, rows out: dicts of SPAN_SCHEMA and of PROMPT_SCHEMA, instants as ns since the epoch. It reads each trace for
itself: what joins several traces, nested siblings, offsets pooled over requests and what stalls came from have tests of
their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from promptpath.collector.assemble.status import status_of_error, status_of_http
from promptpath.semconv import STAGE_PART, Stage, Status

Row = dict[str, Any]

CALLS = {"client", "call"}
RELAYS = {"edge", "gateway", "router"}
CONTAINERS = CALLS | RELAYS | {"server"}
CONNECTS = {"dns", "tcp", "tls"}
GUARDS = {"safety", "structure"}
ENGINE = {"server", "queue", "transfer", "prefill", "kv_transfer", "decode"}
STAGES = {str(stage) for stage in Stage} | {"inbound"}
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")
SEEN_BY = {"client": "client", "call": "client", "edge": "gateway", "gateway": "gateway", "router": "router"}


@dataclass(eq=False)
class Span:
    """A span, or a part of one that a rule read out of its attributes."""

    row: Row
    start: int
    end: int
    stage: str
    is_part: bool
    parent: Span | None = None
    children: list[Span] = field(default_factory=list)
    number: int = 0
    prompt: Prompt | None = None
    shift: int = 0
    drawn: int = 0
    offset: int = 0
    error: int = 0
    lost: bool = False
    prepared: bool = False
    orphaned: bool = False
    orphan: bool = False
    put: bool = False
    nobodys: bool = False
    over: int | None = None
    recovered: bool = False
    guard: str = ""

    def said(self, name: str) -> Any:
        """What the span's own row says; a part says nothing."""
        return None if self.is_part else self.row[name]

    @cached_property
    def first(self) -> int | None:
        """Start to the first delivery of tokens that it saw."""
        if self.is_part or self.row["stage"] not in CONTAINERS | {"inbound", "hop"}:
            return None
        if self.row["gaps_us"]:
            return min(int(self.row["gaps_us"][0]) * 1000, self.end - self.start)
        said = self.row["first_token_ns"]
        return min(said, self.end - self.start) if said is not None and said >= 0 else None

    @property
    def inference(self) -> bool:
        return bool(self.said("inference"))

    @property
    def failed(self) -> bool:
        return bool(self.said("failed"))

    @property
    def cut_short(self) -> bool:
        return self.failed or bool(self.said("abort"))

    @property
    def of_another(self) -> bool:
        """What it says of its answer is not the prompt's: of a prefill worker, or of an attempt that was outlived."""
        return self.prepared or self.recovered

    @property
    def beside(self) -> bool:
        """Nothing of it is the prompt's answer."""
        return self.lost or bool(self.guard)

    @property
    def is_server_kind(self) -> bool:
        return not self.is_part and self.row["kind"].upper() == "SERVER"

    @property
    def is_root(self) -> bool:
        return self.prompt is not None and self.prompt.root is self

    @property
    def outer(self) -> Span | None:
        """The parent, as long as it is in the same prompt."""
        return None if self.prompt is None or self.is_root else self.parent

    def above(self) -> Iterable[Span]:
        """Ancestors, the nearest first."""
        at = self.parent
        while at is not None:
            yield at
            at = at.parent

    def above_in_prompt(self) -> Iterable[Span]:
        at = self.outer
        while at is not None:
            yield at
            at = at.outer

    def below(self) -> Iterable[Span]:
        """Descendants."""
        waiting = list(self.children)
        while waiting:
            one = waiting.pop()
            yield one
            waiting += one.children

    @cached_property
    def staged_above(self) -> list[Span]:
        return [one for one in self.above_in_prompt() if one.stage]

    @property
    def depth(self) -> int:
        return len(self.staged_above)

    @cached_property
    def new_hop(self) -> bool:
        """Whether its parent called another process, or the process called itself."""
        above = self.parent
        if above is None:
            return True
        return self.row["process"] != above.row["process"] or (self.is_server_kind and above.stage in CALLS)

    @cached_property
    def entry(self) -> Span:
        """The span with which the prompt came into this span's hop."""
        return self if self.outer is None or self.new_hop else self.outer.entry

    @cached_property
    def caller(self) -> Span | None:
        return next((one for one in self.above_in_prompt() if one.stage in CALLS or one.entry is one), None)

    @cached_property
    def server(self) -> Span | None:
        """The innermost server span that holds it, itself included."""
        return next((one for one in (self, *self.above_in_prompt()) if one.stage == "server"), None)

    @property
    def elsewhere(self) -> bool:
        """Before or after the server span of its process that holds it: of another time than the request."""
        around = self.server
        if around is None or around.row["process"] != self.row["process"]:
            return False
        return self.end < around.start or self.start > around.end

    @cached_property
    def leads_to_relay(self) -> bool:
        return any(
            one.stage in RELAYS and one.entry is one and one.staged_above and one.staged_above[0] is self
            for one in self.below()
        )

    @cached_property
    def unit(self) -> Span:
        """The attempt that it is part of: the call that reached the outermost server around it, else that server."""
        if self.server is None:
            return self
        above = self.server.staged_above
        # The call of an orphan was lost where the one above it led to a relay.
        if above and above[0].stage in CALLS and not (self.server.orphan and above[0].leads_to_relay):
            return above[0]
        return above[0].unit if above and above[0].server is not None else self.server

    @cached_property
    def host(self) -> str:
        """Its host; a callee's over a loopback address is its caller's."""
        above = self.parent
        if above is None:
            return str(self.row["host"])
        loopback = self.new_hop and above.stage in CALLS and above.said("loopback")
        return above.host if self.row["host"] == above.row["host"] or loopback else str(self.row["host"])

    @cached_property
    def sent(self) -> int:
        """When it had its connection and sent its request."""
        ends = [one.end for one in self.children if one.stage in CONNECTS and one.host == self.host]
        return min(max([self.start, *ends]), self.end)

    @property
    def gave_up(self) -> bool:
        """It did not wait for the answer."""
        over = status_of_error(self.said("error_type") or "") in (Status.TIMEOUT, Status.CLIENT_ABORT)
        return self.cut_short and (self.said("abort") in ("client", "timeout") or over)

    @cached_property
    def round_trip(self) -> int:
        """Of its connection, 0 where unknown."""
        shaken = [one.end - one.start for one in self.children if one.stage == "tcp" and not one.failed]
        return (self.said("tcp_rtt_us") or 0) * 1000 or max(shaken, default=0)

    @cached_property
    def first_below(self) -> int | None:
        """Its first delivery, else when the hop below it delivered."""
        if self.first is not None or self.stage not in CONTAINERS:
            return self.first
        found = []
        for child in self.children:
            if child.outer is None or child.first_below is None:
                continue
            moved = 0
            if child.host != self.host:
                spare = (self.end - self.sent) - (child.end - child.start)
                moved = self.sent + max(spare, 0) // 2 - child.start
            at = child.start + child.first_below + moved - self.start
            found.append(max(0, min(at, self.end - self.start)))
        return max(found, default=None)

    @cached_property
    def hears(self) -> bool:
        """Under it, within its hop, another hop or an engine in its own process left a span."""
        return any(child.outer is self and child.shows for child in self.children)

    @property
    def shows(self) -> bool:
        return self.entry is self or self.stage in ENGINE or self.hears

    @property
    def at(self) -> int:
        """Its start on the prompt's axis, ns since the epoch."""
        return self.start + self.shift

    @cached_property
    def until(self) -> int:
        """Until when it counts before the first token: its delivery or end, and no longer than what holds it."""
        assert self.prompt is not None
        end = self.prompt.end if self.is_root else self.end + self.shift - self.prompt.root.start
        own = end if self.delivered is None else self.delivered
        limits = [one.delivered for one in self.above_in_prompt() if one.delivered is not None]
        return min([own, *limits])

    @cached_property
    def delivered(self) -> int | None:
        """When it passed its first token on; the root when the prompt had it, whatever its calls brought."""
        if self.passed_on is None or self.prompt is None:
            return None
        if self.is_root and self.prompt.ttft is not None:
            return self.prompt.ttft
        end = self.prompt.end if self.is_root else self.end + self.shift - self.prompt.root.start
        return min(self.at - self.prompt.root.start + self.passed_on, end)

    @cached_property
    def passed_on(self) -> int | None:
        """Its first delivery; of a relay that saw none, when another server span of its request in the same process
        did, else when its only call brought one."""
        if self.first is not None or self.stage not in RELAYS or self.entry is not self or self.prompt is None:
            return self.first
        views = [
            one
            for one in self.below()
            if one.prompt is self.prompt
            and one.stage in RELAYS
            and one.entry is self
            and one.is_server_kind
            and not one.lost
            and one.first is not None
        ]
        if views and self.is_server_kind:
            outermost = min(views, key=lambda one: (one.depth, one.number))
            return max(outermost.start + (outermost.first or 0) - self.start, 0)
        calls = [
            one
            for one in (self, *self.below())
            if one.prompt is self.prompt
            and one.stage in CALLS
            and not one.is_root
            and not one.lost
            and one.entry is self
            and one.caller is self
        ]
        if len(calls) != 1 or calls[0].first is None:
            return None
        return max(calls[0].start + calls[0].first - self.start, 0)


@dataclass(eq=False)
class Prompt:
    """A prompt: its root and everything under it."""

    root: Span
    spans: list[Span] = field(default_factory=list)
    pauses: list[tuple[Span, int, int, int]] = field(default_factory=list)
    ttft: int | None = None
    source: str = ""
    engine: int | None = None
    end: int = 0
    server: Span | None = None
    attempts: int = 0

    def outermost(self, wanted: Callable[[Span], bool]) -> Span | None:
        """The first span that is wanted: attempts that answered before lost ones and what guardrails called, then the
        outermost, the earliest."""
        return next((one for one in self.spans if wanted(one)), None)

    def value(self, name: str, *, of_answer: bool = False) -> Any:
        found = self.outermost(
            lambda one: one.said(name) is not None and not one.guard and not (of_answer and one.of_another)
        )
        return None if found is None else found.row[name]

    def text(self, name: str, *, of_answer: bool = False) -> str:
        found = self.outermost(
            lambda one: bool(one.said(name)) and not one.guard and not (of_answer and one.of_another)
        )
        return "" if found is None else str(found.row[name])

    def total(self, name: str) -> int | None:
        values = [one.row[name] for one in self.spans if one.said(name) is not None]
        return sum(values) if values else None


def assemble_reference(
    rows: Iterable[Row], *, assembled_at_ns: int = 1, stall_factor: float = 4.0, stall_min_ns: int = 50_000_000
) -> list[Row]:
    """Prompt rows of span rows."""
    traces: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        traces[row["trace_id"]].append(row)
    found = []
    for _, of_trace in sorted(traces.items()):
        prompts = prompts_of(of_trace)
        prompts.sort(key=lambda one: (one.root.start, one.root.row["span_id"]))
        found += [row_of(prompt, assembled_at_ns, stall_factor, stall_min_ns) for prompt in prompts]
    return found


# --- trees ------------------------------------------------------------------------------------------------------------


def prompts_of(rows: list[Row]) -> list[Prompt]:
    """The prompts of a trace, up to what belongs to them."""
    spans = tree_of(rows)
    prompts = [Prompt(top) for top in spans if is_top(top) and not top.nobodys]
    for prompt in prompts:
        for one in (prompt.root, *prompt.root.below()):
            one.prompt = prompt
    decide_stages(spans)
    for prompt in prompts:
        place(prompt.root)
        members = [prompt.root, *prompt.root.below()]
        find_attempts(prompt, members)
        prompt.spans = sorted(members, key=lambda one: (one.beside, one.depth, one.at, one.number))
    return prompts


def is_top(span: Span) -> bool:
    """Whether it is an inference span with none around it."""
    return span.inference and not any(above.inference for above in span.above())


RANKS = {"": 0, "client": 0, "call": 0, "edge": 1, "gateway": 2, "router": 3, "inbound": 4, "server": 5}


def holds(outer: Span, inner: Span) -> bool:
    """Whether it can be around the other: by time on one host, by how long both took where clocks may differ."""
    if outer.row["host"] == inner.row["host"]:
        return outer.start <= inner.start and inner.end <= outer.end
    return inner.end - inner.start <= outer.end - outer.start


def place_lost(spans: list[Span]) -> None:
    """Spans whose parent never came go under the only call of another process that can hold them and that nobody
    answered."""
    with_inner = {id(one.parent) for one in spans if one.stage in CALLS and one.parent is not None}
    answered = {
        id(one.parent)
        for one in spans
        if one.parent is not None
        and (one.row["process"] != one.parent.row["process"] or (one.stage in CONNECTS and one.failed))
    }
    calls = [one for one in spans if one.stage in CALLS and id(one) not in with_inner and id(one) not in answered]
    found = []
    for one in spans:
        if one.orphan and (one.stage or one.inference):
            fit = [
                call
                for call in calls
                if call is not one and call.row["process"] != one.row["process"] and holds(call, one)
            ]
            if len(fit) == 1:
                found.append((one, fit[0]))
    for one, call in found:
        one.parent, one.put = call, True


def silent_relay(spans: list[Span], lost: Span, root: Span) -> Span:
    """The only relay of a prompt, innermost and not failed, that nobody is known to have answered (whoever answered it,
    for a span that failed), if it can have called the span that lost its parent; else the root."""
    inside = [one for one in spans if any(above.inference for above in (one, *one.above()))]
    relays = [one for one in inside if one.stage in RELAYS and one.is_server_kind and not one.failed]
    answers = [
        one
        for one in inside
        if one.parent is not None and one.row["process"] != one.parent.row["process"] and not one.failed
    ]
    busy = {id(above) for one in (*relays, *([] if lost.failed else answers)) for above in one.above()}
    silent = [one for one in relays if id(one) not in busy and (one is root or root in one.above())]
    called = lost.is_server_kind and lost.inference
    if len(silent) != 1 or not called or lost.row["process"] == silent[0].row["process"]:
        return root
    return silent[0] if lost.end - lost.start <= silent[0].end - silent[0].start else root


def may_lack_a_hop(spans: list[Span], firm: list[Span]) -> bool:
    """Whether a prompt of the trace has a call or a relay that failed, or that nobody is known to have answered."""
    inside = [one for one in spans if any(above in firm for above in (one, *one.above()))]
    busy = {
        id(above)
        for one in inside
        if one.parent is not None and one.row["process"] != one.parent.row["process"] and not one.failed
        for above in one.above()
    }
    calls = [one for one in inside if one.stage in CALLS or (one.stage in RELAYS and one.is_server_kind)]
    return any(one.failed or id(one) not in busy for one in calls)


def adopt_lost(spans: list[Span]) -> None:
    """What is still without its parent goes to the prompt of its trace, if there is one; where there are several, one
    of which may have called it, and it is no call of a process that they came from, it is nobody's."""
    lost = [one for one in spans if one.orphan and one.parent is None and one.row["parent_id"] != one.row["span_id"]]
    tops = [one for one in spans if is_top(one)]
    firm = [one for one in tops if one not in lost]
    left = [one for one in tops if one in firm or not firm]
    if not firm:
        lowest = min((RANKS.get(one.stage, 6) for one in left), default=0)
        first = [one for one in left if RANKS.get(one.stage, 6) == lowest]
        if len(first) == 1:
            longest = first[0].end - first[0].start
            left = [one for one in left if one is first[0] or one.end - one.start > longest]
    processes = {one.row["process"] for one in firm}
    lacking = len(firm) > 1 and may_lack_a_hop(spans, firm)
    adopted = []
    for one in lost:
        inside = any(above.inference for above in (one, *one.above())) and not is_top(one)
        if inside or not one.stage:
            continue
        from_outside = is_top(one) and not one.is_server_kind and one.row["process"] in processes
        if is_top(one) and not from_outside and lacking:
            one.nobodys = True
        if len(left) == 1 and left[0] is not one and one not in left[0].above() and not from_outside:
            adopted.append((one, silent_relay(spans, one, left[0])))
    for one, top in adopted:
        one.parent, one.put = top, True


def tree_of(rows: list[Row]) -> list[Span]:
    """Spans with their parents and parts; every span once, the longer of two; circles cut at their earliest span."""
    by_id: dict[str, Span] = {}
    for row in sorted(
        rows, key=lambda row: (row["span_id"], row["inference"], row["start_ns"], max(row["duration_ns"], 0))
    ):
        stage = row["stage"] if row["stage"] in STAGES else ""
        end = row["start_ns"] + max(row["duration_ns"], 0)
        by_id[row["span_id"]] = Span(row, row["start_ns"], end, stage, False)
    spans = list(by_id.values())
    for one in spans:
        above = by_id.get(one.row["parent_id"]) if one.row["parent_id"] else None
        one.parent = None if above is one else above
        one.orphan = bool(one.row["parent_id"]) and one.parent is None
    for number, one in enumerate(spans):
        one.number = number
    decoding = decoding_of(spans)
    place_lost(spans)
    for one in spans:
        line = [one]
        while line[-1].parent is not None and line[-1].parent not in line:
            line.append(line[-1].parent)
        if line[-1].parent is not None:
            circle = line[line.index(line[-1].parent) :]
            min(circle, key=lambda each: (each.start, each.number)).parent = None
    adopt_lost(spans)
    for owner in list(spans):
        row = owner.row
        for stage, start, length in zip(
            row["part_stages"], row["part_starts_ns"], row["part_durations_ns"], strict=True
        ):
            begin = max(owner.start, min(owner.start + start, owner.end))
            end = max(begin, min(begin + max(length, 0), owner.end))
            spans.append(Span(row, begin, end, stage if stage in STAGES else "", True, owner, number=len(spans)))
    for one in decoding:
        one.number = len(spans)
        spans.append(one)
    for one in spans:
        if one.parent is not None:
            one.parent.children.append(one)
    return spans


def decoding_of(spans: list[Span]) -> list[Span]:
    """Prefills that hold their decoding end where it begins; what came after, as spans of their own."""
    decoding = []
    for owner in spans:
        began = [
            one.start
            for one in spans
            if one.stage == "decode"
            and owner.stage == "prefill"
            and one.parent is owner
            and one.row["process"] == owner.row["process"]
            and owner.start < one.start < owner.end
        ]
        if began:
            decoding.append(Span(owner.row, min(began), owner.end, "decode", True, owner))
            owner.end = min(began)
    return decoding


def is_bare_view(one: Span) -> bool:
    """Whether it is another view of what the server span around it in its process is of, and says nothing more."""
    above = one.outer
    return (
        one.stage == "inbound"
        and one.is_server_kind
        and above is not None
        and above.is_server_kind
        and above.stage in RELAYS | {"server", "inbound"}
        and one.row["process"] == above.row["process"]
        and one.first is None
        and not any(inner.stage for inner in one.below())
    )


def decide_stages(spans: list[Span]) -> None:
    """Stages of inference spans that no rule named, of `inbound` ones, and of roots."""
    for one in spans:
        if one.prompt is None:
            one.stage = ""
        elif one.inference and not one.stage:
            one.stage = "inbound" if one.is_server_kind else "call"
    for one in [one for one in spans if is_bare_view(one)]:
        one.stage = ""
    before = {id(one): one.stage for one in spans}

    def leaves(one: Span) -> bool:
        stage = before[id(one)]
        elsewhere = one.parent is not None and one.row["service"] != one.parent.row["service"]
        return stage in CALLS | RELAYS or (stage in {"server", "inbound"} and elsewhere)

    for one in spans:
        if one.stage == "inbound":
            one.stage = "gateway" if any(leaves(inner) for inner in one.below()) else "server"
    for one in spans:
        if one.is_root:
            one.stage = {"call": "client", "decode": "server", "load": "server"}.get(one.stage, one.stage)


# --- one axis ---------------------------------------------------------------------------------------------------------


def place(caller: Span) -> None:
    """Move what each call reached on another host, as a block, into the middle of what the caller waited."""
    blocks: dict[str, list[Span]] = defaultdict(list)
    for child in caller.children:
        child.shift, child.drawn = caller.shift, caller.drawn
        child.offset, child.error = caller.offset, caller.error
        if child.host != caller.host:
            blocks[child.host].append(child)
    for block in blocks.values():
        came = min(one.start for one in block)
        delivered = [one.start + one.first_below for one in block if one.first_below is not None]
        if caller.stage in CALLS and not any(one.stage in CONTAINERS for one in block):
            early = [one for one in block if one.first_below is None and one.stage not in {"", "decode", "load"}]
            delivered += [one.end for one in early]
        if delivered and caller.first is not None:
            left, back = max(delivered), caller.start + caller.first
        else:
            left, back = max(one.end for one in block), caller.end
        spare = (back - caller.sent) - (left - came)
        half, error = max(spare, 0) // 2, (abs(spare) + 1) // 2
        given_up = caller.gave_up and not (delivered and caller.first is not None)
        if given_up:
            half = caller.round_trip // 2 if caller.round_trip else half
            error = half if caller.round_trip else max(back - caller.sent, half)
        moved = caller.sent + half - came
        # Drawn where the clocks say, if they say anything for sure, but within the call.
        drawn = moved if abs(moved) > error else 0
        drawn = max(caller.sent - came, min(drawn, back - left)) if spare >= 0 and not given_up else moved
        for one in block:
            one.shift += moved
            one.drawn += drawn
            one.offset -= moved
            one.error += error
    for child in caller.children:
        place(child)


# --- attempts ---------------------------------------------------------------------------------------------------------


def find_guards(members: list[Span]) -> None:
    """Mark what guardrails called, unless nobody else was called."""
    asked = []
    for one in members:
        rail = next((above for above in one.staged_above if above.stage in GUARDS), None)
        if rail is not None and (one.stage in CALLS or one.entry is one):
            asked.append(one)
    inside = {inner.number for one in asked for inner in (one, *one.below())}
    calls = [one for one in members if (one.stage in CALLS and not one.is_root) or one.stage == "server"]
    if any(one.number not in inside for one in calls):
        for one in members:
            if one.number in inside:
                one.guard = next(above.stage for above in one.staged_above if above.stage in GUARDS)


def find_attempts(prompt: Prompt, members: list[Span]) -> None:
    """Mark what lies in attempts that failed and were made again, or were given up while another went on; note the
    pauses between attempts."""
    find_guards(members)
    tried: dict[int, list[Span]] = defaultdict(list)
    for one in members:
        bare = one.entry is one and one.stage and one.staged_above
        if one.caller is not None and (one.stage in CALLS or bare) and not one.guard:
            tried[one.caller.number].append(one)
    for attempts in tried.values():
        attempts.sort(key=lambda one: (one.at, one.number))
        whole = [one for one in attempts if not one.cut_short]
        best = max(whole, key=lambda one: (one.end + one.shift, -one.at, one.number)) if whole else None
        for one, following in zip(attempts, [*attempts[1:], None], strict=True):
            ended = one.end + one.shift
            outlived = one.cut_short and best is not None and best.end + best.shift >= ended
            gone = one.first is None and following is not None and (one.failed or outlived)
            lost = gone or (one.first is None and outlived)
            if outlived:
                for inner in (one, *one.below()):
                    inner.recovered = True
            if lost:
                over = ended
                if outlived and best is not None:
                    over = min(ended, max(one.at, best.at))
                for inner in (one, *one.below()):
                    inner.lost = True
                    reached = over - prompt.root.start
                    inner.over = reached if inner.over is None else min(inner.over, reached)
            if gone and following is not None:
                assert one.caller is not None
                waited = ended - prompt.root.start, following.at - prompt.root.start
                if waited[1] > waited[0]:
                    prompt.pauses.append((one.caller.entry, one.depth, *waited))
            to_server = one.stage == "server" and one.staged_above[0].stage in CALLS
            prompt.attempts += to_server and (lost or outlived)
    find_workers(prompt, members)


def find_workers(prompt: Prompt, members: list[Span]) -> None:
    """The attempts of a prompt; which of them are prefill workers, and what they prepared."""
    calls = [one for one in members if one.stage in CALLS]
    outer = {id(one.caller) for one in calls}
    to_relay = {id(one.staged_above[0]) for one in members
                if one.staged_above and one.stage in RELAYS and one.entry is one}  # fmt: skip
    made = {one.number: one for one in calls if id(one) not in outer and id(one) not in to_relay}
    made |= {one.number: one for one in members if one.stage == "server" and one.unit is one}
    made = {number: one for number, one in made.items() if not one.guard}
    prompt.attempts += len(made)
    inside: dict[int, list[Span]] = defaultdict(list)
    for one in members:
        inside[one.unit.number].append(one)
    prefills, decodes, unhurt = [], [], False
    for attempt in made.values():
        spans = inside[attempt.number]
        stages = {one.stage for one in spans}
        roles = {one.said("role") for one in spans}
        short = any(one.cut_short and one.stage in {"server", "prefill"} for one in spans) or attempt.cut_short
        told = roles & {"prefill", "decode"}
        if attempt.lost:
            continue
        if not short and ("prefill" in roles or (not told and "prefill" in stages and "decode" not in stages)):
            prefills.append(attempt)
        elif "decode" in roles or (not told and ("decode" in stages or "prefill" not in stages)):
            decodes.append(attempt)
            unhurt |= not short
    if prefills:
        prompt.attempts -= min(len(prefills), len(decodes))
        decoded = any(one.stage == "decode" and not one.lost for one in members)
        taken = decoded or unhurt
        alone = not taken and (prompt.root.cut_short or bool(decodes))
        for attempt in prefills:
            for one in inside[attempt.number]:
                one.prepared = bool(decodes) or alone
                one.orphaned = alone
    for one in members:
        if one.said("role") in {"forward", "forwarded"} and one.stage in RELAYS and not one.guard:
            busy = any(other.entry is one.entry for other in calls)
            http = one.row["http_status"] or 0
            refused = (400 <= http < 500 and http not in (408, 499)) or http == 503
            if not busy and not one.hears and (one.said("role") == "forwarded" or not refused):
                prompt.attempts += 1


def innermost_calls(prompt: Prompt) -> list[Span]:
    calls = [one for one in prompt.spans if one.stage in CALLS]
    outer = {id(one.caller) for one in calls}
    return [one for one in calls if id(one) not in outer]


# --- first tokens, who owned each instant -----------------------------------------------------------------------------


def find_first_token(prompt: Prompt, streams: bool | None) -> None:
    root = prompt.root
    alive = [one for one in prompt.spans if not one.beside]
    saw = next((one for one in alive if one.stage in CONTAINERS and one.first is not None), None)
    prompt.server = next((one for one in alive if one.stage == "server"), None)
    told = [one for one in alive if not one.elsewhere]
    began = [one.at for one in told if one.stage == "decode"]
    cut = [one for one in told if one.stage == "prefill" and not one.cut_short and not one.orphaned]
    filled = [one.end + one.shift for one in cut]
    computed = min([*([max(filled)] if filled else []), *([min(began)] if began else [])], default=None)
    if streams is not False:
        if saw is not None and saw.first is not None:
            prompt.ttft, prompt.source = max(saw.at + saw.first - root.start, 0), source_of(saw)
        elif computed is not None:
            prompt.ttft, prompt.source = max(computed - root.start, 0), "engine"
    if prompt.server is not None:
        prompt.engine = prompt.server.said("first_token_ns")
        if prompt.engine is not None:
            prompt.engine = min(prompt.engine, prompt.server.end - prompt.server.start)
        if prompt.engine is None and computed is not None and computed >= prompt.server.at:
            prompt.engine = computed - prompt.server.at
        if prompt.engine is None:
            prompt.engine = prompt.server.first
    prompt.end = max(root.end - root.start, prompt.ttft or 0)


def source_of(span: Span) -> str:
    return "engine" if span.server is not None else SEEN_BY.get(span.entry.stage, "")


@dataclass
class Claim:
    """A span's claim to time, and what ranks it among its rivals."""

    span: Span
    start: int
    end: int
    rank: tuple[int, int, int, int]
    lost: bool


@dataclass
class Piece:
    span: Span
    stage: str
    start: int
    end: int
    lost: bool


def paint(prompt: Prompt) -> list[Piece]:
    """Whose each instant was: the deepest active span's with a stage; of several the one's that ends last."""
    token = prompt.ttft or 0
    claims = []

    def claim(span: Span, start: int, end: int, depth: int, window: tuple[int, int], lost: bool) -> None:
        low, high = max(start, window[0]), min(end, window[1])
        if low < high:
            claims.append(Claim(span, low, high, (depth, end, start, span.number), lost))

    def until_over(one: Span, end: int) -> int:
        return end if one.over is None else min(end, one.over)

    for one in prompt.spans:
        start = one.at - prompt.root.start
        end = prompt.end if one.is_root else one.end + one.shift - prompt.root.start
        if one.stage and one.stage not in {"decode", "load"}:
            claim(one, start, until_over(one, one.until), one.depth, (0, token), one.lost)
        if one.stage and one.stage != "load":
            claim(one, start, until_over(one, end), one.depth, (token, prompt.end), one.lost)
    for entry, depth, start, end in prompt.pauses:
        claim(entry, start, end, depth, (0, token), True)
        claim(entry, start, end, depth, (token, prompt.end), True)
    cuts = sorted({edge for one in claims for edge in (one.start, one.end)})
    pieces: list[Piece] = []
    last = None
    for low, high in pairwise(cuts):
        active = [one for one in claims if one.start <= low and high <= one.end]
        if not active:
            continue
        owner = max(active, key=lambda one: (one.rank, one.lost))
        if owner is last and pieces[-1].end == low:
            pieces[-1].end = high
        else:
            pieces.append(Piece(owner.span, "router" if owner.lost else own_stage(owner.span), low, high, owner.lost))
        last = owner
    return pieces


def own_stage(span: Span) -> str:
    if span.guard:
        return span.guard
    if span.stage in CALLS:
        return "transit" if span.hears else "unattributed"
    return "unattributed" if span.stage == "server" else span.stage


def redraw(prompt: Prompt, pieces: list[Piece]) -> tuple[list[Piece], bool]:
    """Pieces where they are to be drawn, each border moved with the deeper of its two owners; and whether that leaves
    everybody's time as it was (else they stay where they are)."""
    drawn = [replace(one) for one in pieces]
    for left, right, old in zip(drawn, drawn[1:], pieces[1:], strict=False):
        deeper = right.span if right.span.depth >= left.span.depth else left.span
        if old.start != prompt.ttft:
            left.end = right.start = old.start + deeper.drawn - deeper.shift
    whole = all(one.start < one.end for one in drawn)
    whole &= prompt.ttft is None or not any(one.start < prompt.ttft < one.end for one in drawn)
    changed: dict[int, int] = defaultdict(int)
    for old, new in zip(pieces, drawn, strict=True):
        if prompt.ttft is None or new.start < prompt.ttft:
            changed[old.span.number] += (new.end - new.start) - (old.end - old.start)
    return (drawn, True) if whole and not any(changed.values()) else (pieces, False)


def parts_of(prompt: Prompt, pieces: list[Piece]) -> dict[str, int | None]:
    parts: dict[str, int | None] = dict.fromkeys(PARTS, None if prompt.ttft is None else 0)
    for one in pieces:
        if prompt.ttft is not None and one.start < prompt.ttft:
            part = str(STAGE_PART[Stage(one.stage)])
            parts[part] = (parts[part] or 0) + one.end - one.start
    return parts


def segments_of(prompt: Prompt, painted: list[Piece]) -> Row:
    """Pieces that were somebody's, and the rest of each span's extent; cut at the first token."""
    pieces, moved = redraw(prompt, painted)
    found = [(one.start, one.span.depth, -one.end, one.span.number, one.span, one.stage, True) for one in pieces]
    for one in prompt.spans:
        if not one.stage or one.stage == "load":
            continue
        shift = one.drawn if moved else one.shift
        at = one.start + shift - prompt.root.start
        end = prompt.end if one.is_root else one.end + shift - prompt.root.start
        edges = [at, *(edge for piece in pieces if piece.span is one for edge in (piece.start, piece.end)), end]
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            cuts = [low, high]
            if prompt.ttft is not None and low < prompt.ttft < high:
                cuts.insert(1, prompt.ttft)
            found += [(a, one.depth, -b, one.number, one, one.stage, False) for a, b in pairwise(cuts) if a < b]
    found.sort(key=lambda each: each[:4])
    return {
        "segments.stage": [stage for *_, stage, _ in found],
        "segments.hop": [each[4].entry.row["service"] for each in found],
        "segments.span_id": [each[4].row["span_id"] for each in found],
        "segments.start_ns": [each[0] for each in found],
        "segments.duration_ns": [-each[2] - each[0] for each in found],
        "segments.critical": [each[-1] for each in found],
    }


# --- tokens -----------------------------------------------------------------------------------------------------------


def quantile(samples: list[float], wanted: float) -> float:
    rank = wanted * (len(samples) - 1)
    low = int(rank)
    lower, upper = samples[low], samples[min(low + 1, len(samples) - 1)]
    return lower + (upper - lower) * (rank - low)


def tokens_of(prompt: Prompt, output: int | None, stall_factor: float, stall_min_ns: int, seen: Seen) -> Row:
    gaps = [gap * 1000 for gap in seen.gaps]
    samples = sorted(gap / count for gap, count in zip(gaps, seen.counts, strict=True) for _ in range(count))
    row: Row = {"itl_p50_ns": None, "itl_p99_ns": None, "itl_max_ns": None, "tpot_ns": None, "stalls": None}
    if samples:
        row |= {
            "itl_p50_ns": round(quantile(samples, 0.5)),
            "itl_p99_ns": round(quantile(samples, 0.99)),
            "itl_max_ns": round(samples[-1]),
        }
    median = quantile(sorted(map(float, gaps)), 0.5) if gaps else 0.0
    if seen.first is not None:
        row["stalls"] = sum(gap > max(median * stall_factor, stall_min_ns) for gap in gaps)
    decode = prompt.outermost(lambda one: one.stage == "decode" and not one.beside)
    last = sum(gaps) if seen.first is not None else None if decode is None else decode.end - decode.start
    choices = prompt.value("choices")
    count = None if choices is not None and choices > 1 else output
    if count is None:
        count = seen.first + sum(seen.counts) if seen.first is not None and prompt.ttft is not None else 0
    if count >= 2 and prompt.ttft is not None and last is not None:
        row["tpot_ns"] = round(last / (count - 1))
    return row


@dataclass
class Seen:
    """Deliveries: who saw them, tokens of the first, the gaps (us) and the tokens at the end of each."""

    source: str = ""
    first: int | None = None
    gaps: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


def deliveries_of(prompt: Prompt) -> Seen:
    """At the root, else at the outermost hop that saw tokens, else as the engine computed them."""

    def saw(one: Span) -> bool:
        return bool(one.said("gaps_us")) and not one.beside

    chosen = prompt.outermost(lambda one: saw(one) and one.stage in CONTAINERS)
    chosen = chosen or prompt.outermost(lambda one: saw(one) and one.stage == "decode")
    if chosen is None:
        return Seen()
    gaps, counts = list(chosen.row["gaps_us"]), list(chosen.row["counts"])
    counts = counts[: len(gaps)] + [1] * (len(gaps) - len(counts))
    return Seen(source_of(chosen), counts[0], gaps[1:], counts[1:])


# --- how it ended -----------------------------------------------------------------------------------------------------


def ending(prompt: Prompt) -> tuple[Status, str]:
    """Status and error type."""
    root = prompt.root

    def anywhere(name: str, *, of_answer: bool = True) -> Any:
        found = prompt.outermost(
            lambda one: one.said(name) not in (None, "") and not one.recovered and not (of_answer and one.prepared)
        )
        return None if found is None or found.beside else found.row[name]

    finish = anywhere("finish_reason") or ""
    complete = finish not in ("", "abort")
    complete_at_root = root.row["finish_reason"] not in ("", "abort")
    inner = not complete and not root.failed
    error = root.row["error_type"] or ((anywhere("error_type") or "") if inner else "")
    http = root.row["http_status"] or 0
    if (inner or root.failed) and http == 0:
        http = anywhere("http_status", of_answer=False) or 0
    failed = root.failed or (inner and any(one.failed and not one.beside and not one.recovered for one in prompt.spans))
    status = Status.ERROR if failed else Status.OK
    for said in (status_of_error(error), status_of_http(http), status_of_error(root.row["error_type"])):
        if said is not None and (said != Status.ERROR or status == Status.OK):
            status = said
    if re.search(r"content_?filter|guardrail|safety|blocked", finish, re.IGNORECASE):
        status = Status.BLOCKED
    abort = root.row["abort"] or ("" if complete_at_root else anywhere("abort") or "")
    hang_ups = {"client": Status.CLIENT_ABORT, "server": Status.SERVER_ABORT, "timeout": Status.TIMEOUT}
    if abort == "disconnect" and not complete:
        status = Status.CLIENT_ABORT
    elif abort in hang_ups:
        status = hang_ups[abort]
    if status == Status.OK:
        return status, ""
    return status, error or (str(http) if http >= 400 else "")


# --- the row ----------------------------------------------------------------------------------------------------------


def row_of(prompt: Prompt, assembled_at_ns: int, stall_factor: float, stall_min_ns: int) -> Row:
    root = prompt.root
    said = prompt.value("streaming")
    streams = False if prompt.text("operation") == "embeddings" else said
    find_first_token(prompt, streams)
    pieces = paint(prompt)
    retry = 0
    for one in pieces:
        if one.lost and (prompt.ttft is None or one.start < prompt.ttft):
            retry += one.end - one.start
    seen = deliveries_of(prompt)
    status, error_type = ending(prompt)
    output = prompt.value("output_tokens", of_answer=True)
    if status in (Status.CLIENT_ABORT, Status.SERVER_ABORT, Status.TIMEOUT):
        engine_only = root.stage == "server"
        if seen.first is not None and (seen.source != "engine" or engine_only):
            output = seen.first + sum(seen.counts)
        elif not engine_only:
            output = None
    if streams is None and prompt.source not in ("", "engine"):
        streams = True
    calls = innermost_calls(prompt)
    answered = sum(one.hears for one in calls)
    entries = sorted({one.entry for one in prompt.spans}, key=lambda one: (one.at, one.depth, one.number))
    passed = list(dict.fromkeys((one.row["service"], one.host) for one in entries))
    byte = prompt.outermost(lambda one: one.said("first_byte_ns") is not None)
    agents = [one for one in root.above() if one.said("agent")]
    apart = prompt.server is not None and prompt.server.host != root.host
    asked = prompt.server.said("request_model") if prompt.server is not None else ""
    return {
        "prompt_id": root.row["span_id"],
        "trace_id": root.row["trace_id"],
        "root_span_id": root.row["span_id"],
        "start_time": root.start,
        "end_time": root.start + prompt.end,
        "tenant": prompt.text("tenant", of_answer=True),
        "service": root.row["service"],
        "model": prompt.text("model") or asked or prompt.text("request_model"),
        "operation": prompt.text("operation", of_answer=True),
        "streaming": streams,
        "status": str(status),
        "error_type": error_type,
        "finish_reason": prompt.text("finish_reason", of_answer=True),
        "input_tokens": prompt.value("input_tokens"),
        "cached_tokens": prompt.value("cached_tokens"),
        "output_tokens": output,
        "reasoning_tokens": prompt.value("reasoning_tokens"),
        "ttft_ns": prompt.ttft,
        "ttft_source": prompt.source,
        "ttft_engine_ns": prompt.engine,
        "e2e_ns": prompt.end,
        **tokens_of(prompt, output, stall_factor, stall_min_ns, seen),
        **{f"ttft_{part}_ns": value for part, value in parts_of(prompt, pieces).items()},
        **segments_of(prompt, pieces),
        "gaps_us": seen.gaps,
        "gap_tokens": seen.counts,
        "first_tokens": seen.first,
        "first_byte_ns": None if byte is None or byte.beside else byte.at - root.start + byte.row["first_byte_ns"],
        "retry_ns": retry,
        "gaps_source": seen.source,
        "request_model": prompt.text("request_model"),
        "hops": [service for service, _ in passed],
        "hosts": [host for _, host in passed],
        "gpu_uuids": sorted({uuid for one in prompt.spans for uuid in one.row["gpu_uuids"]}),
        "attempts": prompt.attempts,
        "preemptions": prompt.total("preemptions"),
        "tcp_rtt_us": prompt.value("tcp_rtt_us"),
        "tcp_retransmits": prompt.total("tcp_retransmits"),
        "clock_offset_ns": prompt.server.offset if apart and prompt.server else None,
        "clock_error_ns": prompt.server.error if apart and prompt.server else None,
        "joined_by": "time" if any(one.put for one in prompt.spans) else "",
        "completeness": float(np.float32(answered / len(calls))) if calls else None,
        "workflow_id": agents[-1].row["span_id"] if agents else "",
        "workflow_start": agents[-1].start if agents else None,
        "workflow_end": agents[-1].end if agents else None,
        "conversation_id": prompt.text("conversation_id") or _nearest(agents, "conversation_id"),
        "agent_name": _nearest(agents, "agent_name") or prompt.text("agent_name"),
        "cost_usd": prompt.value("cost_usd"),
        "energy_j": None,
        "assembled_at": assembled_at_ns,
        "joined_traces": [],
    }


def _nearest(agents: list[Span], name: str) -> str:
    """What the innermost agent span says, else the outermost."""
    ends = [agents[0], agents[-1]] if agents else []
    return next((str(one.row[name]) for one in ends if one.row[name]), "")
