"""What the process's allocators keep back of memory that was given back to them: little.

Under full load three of them (glibc's, Arrow's, the embedded engine's jemalloc) each kept what their busiest moment had
needed, of which the others then could use nothing: a quarter of the resident memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

#: Read by libraries when they are loaded. What the user has set stays.
_VARIABLES: Final = {
    # The engine gives pages back after half a second instead of five.
    "JE_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:0",
    # Arrow takes memory from the same allocator as NumPy and Python.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
#: Of glibc's mallopt: parameter -> value.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_GLIBC: Final = {
    # Blocks over this go back to the system when they are freed: bodies of requests, columns of the assembler.
    _M_MMAP_THRESHOLD: 256 << 10,
    _M_TRIM_THRESHOLD: 1 << 20,
    # Not one heap for each of many threads.
    _M_ARENA_MAX: 2,
}


def keep_little() -> None:
    """Sets the allocators up, for a collector's process; before the engine and Arrow are imported."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc, not of musl
    if mallopt is not None:
        for parameter, amount in _GLIBC.items():
            mallopt(parameter, amount)
