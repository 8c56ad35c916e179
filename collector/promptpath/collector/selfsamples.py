"""Figures of the collector's parts that are read when asked: journal, storage, assembler, the process itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Final

from promptpath.collector.selfmetrics import Sample

if TYPE_CHECKING:
    from promptpath.collector.journal import Journal
    from promptpath.collector.writer import Writer

#: Of the assembler's statistics: name in them -> (name, help, type).
_ASSEMBLER: Final[Mapping[str, tuple[str, str, str]]] = {
    "runs": ("assembler_runs_total", "Looks at what has arrived.", "counter"),
    "traces": ("assembler_traces_total", "Traces assembled, each time they are.", "counter"),
    "spans": ("assembler_spans_total", "Spans read for assembling.", "counter"),
    "prompts": ("assembler_prompts_total", "Rows of prompts written.", "counter"),
    "failed_traces": (
        "assembler_failed_traces_total",
        "Traces set aside because they cannot be assembled or stored.",
        "counter",
    ),
    "orphan_spans": (
        "assembler_orphan_spans_total",
        "Spans without their parent of which nothing says whose prompt they are of.",
        "counter",
    ),
    "unknown_stages": ("assembler_unknown_stages_total", "Spans that name a stage which is none.", "counter"),
    "errors": ("assembler_errors_total", "Runs that failed and were tried again.", "counter"),
    "busy_s": ("assembler_busy_seconds_total", "Time spent in runs.", "counter"),
    "pending_traces": ("assembler_pending_traces", "Traces with spans that no prompt shows yet.", "gauge"),
    "behind_s": ("assembler_behind_seconds", "Age of the oldest arrival that no prompt shows yet.", "gauge"),
}
_STARTED: Final = time.time()


def journal_samples(journal: Journal, writer: Writer) -> Iterable[Sample]:
    """The backlog on disk, and whether disk and storage take writes."""
    state, stored = journal.state(), writer.state()
    return [
        _gauge("journal_bytes", "Bytes in the journal that storage does not have yet.", state.bytes),
        _gauge("journal_limit_bytes", "Bytes that the journal may hold.", journal.limits.max_bytes),
        _gauge("journal_up", "1 while the journal's disk takes writes.", 0 if state.failure else 1),
        _counter("journal_failures_total", "Group commits that the disk refused.", state.failures),
        _gauge("journal_segments", "Segments in the journal.", state.segments),
        _gauge("journal_items", "Spans, data points and log records in the journal.", state.items),
        _gauge("journal_pending_requests", "Requests that wait for the disk.", state.pending_requests),
        _gauge(
            "journal_oldest_age_seconds", "Age of the oldest segment that storage does not have.", state.oldest_age_s
        ),
        _gauge("journal_torn_bytes", "Bytes that a crash tore off, found at the start.", state.torn_bytes),
        _counter(
            "journal_repeats_total",
            "Requests sent again that a killed collector had journalled but not acknowledged; stored once.",
            state.repeats,
        ),
        _counter("journal_syncs_total", "Group commits.", state.syncs),
        _gauge("storage_up", "1 while inserts succeed.", 0 if stored.last_error else 1),
        _gauge("quarantine_bytes", "Bytes of requests set aside.", stored.quarantine_bytes),
    ]


def assembler_samples(stats: Mapping[str, float]) -> Iterable[Sample]:
    """What the assembler did, and how far it is behind. One without a description is a gauge by its own name."""
    found: list[Sample] = []
    for key, value in stats.items():
        name, text, kind = _ASSEMBLER.get(key, (f"assembler_{key}", "A figure of the assembler.", "gauge"))
        found.append((name, text, kind, [({}, value)]))
    return found


def process_samples() -> Iterable[Sample]:
    """Memory, processor time and files of this process, and what runs in it."""
    import psutil

    process = psutil.Process()
    times = process.cpu_times()
    return [
        ("build_info", "1, with the version as a label.", "gauge", [({"version": _version()}, 1)]),
        _gauge("start_time_seconds", "When it started, in seconds since 1970.", _STARTED),
        _gauge("resident_memory_bytes", "Memory in use, with the embedded engine's.", process.memory_info().rss),
        _counter("cpu_seconds_total", "Processor time, of all threads.", times.user + times.system),
        _gauge("open_files", "Open file descriptors.", len(os.listdir("/proc/self/fd")) if _HAS_PROC else 0),
        _gauge("threads", "Threads.", process.num_threads()),
    ]


_HAS_PROC: Final = os.path.isdir("/proc/self/fd")


def _version() -> str:
    try:
        return metadata.version("promptpath")
    except metadata.PackageNotFoundError:
        return "unknown"


def _gauge(name: str, text: str, value: float) -> Sample:
    return (name, text, "gauge", [({}, value)])


def _counter(name: str, text: str, value: float) -> Sample:
    return (name, text, "counter", [({}, value)])
