"""Rows and columns on a terminal, and as JSON lines."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: The width where nothing tells: not a terminal, and no COLUMNS.
_WIDTH_UNKNOWN = 120
#: Characters that a terminal obeys instead of showing, line ends and tabs aside; and those that turn text around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain() -> bool:
    """Whether to use neither colours nor characters beyond ASCII: no terminal, or NO_COLOR."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return not sys.stdout.isatty() or bool(os.environ.get("NO_COLOR")) or encoding != "utf8"


def console() -> Console:
    """A console on standard output that knows its width."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_UNKNOWN
    return Console(width=width, no_color=plain(), highlight=False, soft_wrap=False)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table; numbers to the right. Where it is not a terminal, as wide as it must be, so that nothing is cut."""
    table = Table(box=None if plain() else SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        numeric = all(isinstance(row[at], int | float | Decimal | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(value)) for value in row))
    out = console()
    if not sys.stdout.isatty():
        out = Console(width=max(out.width, _natural_width(columns, rows)), no_color=True, highlight=False)
    out.print(table)


def _natural_width(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    widths = [max([len(name), *(len(shown(row[at])) for row in rows)]) for at, name in enumerate(columns)]
    return sum(widths) + 2 * len(widths) + 2


def shown(value: Any) -> str:
    """A value as text. Null is a dash, which no value is."""
    if value is None:
        return "–" if not plain() else "-"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return harmless(value.decode("utf-8", "replace"))
    return harmless(str(value))


def harmless(text: str) -> str:
    """Text of others (a model's name comes from whoever sent the request) without commands to the terminal."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def print_json_lines(rows: Sequence[Mapping[str, Any]]) -> None:
    """One object a line; times in ISO 8601."""
    for row in rows:
        print(json.dumps(row, default=_json_value, ensure_ascii=False))


def _json_value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
