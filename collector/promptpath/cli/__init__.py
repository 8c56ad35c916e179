"""The command line, `promptpath`. Light: each command imports what it needs when it runs."""

from __future__ import annotations

from promptpath.cli.app import main

__all__ = ["main"]
