"""`promptpath rules`, as it is run: in a process of its own, spans on standard input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "data"
MINE = """\
system = "mine"
order = 5
[[span]]
name = "my server"
match.name = "llm_request"
stage = "server"
inference = true
[span.fields]
model = ["gen_ai.request.id"]
"""


def _run(*arguments: str, stdin: Path | bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    data = stdin.read_bytes() if isinstance(stdin, Path) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "promptpath.cli", "rules", *arguments],
        input=data,
        capture_output=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("PROMPTPATH_")} | environment,
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _fault(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_test_as_json() -> None:
    done = _run("test", "--format", "json", stdin=DATA / "derived" / "tensorrt-llm.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    span, prompt = _lines(done.stdout)
    wanted = {
        "what": "span", "rule": "tensorrt-llm: request", "name": "llm_request", "stage": "server", "inference": True,
        "first_token_ns": 90_000_000, "input_tokens": 64, "output_tokens": 32, "failed": False,
        "parts": [
            {"stage": "queue", "start_ns": 0, "duration_ns": 20_000_000},
            {"stage": "prefill", "start_ns": 20_000_000, "duration_ns": 70_000_000},
        ],
    }  # fmt: skip
    assert {key: span[key] for key in wanted} == wanted
    assert span["rule_at"].startswith("tensorrt-llm.toml:")
    wanted = {"what": "prompt", "status": "ok", "ttft_ns": 90_000_000, "ttft_queue_ns": 20_000_000}
    assert {key: prompt[key] for key in wanted} == wanted


def test_test_as_a_table() -> None:
    done = _run("test", stdin=DATA / "captures" / "litellm-v2" / "traces.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    spans, prompts = done.stdout.split("\n\n")
    assert "litellm: proxy v2" in spans
    assert "litellm: call" in spans
    assert len(spans.splitlines()) == 9
    assert len(prompts.splitlines()) == 3
    assert all(" > " not in line and "litellm-proxy" in line for line in prompts.splitlines()[1:])


def test_test_says_where_no_prompt_comes_out() -> None:
    done = _run("test", stdin=DATA / "captures" / "router" / "traces.jsonl")
    assert done.stdout.splitlines()[-1] == "no prompts: no span is an inference call"


@pytest.mark.parametrize("how", ["argument", "directory", "variable"])
def test_a_rule_of_ones_own(tmp_path: Path, how: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    arguments = {"argument": [str(file)], "directory": ["--rules", str(tmp_path)], "variable": []}[how]
    environment = {"PROMPTPATH_RULES": str(tmp_path)} if how == "variable" else {}
    stdin = DATA / "derived" / "vllm-n2.jsonl"
    first, *_ = _lines(_run("test", "--format", "json", *arguments, stdin=stdin, **environment).stdout)
    assert (first["rule"], first["rule_at"], first["model"]) == ("mine: my server", f"{file}:3", "chatcmpl-1")


def test_list(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    done = _run("list", "--rules", str(tmp_path), "--format", "json")
    found = {row["system"]: row for row in _lines(done.stdout)}
    assert found["mine"] == {
        "system": "mine", "file": str(tmp_path / "mine.toml"), "order": 5, "rules": 1, "ours": False, "tested_on": "",
    }  # fmt: skip
    assert found["vllm"]["tested_on"].startswith("recorded spans")
    assert found["sglang"]["tested_on"] == "source-derived spans"
    assert "sglang.toml" in _run("list").stdout


def test_check(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    assert _run("check", str(tmp_path)).stdout.endswith("rules: all right\n")
    assert "(1 of yours)" in _run("check", PROMPTPATH_RULES=str(tmp_path)).stdout
    (tmp_path / "mine.toml").write_text(MINE.replace("server", "sever"))
    wanted = f"promptpath rules check: {tmp_path}/mine.toml:6: span[0].stage 'sever' is no stage"
    assert _fault(_run("check", str(tmp_path))) == wanted


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"", "standard input holds no spans"),
        (b"\n\n", "standard input holds no spans"),
        (b"{}\n{no json\n", "standard input, line 2: the body is not JSON"),
        (b'{"resourceSpans": 3}\n', "standard input, line 1: resourceSpans: "),
    ],
)
def test_what_is_no_spans_is_said(stdin: bytes, message: str) -> None:
    assert message in _fault(_run("test", stdin=stdin))


def test_the_collector_does_not_start_with_wrong_rules(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("system = 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "promptpath.cli", "collector", "--rules", str(tmp_path), "--storage",
         f"chdb://{tmp_path}/store", "--http-port", "0", "--grpc-port", "0", "--sql-port", "0"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f": {tmp_path}/mine.toml:1: system must be a text")
