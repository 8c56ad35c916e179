"""Rules: what the spans of each system mean, as data, compiled into the SELECT that reads spans.

A rule file is TOML: `system`, `order` (files are tried lowest first), `inference_paths` (further HTTP paths of
inference requests), `[[span]]` rules of which the first that matches a span counts, and `[fields]`, spellings of values
that hold for every span. ClickHouse does all matching; no Python runs per span.

A `[[span]]` rule:
    name                 what it is about, for messages
    match.scope, .name, .kind, .service, .path   text or list of texts; `*` stands for anything
    match.attribute.KEY, match.resource.KEY      text, list of texts, or true (is there)
    match.inference_path, match.inference_operation   true: a request on a known inference path; a known GenAI operation
    stage                a stage, or "inbound" (gateway or server: the tree decides); stage_from: the attribute that
                         names it
    inference            true: the span is an inference call, and so a prompt's root if none is around it
    agent                true: an agent, tool or workflow span
    role                 "forward": a relay that leaves no span for the call it makes (it made one unless it refused the
                         request; a value in the field `upstream` says so for sure); "prefill", "decode": a call of such
                         a worker of a pair, or the worker's span
    before_first_token, after_first_token, from_start
                         stages that the span says as durations: [{stage, duration}], laid end to end, so that the last
                         ends at the first token, from it on, or from the span's start on. The last of from_start may
                         say "rest": up to the first token
    fields               spellings for spans of this rule, before the general ones

A spelling: the name of a span attribute, or a table of one of
    attribute, resource  the name of an attribute
    event                the name of an event (its time) or several (the first of them); with `attribute`, one of the
                         event's
    span                 "duration", the span's own
and of `unit` for times (s, ms, us, ns; time: an ISO 8601 instant; text: a number with its unit behind it, 12.5ms),
`values` (a mapping; other values count as unknown), `json` (a key into JSON text, dots between several; '' for a text
that is JSON as a whole).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from promptpath.collector.assemble.rules_lines import KeyPath, key_lines, line_of
from promptpath.collector.assemble.rules_model import (
    FIELDS,
    KINDS,
    PLACES,
    ROLES,
    TEXTS,
    UNITS,
    UNRULED,
    WORDED_UNITS,
    Condition,
    Match,
    PartRule,
    RuleError,
    RuleFile,
    SpanRule,
    Spelling,
)
from promptpath.collector.assemble.schema import STAGE_CODE

__all__ = [
    "Condition",
    "Match",
    "PartRule",
    "RuleError",
    "RuleFile",
    "SpanRule",
    "Spelling",
    "load_rules",
    "parse_rules",
]

_TOML_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")
_HEAD: Final = re.compile(r"\A(?:#[^\n]*\n)+")


class _Reader:
    """A TOML table that knows where it stands and complains about what is wrong in it."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int], path: KeyPath, table: object) -> None:
        self.file, self.lines, self.path = file, lines, path
        if not isinstance(table, dict):
            raise self.wrong("", "must be a table")
        self.table: dict[str, Any] = table

    def wrong(self, key: str, what: str) -> RuleError:
        path = (*self.path, key) if key else self.path
        words = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path).lstrip(".")
        return RuleError(self.file, line_of(self.lines, path), f"{words or 'file'} {what}")

    @property
    def line(self) -> int:
        return line_of(self.lines, self.path)

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

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.table[key]
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) and one for one in values):
            raise self.wrong(key, "must be a text or a list of texts")
        return tuple(str(one) for one in values)

    def tables(self, key: str) -> list[_Reader]:
        value = self.table.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "must be a list of tables")
        return [_Reader(self.file, self.lines, (*self.path, key, at), one) for at, one in enumerate(value)]

    def child(self, key: str, *index: int, table: object = None) -> _Reader:
        """The table at `key`, or `table` as if it stood there."""
        inner = self.table.get(key, {}) if table is None else table
        return _Reader(self.file, self.lines, (*self.path, key, *index), inner)


def load_rules(extra: Iterable[Path] = ()) -> tuple[RuleFile, ...]:
    """The rules that come with Promptpath and those of `extra`, in the order in which they are tried.

    extra: rule files, or directories of them. One that has the name of a file of ours takes its place.
    Raises RuleError, naming file, line and key, for a file that cannot be read or says something unknown.
    """
    parsed = {
        one.name: parse_rules(one.name, one.read_text(encoding="utf-8"), own=True)
        for one in files("promptpath.collector.rules").iterdir()
        if one.name.endswith(".toml")
    }
    for path in (file for one in extra for file in _rule_files(one)):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RuleError(str(path), 0, f"cannot be read: {reason}") from None
        parsed[path.name] = parse_rules(str(path), text)
    return tuple(sorted(parsed.values(), key=lambda one: (one.order, one.system)))


def _rule_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.toml")) if path.is_dir() else [path]


def parse_rules(file: str, text: str, *, own: bool = False) -> RuleFile:
    """One rule file. Raises RuleError naming `file`, the line and the key that is wrong."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_LINE.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise RuleError(file, line, f"is not TOML: {_TOML_LINE.sub('', str(error))}") from None
    top = _Reader(file, key_lines(text), (), table)
    top.only("system", "order", "inference_paths", "span", "fields")
    order = table.get("order", 100)
    if not isinstance(order, int) or isinstance(order, bool):
        raise top.wrong("order", "must be an integer")
    paths = top.texts("inference_paths") if "inference_paths" in table else ()
    for path in paths:
        if not path.startswith(("/", ":")):
            raise top.wrong("inference_paths", f"{path!r} must begin with /")
    head = _HEAD.match(text)
    return RuleFile(
        system=top.text("system"),
        order=order,
        spans=tuple(_span_rule(one) for one in top.tables("span")),
        fields=_fields(top.child("fields"), FIELDS),
        inference_paths=paths,
        file=file,
        about=" ".join(line.lstrip("# ") for line in head[0].splitlines()) if head else "",
        own=own,
    )


def _span_rule(rule: _Reader) -> SpanRule:
    rule.only("name", "match", "stage", "stage_from", "inference", "agent", "role", "fields", *PLACES)
    stage = rule.text("stage", "")
    if stage and stage not in STAGE_CODE:
        raise rule.wrong("stage", f"{stage!r} is no stage")
    role = rule.text("role", "")
    if role and role not in ROLES:
        raise rule.wrong("role", f"{role!r} is no role; roles: {', '.join(ROLES)}")
    if stage and "stage_from" in rule.table:
        raise rule.wrong("stage_from", "and stage exclude each other")
    return SpanRule(
        name=rule.text("name"),
        match=_match(rule.child("match")),
        stage=stage,
        stage_from=rule.text("stage_from", ""),
        inference=rule.flag("inference"),
        agent=rule.flag("agent"),
        parts=tuple(part for place in PLACES for part in _part_rules(rule, place)),
        fields=_fields(rule.child("fields"), {key: kind for key, kind in FIELDS.items() if key not in UNRULED}),
        role=role,
        line=rule.line,
    )


def _part_rules(rule: _Reader, place: str) -> list[PartRule]:
    parts = []
    tables = rule.tables(place)
    for number, part in enumerate(tables):
        part.only("stage", "duration")
        stage = part.text("stage")
        if stage not in STAGE_CODE:
            raise part.wrong("stage", f"{stage!r} is no stage")
        if part.table.get("duration") == "rest":
            if place != "from_start" or number != len(tables) - 1:
                raise part.wrong("duration", "can be the rest only in the last part of from_start")
            parts.append(PartRule(place, stage, None))
        else:
            duration = _spelling(part.child("duration", table=part.table.get("duration", {})), "duration")
            parts.append(PartRule(place, stage, duration))
    return parts


def _fields(table: _Reader, known: Mapping[str, str]) -> dict[str, tuple[Spelling, ...]]:
    table.only(*known)
    result = {}
    for key, value in table.table.items():
        if not isinstance(value, list):
            raise table.wrong(key, "must be a list of spellings")
        result[key] = tuple(
            _spelling(table.child(key, at, table={"attribute": one} if isinstance(one, str) else one), known[key])
            for at, one in enumerate(value)
        )
    return result


def _spelling(spelling: _Reader, kind: str) -> Spelling:
    sources = ("event", "attribute", "resource", "span")
    spelling.only(*sources, "unit", "values", "json")
    source = next((one for one in sources if one in spelling.table), "attribute")
    if source == "span":
        if spelling.text("span") != "duration" or kind != "duration":
            raise spelling.wrong("span", 'can only be "duration", of a time')
        return Spelling("span", "duration", unit="ns")
    unit = spelling.text("unit", "")
    event_time = source == "event" and "attribute" not in spelling.table
    if event_time and kind != "duration":
        raise spelling.wrong("attribute", "is missing: only times can be an event's own")
    if kind == "duration" and not event_time and unit not in (*UNITS, *WORDED_UNITS):
        raise spelling.wrong("unit", f"must be one of {', '.join((*UNITS, *WORDED_UNITS))}")
    if unit and (kind != "duration" or event_time):
        raise spelling.wrong("unit", "says nothing here")
    values = spelling.child("values").table
    if not all(isinstance(one, str) for one in values.values()):
        raise spelling.wrong("values", "must map texts to texts")
    json = tuple(spelling.text("json", "").split(".")) if "json" in spelling.table else ()
    mapping = tuple(sorted(values.items()))
    if event_time:
        return Spelling("event", "", names=spelling.texts("event"))
    if source == "event":
        return Spelling("event", spelling.text("event"), spelling.text("attribute"), unit, mapping, json)
    return Spelling(source, spelling.text(source), "", unit, mapping, json)


def _match(match: _Reader) -> Match:
    match.only(*TEXTS, "attribute", "resource", "inference_path", "inference_operation")
    conditions = []
    for key in TEXTS:
        if key in match.table:
            values = match.texts(key)
            if key == "kind" and (unknown := sorted(set(values) - set(KINDS))):
                raise match.wrong(key, f"{unknown[0]!r} is none of {', '.join(KINDS)}")
            conditions.append(Condition(key, "", values))
    for source in ("attribute", "resource"):
        inner = match.child(source)
        for key, wanted in inner.table.items():
            conditions.append(Condition(source, key, () if wanted is True else inner.texts(key)))
    result = Match(tuple(conditions), match.flag("inference_path"), match.flag("inference_operation"))
    if not (result.conditions or result.inference_path or result.inference_operation):
        raise match.wrong("", "says nothing: it would match every span")
    return result
