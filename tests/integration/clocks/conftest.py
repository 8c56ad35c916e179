"""A store in real chDB, as the assembler's own tests have it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_FILE = Path(__file__).parents[1] / "assemble" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("assemble_store", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_store = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_store)

factory, store, put, capture = _store.factory, _store.store, _store.put, _store.capture
request_of, stored = _store.request_of, _store.stored
