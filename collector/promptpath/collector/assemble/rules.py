"""Rules: what the spans of each system mean, as data, compiled into the SELECT that reads spans.

A rule file is TOML: `system`, `order` (files are tried lowest first), `[[span]]` rules of which the first that
matches a span counts, and `[fields]`, spellings of values that hold for every span. ClickHouse does all matching; no
Python runs per span.

A `[[span]]` rule:
    name                 what it is about, for messages
    match.scope, .name, .kind, .service    text or list of texts; `*` stands for anything
    match.attribute.KEY, match.resource.KEY   text, list of texts, or true (is there)
    match.inference_path, match.inference_operation   true: a request on a known inference path; a known GenAI operation
    stage                a stage, or "inbound" (gateway or server: the tree decides); stage_from: the attribute that
                         names it
    inference            true: the span is an inference call, and so a prompt's root if none is around it
    agent                true: an agent, tool or workflow span
    before_first_token, after_first_token, from_start
                         stages that the span says as durations: [{stage, duration = {attribute, unit}}], laid end to
                         end, so that the last ends at the
                         first token, from it on, or from the span's start on
    fields               spellings for spans of this rule, before the general ones

A spelling: the name of a span attribute, or a table of `attribute` or `resource` or `event` (with `attribute` of the
event; without, its time), `unit` (s, ms, us, ns, or time: an ISO 8601 instant) for times, `values` (a mapping; other
values count as unknown).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from promptpath.collector.assemble.schema import STAGE_CODE


class RuleError(ValueError):
    """A rule file that cannot be used; the message names file and key."""


#: Fields that rules can spell, and the kind of value each is.
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
    "preemptions": "int",
    "tcp_rtt_us": "int",
    "tcp_retransmits": "int",
    "cost_usd": "float",
    "conversation_id": "text",
    "agent_name": "text",
    "gpu_uuids": "texts",
}
#: Nanoseconds in the units of durations.
UNITS: Final[Mapping[str, float]] = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_KINDS: Final = ("SERVER", "CLIENT", "INTERNAL", "PRODUCER", "CONSUMER", "UNSPECIFIED")
#: Where the parts of a span are laid: ending at its first token, from it on, from the span's start on.
PLACES: Final = ("before_first_token", "after_first_token", "from_start")
_TEXTS: Final = ("scope", "name", "kind", "service")


@dataclass(frozen=True)
class Spelling:
    """One way in which systems write a value."""

    source: str
    name: str
    event_attribute: str = ""
    unit: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Condition:
    """A text of a span that must be one of some patterns (`*` stands for anything), or just there (no patterns).

    source: scope, name, kind, service, attribute or resource; key: of an attribute.
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
    """A stage that a span says as a number."""

    place: str
    stage: str
    duration: Spelling


@dataclass(frozen=True)
class SpanRule:
    """One `[[span]]` rule: what it matches and what that means."""

    name: str
    match: Match
    stage: str
    stage_from: str
    inference: bool
    agent: bool
    parts: tuple[PartRule, ...]
    fields: Mapping[str, tuple[Spelling, ...]]


@dataclass(frozen=True)
class RuleFile:
    """A rule file: a system's spans."""

    system: str
    order: int
    spans: tuple[SpanRule, ...]
    fields: Mapping[str, tuple[Spelling, ...]] = field(default_factory=dict)


class _Reader:
    """A TOML table that knows where it stands and complains about what is wrong in it."""

    def __init__(self, file: str, path: str, table: object) -> None:
        self.file, self.path = file, path
        if not isinstance(table, dict):
            raise self.wrong("", "must be a table")
        self.table: dict[str, Any] = table

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def wrong(self, key: str, what: str) -> RuleError:
        return RuleError(f"{self.file}: {self.at(key) or 'file'} {what}")

    def only(self, *allowed: str) -> None:
        for key in self.table:
            if key not in allowed:
                raise self.wrong(key, f"is not known here; known: {', '.join(allowed)}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.table.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.wrong(key, "must be a text" if key in self.table else "is missing")
        return value

    def flag(self, key: str) -> bool:
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "must be true or false")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.table[key]
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) and one for one in values):
            raise self.wrong(key, "must be a text or a list of texts")
        return [str(one) for one in values]

    def tables(self, key: str) -> list[_Reader]:
        value = self.table.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "must be a list of tables")
        return [_Reader(self.file, f"{self.at(key)}[{number}]", one) for number, one in enumerate(value)]

    def child(self, key: str) -> _Reader:
        return _Reader(self.file, self.at(key), self.table.get(key, {}))


def load_rules(extra: Iterable[Path] = ()) -> tuple[RuleFile, ...]:
    """The rules that come with Promptpath and those of `extra` files, in the order in which they are tried.

    Raises RuleError, naming file and key, for a file that cannot be read or says something unknown.
    """
    own = sorted(
        (one for one in files("promptpath.collector.rules").iterdir() if one.name.endswith(".toml")),
        key=lambda one: one.name,
    )
    texts = [(one.name, one.read_text(encoding="utf-8")) for one in own]
    for path in extra:
        try:
            texts.append((str(path), path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError(f"{path}: cannot be read: {error}") from None
    parsed = [parse_rules(name, text) for name, text in texts]
    return tuple(sorted(parsed, key=lambda one: one.order))


def parse_rules(file: str, text: str) -> RuleFile:
    """One rule file. Raises RuleError naming `file` and the key that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{file}: is not TOML: {error}") from None
    top = _Reader(file, "", table)
    top.only("system", "order", "span", "fields")
    order = table.get("order", 100)
    if not isinstance(order, int) or isinstance(order, bool):
        raise top.wrong("order", "must be an integer")
    return RuleFile(
        system=top.text("system"),
        order=order,
        spans=tuple(_span_rule(one) for one in top.tables("span")),
        fields=_fields(top.child("fields")),
    )


def _span_rule(rule: _Reader) -> SpanRule:
    rule.only("name", "match", "stage", "stage_from", "inference", "agent", "fields", *PLACES)
    stage = rule.text("stage", "")
    if stage and stage not in STAGE_CODE:
        raise rule.wrong("stage", f"{stage!r} is no stage")
    if stage and "stage_from" in rule.table:
        raise rule.wrong("stage_from", "and stage exclude each other")
    return SpanRule(
        name=rule.text("name"),
        match=_match(rule.child("match")),
        stage=stage,
        stage_from=rule.text("stage_from", ""),
        inference=rule.flag("inference"),
        agent=rule.flag("agent"),
        parts=tuple(_part_rule(place, one) for place in PLACES for one in rule.tables(place)),
        fields=_fields(rule.child("fields")),
    )


def _part_rule(place: str, part: _Reader) -> PartRule:
    part.only("stage", "duration")
    stage = part.text("stage")
    if stage not in STAGE_CODE:
        raise part.wrong("stage", f"{stage!r} is no stage")
    return PartRule(place, stage, _spelling(part, "duration", part.table.get("duration"), "duration"))


def _fields(table: _Reader) -> dict[str, tuple[Spelling, ...]]:
    table.only(*FIELDS)
    result = {}
    for key, value in table.table.items():
        if not isinstance(value, list):
            raise table.wrong(key, "must be a list of spellings")
        result[key] = tuple(_spelling(table, f"{key}[{i}]", one, FIELDS[key]) for i, one in enumerate(value))
    return result


def _spelling(table: _Reader, key: str, value: object, kind: str) -> Spelling:
    if isinstance(value, str):
        value = {"attribute": value}
    reader = _Reader(table.file, table.at(key), value)
    reader.only("attribute", "resource", "event", "unit", "values")
    unit = reader.text("unit", "")
    is_event_time = "event" in reader.table and "attribute" not in reader.table
    if kind == "duration" and not is_event_time and unit not in (*UNITS, "time"):
        raise reader.wrong("unit", f"must be one of {', '.join(UNITS)}, time")
    if unit and (kind != "duration" or is_event_time):
        raise reader.wrong("unit", "says nothing here")
    if is_event_time and kind != "duration":
        raise reader.wrong("attribute", "is missing: only times can be an event's own")
    values = reader.child("values").table
    if not all(isinstance(one, str) for one in values.values()):
        raise reader.wrong("values", "must map texts to texts")
    mapping = tuple(sorted(values.items()))
    if "event" in reader.table:
        return Spelling("event", reader.text("event"), reader.text("attribute", ""), unit, mapping)
    source = "resource" if "resource" in reader.table else "attribute"
    return Spelling(source, reader.text(source), "", unit, mapping)


def _match(match: _Reader) -> Match:
    match.only(*_TEXTS, "attribute", "resource", "inference_path", "inference_operation")
    conditions = []
    for key in _TEXTS:
        if key in match.table:
            values = match.texts(key)
            if key == "kind" and (unknown := sorted(set(values) - set(_KINDS))):
                raise match.wrong(key, f"{unknown[0]!r} is none of {', '.join(_KINDS)}")
            conditions.append(Condition(key, "", tuple(values)))
    for source in ("attribute", "resource"):
        inner = match.child(source)
        for key, wanted in inner.table.items():
            conditions.append(Condition(source, key, () if wanted is True else tuple(inner.texts(key))))
    result = Match(tuple(conditions), match.flag("inference_path"), match.flag("inference_operation"))
    if not (result.conditions or result.inference_path or result.inference_operation):
        raise match.wrong("", "says nothing: it would match every span")
    return result
