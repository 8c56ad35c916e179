"""Bounds of queries that people write: rows, bytes, seconds, memory, and read-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What a reader may use unless the caller sets less or more. A query over a limit fails with ClickHouse's own error.
READER_LIMITS: Final[Mapping[str, str]] = {
    "max_result_rows": "1000000",
    "max_result_bytes": str(256 << 20),
    "result_overflow_mode": "throw",
    "max_rows_to_read": "2000000000",
    "max_bytes_to_read": str(256 << 30),
    "read_overflow_mode": "throw",
    "max_execution_time": "30",
    "timeout_overflow_mode": "throw",
    "max_memory_usage": str(2 << 30),
    "max_ast_depth": "1000",
    "max_subquery_depth": "100",
}
#: Output settings that `query_arrow` and `arrow()` ask for; they must be on the handle before it turns read-only.
OUTPUT_SETTINGS: Final[Mapping[str, str]] = {
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_json_quote_64bit_integers": "0",
}


def reader_settings(overrides: Mapping[str, object] | None = None) -> dict[str, str]:
    """Settings of a read-only handle, in the order in which they must be applied: `readonly` comes last.

    `readonly=1` also closes `file()`, `url()` and `executable()`; `readonly=2` would not.
    """
    settings = {**OUTPUT_SETTINGS, **READER_LIMITS}
    settings.update({key: str(value) for key, value in (overrides or {}).items() if key != "readonly"})
    settings["readonly"] = "1"
    return settings
