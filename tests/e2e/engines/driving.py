"""Runs a script in the environment that holds the engines, and asks what it saw."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.vllm.environment import Environment

MS = 1_000_000


@dataclass(frozen=True)
class Seen:
    """What one scenario said, and the spans it made, by start."""

    says: Any
    spans: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        return [span["name"] for span in self.spans]

    def span(self, name: str) -> dict[str, Any]:
        """The only span of this name."""
        (span,) = [span for span in self.spans if span["name"] == name]
        return span

    def attributes(self, name: str) -> dict[str, Any]:
        """Of the only span of this name: its attributes, without `promptpath.stage`, which is checked."""
        attributes = dict(self.span(name)["attributes"])
        stage = attributes.pop("promptpath.stage")
        assert stage == name or self.span(name)["kind"] == "SERVER"
        return attributes


def drive(script: str, made: Environment, home: Path) -> dict[str, Any]:
    """Runs a script of this folder.

    Returns:
        `Seen` by scenario, and `failures` and `doctor` as the instrumentation reports them.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PROMPTPATH_", "OTEL_", "PYTHON"))}
    done = subprocess.run(
        [str(made.bin / "python"), str(Path(__file__).with_name(script)), str(made.model)],
        env=kept | {"HOME": str(home), "HF_HUB_OFFLINE": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    return {
        name: Seen(value["says"], value["spans"]) if name not in ("failures", "doctor") else value
        for name, value in told.items()
    }


def token_times_ns(decode: dict[str, Any]) -> list[int]:
    """When a decode span has its tokens, monotonic [ns], to the microsecond."""
    times, at_ns = [], decode["start_ns"]
    for gap_us in decode["gaps_us"]:
        at_ns += gap_us * 1000
        times.append(at_ns)
    return times
