"""One setting, three spellings: option, variable, key of the file. And what is said when one is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from promptpath.cli import app
from promptpath.cli.app import main
from promptpath.cli.errors import Wrong
from promptpath.cli.options import command, option


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """A command of its own in place of `up`, which notes what it is given; the working directory is empty."""
    calls: list[dict[str, Any]] = []

    @command("up")
    @option("--http-port", type=click.IntRange(0, 65535), default=4318)
    @option("--storage", default=None)
    @option("--format", "output", type=click.Choice(["table", "json"]), default="table")
    def up(**given: Any) -> None:
        calls.append(given)

    stand_in = ModuleType("stand_in")
    stand_in.__dict__["up"] = up
    monkeypatch.setitem(sys.modules, "stand_in", stand_in)
    monkeypatch.setattr(app, "_COMMANDS", {"up": "stand_in:up"})
    monkeypatch.chdir(tmp_path)
    for name in ("HTTP_PORT", "STORAGE", "FORMAT", "CONFIG"):
        monkeypatch.delenv(f"PROMPTPATH_{name}", raising=False)
    return calls


DEFAULTS = {"http_port": 4318, "storage": None, "output": "table"}


def test_defaults(seen: list[dict[str, Any]]) -> None:
    assert main(["up"]) == 0
    assert seen == [DEFAULTS]


def test_file_then_variable_then_option(seen: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("promptpath.toml").write_text('http_port = 1\nstorage = "chdb:///x"\nformat = "json"\n')
    assert main(["up"]) == 0
    monkeypatch.setenv("PROMPTPATH_HTTP_PORT", "2")
    assert main(["up"]) == 0
    assert main(["up", "--http-port", "3"]) == 0
    from_file = {"http_port": 1, "storage": "chdb:///x", "output": "json"}
    assert seen == [from_file, from_file | {"http_port": 2}, from_file | {"http_port": 3}]


@pytest.mark.parametrize("argv", [["--config", "other.toml", "up"], ["up", "--config", "other.toml"]])
def test_a_file_by_name_stands_instead_of_the_one_found(seen: list[dict[str, Any]], argv: list[str]) -> None:
    Path("promptpath.toml").write_text("broken = [")
    Path("other.toml").write_text("http_port = 5")
    assert main(argv) == 0
    assert seen == [DEFAULTS | {"http_port": 5}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http_prot = 1", "promptpath.toml: unknown key 'http_prot': did you mean 'http_port'?"),
        ("zzz = 1", "promptpath.toml: unknown key 'zzz': known are format, http_port, storage"),
        ("http_port = 'x'", "promptpath.toml: http_port: 'x' is not a valid integer range."),
        ("http_port = 70000", "promptpath.toml: http_port: 70000 is not in the range 0<=x<=65535."),
        ("[up]\nhttp_port = 1", "promptpath.toml: unknown key 'up'"),
        ("storage = ['a']", "promptpath.toml: storage: ['a'] is no single value: write storage = VALUE"),
        ("http_port = ", "promptpath.toml is no valid TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_key(
    seen: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("promptpath.toml").write_text(text)
    assert main(["up"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert seen == []


def test_a_file_that_is_not_there(seen: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--config", "nowhere.toml"]) == 2
    assert capsys.readouterr().err == "promptpath up: cannot read nowhere.toml: No such file or directory\n"
    assert seen == []


def test_a_wrong_variable_is_named(
    seen: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROMPTPATH_HTTP_PORT", "many")
    assert main(["up"]) == 2
    error = capsys.readouterr().err
    assert "PROMPTPATH_HTTP_PORT" in error
    assert error.count("\n") == 1


def test_a_message_is_always_one_line() -> None:
    assert Wrong("two\nlines  of\ttext").message == "two lines of text"


@pytest.mark.parametrize("text", ['cors_origin = ["https://a", "https://b"]', 'cors_origin = "https://a https://b"'])
def test_an_option_that_may_be_repeated_is_a_list_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    made: list[tuple[str, ...]] = []

    @command("up")
    @option("--cors-origin", "origins", multiple=True)
    def up(origins: tuple[str, ...]) -> None:
        made.append(origins)

    module = ModuleType("promptpath_test_commands")
    module.up = up  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "promptpath_test_commands", module)
    monkeypatch.setattr(app, "_COMMANDS", {"up": "promptpath_test_commands:up"})
    monkeypatch.chdir(tmp_path)
    Path("promptpath.toml").write_text(text)
    assert main(["up"]) == 0
    monkeypatch.setenv("PROMPTPATH_CORS_ORIGIN", "https://c https://d")
    assert main(["up"]) == 0
    assert made == [("https://a", "https://b"), ("https://c", "https://d")]
