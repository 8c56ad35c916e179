"""Rules compiled into the SELECT that reads spans, so that ClickHouse does all matching."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final

from promptpath.collector.assemble.rules import FIELDS, PLACES, UNITS, Match, RuleFile, SpanRule, Spelling, load_rules
from promptpath.semconv import INFERENCE_OPERATIONS, INFERENCE_PATHS


def _quote(text: str) -> str:
    """A ClickHouse string literal; braces too are escaped, for they would start a query parameter or a placeholder."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("{", "\\x7B").replace("}", "\\x7D") + "'"


def _list(values: Sequence[str]) -> str:
    return "(" + ", ".join(_quote(value) for value in values) + ")"


def _condition(match: Match) -> str:
    """The SQL condition of a rule's `match`."""
    columns = {"scope": "ScopeName", "name": "SpanName", "kind": "kind", "service": "ServiceName"}
    maps = {"attribute": "SpanAttributes", "resource": "ResourceAttributes"}
    conditions = []
    for one in match.conditions:
        column = columns[one.source] if one.source in columns else f"{maps[one.source]}[{_quote(one.key)}]"
        conditions.append(_any_of(column, one.patterns) if one.patterns else f"{column} != ''")
    if match.inference_path:
        conditions.append("on_inference_path")
    if match.inference_operation:
        conditions.append("is_inference_operation")
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
    number = f"toFloat64OrNull({raw}) * {UNITS[spelling.unit]!r}"
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
        for place in PLACES:
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
    which = [text for number, rule in numbered.items() for text in (_condition(rule.match), str(number))]
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
