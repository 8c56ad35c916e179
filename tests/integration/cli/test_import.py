"""`promptpath import` and `promptpath assemble`: files into a store of their own, prompts out of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.importing import ImportFailed, import_files

CAPTURES = Path(__file__).parents[2] / "data" / "captures"


def promptpath(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "promptpath.cli", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def rows(store: str, query: str, cwd: Path) -> list[dict[str, Any]]:
    done = promptpath("sql", "--storage", store, "--format", "json", query, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("form", ["jsonl", "pb"])
def test_a_file_gives_its_prompts_once_however_often_it_is_imported(tmp_path: Path, form: str) -> None:
    store = f"chdb://{tmp_path}/store"
    file = str(CAPTURES / "vllm-default" / f"traces.{form}")
    first = promptpath("import", file, "--storage", store, "--format", "json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert (told["files"], told["rejected"]) == (1, 0)
    query = "SELECT count() AS spans, (SELECT count() FROM prompts) AS prompts FROM otel_traces"
    once = rows(store, query, tmp_path)
    assert once == [{"spans": told["spans"], "prompts": told["prompts"]}]
    assert once[0]["prompts"] > 0

    assert promptpath("import", file, "--storage", store, cwd=tmp_path).returncode == 0
    assert rows(store, query, tmp_path) == once


def test_every_signal_and_a_mixed_order_of_files(tmp_path: Path) -> None:
    store = f"chdb://{tmp_path}/store"
    folder = CAPTURES / "litellm-v1-metrics"
    files = [str(folder / name) for name in ("metrics.pb", "traces.jsonl", "logs.pb", "metrics.jsonl")]
    done = promptpath("import", *files, "--storage", store, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["log_records"] == rows(store, "SELECT count() AS n FROM otel_logs", tmp_path)[0]["n"] > 0
    assert told["data_points"] > 0


def test_prompts_assembled_anew_are_the_same(tmp_path: Path) -> None:
    store = f"chdb://{tmp_path}/store"
    file = str(CAPTURES / "litellm-v2" / "traces.pb")
    assert promptpath("import", file, "--storage", store, cwd=tmp_path).returncode == 0
    query = "SELECT * EXCEPT (assembled_at) FROM prompts ORDER BY prompt_id"
    before = rows(store, query, tmp_path)
    done = promptpath("assemble", "--since", "2020-01-01", "--storage", store, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"prompts": len(before)}
    assert rows(store, query, tmp_path) == before


class Refused:
    """A client that is never reached: the file is bad before anything is stored."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{\n", "file:1: no JSON"),
        (b'\n{"resource": 1}\n', "file:2: no OTLP/JSON request"),
        (b'{"resourceSpans": [{"scopeSpans": 3}]}', "file:1: "),
        (b"\x00\x00\x00\x09abc", "cut off at byte 0"),
        (b"\x00\x00", "cut off at byte 0"),
        (b"\x7f\xff\xff\xffabc", "cut off at byte 0"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x02\x0a\xff", "the traces request at byte 4: "),
    ],
)
def test_a_bad_file_is_told_by_its_place(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ImportFailed) as caught:
        import_files(Refused(), [file])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_store_that_a_collector_has_is_left_to_it(tmp_path: Path) -> None:
    store = f"chdb://{tmp_path}/store"
    ports = ("--http-port", "0", "--grpc-port", "0", "--sql-port", "0")
    command = [sys.executable, "-m", "promptpath.cli", "collector", "--storage", store, *ports]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as collector:
        try:
            assert collector.stdout is not None
            assert collector.stdout.readline().startswith("OTLP/HTTP")
            done = promptpath("import", str(CAPTURES / "caddy" / "traces.pb"), "--storage", store, cwd=tmp_path)
        finally:
            collector.terminate()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "stop it first" in done.stderr


@pytest.mark.parametrize("shard", ["4", "4/4", "a/b", "-1/2"])
def test_a_shard_that_is_none(tmp_path: Path, shard: str) -> None:
    done = promptpath("assemble", "--since", "1d", "--shard", shard, "--storage", f"chdb://{tmp_path}/s", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "write I/N" in done.stderr
