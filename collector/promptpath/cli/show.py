"""`promptpath show`: one prompt's waterfall."""

from __future__ import annotations

from typing import Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option, storage_option


@command("show")
@storage_option
@format_option("table", "json")
@option("--until", type=click.Choice(["end", "first-token"]), default="end", help="Where the time axis ends.")
@click.option("--slowest", is_flag=True, help="The prompt with the longest time to first token.")
@click.option("--latest", is_flag=True, help="The newest prompt.")
@click.argument("prompt_id", required=False, metavar="[ID]")
def show(storage: str | None, output: str, until: str, slowest: bool, latest: bool, prompt_id: str | None) -> None:
    """Shows what a prompt's time was spent on.

    ID is a prompt id or a trace id, or the beginning of one. Solid bars own their time; light ones wait for others.
    """
    need("show", "collector")
    if [bool(prompt_id), slowest, latest].count(True) != 1:
        raise Wrong("say which prompt: an ID (see 'promptpath prompts'), --slowest or --latest")
    from promptpath.storage.connection import connect

    client = connect(storage, readonly=True)
    try:
        row = find(client, prompt_id, slowest=slowest)
        names = {} if output == "json" else span_names(client, row)
    finally:
        client.close()
    if output == "json":
        from promptpath.cli.tables import print_json_lines

        print_json_lines([row])
    else:
        print_waterfall(row, names, to_first_token=until == "first-token")


def find(client: Any, prompt_id: str | None, *, slowest: bool = False) -> dict[str, Any]:
    """The row of a prompt: by id, else the slowest or the newest.

    Raises:
        Wrong: there is none, or the id's beginning fits several.
    """
    from promptpath.storage.queries import prompts as queries

    if prompt_id is None:
        listed = queries.list_prompts(client, order="slowest" if slowest else "newest", limit=1).to_pylist()
        if not listed:
            raise Wrong("there are no prompts yet: send some, or run 'promptpath demo'")
        prompt_id = str(listed[0]["prompt_id"])
    found = queries.find(client, prompt_id).to_pylist()
    if not found:
        raise Wrong(f"there is no prompt or trace {prompt_id!r}: see 'promptpath prompts'")
    if len(found) > 1:
        some = ", ".join(str(row["prompt_id"]) for row in found[:5])
        raise Wrong(f"{prompt_id!r} fits {len(found)} prompts ({some}): give one prompt's id")
    rows = queries.get_prompt(client, found[0]["prompt_id"]).to_pylist()
    row: dict[str, Any] = rows[0]
    return row


def span_names(client: Any, prompt: dict[str, Any]) -> dict[str, str]:
    """The names of the spans of a prompt's trace, and of those joined to it, by span id."""
    from promptpath.storage.queries import prompts as queries

    spans = queries.spans_of_trace(
        client, prompt["trace_id"], joined=prompt["joined_traces"], tenant=prompt["token_tenant"]
    )
    return dict(zip(spans.column("SpanId").to_pylist(), spans.column("SpanName").to_pylist(), strict=True))


def print_waterfall(row: dict[str, Any], names: dict[str, str], *, to_first_token: bool = False) -> None:
    """A prompt's waterfall on standard output."""
    from promptpath.cli import tables, waterfall

    out = tables.console()
    glyphs = waterfall.ASCII if tables.plain() else waterfall.UNICODE
    for line in waterfall.render(row, width=out.width, glyphs=glyphs, names=names, to_first_token=to_first_token):
        out.print(line, no_wrap=True, crop=True)
