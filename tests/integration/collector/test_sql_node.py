"""The SQL endpoint by `@clickhouse/client`, in a real Node."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .running import RunningCollector, make_spans, wait_for

FOLDER = Path(__file__).parent / "node"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptpath-tests"
SPANS = 30


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """A folder with what the lock file names, installed once."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no npm here")
    lock = (FOLDER / "package-lock.json").read_bytes()
    folder = CACHE / f"node-{hashlib.sha256(lock).hexdigest()[:16]}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(FOLDER / name, folder / name)
        done = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        (folder / "done").touch()
    return folder


def test_the_official_client_of_node(collector: RunningCollector, node_modules: Path) -> None:
    assert collector.post(make_spans(SPANS).SerializeToString()).status == 200
    collector.wait_stored(SPANS)
    script = shutil.copy(FOLDER / "ask.mjs", node_modules / "ask.mjs")  # modules are looked for beside it
    done = subprocess.run(
        ["node", str(script), f"http://127.0.0.1:{collector.ports.sql}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    late, aborted = found.pop("late"), found.pop("aborted")
    refused, inserted, multiple = (found.pop(name) for name in ("refused", "inserted", "multiple"))
    assert found == {
        "ping": True,
        "each": [{"SpanName": "chat", "n": SPANS if isinstance(found["each"][0]["n"], int) else str(SPANS)}],
        "json": [{"t": "a'\\\t日本", "n": [1, 2]}],
        "settings": [{"n": 3 if isinstance(found["settings"][0]["n"], int) else "3"}],
        "queryId": "from-node-1",
        "streamed": 200_000,
        "after": [{"one": 1}],
    }
    assert (refused["code"], refused["type"]) == ("164", "READONLY")
    assert (inserted["code"], inserted["type"]) == ("164", "READONLY")
    assert (multiple["code"], multiple["type"]) == ("62", "SYNTAX_ERROR")
    assert late["code"] in ("395", "ECONNRESET")  # it may see the connection end before it has read why
    assert "abort" in aborted["message"].lower()
    wait_for(lambda: collector.metric("sql_queries_running") == 0, "what was aborted has stopped")
