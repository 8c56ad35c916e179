"""What a rule file says, as data: spellings, conditions, span rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class RuleError(ValueError):
    """A rule file that cannot be used; the message names file, line and key.

    line: 1 for the first, 0 where no line is to blame.
    """

    def __init__(self, file: str, line: int, what: str) -> None:
        self.file, self.line = file, line
        super().__init__(f"{file}:{line}: {what}" if line else f"{file}: {what}")


#: Fields that rules can spell, and the kind of value each is. `path` and `http_method` are no columns: they say what a
#: request asked for, which `match.path` and `match.inference_path` look at; nor is `upstream`, which says that a relay
#: without a span for its call has made one.
FIELDS: Final[Mapping[str, str]] = {
    "first_token_ns": "duration",
    "first_byte_ns": "duration",
    "streaming": "bool",
    "operation": "text",
    "model": "text",
    "request_model": "text",
    "finish_reason": "first_text",
    "http_status": "int",
    "error_type": "text",
    "abort": "text",
    "tenant": "text",
    "request_id": "text",
    "response_id": "text",
    "correlation_id": "first_text",
    "bootstrap_id": "text",
    "input_tokens": "int",
    "cached_tokens": "int",
    "output_tokens": "int",
    "reasoning_tokens": "int",
    "choices": "int",
    "preemptions": "int",
    "tcp_rtt_us": "int",
    "tcp_retransmits": "int",
    "cost_usd": "float",
    "conversation_id": "text",
    "agent_name": "text",
    "gpu_uuids": "texts",
    "upstream": "text",
    "path": "text",
    "http_method": "text",
}
#: Fields that a rule cannot spell for itself, for they are read before it is known which rule matches.
UNRULED: Final = frozenset(("path", "http_method", "gpu_uuids"))
#: Roles that a rule can give to a span.
ROLES: Final = ("forward", "prefill", "decode")
#: Nanoseconds in the units of durations.
UNITS: Final[Mapping[str, float]] = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
#: Further units: an ISO 8601 instant, a number with its unit behind it ("12.5ms").
WORDED_UNITS: Final = ("time", "text")
KINDS: Final = ("SERVER", "CLIENT", "INTERNAL", "PRODUCER", "CONSUMER", "UNSPECIFIED")
#: Where the parts of a span are laid: ending at its first token, from it on, from the span's start on.
PLACES: Final = ("before_first_token", "after_first_token", "from_start")
#: Texts of a span that a match can ask for.
TEXTS: Final = ("scope", "name", "kind", "service", "path")


@dataclass(frozen=True)
class Spelling:
    """One way in which systems write a value.

    source: attribute, resource, event or span; name: of the attribute or event (span: `duration`); names: of several
    events, the first of which counts; json: keys into the attribute's JSON text.
    """

    source: str
    name: str
    event_attribute: str = ""
    unit: str = ""
    values: tuple[tuple[str, str], ...] = ()
    json: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_event_time(self) -> bool:
        """Whether the value is the moment of an event."""
        return self.source == "event" and not self.event_attribute


@dataclass(frozen=True)
class Condition:
    """A text of a span that must be one of some patterns (`*` stands for anything), or just there (no patterns).

    source: scope, name, kind, service, path, attribute or resource; key: of an attribute.
    """

    source: str
    key: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """What a rule asks of a span; everything must hold."""

    conditions: tuple[Condition, ...]
    inference_path: bool
    inference_operation: bool


@dataclass(frozen=True)
class PartRule:
    """A stage that a span says as a number. duration: None for what is left of the time to the first token."""

    place: str
    stage: str
    duration: Spelling | None


@dataclass(frozen=True)
class SpanRule:
    """One `[[span]]` rule: what it matches and what that means. line: where it stands in its file."""

    name: str
    match: Match
    stage: str
    stage_from: str
    inference: bool
    agent: bool
    parts: tuple[PartRule, ...]
    fields: Mapping[str, tuple[Spelling, ...]]
    role: str = ""
    line: int = 0


@dataclass(frozen=True)
class RuleFile:
    """A rule file: a system's spans.

    file: its name, for messages; about: the comment at its head; own: whether it comes with Promptpath.
    """

    system: str
    order: int
    spans: tuple[SpanRule, ...]
    fields: Mapping[str, tuple[Spelling, ...]] = field(default_factory=dict)
    inference_paths: tuple[str, ...] = ()
    file: str = ""
    about: str = ""
    own: bool = False
