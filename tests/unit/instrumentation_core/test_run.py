"""The command line of `promptpath run`: what it understands, and what it says where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from promptpath.instrumentation import run


@pytest.mark.parametrize(
    ("argv", "variables", "command"),
    [
        (["--", "python", "app.py"], {}, ["python", "app.py"]),
        (["python", "--service", "x"], {}, ["python", "--service", "x"]),
        (
            ["--service", "s", "--role=router", "--", "uvicorn", "--", "a"],
            {"OTEL_SERVICE_NAME": "s", "PROMPTPATH_ROLE": "router"},
            ["uvicorn", "--", "a"],
        ),
    ],
)
def test_understood(argv: list[str], variables: dict[str, str], command: list[str]) -> None:
    assert run.parse(argv) == (variables, command)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no command given"),
        (["--"], "no command given"),
        (["--service"], "--service needs a value"),
        (["--role", "--", "x"], "--role needs a value"),
        (["--role", "king", "--", "x"], "'king' is no role; one of gateway, router, server, edge"),
        (["--verbose", "x"], "unknown option --verbose; put -- before the command"),
    ],
)
def test_wrong_use_is_one_line_and_two(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"promptpath run: {said}. usage: ")


def test_no_such_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--", "there-is-no-such-command"]) == 127
    assert capsys.readouterr().err == (
        "promptpath run: no command 'there-is-no-such-command' on PATH; check its name, or give its path\n"
    )


def test_a_file_that_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "app.py"
    script.write_text("print()\n")
    assert run.main([str(script)]) == 126
    script.chmod(0o755)  # no first line that says what runs it
    script.write_text("\x7fELF nonsense")
    assert run.main([str(script)]) == 126
    assert capsys.readouterr().err.count("\n") == 2


def test_the_folder_comes_first_on_the_path_and_once() -> None:
    base = {"PYTHONPATH": os.pathsep.join(["/a", str(run.AUTOLOAD), "/b"]), "HOME": "/h"}
    changed = run.environment(base, {"PROMPTPATH_ROLE": "edge"})
    assert changed == {
        "HOME": "/h",
        "PYTHONPATH": os.pathsep.join([str(run.AUTOLOAD), "/a", "/b"]),
        "PROMPTPATH_ROLE": "edge",
        "PROMPTPATH_RUN_PID": str(os.getpid()),
    }
    assert (run.AUTOLOAD / "sitecustomize.py").is_file()
