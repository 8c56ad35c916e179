"""`promptpath sql`: one query, as ClickHouse answers it."""

from __future__ import annotations

import sys
from typing import Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, storage_option

#: Our formats in ClickHouse's words. 64-bit numbers are numbers, not strings.
_FORMATS = {"json": "JSONEachRow", "csv": "CSVWithNames", "parquet": "Parquet"}
_JSON_NUMBERS = {"output_format_json_quote_64bit_integers": 0}


@command("sql")
@storage_option
@format_option("table", "json", "csv", "parquet")
@click.argument("query", required=False)
def sql(storage: str | None, output: str, query: str | None) -> None:
    """Runs QUERY, or what standard input says, read-only and bounded.

    \b
    promptpath sql "SELECT model, count(), median(ttft_ns) / 1e6 FROM prompts GROUP BY model"
    promptpath sql --format json "SELECT * FROM prompts LIMIT 10"    (one object a line)
    """
    need("sql", "collector")
    text = query if query not in (None, "-") else _stdin()
    if output == "parquet" and sys.stdout.isatty():
        raise Wrong(
            "Parquet is no text: send it into a file, as in: promptpath sql --format parquet QUERY > out.parquet"
        )
    from promptpath.storage.connection import connect

    client = connect(storage, readonly=True, settings=_JSON_NUMBERS)
    try:
        if output == "table":
            _print_table(client.query(text))
            return
        with client.raw_stream(text, fmt=_FORMATS[output]) as stream:
            for block in stream:
                sys.stdout.buffer.write(block)
        sys.stdout.flush()
    finally:
        client.close()


def _stdin() -> str:
    if sys.stdin.isatty():
        raise Wrong('no query: promptpath sql "SELECT count() FROM prompts"')
    text = sys.stdin.read().strip()
    if not text:
        raise Wrong('standard input holds no query: promptpath sql "SELECT count() FROM prompts"')
    return text


def _print_table(result: Any) -> None:
    from promptpath.cli.tables import print_rows

    print_rows(list(result.column_names), list(result.result_rows))
