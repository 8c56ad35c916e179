"""Rules compiled into the SELECT that reads spans, so that ClickHouse does all matching.

The SELECT is analysed anew for each batch, and an alias is analysed again wherever it is used: what several expressions
need is therefore a column of a subquery of its own, what rules share is written once, and what is constant in a rule
(its stage, the stages of its parts) is looked up by the rule's number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Final

from promptpath.collector.assemble.rules import load_rules
from promptpath.collector.assemble.rules_model import (
    FIELDS,
    UNITS,
    UNRULED,
    Match,
    PartRule,
    RuleFile,
    SpanRule,
    Spelling,
)
from promptpath.collector.assemble.schema import FORWARD, FORWARDED, STAGE_NAMES, UNKNOWN_STAGE
from promptpath.semconv import INFERENCE_OPERATIONS, INFERENCE_PATHS

_COLUMNS: Final = {
    "scope": "ScopeName",
    "name": "SpanName",
    "kind": "kind",
    "service": "ServiceName",
    "path": "request_path",
}
_MAPS: Final = {"attribute": "SpanAttributes", "resource": "ResourceAttributes"}
_NOTHING: Final = {
    "text": "''",
    "first_text": "''",
    "float": "CAST(NULL, 'Nullable(Float64)')",
    "bool": "CAST(NULL, 'Nullable(Bool)')",
    "int": "CAST(NULL, 'Nullable(Int64)')",
}
#: How units are written behind a number, and how many nanoseconds they are.
_SUFFIXES: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}


def _quote(text: str) -> str:
    """A ClickHouse string literal; braces too are escaped, for they would start a query parameter or a placeholder."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "\\x7B").replace("}", "\\x7D") + "'"


def _list(values: Iterable[str]) -> str:
    return ", ".join(_quote(value) for value in values)


# --- conditions -------------------------------------------------------------------------------------------------------
def _condition(match: Match) -> str:
    """The SQL condition of a rule's `match`."""
    conditions = []
    for one in match.conditions:
        column = _COLUMNS.get(one.source) or f"{_MAPS[one.source]}[{_quote(one.key)}]"
        conditions.append(_any_of(column, one.patterns) if one.patterns else f"{column} != ''")
    if match.inference_path:
        conditions.append("on_inference_path")
    if match.inference_operation:
        conditions.append("is_inference_operation")
    return conditions[0] if len(conditions) == 1 else "(" + " AND ".join(conditions) + ")"


def _any_of(column: str, values: Sequence[str]) -> str:
    plain = [value for value in values if "*" not in value]
    wild = [".*".join(re.escape(piece) for piece in value.split("*")) for value in values if "*" in value]
    tests = []
    if plain:
        tests.append(f"{column} = {_quote(plain[0])}" if len(plain) == 1 else f"{column} IN ({_list(plain)})")
    if wild:
        tests.append(f"match({column}, {_quote('^(' + '|'.join(wild) + ')$')})")
    return tests[0] if len(tests) == 1 else "(" + " OR ".join(tests) + ")"


# --- values -----------------------------------------------------------------------------------------------------------
def _raw(spelling: Spelling) -> str:
    """The text of a spelling, '' where absent."""
    if spelling.source == "event":
        position = f"indexOf(`Events.Name`, {_quote(spelling.name)})"
        value = f"`Events.Attributes`[{position}][{_quote(spelling.event_attribute)}]"
    else:
        value = f"{_MAPS[spelling.source]}[{_quote(spelling.name)}]"
    if spelling.json:
        inside = [one for one in spelling.json if one]
        value = f"trim(BOTH '\"' FROM JSONExtractRaw({value}{', ' + _list(inside) if inside else ''}))"
    if spelling.values:
        keys, words = _list(key for key, _ in spelling.values), _list(word for _, word in spelling.values)
        value = f"transform({value}, [{keys}], [{words}], '')"
    return value


def _value(spelling: Spelling, kind: str) -> str:
    """A Nullable expression of a spelling's value; of a duration, Float64 nanoseconds from the span's start."""
    if kind == "duration":
        return _nanoseconds(spelling)
    raw = _raw(spelling)
    if kind in ("text", "first_text"):
        return f"nullIf({raw}, '')"
    if kind == "int":
        return f"toInt64OrNull({raw})"
    if kind == "float":
        return f"toFloat64OrNull({raw})"
    return f"transform(lower({raw}), ['true', '1', 'false', '0'], [true, true, false, false], NULL)"


def _nanoseconds(spelling: Spelling) -> str:
    if spelling.source == "span":
        return "toNullable(toFloat64(Duration))"
    if spelling.is_event_time:
        at = f"arrayFirstIndex(name -> name IN ({_list(spelling.names)}), `Events.Name`)"
        # Index 0, where there is no such event, is the epoch: long before any span.
        value = f"toFloat64(toUnixTimestamp64Nano(`Events.Timestamp`[{at}]) - clock_ns)"
        return f"nullIf(greatest({value}, -1), -1)"
    raw = _raw(spelling)
    if spelling.unit == "time":
        instant = f"parseDateTime64BestEffortOrNull(trim(BOTH '\"' FROM {raw}), 9, 'UTC')"
        return f"toFloat64(toUnixTimestamp64Nano({instant}) - clock_ns)"
    if spelling.unit == "text":
        names, factors = _list(_SUFFIXES), ", ".join(repr(one) for one in _SUFFIXES.values())
        factor = f"transform(extract({raw}, '[^0-9.]+$'), [{names}], [{factors}], nan)"
        return f"toFloat64OrNull(extract({raw}, '^[0-9.]+')) * {factor}"
    return f"toFloat64OrNull({raw}) * {UNITS[spelling.unit]!r}"


def _whole(nanoseconds: str) -> str:
    """Nullable(Int64) of Float64 nanoseconds; what is below 0 or no number counts as unknown."""
    return f"nullIf(greatest(accurateCastOrNull(round({nanoseconds}), 'Int64'), -1), -1)"


def _merged(spellings: Iterable[Spelling]) -> list[Spelling]:
    """Each spelling once, neighbouring times of events as one."""
    once = dict.fromkeys(spellings)
    merged = []
    for event_time, run in groupby(once, key=lambda one: one.is_event_time):
        if event_time:
            merged.append(Spelling("event", "", names=tuple(dict.fromkeys(name for one in run for name in one.names))))
        else:
            merged += run
    return merged


def _field(name: str, rules: Sequence[RuleFile]) -> str:
    """The expression of a field: the rule's own spellings, then those of all files in their order."""
    kind = FIELDS[name]
    general = _merged(one for file in rules for one in file.fields.get(name, ()))
    if kind == "texts":
        filled = [f"nullIf({_raw(one)}, '')" for one in general]
        return f"JSONExtract(coalesce({', '.join([*filled, _quote('')])}), 'Array(String)')"
    values = []
    if name not in UNRULED:
        ruled: dict[Spelling, list[int]] = {}
        for number, rule in enumerate(_span_rules(rules), 1):
            for one in rule.fields.get(name, ()):
                ruled.setdefault(one, []).append(number)
        values = [f"if({_is_rule(numbers)}, {_value(one, kind)}, NULL)" for one, numbers in ruled.items()]
    values += [_value(one, kind) for one in general]
    if kind == "duration":
        return _whole(f"coalesce({', '.join(values)})") if values else _NOTHING["int"]
    found = f"coalesce({', '.join([*values, _NOTHING[kind]])})"
    # Of a list, written as JSON, the first.
    return f"extract({found}, '^(?:\\\\[\"?)?([^\",\\\\]]*)')" if kind == "first_text" else found


def _is_rule(numbers: Sequence[int]) -> str:
    return f"rule = {numbers[0]}" if len(numbers) == 1 else f"rule IN ({', '.join(map(str, numbers))})"


def _span_rules(rules: Sequence[RuleFile]) -> list[SpanRule]:
    return [rule for file in rules for rule in file.spans]


# --- what depends on the rule alone -----------------------------------------------------------------------------------
def _by_rule(rules: Sequence[RuleFile], of: Callable[[SpanRule], str], nothing: str) -> str:
    """A constant of each rule, looked up by the rule's number."""
    known = {number: value for number, rule in enumerate(_span_rules(rules), 1) if (value := of(rule))}
    if not known:
        return nothing
    numbers, values = ", ".join(map(str, known)), ", ".join(known.values())
    return f"transform(rule, [{numbers}], [{values}], {nothing})"


def _stage(rules: Sequence[RuleFile]) -> str:
    fixed = _by_rule(rules, lambda rule: _quote(rule.stage) if rule.stage else "", "''")
    named: dict[str, list[int]] = {}
    for number, rule in enumerate(_span_rules(rules), 1):
        if rule.stage_from:
            named.setdefault(rule.stage_from, []).append(number)
    branches = [f"{_is_rule(numbers)}, SpanAttributes[{_quote(key)}]" for key, numbers in named.items()]
    return f"multiIf({', '.join([*branches, fixed])})" if branches else fixed


def _role(rules: Sequence[RuleFile]) -> str:
    """A relay that forwards is known to have done so where `upstream` says anything."""
    fixed = _by_rule(rules, lambda rule: _quote(rule.role) if rule.role else "", _unknown_stage(rules))
    forwards = [number for number, rule in enumerate(_span_rules(rules), 1) if rule.role == FORWARD]
    if not forwards:
        return fixed
    return f"multiIf({_is_rule(forwards)} AND {_field('upstream', rules)} != '', {_quote(FORWARDED)}, {fixed})"


def _unknown_stage(rules: Sequence[RuleFile]) -> str:
    """What a span is that names a stage, where its name is looked for, and names none."""
    keys = sorted({rule.stage_from for rule in _span_rules(rules) if rule.stage_from})
    if not keys:
        return "''"
    named = " OR ".join(f"SpanAttributes[{_quote(key)}] NOT IN ({_list(STAGE_NAMES)})" for key in keys)
    return f"if({named}, {_quote(UNKNOWN_STAGE)}, '')"


def _few(expression: str) -> str:
    """Texts of which there are few, as codes; a constant stays one."""
    return expression if expression == "''" else f"toLowCardinality({expression})"


def _flag(rules: Sequence[RuleFile], of: Callable[[SpanRule], bool]) -> str:
    numbers = [number for number, rule in enumerate(_span_rules(rules), 1) if of(rule)]
    return _is_rule(numbers) if numbers else "false"


def _part_words(rules: Sequence[RuleFile], of: Callable[[PartRule], str]) -> str:
    """A word of each part of the matching rule: Array(String)."""

    def words(rule: SpanRule) -> str:
        return _quote(" ".join(of(part) for part in rule.parts)) if rule.parts else ""

    return f"splitByWhitespace({_by_rule(rules, words, _quote(''))})"


def _part_lengths(rules: Sequence[RuleFile]) -> str:
    """Nanoseconds of each part of the matching rule: Array(Int64). -1: the rest of the time to the first token."""

    def length(part: PartRule) -> str:
        return "-1" if part.duration is None else f"ifNull({_whole(_nanoseconds(part.duration))}, 0)"

    same: dict[tuple[PartRule, ...], list[int]] = {}
    for number, rule in enumerate(_span_rules(rules), 1):
        if rule.parts:
            same.setdefault(tuple(PartRule("", "", part.duration) for part in rule.parts), []).append(number)
    nothing = "CAST([], 'Array(Int64)')"
    branches = [
        f"{_is_rule(numbers)}, CAST([{', '.join(map(length, parts))}], 'Array(Int64)')"
        for parts, numbers in same.items()
    ]
    return f"multiIf({', '.join([*branches, nothing])})" if branches else nothing


# --- the SELECT -------------------------------------------------------------------------------------------------------
def _template() -> str:
    return files("promptpath.collector.assemble").joinpath("read_spans.sql").read_text(encoding="utf-8")


def compile_select(rules: Sequence[RuleFile], *, explain: bool = False) -> str:
    """The SELECT that reads spans as SPAN_SCHEMA has them; parameters: trace_ids, tenant, from_ns,
    to_ns.

    explain: with the columns `rule` (its number in order, from 1; 0 for none) and `name` (of the span) behind them.
    """
    paths = [*INFERENCE_PATHS, *(path for file in rules for path in file.inference_paths)]
    pattern = "|".join("[^/]+".join(re.escape(piece) for piece in path.split("*")) for path in dict.fromkeys(paths))
    which = [
        text for number, rule in enumerate(_span_rules(rules), 1) for text in (_condition(rule.match), str(number))
    ]
    values = {
        "inference_paths": _quote(f"({pattern})/?$"),
        "inference_operations": f"({_list(INFERENCE_OPERATIONS)})",
        "rule": f"multiIf({', '.join([*which, '0'])})" if which else "0",
        "stage": _few(_stage(rules)),
        "role": _few(_role(rules)),
        "inference": _flag(rules, lambda rule: rule.inference),
        "agent": _flag(rules, lambda rule: rule.agent),
        "part_places": _part_words(rules, lambda part: part.place),
        "part_stages": _part_words(rules, lambda part: part.stage),
        "part_lengths": _part_lengths(rules),
        "explain": ",\n    toUInt16(rule) AS rule,\n    SpanName AS name" if explain else "",
        **{name: _field(name, rules) for name in FIELDS},
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]] if found[1] in values else found[0], _template())


@lru_cache(maxsize=8)
def select_of(directory: Path | None = None) -> str:
    """The SELECT of the rules that come with Promptpath and of the user's `directory` of rule files.

    Raises RuleError for a rule file that cannot be used.
    """
    return compile_select(load_rules() if directory is None else load_rules([directory]))


def default_select() -> str:
    """The SELECT of the rules that come with Promptpath."""
    return select_of()
