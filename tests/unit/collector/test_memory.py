"""Allocators are set up before the libraries that read their settings are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import json, os, sys
from promptpath.cli import collector
from promptpath.cli.extras import need
from promptpath.collector import memory

need("collector", "collector")
loaded = [name for name in ("chdb", "pyarrow") if name in sys.modules]
memory.keep_little()
import pyarrow
print(json.dumps([loaded, pyarrow.default_memory_pool().backend_name, os.environ["JE_MALLOC_CONF"]]))
"""


def answer(**environment: str) -> list[object]:
    names = ("JE_MALLOC_CONF", "ARROW_DEFAULT_MEMORY_POOL")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=clean | environment, check=True, capture_output=True, text=True
    ).stdout
    found: list[object] = json.loads(output)
    return found


def test_set_before_arrow_and_the_engine_are_loaded() -> None:
    assert answer() == [[], "system", "dirty_decay_ms:500,muzzy_decay_ms:0"]


def test_what_the_user_has_set_stays() -> None:
    chosen = answer(JE_MALLOC_CONF="dirty_decay_ms:9", ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert chosen == [[], "mimalloc", "dirty_decay_ms:9"]
