"""Rules: what the spans of each system mean, as data, compiled into the SELECT that reads spans.

A rule file is TOML: `system`, `order` (files are tried lowest first), `[[span]]` rules of which the first that matches a span counts,
and `[fields]`, spellings of values that hold for every span. ClickHouse does all matching; no Python runs per span.

A `[[span]]` rule:
    name                 what it is about, for messages
    match.scope, .name, .kind, .service    text or list of texts; `*` stands for anything
    match.attribute.KEY, match.resource.KEY   text, list of texts, or true (is there)
    match.inference_path, match.inference_operation   true: a request on a known inference path; a known GenAI operation
    stage                a stage, or "inbound" (gateway or server: the tree decides); stage_from: the attribute that names it
    inference            true: the span is an inference call, and so a prompt's root if none is around it
    agent                true: an agent, tool or workflow span
    before_first_token, after_first_token, from_start
                         stages that the span says as durations: [{stage, duration = {attribute, unit}}], laid end to end, so that the last ends at the
                         first token, from it on, or from the span's start on
    fields               spellings for spans of this rule, before the general ones

A spelling: the name of a span attribute, or a table of `attribute` or `resource` or `event` (with `attribute` of the event; without, its
time), `unit` (s, ms, us, ns, or time: an ISO 8601 instant) for times, `values` (a mapping; other values count as unknown).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from promptpath.collector.assemble.schema import STAGE_CODE
from promptpath.semconv import INFERENCE_OPERATIONS, INFERENCE_PATHS


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
_UNITS: Final = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_KINDS: Final = ("SERVER", "CLIENT", "INTERNAL", "PRODUCER", "CONSUMER", "UNSPECIFIED")
_PLACES: Final = ("before_first_token", "after_first_token", "from_start")
_TEXT_COLUMNS: Final = {"scope": "ScopeName", "name": "SpanName", "kind": "kind", "service": "ServiceName"}


@dataclass(frozen=True)
class Spelling:
    """One way in which systems write a value."""

    source: str
    name: str
    event_attribute: str = ""
    unit: str = ""
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PartRule:
    """A stage that a span says as a number."""

    place: str
    stage: str
    duration: Spelling


@dataclass(frozen=True)
class SpanRule:
    """One `[[span]]` rule; `where` is its SQL condition."""

    name: str
    where: str
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
    rule.only("name", "match", "stage", "stage_from", "inference", "agent", "fields", *_PLACES)
    stage = rule.text("stage", "")
    if stage and stage not in STAGE_CODE:
        raise rule.wrong("stage", f"{stage!r} is no stage")
    if stage and "stage_from" in rule.table:
        raise rule.wrong("stage_from", "and stage exclude each other")
    return SpanRule(
        name=rule.text("name"),
        where=_condition(rule.child("match")),
        stage=stage,
        stage_from=rule.text("stage_from", ""),
        inference=rule.flag("inference"),
        agent=rule.flag("agent"),
        parts=tuple(_part_rule(place, one) for place in _PLACES for one in rule.tables(place)),
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
    if kind == "duration" and not is_event_time and unit not in (*_UNITS, "time"):
        raise reader.wrong("unit", f"must be one of {', '.join(_UNITS)}, time")
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


# --- compiling --------------------------------------------------------------------------------------------------------


def _quote(text: str) -> str:
    """A ClickHouse string literal; braces too are escaped, for they would start a query parameter or a placeholder."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "\\x7B").replace("}", "\\x7D") + "'"


def _list(values: Sequence[str]) -> str:
    return "(" + ", ".join(_quote(value) for value in values) + ")"


def _condition(match: _Reader) -> str:
    """The SQL condition of a rule's `match`; all its keys must hold."""
    match.only(*_TEXT_COLUMNS, "attribute", "resource", "inference_path", "inference_operation")
    conditions = []
    for key, column in _TEXT_COLUMNS.items():
        if key in match.table:
            values = match.texts(key)
            if key == "kind" and (unknown := set(values) - set(_KINDS)):
                raise match.wrong(key, f"{unknown.pop()!r} is none of {', '.join(_KINDS)}")
            conditions.append(_any_of(column, values))
    for key, column in (("attribute", "SpanAttributes"), ("resource", "ResourceAttributes")):
        inner = match.child(key)
        for name, wanted in inner.table.items():
            value = f"{column}[{_quote(name)}]"
            conditions.append(f"{value} != ''" if wanted is True else _any_of(value, inner.texts(name)))
    if match.flag("inference_path"):
        conditions.append("on_inference_path")
    if match.flag("inference_operation"):
        conditions.append("is_inference_operation")
    if not conditions:
        raise match.wrong("", "says nothing: it would match every span")
    return "(" + " AND ".join(conditions) + ")"


def _any_of(column: str, values: Sequence[str]) -> str:
    plain = [value for value in values if "*" not in value]
    patterns = [
        "^" + ".*".join(re.escape(piece) for piece in value.split("*")) + "$" for value in values if "*" in value
    ]
    tests = [f"{column} IN {_list(plain)}"] if plain else []
    tests += [f"match({column}, {_quote(pattern)})" for pattern in patterns]
    return tests[0] if len(tests) == 1 else "(" + " OR ".join(tests) + ")"


def _raw(spelling: Spelling) -> str:
    """The text of a spelling, '' where absent."""
    if spelling.source == "event":
        position = f"indexOf(`Events.Name`, {_quote(spelling.name)})"
        value = f"`Events.Attributes`[{position}][{_quote(spelling.event_attribute)}]"
    else:
        column = "SpanAttributes" if spelling.source == "attribute" else "ResourceAttributes"
        value = f"{column}[{_quote(spelling.name)}]"
    if spelling.values:
        keys = ", ".join(_quote(key) for key, _ in spelling.values)
        words = ", ".join(_quote(word) for _, word in spelling.values)
        value = f"transform({value}, [{keys}], [{words}], '')"
    return value


def _value(spelling: Spelling, kind: str) -> str:
    """A Nullable expression of a spelling's value."""
    if kind == "duration":
        return _duration(spelling)
    raw = _raw(spelling)
    if kind == "text":
        return f"nullIf({raw}, '')"
    if kind == "first_text":
        return f"nullIf(if(startsWith({raw}, '['), JSONExtractString({raw}, 1), {raw}), '')"
    if kind == "int":
        return f"toInt64OrNull({raw})"
    if kind == "float":
        return f"toFloat64OrNull({raw})"
    return f"multiIf(lower({raw}) IN ('true', '1'), true, lower({raw}) IN ('false', '0'), false, NULL)"


def _duration(spelling: Spelling) -> str:
    """Nanoseconds from the span's start (an instant) or as such (a number); negative ones count as unknown."""
    if spelling.source == "event" and not spelling.event_attribute:
        position = f"indexOf(`Events.Name`, {_quote(spelling.name)})"
        value = f"toUnixTimestamp64Nano(`Events.Timestamp`[{position}]) - start_ns"
        return f"if(has(`Events.Name`, {_quote(spelling.name)}) AND {value} >= 0, {value}, NULL)"
    raw = _raw(spelling)
    if spelling.unit == "time":
        instant = f"parseDateTime64BestEffortOrNull(trim(BOTH '\"' FROM {raw}), 9, 'UTC')"
        return f"if({raw} = '', NULL, nullIf(greatest(toUnixTimestamp64Nano({instant}) - start_ns, -1), -1))"
    number = f"toFloat64OrNull({raw}) * {_UNITS[spelling.unit]!r}"
    return f"nullIf(greatest(accurateCastOrNull(round({number}), 'Int64'), -1), -1)"


def _field(name: str, rules: Sequence[RuleFile]) -> str:
    """The expression of a field: the rule's own spellings, then those of all files in their order."""
    kind = FIELDS[name]
    if kind == "texts":
        sources = [_raw(one) for file in rules for one in file.fields.get(name, ())]
        filled = ["''", *(f"nullIf({one}, '')" for one in sources)]
        return f"JSONExtract(coalesce({', '.join([*filled[1:], filled[0]])}), 'Array(String)')"
    values = []
    for number, rule in enumerate(_span_rules(rules), 1):
        values += [f"if(rule = {number}, {_value(one, kind)}, NULL)" for one in rule.fields.get(name, ())]
    values += [_value(one, kind) for file in rules for one in file.fields.get(name, ())]
    if kind in ("text", "first_text"):
        return f"coalesce({', '.join([*values, _quote('')])})"
    nothing = {"float": "CAST(NULL, 'Nullable(Float64)')", "bool": "CAST(NULL, 'Nullable(Bool)')"}
    return f"coalesce({', '.join([*values, nothing.get(kind, _NO_INT)])})"


_NO_INT: Final = "CAST(NULL, 'Nullable(Int64)')"


def _span_rules(rules: Sequence[RuleFile]) -> list[SpanRule]:
    return [rule for file in rules for rule in file.spans]


def _parts(rules: Sequence[RuleFile]) -> str:
    """The parts that the matching rule reads: Array(Tuple(stage, start, duration)), ns from the span's start."""
    nothing = "CAST([], 'Array(Tuple(stage String, start Int64, duration Int64))')"
    branches = []
    for number, rule in enumerate(_span_rules(rules), 1):
        pieces = []
        for place in _PLACES:
            chosen = [one for one in rule.parts if one.place == place]
            lengths = [f"ifNull({_duration(one.duration)}, 0)" for one in chosen]
            for index, part in enumerate(chosen):
                if place == "before_first_token":
                    start = "ifNull(first_token_ns, 0) - (" + " + ".join(lengths[index:]) + ")"
                else:
                    base = "0" if place == "from_start" else "ifNull(first_token_ns, 0)"
                    start = " + ".join([base, *lengths[:index]])
                pieces.append(f"({_quote(part.stage)}, toInt64({start}), toInt64({lengths[index]}))")
        if pieces:
            filled = f"arrayFilter(part -> part.3 > 0, [{', '.join(pieces)}])"
            cast = f"CAST({filled}, 'Array(Tuple(stage String, start Int64, duration Int64))')"
            needs_token = any(one.place != "from_start" for one in rule.parts)
            known = f"rule = {number}" + (" AND first_token_ns IS NOT NULL" if needs_token else "")
            branches += [known, cast]
    return f"multiIf({', '.join([*branches, nothing])})" if branches else nothing


def _by_rule(rules: Sequence[RuleFile], value: Mapping[int, str], default: str) -> str:
    branches = [text for number, expression in value.items() for text in (f"rule = {number}", expression)]
    return f"multiIf({', '.join([*branches, default])})" if branches else default


def _template() -> str:
    return files("promptpath.collector.assemble").joinpath("read_spans.sql").read_text(encoding="utf-8")


def compile_select(rules: Sequence[RuleFile]) -> str:
    """The SELECT that reads spans as SPAN_SCHEMA has them; parameters: trace_ids, from_ns, to_ns."""
    numbered = dict(enumerate(_span_rules(rules), 1))
    paths = "|".join("[^/]+".join(re.escape(piece) for piece in path.split("*")) for path in INFERENCE_PATHS)
    which = [text for number, rule in numbered.items() for text in (rule.where, str(number))]
    stages = {
        number: f"SpanAttributes[{_quote(rule.stage_from)}]" if rule.stage_from else _quote(rule.stage)
        for number, rule in numbered.items()
        if rule.stage or rule.stage_from
    }
    inferences = [str(number) for number, rule in numbered.items() if rule.inference]
    agents = [str(number) for number, rule in numbered.items() if rule.agent]
    values = {
        "inference_paths": _quote(f"({paths})/?$"),
        "inference_operations": _list(INFERENCE_OPERATIONS),
        "rule": f"multiIf({', '.join([*which, '0'])})" if which else "0",
        "stage": _by_rule(rules, stages, "''"),
        "inference": f"rule IN ({', '.join(inferences)})" if inferences else "false",
        "agent": f"rule IN ({', '.join(agents)})" if agents else "false",
        "parts": _parts(rules),
        **{name: _field(name, rules) for name in FIELDS},
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]] if found[1] in values else found[0], _template())


@lru_cache(maxsize=1)
def default_select() -> str:
    """The SELECT of the rules that come with Promptpath."""
    return compile_select(load_rules())
