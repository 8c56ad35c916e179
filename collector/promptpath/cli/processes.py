"""Child processes that live and end together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


class ChildDied(Exception):
    """A child ended that should not have; `code` is its exit code, the message says what it said last."""

    def __init__(self, name: str, code: int, last: str, log: Path) -> None:
        what = last or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        super().__init__(f"{name} ended: {what} (its log: {log})")
        self.code = code
        #: What it said itself, if that was one of our own one-line errors.
        self.own_words = last.partition(": ")[2] if code == 2 and last.startswith("promptpath") else ""


@dataclass(frozen=True)
class Child:
    """A process we started, and where its output goes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_line(self) -> str:
        """The last line it wrote that is not empty."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Children:
    """Starts processes, notices when one ends, and ends all of them. A context manager."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str], *, pipe_stdout: bool = False) -> Child:
        """Starts one. Its output goes to a log file; standard output to a pipe, if asked for.

        It is in a session of its own, so that a Ctrl-C reaches only us, and gets SIGTERM if we die without a word.
        """
        log = self._logs / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe_stdout else out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raises ChildDied if one has ended."""
        for child in self._children:
            code = child.process.poll()
            if code is not None:
                raise ChildDied(child.name, code, child.last_line(), child.log)

    def forget(self, child: Child) -> None:
        """A child that may end, or has."""
        self._children.remove(child)

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Polls until `ready`.

        Raises:
            ChildDied: one ended meanwhile.
            TimeoutError: it takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} is not ready after {timeout_s:.0f} s: see the logs in {self._logs}")
            time.sleep(_POLL_S)

    def watch(self) -> None:
        """Waits until one ends (ChildDied) or a signal comes (KeyboardInterrupt)."""
        while True:
            self.check()
            time.sleep(0.25)

    def stop(self, grace_s: float = 10.0) -> None:
        """Ends all, the youngest first, each with SIGTERM and time to put its things away; then SIGKILL."""
        for child in reversed(self._children):
            if child.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.terminate()
                try:
                    child.process.wait(grace_s)
                except subprocess.TimeoutExpired:
                    _kill_session(child)
                except KeyboardInterrupt:  # a second Ctrl-C: do not wait any longer
                    grace_s = 0.1
                    _kill_session(child)
            if child.process.stdout is not None:
                child.process.stdout.close()
        self._children.clear()


def answers_http(url: str) -> bool:
    """Whether a GET is answered with a status below 400."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError, ValueError):
        return False


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Within, SIGTERM raises KeyboardInterrupt, so that one way out serves both."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill_session(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait()


#: Looked up here, not between fork and exec.
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def _end_with_parent() -> None:
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
