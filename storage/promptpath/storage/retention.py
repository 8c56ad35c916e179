"""How long tables keep their rows: `otel_traces=7d,prompts=0`.

Rows are kept from when they were stored, not from when their clocks said that they were: an import of last year's
traces stays as long as anything else, and spans that are dated in the next century go as well. Of the large tables
whole parts of a day are dropped, and nothing is rewritten only for that (`ttl_only_drop_parts`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from promptpath.storage.cluster import local_name
from promptpath.storage.errors import StorageError, reason

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_DAY_S: Final = 86_400
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S, "w": 7 * _DAY_S}
_DURATION: Final = re.compile(r"(\d+)([smhdw])")
_METRICS: Final = tuple(
    f"otel_metrics_{kind}" for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")
)
#: What can be set, and the tables (with the column that says since when) that it governs.
RETAINED: Final[Mapping[str, Mapping[str, str]]] = {
    "otel_traces": {
        "otel_traces": "IngestedAt",
        "otel_traces_trace_id_ts": "IngestedAt",
        "trace_arrivals": "ArrivedAt",
        "trace_join_keys": "WrittenAt",
    },
    "otel_logs": {"otel_logs": "IngestedAt"},
    "otel_metrics": dict.fromkeys(_METRICS, "IngestedAt"),
    **{name: {name: "IngestedAt"} for name in _METRICS},
    "prompts": {"prompts_rows": "assembled_at"},
    "prompt_minutes": {"prompt_minutes_rows": "computed_at"},
    "clock_offsets": {"clock_offsets": "at"},
    "alerts": {"alerts": "at"},
    "incidents": {"incidents_rows": "updated_at"},
}
#: Unless told otherwise, in seconds; 0 is for ever.
DEFAULTS_S: Final[Mapping[str, int]] = {
    "otel_traces": 30 * _DAY_S,
    "otel_logs": 30 * _DAY_S,
    "otel_metrics": 30 * _DAY_S,
    "prompts": 365 * _DAY_S,
    "prompt_minutes": 0,
    "clock_offsets": 365 * _DAY_S,
    "alerts": 365 * _DAY_S,
    "incidents": 0,
}
_CURRENT: Final = """
SELECT name, extract(engine_full, ' TTL (.+?)(?: SETTINGS |$)')
FROM system.tables
WHERE database = currentDatabase() AND name IN {names:Array(String)}
"""


def parse_retention(text: str) -> dict[str, int]:
    """Reads `TABLE=DURATION,...`; a duration is a number with s, m, h, d or w, or 0 or `none` for ever.

    Returns:
        Seconds by name, 0 for ever.

    Raises:
        StorageError: a name or a duration is none.
    """
    found = {}
    for part in re.split(r"[,\s]+", text.strip()) if text.strip() else []:
        name, _, duration = part.partition("=")
        if name not in RETAINED:
            raise StorageError(f"no table {name!r} has a retention of its own: use one of {', '.join(RETAINED)}")
        found[name] = _seconds(name, duration)
    return found


def _seconds(name: str, duration: str) -> int:
    if duration in ("0", "none"):
        return 0
    match = _DURATION.fullmatch(duration)
    # A hundred years: more than that a date of the database does not hold.
    if match is None or not 0 < (seconds := int(match[1]) * _UNITS_S[match[2]]) <= 36_500 * _DAY_S:
        raise StorageError(
            f"{name}={duration} is no retention: use {name}=30d (s, m, h, d, w), or {name}=0 to keep all"
        )
    return seconds


def apply_retention(client: Client, retention: Mapping[str, int] | None = None, *, cluster: str = "") -> list[str]:
    """Sets how long tables keep their rows, where it is not so already.

    Args:
        client: a client that may write.
        retention: seconds by name of `RETAINED`, over `DEFAULTS_S`; a single metrics table goes before `otel_metrics`.

    Returns:
        The tables that were changed.

    Raises:
        StorageError: the database refused.
    """
    wanted = _wanted({**DEFAULTS_S, **(retention or {})}, cluster)
    try:
        rows = client.query(_CURRENT, parameters={"names": list(wanted)}).result_rows
        changed = [name for name, ttl in rows if ttl != wanted[name]]
        for name in changed:
            for statement in _alter(name, wanted[name], cluster):
                client.command(statement)
    except Exception as error:
        raise StorageError(f"cannot set how long tables keep their rows ({reason(error)}): it is as before") from error
    return changed


def _wanted(retention: Mapping[str, int], cluster: str) -> dict[str, str]:
    """TTL expressions by table, empty for none, as the engine spells them."""
    wanted = {}
    for name, governed in RETAINED.items():  # single tables stand behind the group
        if name in retention:
            for table, column in governed.items():
                expression = f"toDateTime({column}) + toIntervalSecond({retention[name]})" if retention[name] else ""
                wanted[local_name(table, cluster)] = expression
    return wanted


def _alter(table: str, ttl: str, cluster: str) -> list[str]:
    head = f"ALTER TABLE {table}" + (f" ON CLUSTER '{cluster}'" if cluster else "")
    if not ttl:
        return [f"{head} REMOVE TTL"]
    # What is stored already learns of the change without being rewritten.
    return [f"{head} MODIFY SETTING materialize_ttl_recalculate_only = 1", f"{head} MODIFY TTL {ttl}"]
