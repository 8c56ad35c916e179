"""A bar on standard error for work that takes a while; nothing where standard error is no terminal."""

from __future__ import annotations

import sys
from typing import Any

import click


class Progress:
    """`with Progress("storing", total) as progress: progress(done)`; the total may be told anew each time."""

    def __init__(self, label: str, total: int = 1) -> None:
        self._bar: Any = click.progressbar(length=max(total, 1), label=label, file=sys.stderr)
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._shown:
            self._bar.__enter__()
        return self

    def __call__(self, done: int, total: int | None = None) -> None:
        if not self._shown:
            return
        if total is not None:
            self._bar.length = max(total, 1)
        self._bar.update(done - self._bar.pos)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._bar.render_finish()
