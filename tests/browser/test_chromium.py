"""Without a browser the tests say what to install; with one they use it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .chromium import NoChromium, launch
from .conftest import Run


def playwright_with(own: str) -> Any:
    """Playwright as far as `launch` knows it: where its own browser would be, and how one is started."""
    started: list[str] = []

    def start(executable_path: str, args: list[str]) -> list[str]:
        assert "--headless" in args
        started.append(executable_path)
        return started

    return SimpleNamespace(chromium=SimpleNamespace(executable_path=own, launch=start))


def test_an_installed_chromium_comes_before_playwrights_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.touch()
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/x" if name == "chromium-browser" else None)
    assert launch(playwright_with(str(own))) == ["/usr/bin/x"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert launch(playwright_with(str(own))) == [str(own)]


def test_without_any_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoChromium, match="apt install chromium") as raised:
        launch(playwright_with("/nowhere"))
    assert "\n" not in str(raised.value)


def test_the_picture_of_the_readme_can_be_taken(run: Run, tmp_path: Path) -> None:
    script = Path(__file__).parent / "screenshot.py"
    out = tmp_path / "images" / "prompt.png"
    done = subprocess.run(
        [sys.executable, script, run.url, run.one("stalled").prompt_id, out], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().startswith(b"\x89PNG")
    assert out.stat().st_size > 50_000


def test_a_picture_of_nothing_is_one_line(tmp_path: Path) -> None:
    script = Path(__file__).parent / "screenshot.py"
    argv = [sys.executable, script, "http://127.0.0.1:9", "x", tmp_path / "out.png"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
    assert done.returncode == 2
    assert done.stderr.startswith("no picture: ")
    assert len(done.stderr.splitlines()) == 1
