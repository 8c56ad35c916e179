"""Small traces by hand, as the assembler's own tests make them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[1] / "assemble" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("assemble_spans", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_spans = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_spans)

make, prompts, prompt = _spans.make, _spans.prompts, _spans.prompt
parts, pieces = _spans.parts, _spans.pieces
Row = dict[str, Any]


@pytest.fixture(scope="session")
def joined() -> Any:
    """What a row says of its joins."""

    def of(row: Row) -> tuple[str, str, list[str]]:
        return row["prompt_id"], row["joined_by"], [one.lstrip("0") for one in row["joined_traces"]]

    return of
