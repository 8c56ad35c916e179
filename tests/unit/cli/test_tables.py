"""Values as text on a terminal."""

from __future__ import annotations

import pytest

from promptpath.cli.prompts import _short
from promptpath.cli.tables import print_rows


def test_values_give_the_terminal_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(
        ["model", "raw"], [("\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] [/nope]", b"\x1bc"), ("two\nlines", b"\xff")]
    )
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert r"\x1b[31mred\x1b]0;title\x07 [bold]x[/bold] [/nope]" in out
    assert [line.split() for line in out.splitlines()[2:]] == [["two", "\ufffd"], ["lines"]]


def test_long_names_do_not_widen_the_list() -> None:
    assert _short("m" * 60) == "m" * 60
    assert _short("m" * 1_000_000) == "m" * 59 + "~"
