"""`promptpath demo --once --quick`, whole: a real model, real processes, an empty home; and what it leaves stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from promptpath.semconv import Part

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

PORTS = ("--http-port", "0", "--grpc-port", "0", "--sql-port", "0", "--dashboard-port", "0")


def promptpath(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PROMPTPATH_", "OTEL_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-m", "promptpath.cli", *argv],
        env=clean | {"HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's home, and what it printed."""
    home = tmp_path_factory.mktemp("home")
    done = promptpath("demo", "--once", "--quick", *PORTS, home=home)
    logs = home / ".local/share/promptpath/logs"
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *(log.read_text() for log in logs.glob("*.log"))])
    return home, done.stdout


def rows(home: Path, query: str) -> list[dict[str, Any]]:
    done = promptpath("sql", "--format", "json", query, home=home)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_report(played: tuple[Path, str]) -> None:
    _, out = played
    lines = out.splitlines()
    assert lines[0] == "32 prompts sent, 32 of them stored"
    assert any(line.startswith("TTFT stored against measured by the client: ") for line in lines)
    assert "; 0 differ by more than 1 ms and 1 %" in out
    assert "do not add up" not in out
    assert "\nprompt " in out
    assert "\nDashboard    http://127.0.0.1:" in out
    assert out.isascii()


def test_every_kind_ended_as_it_should(played: tuple[Path, str]) -> None:
    home, _ = played
    found = {
        (row["status"], row["error_type"]): int(row["n"])
        for row in rows(home, "SELECT status, error_type, count() AS n FROM prompts GROUP BY ALL")
    }
    assert found.pop(("client_abort", "")) == 2
    assert found == {("ok", ""): 25, ("rejected", "401"): 3, ("rejected", "413"): 1, ("rate_limited", "429"): 1}


def test_parts_add_up_and_little_is_unattributed(played: tuple[Path, str]) -> None:
    home, _ = played
    parts = " + ".join(f"ttft_{part}_ns" for part in Part)
    [row] = rows(
        home,
        f"SELECT count() AS n, countIf({parts} = ttft_ns) AS closed, "
        "median(ttft_unattributed_ns / ttft_ns) AS unattributed FROM prompts WHERE ttft_ns IS NOT NULL",
    )
    assert row["n"] == row["closed"] == 24
    assert row["unattributed"] < 0.05


def test_an_answered_prompt_passed_all_hops_and_stages(played: tuple[Path, str]) -> None:
    home, _ = played
    [row] = rows(
        home,
        "SELECT hops, arraySort(arrayDistinct(segments.stage)) AS stages FROM prompts "
        "WHERE status = 'ok' AND streaming AND model = 'smollm2-135m' AND attempts = 1 ORDER BY start_time LIMIT 1",
    )
    assert row["hops"] == ["demo-client", "demo-gateway", "demo-router", "demo-engine-a"]
    needed = {"client", "call", "gateway", "router", "server", "parse", "tokenize", "queue", "prefill", "decode"}
    assert needed | {"detokenize", "stream", "transit"} <= set(row["stages"])


def test_the_agents_calls_are_one_workflow(played: tuple[Path, str]) -> None:
    home, _ = played
    [row] = rows(
        home,
        "SELECT count() AS calls, uniqExact(workflow_id) AS runs, uniqExact(trace_id) AS traces "
        "FROM prompts WHERE agent_name = 'trip-planner'",
    )
    assert row == {"calls": 3, "runs": 1, "traces": 1}


def test_no_content_is_stored(played: tuple[Path, str]) -> None:
    home, _ = played
    [row] = rows(
        home,
        "SELECT count() AS n FROM otel_traces WHERE arrayExists(value -> positionCaseInsensitive(value, 'capital of') "
        "OR positionCaseInsensitive(value, 'ticket'), mapValues(SpanAttributes))",
    )
    assert row == {"n": 0}


def test_nothing_of_it_runs_on(played: tuple[Path, str]) -> None:
    home, _ = played
    running = [
        path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/environ")
        if _readable(path) and f"HOME={home}".encode() in path.read_bytes().split(b"\0")
    ]
    assert running == []


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
