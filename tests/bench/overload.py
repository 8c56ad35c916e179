"""Full overload: senders as fast as they can, more than storage takes; memory, answers, and what is stored in the end.

    python -m tests.bench.overload --seconds 120
    python -m tests.bench.overload --seconds 120 --journal-mib 64
    python -m tests.bench.overload --seconds 120 --spans 1 --senders 64

A collector in a process of its own with the embedded engine, its assembler at work. Its resident memory is sampled all
the time and read from the kernel at the end. Every answer must be an acknowledgement or one that asks to come back and
says when (429 or 503 with Retry-After; RESOURCE_EXHAUSTED or UNAVAILABLE with RetryInfo). When the load ends, the
journal is stored: every acknowledged span must be there, once.

Exit code 1 where anything is not, or the memory exceeded 1 GiB.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench.numbered import Numbered
from tests.bench.retrying import Entry, Senders, mixed
from tests.bench.stack import Stack, resident_bytes

from promptpath.cli.benches import otlp_payload
from promptpath.collector.otlp import Signal

LIMIT_BYTES: Final = 1 << 30
#: Stands for a request's number in a template, at the beginning of each of its ids.
_MARK: Final = b"}|~{"
_SAMPLE_S: Final = 0.1
_RETRY_S: Final = 0.05
_DRAIN_S: Final = 1200.0
#: Requests that one check counts.
_CHECKED: Final = 2_000
_COUNT: Final = """
    SELECT unhex(substring(SpanId, 1, 8)) AS request, count(), uniqExact(SpanId)
    FROM otel_traces WHERE request >= {first:String} AND request < {end:String} GROUP BY request
"""


@dataclass
class Result:
    """What came of a run. Memory in bytes, resident, of the collector with its engine."""

    seconds: float = 0.0
    spans_per_request: int = 0
    senders: int = 0
    journal_bytes: int = 0
    peak_bytes: int = 0
    #: Highest sample of each tenth of the load, and while the journal is stored after it.
    tenths_bytes: list[int] = field(default_factory=list)
    drain_peak_bytes: int = 0
    acknowledged_spans: int = 0
    acknowledged_per_s: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    backlog_peak_bytes: int = 0
    drain_s: float = 0.0
    stored_spans: int = 0
    prompts: int = 0
    exit_code: int = 0
    faults: list[str] = field(default_factory=list)


class Template:
    """A request of `spans` spans, as `otlp_payload` has them, from which others are made that differ in their ids."""

    def __init__(self, spans: int, start_ns: int, seed: int) -> None:
        request = Signal.TRACES.request()
        request.ParseFromString(otlp_payload.requests(1, start_ns=start_ns, seed=seed)[0])
        found = request.resource_spans[0].scope_spans[0].spans
        del found[spans:]
        ids = {span.span_id: _MARK + i.to_bytes(4, "big") for i, span in enumerate(found)}
        for i, span in enumerate(found):
            span.trace_id = _MARK + (i // 20).to_bytes(4, "big") + span.trace_id[:8]
            span.parent_span_id = ids.get(span.parent_span_id, b"")
            span.span_id = _MARK + i.to_bytes(4, "big")
            for attribute in span.attributes:
                if attribute.key == "gen_ai.response.id":  # one a trace; the same in two would make one prompt of them
                    attribute.value.string_value = f"chatcmpl-{_MARK.decode()}{i // 20:024x}"
        self._pieces = request.SerializeToString().split(_MARK)
        self._spans = spans
        parents = sum(bool(span.parent_span_id) for span in found)
        if len(self._pieces) != 3 * spans + parents + 1:
            raise ValueError("the mark stands elsewhere than in ids: choose another seed")

    def request(self, number: int) -> Iterator[Numbered]:
        """Made when it is asked for, by the thread that sends it."""
        yield Numbered(number, Signal.TRACES, _code(number).join(self._pieces), self._spans)


def _code(number: int) -> bytes:
    """A number below 2^24 as four letters, in the same order; in text as good as in bytes."""
    return bytes(48 + (number >> shift & 63) for shift in (18, 12, 6, 0))


class Watch(threading.Thread):
    """Samples the memory of a process."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[float, int]] = []
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self.samples.append((time.monotonic(), resident_bytes(self._pid)))

    def end(self) -> None:
        self._ended.set()
        self.join()

    def peak(self, begin: float, end: float) -> int:
        return max((size for at, size in self.samples if begin <= at <= end), default=0)


def run(
    seconds: float,
    *,
    folder: Path,
    spans: int = 512,
    senders: int = 24,
    journal_bytes: int = 4 << 30,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    result = Result(seconds, spans, senders, journal_bytes)
    began_ns = time.time_ns()
    # A second of the run has times of its own.
    templates = [Template(spans, began_ns + i * 10**9, i) for i in range(min(int(seconds) + 1, 120))]
    stack = Stack(folder, over_http=False, grace_s=2.0, options=("--journal-max-bytes", str(journal_bytes)))
    try:
        stack.launch()
        stack.wait_ready()
        assert stack.collector is not None
        watch = Watch(stack.collector.pid)
        watch.start()
        began = time.monotonic()

        def units() -> Iterator[Iterator[Numbered]]:
            for number in itertools.count(1):
                yield templates[int(time.monotonic() - began) % len(templates)].request(number)

        sending = Senders(mixed(stack.http_port, stack.grpc_port, senders), units(), retry_s=_RETRY_S)
        sending.start()
        while time.monotonic() < began + seconds:
            time.sleep(min(5.0, max(began + seconds - time.monotonic(), 0)))
            figures = stack.metrics()
            result.backlog_peak_bytes = max(result.backlog_peak_bytes, int(figures.get("journal_bytes", 0)))
            progress(_progress(time.monotonic() - began, figures, watch))
        sending.finish(_DRAIN_S)
        ended = time.monotonic()
        acknowledged = {number: entry for number, entry in sending.ledger.items() if entry.acknowledged}
        while stack.metrics().get("journal_items") != 0:
            if time.monotonic() > ended + _DRAIN_S:
                raise TimeoutError("the journal is not stored")
            time.sleep(0.5)
        result.drain_s = round(time.monotonic() - ended, 1)
        stack.settle(_DRAIN_S)
        watch.end()
        result.tenths_bytes = [
            watch.peak(began + i * (ended - began) / 10, began + (i + 1) * (ended - began) / 10) for i in range(10)
        ]
        result.drain_peak_bytes = watch.peak(ended, time.monotonic())
        result.peak_bytes = max(size for _, size in watch.samples)
        result.acknowledged_spans = len(acknowledged) * spans
        result.acknowledged_per_s = int(result.acknowledged_spans / (ended - began))
        result.answers = {outcome.value: count for outcome, count in sending.outcomes.items()}
        result.faults += [f"a wrong answer: {one}" for one in sending.wrong[:5]]
        progress("counting what is stored")
        _count(stack, sending.ledger, spans, result)
        result.exit_code = stack.stop()
        _conclude(stack, result)
    finally:
        stack.close()
    return result


def _progress(elapsed_s: float, figures: Mapping[str, float], watch: Watch) -> str:
    resident = watch.samples[-1][1] >> 20 if watch.samples else 0
    return (
        f"{elapsed_s:.0f} s: {resident} MiB resident, {figures.get('journal_bytes', 0) / 2**20:.0f} MiB journalled, "
        f"{figures.get('assembler_pending_traces', 0):.0f} traces to assemble"
    )


def _count(stack: Stack, ledger: Mapping[int, Entry], spans: int, result: Result) -> None:
    client = stack.client()
    lost, doubled = [], []
    for first in range(0, max(ledger) + 1, _CHECKED):
        bounds = {"first": _code(first).decode(), "end": _code(first + _CHECKED).decode()}
        rows = client.query(_COUNT, parameters=bounds).result_rows
        found = {str(code): (int(count), int(items)) for code, count, items in rows}
        for number in range(first, first + _CHECKED):
            count, items = found.get(_code(number).decode(), (0, 0))
            result.stored_spans += count
            if number in ledger and items != spans:
                lost.append(number)
            elif count != items:
                doubled.append(number)
    result.prompts = int(client.query("SELECT count() FROM prompts").result_rows[0][0])
    client.close()
    result.faults += [f"acknowledged, not all there: {len(lost)}, such as {lost[:5]}"] if lost else []
    result.faults += [f"there more than once: {len(doubled)}, such as {doubled[:5]}"] if doubled else []


def _conclude(stack: Stack, result: Result) -> None:
    if result.peak_bytes > LIMIT_BYTES:
        result.faults.append(f"{result.peak_bytes >> 20} MiB resident, over {LIMIT_BYTES >> 20}")
    if result.exit_code:
        result.faults.append(f"asked to stop, it ended with {result.exit_code}")
    if "Traceback" in (log := stack.log.read_text()):
        result.faults.append(f"a traceback in the log: {log[log.index('Traceback') :][:1500]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long (default 120)")
    parser.add_argument("--spans", type=int, default=otlp_payload.SPANS, help="a request (default 512, at most)")
    parser.add_argument("--senders", type=int, default=24, help="that send at once (default 24)")
    parser.add_argument("--journal-mib", type=int, default=4096, help="what the journal may hold (default 4096)")
    parser.add_argument("--keep", type=Path, default=None, help="leave everything in this folder")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="overload-"))
    try:
        result = run(
            arguments.seconds,
            folder=folder,
            spans=arguments.spans,
            senders=arguments.senders,
            journal_bytes=arguments.journal_mib << 20,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    figures: dict[str, Any] = vars(result) | {"load_average": os.getloadavg()[0]}
    if arguments.format == "json":
        print(json.dumps({"name": "overload", "figures": figures}))
    else:
        for name, value in figures.items():
            print(f"{name:20} {value}")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
