"""The table of prompts: one row a prompt, with what its TTFT was made of, each a link to its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import streamlit as st

from promptpath.dashboard import format as fmt
from promptpath.dashboard.theme import PART_COLOR, status_color
from promptpath.semconv import Part

COLUMNS: tuple[dict[str, str], ...] = (
    {"name": "start", "label": "Started", "kind": "text"},
    {"name": "prompt", "label": "Prompt", "kind": "link"},
    {"name": "model", "label": "Model", "kind": "clip"},
    {"name": "service", "label": "Service", "kind": "clip"},
    {"name": "tenant", "label": "Tenant", "kind": "clip"},
    {"name": "status", "label": "Status", "kind": "status"},
    {"name": "ttft", "label": "TTFT", "kind": "number", "help": "time to first token; — where it did not stream"},
    {"name": "parts", "label": "What the TTFT was made of", "kind": "parts"},
    {"name": "e2e", "label": "End to end", "kind": "number"},
    {"name": "tpot", "label": "TPOT", "kind": "number", "help": "time per output token after the first"},
    {"name": "itl_max", "label": "Longest gap", "kind": "number", "help": "longest wait for a token"},
    {"name": "tokens", "label": "Tokens in → out", "kind": "number"},
    {"name": "attempts", "label": "Attempts", "kind": "number"},
)


def rows_for(prompts: Sequence[Mapping[str, Any]], tz: tzinfo, now: datetime) -> list[dict[str, Any]]:
    """Cells of the table for rows of `dashboard.list_prompts`, as text for a viewer in `tz`."""
    return [_row(prompt, tz, now) for prompt in prompts]


def _row(prompt: Mapping[str, Any], tz: tzinfo, now: datetime) -> dict[str, Any]:
    started = datetime.fromtimestamp(prompt["start_ns"] / 1e9, UTC)
    counts = [prompt["input_tokens"], prompt["output_tokens"]]
    tokens = " → ".join(fmt.count(count) for count in counts) if counts != [None, None] else fmt.MISSING
    return {
        "id": prompt["prompt_id"],
        "href": f"prompt?id={quote(prompt['prompt_id'])}",
        "cells": {
            "start": fmt.clock_time(started, tz, now=now),
            "prompt": prompt["prompt_id"][:8],
            "model": prompt["model"] or fmt.MISSING,
            "service": prompt["service"] or fmt.MISSING,
            "tenant": prompt["tenant"],
            "status": {
                "text": prompt["status"],
                "color": status_color(prompt["status"]),
                "title": prompt["error_type"],
            },
            "ttft": fmt.duration(prompt["ttft_ns"]),
            "parts": _parts(prompt),
            "e2e": fmt.duration(prompt["e2e_ns"]),
            "tpot": fmt.duration(prompt["tpot_ns"]),
            "itl_max": fmt.duration(prompt["itl_max_ns"]),
            "tokens": tokens,
            "attempts": str(prompt["attempts"]),
        },
    }


def _parts(prompt: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    ttft_ns = prompt["ttft_ns"]
    if not ttft_ns:
        return None
    return [
        {
            "percent": round(100 * ns / ttft_ns, 2),
            "color": PART_COLOR[part],
            "text": f"{part.value} {fmt.duration(ns)} ({fmt.percent(ns / ttft_ns)})",
        }
        for part in Part
        if (ns := prompt[f"ttft_{part.value}_ns"] or 0) > 0
    ]


def draw(
    prompts: Sequence[Mapping[str, Any]], tz: tzinfo, *, key: str, caption: str, hide: Sequence[str] = ()
) -> str | None:
    """Draw the table; the id of the prompt that was clicked, None while none was."""
    rows = rows_for(prompts, tz, datetime.now(UTC))
    # A column that says the same nothing in every row only takes room.
    blank = {"tenant"} if not any(prompt["tenant"] for prompt in prompts) else set()
    columns = [column for column in COLUMNS if column["name"] not in {*hide, *blank}]
    result = _component()(data={"columns": columns, "rows": rows, "caption": caption}, key=key, on_open_change=_nothing)
    clicked: str | None = result.open
    return clicked


def _nothing() -> None:
    """Streamlit reports a trigger only where a callback is given."""


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    folder = files(__package__)
    return st.components.v2.component(
        "promptpath_prompt_table",
        html='<div class="pp-place"></div>',
        css=folder.joinpath("prompt_table.css").read_text("utf-8"),
        js=folder.joinpath("prompt_table.js").read_text("utf-8"),
        isolate_styles=False,
    )
