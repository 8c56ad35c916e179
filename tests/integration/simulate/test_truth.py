"""The assembler judged: simulated spans through real chDB, assembled by the service, beside what is true.

The judge runs in a process of its own, for a process can have one embedded store open.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JUDGE = Path(__file__).parents[2] / "bench" / "judge.py"


def judge(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(JUDGE), "--keep", str(folder / "judge"), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--prompts", "4000", "--seed", "11"], id="clocks off by 5 s, 1 % late, 0.1 % lost"),
        pytest.param(["--prompts", "1500", "--lost", "0.01", "--doubled", "0.2", "--late", "0.1"], id="lossy"),
        pytest.param(["--prompts", "1500", "--hosts", "4", "--ntp-step", "2"], id="few hosts, clocks set anew"),
        pytest.param(["--prompts", "1500", "--arrival-rate", "90"], id="overloaded engines"),
        pytest.param(["--prompts", "1000", "--topology", "disagg"], id="workers apart, given up between them"),
        pytest.param(["--prompts", "1500", "--systems", "all", "--skew", "1"], id="in other systems' words"),
    ],
)
def test_rows_are_true(tmp_path: Path, arguments: list[str]) -> None:
    told = judge(tmp_path, *arguments)
    figures = told["figures"]
    for name in ("missing", "doubled", "strange", "not_summing"):
        assert figures[name] == 0, told["examples"]
    assert figures["parts_right"] >= 0.995, told["examples"]
    assert figures["offsets_right"] >= 0.99
    # Times apart, which may be off by a clock's drift: what is counted or named is right in every prompt.
    exact = (
        "status",
        "attempts",
        "model",
        "output_tokens",
        "gap_tokens",
        "first_tokens",
        "gaps",
        "hops",
        "workflow_id",
    )
    assert {name: count for name, count in figures["wrong"].items() if name in exact} == {}, told["examples"]
