"""`promptpath rules`: what rules there are, whether they are right, and what they make of spans."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, rules_option

if TYPE_CHECKING:
    from promptpath.collector.assemble.explain import Explained
    from promptpath.collector.assemble.rules import RuleFile

_TESTED = re.compile(r"Tested on ([^.]*)\.")
_DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group("rules")
def rules() -> None:
    """What spans of other systems mean: stages, first tokens, token counts, as rule files say."""


@command("list")
@rules_option
@format_option("table", "json")
def list_rules(rules: Path | None, output: str) -> None:
    """Lists the rule files in the order in which they are tried."""
    need("rules list", "collector")
    from promptpath.cli.tables import print_json_lines, print_rows

    rows = [
        {
            "system": file.system,
            "file": file.file,
            "order": file.order,
            "rules": len(file.spans),
            "ours": file.own,
            "tested_on": found[1] if (found := _TESTED.search(file.about)) else "",
        }
        for file in _load(rules)
    ]
    if output == "json":
        print_json_lines(rows)
    else:
        print_rows(list(rows[0]), [list(row.values()) for row in rows])


@command("check")
@click.argument("directory", type=_DIRECTORY, required=False, default=None, envvar="PROMPTPATH_RULES")
def check(directory: Path | None) -> None:
    """Checks our rule files and those in DIRECTORY; what is wrong is named with file and line."""
    need("rules check", "collector")
    from promptpath.collector.assemble.rules_sql import compile_select

    files = _load(directory)
    compile_select(files)
    theirs = sum(not file.own for file in files)
    click.echo(f"{len(files)} files ({theirs} of yours), {sum(len(file.spans) for file in files)} rules: all right")


@command("test")
@rules_option
@format_option("table", "json")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False, default=None)
def test(rules: Path | None, output: str, file: Path | None) -> None:
    """Shows what the rules, FILE among them, make of the spans on standard input.

    Spans are OTLP/JSON, an export request a line, as `promptpath collector` receives them.

    \b
    promptpath rules test mine.toml < spans.jsonl
    """
    need("rules test", "collector")
    loaded = _load(rules, file)
    body = _stdin()
    from promptpath.collector.assemble.explain import explain

    explained = explain(body, loaded)
    (_print_json if output == "json" else _print_table)(explained)


for _one in (list_rules, check, test):
    rules.add_command(_one)


def _load(*extra: Path | None) -> tuple[RuleFile, ...]:
    from promptpath.collector.assemble.rules import RuleError, load_rules

    try:
        return load_rules(path for path in extra if path is not None)
    except RuleError as error:
        raise Wrong(str(error)) from None


def _stdin() -> bytes:
    """The requests on standard input as protobuf, end to end."""
    from promptpath.collector.otlp import OtlpError, Reader, Signal

    usage = "spans as OTLP/JSON, a request a line: promptpath rules test mine.toml < spans.jsonl"
    if sys.stdin.isatty():
        raise Wrong(f"no spans: {usage}")
    reader, bodies = Reader(), []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            bodies.append(reader.read_json(Signal.TRACES, line).body)
        except OtlpError as error:
            raise Wrong(f"standard input, line {number}: {error}") from None
    if not bodies:
        raise Wrong(f"standard input holds no spans: {usage}")
    return b"".join(bodies)


def _span_rows(explained: Explained) -> list[dict[str, Any]]:
    """Of each span what is of interest; the matching rule as `system: rule`."""
    rows = []
    for span in explained.spans.to_pylist():
        number = span.pop("rule")
        rule = explained.rules[number - 1] if number else None
        parts = list(
            zip(span.pop("part_stages"), span.pop("part_starts_ns"), span.pop("part_durations_ns"), strict=True)
        )
        rows.append(
            {
                "rule": f"{rule[0].system}: {rule[1].name}" if rule else "",
                "rule_at": f"{rule[0].file}:{rule[1].line}" if rule else "",
                "name": span.pop("name"),
                **span,
                "parts": [{"stage": stage, "start_ns": start, "duration_ns": length} for stage, start, length in parts],
            }
        )
    return rows


def _print_json(explained: Explained) -> None:
    from promptpath.cli.tables import print_json_lines

    print_json_lines([{"what": "span"} | row for row in _span_rows(explained)])
    print_json_lines([{"what": "prompt"} | row for row in explained.prompts.to_pylist()])


def _print_table(explained: Explained) -> None:
    from promptpath.cli.tables import print_rows

    def ms(nanoseconds: int | None) -> float | None:
        return None if nanoseconds is None else round(nanoseconds / 1e6, 3)

    def stage(row: dict[str, Any]) -> str:
        held = "".join(f" +{part['stage']}" for part in row["parts"])
        return (row["stage"] or ("agent" if row["agent"] else "")) + held

    def status(row: dict[str, Any]) -> str:
        return row["error_type"] or str(row["http_status"] or ("failed" if row["failed"] else ""))

    spans = [
        [
            row["name"], row["kind"], row["rule"] or "-", stage(row), "yes" if row["inference"] else "",
            ms(row["duration_ns"]), ms(row["first_token_ns"]), row["input_tokens"], row["output_tokens"],
            row["model"] or row["request_model"], status(row),
        ]
        for row in _span_rows(explained)
    ]  # fmt: skip
    print_rows(
        ["span", "kind", "rule", "stage", "inference", "ms", "first token ms", "in", "out", "model", "status"], spans
    )
    click.echo()
    if not explained.prompts.num_rows:
        click.echo("no prompts: no span is an inference call")
        return
    parts = [name for name in explained.prompts.column_names if re.fullmatch(r"ttft_[a-z]+_ns", name)]
    parts.remove("ttft_engine_ns")
    prompts = explained.prompts.to_pylist()
    parts = [name for name in parts if any(row[name] for row in prompts)]
    print_rows(
        ["prompt", "status", "model", "e2e ms", "ttft ms", "seen by", "in", "out", "attempts", "hops",
         *(name.removeprefix("ttft_").removesuffix("_ns") for name in parts)],
        [
            [
                row["prompt_id"], row["status"], row["model"], ms(row["e2e_ns"]), ms(row["ttft_ns"]),
                row["ttft_source"], row["input_tokens"], row["output_tokens"], row["attempts"],
                " > ".join(row["hops"]), *(ms(row[name]) for name in parts),
            ]
            for row in prompts
        ],
    )  # fmt: skip
