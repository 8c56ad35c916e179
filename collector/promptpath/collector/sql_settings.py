"""Settings of queries that others send: which there are bounds for, and which a caller may set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from promptpath.collector.sql_errors import BAD_ARGUMENTS, SETTING_CONSTRAINT_VIOLATION, UNKNOWN_SETTING, SqlError
from promptpath.storage.limits import READER_LIMITS


@dataclass(frozen=True)
class SqlLimits:
    """What one query may take; a caller may ask for less, not for more. Answers are streamed, never held: their bounds
    protect the line and the reader, `memory_bytes` protects this process."""

    result_rows: int = 10_000_000
    result_bytes: int = 4 << 30
    rows_read: int = int(READER_LIMITS["max_rows_to_read"])
    bytes_read: int = int(READER_LIMITS["max_bytes_to_read"])
    seconds: float = float(READER_LIMITS["max_execution_time"])
    memory_bytes: int = int(READER_LIMITS["max_memory_usage"])


#: Bounds that nobody needs to choose.
_FIXED_LIMITS: Final[Mapping[str, float]] = {
    "max_ast_depth": int(READER_LIMITS["max_ast_depth"]),
    "max_subquery_depth": int(READER_LIMITS["max_subquery_depth"]),
    "max_query_size": 1 << 20,
    "max_parser_depth": 1000,
    "max_parser_backtracks": 1_000_000,
    "max_ast_elements": 50_000,
    "max_expanded_ast_elements": 500_000,
    "max_temporary_data_on_disk_size_for_query": 4 << 30,
    "max_temporary_columns": 10_000,
    "max_pipeline_depth": 1000,
}
#: Bounds that are only applied where the caller asks for less than the engine would take.
_CEILINGS: Final[Mapping[str, float]] = {
    "max_threads": 64,
    "max_block_size": 1_048_576,
    "max_untracked_memory": 4 << 20,
    "max_final_threads": 64,
    "max_parsing_threads": 64,
}
_MODES: Final[Mapping[str, str]] = {
    "result_overflow_mode": "throw",
    "read_overflow_mode": "throw",
    "timeout_overflow_mode": "throw",
}
#: Where the embedding library's defaults are another program's than a server's, and what nobody may switch on.
_FIXED: Final[Mapping[str, str]] = {
    "implicit_select": "0",
    # Its entries are found by the text of a query, not by who asks: one tenant would see what another was told.
    "use_query_cache": "0",
    "allow_introspection_functions": "0",
}
#: Of no effect here, but sent by clients: read over.
_IGNORED: Final = re.compile(
    r"readonly|allow_ddl|log_\w+|send_\w+|http_\w+|workload|priority|cancel_http_readonly_queries_on_client_close"
    r"|wait_end_of_query|add_http_cors_header|buffer_size|role|use_query_cache|allow_introspection_functions"
    r"|implicit_select|async_insert\w*|wait_for_async_insert\w*|insert_\w+|connect_timeout\w*|receive_timeout"
    r"|send_timeout|\w+_overflow_mode"
)
#: What a caller may set: how values are written and read, how a query is executed and bounded. In RE2's and Python's
#: common language, for the engine is asked by it as well.
SETTABLE: Final = (
    r"output_format_\w+|input_format_\w+|format_\w+|date_time_\w+|cast_\w+|decimal_\w+|session_timezone|max_\w+|min_\w+"
    r"|join_\w+|group_by_\w+|optimize_\w+|query_plan_\w+|use_skip_indexes\w*|use_index_for_in_with_subqueries\w*"
    r"|use_uncompressed_cache|read_in_order_\w+|preferred_\w*block_size\w*|prefer_column_name_to_alias"
    r"|enable_positional_arguments|enable_optimize_\w+|enable_unaligned_array_join"
    r"|enable_extended_results_for_datetime_functions|extremes|limit|offset|totals_\w+|final|transform_null_in"
    r"|aggregate_functions_null_for_empty|union_default_mode|except_default_mode|intersect_default_mode"
    r"|asterisk_include_\w+|allow_suspicious_\w+|data_type_default_nullable|convert_query_to_cnf|count_distinct_\w+"
    r"|partial_\w+|short_circuit_function_evaluation|compile_\w+|parallelize_output_from_storages|timeout_\w+"
    r"|regexp_\w+|any_join_distinct_right_table_keys|single_join_prefer_left_table|legacy_column_name_of_tuple_literal"
    r"|empty_result_for_aggregation_by_\w+|validate_polygons|joined_\w+|default_max_bytes_in_join|rows_before_aggregation"
)
#: And of those: what names files, or lets results be spilt, cached or rewritten by other rules than a bound.
NOT_SETTABLE: Final = (
    r"\w*schema\w*|\w*template\w*|max_bytes_before_external\w*|max_bytes_ratio_before_external\w*|\w*avro\w*url\w*"
    r"|max_parallel_replicas|max_distributed_\w+|max_network_\w+|max_remote_\w+|\w*_path"
)
_SETTABLE: Final = re.compile(SETTABLE)
_NOT_SETTABLE: Final = re.compile(NOT_SETTABLE)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


def applied(limits: SqlLimits, asked: Mapping[str, str], known: frozenset[str]) -> dict[str, str]:
    """The settings of a query: all bounds, and the caller's settings within them.

    Args:
        known: names of all settings that the engine has.

    Raises:
        SqlError: a value that is none, a setting that there is not or that is not for callers.
    """
    bounds = _bounds(limits)
    caps = {**bounds, **_CEILINGS}
    found = {name: _number(value) for name, value in bounds.items()} | dict(_MODES) | dict(_FIXED)
    for name, value in asked.items():
        if not _NAME.fullmatch(name):
            raise SqlError(BAD_ARGUMENTS, f"{name[:100]!r} is no name of a setting")
        cap = caps.get(name)
        if cap is not None:
            found[name] = _lowered(name, value, cap)
        elif _IGNORED.fullmatch(name):
            continue
        elif name not in known:
            raise SqlError(UNKNOWN_SETTING, f"Unknown setting '{name}'")
        elif is_settable(name):
            found[name] = value
        else:
            raise SqlError(SETTING_CONSTRAINT_VIOLATION, f"Setting {name} should not be changed")
    return found


def is_settable(name: str) -> bool:
    """Whether a caller may set it."""
    return _SETTABLE.fullmatch(name) is not None and _NOT_SETTABLE.fullmatch(name) is None


def _bounds(limits: SqlLimits) -> dict[str, float]:
    return {
        "max_result_rows": limits.result_rows,
        "max_result_bytes": limits.result_bytes,
        "max_rows_to_read": limits.rows_read,
        "max_bytes_to_read": limits.bytes_read,
        "max_execution_time": limits.seconds,
        "max_memory_usage": limits.memory_bytes,
        **_FIXED_LIMITS,
    }


def _lowered(name: str, value: str, cap: float) -> str:
    try:
        number = float(value)
    except ValueError:
        raise SqlError(BAD_ARGUMENTS, f"{value[:100]!r} is no value of setting {name}") from None
    # 0 means "no bound" to ClickHouse. The text itself is not passed on: "0.0000001" or "1e-9" would round to 0.
    if not 0 < number <= cap:
        return _number(cap)
    return value if name == "max_execution_time" and number >= 0.001 else _number(max(int(number), 1))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
