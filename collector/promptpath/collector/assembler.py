"""The assembler service: follows what arrives in storage and keeps `prompts` up to date.

A trace is assembled when nothing has come for it for the grace time and its root has ended; longer after its last
span if the root is missing, and at the latest some time after its first if spans keep coming. Later spans have it
assembled again: its rows are replaced. What has been done is remembered as one position on the axis of arrivals,
written after the rows, so that a restart repeats a few seconds of work and loses none.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble import AssembleConfig, ClockPool, Tally, assemble
from promptpath.collector.assemble.causes import explain
from promptpath.collector.assemble.groups import remember
from promptpath.collector.assemble.store import (
    Shard,
    Trace,
    arrivals_after,
    database_now_ns,
    read_clocks,
    read_position,
    rooted,
    write_clocks,
    write_position,
)
from promptpath.collector.backfill import BATCH_TRACES, batches, read_whole, stamped
from promptpath.collector.own_spans import OwnSpans, is_own
from promptpath.storage.errors import is_passing
from promptpath.storage.rows import insert_prompts

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_log = logging.getLogger(__name__)

_S: Final = 1_000_000_000
#: Arrivals are stamped before they can be read; nothing older than this comes to light any more.
_SETTLED_NS: Final = 10 * _S
#: The position is written each time it has moved by this; a restart repeats no more than that and what had not settled.
_REMEMBER_NS: Final = 5 * _S
#: Arrivals read at once: under overload they are what is pending, at half a kilobyte a trace.
_PAGE_ROWS: Final = 30_000
#: A trace that storage refuses while it takes others is tried so often, so many seconds apart.
_TRIES: Final = 3
_RETRY_S: Final = 0.2
#: After so many failures without one success it is storage that fails, not what is put into it.
_ALL_FAIL: Final = 40


_STATS: Final = (
    "runs",
    "traces",
    "spans",
    "prompts",
    "failed_traces",
    "errors",
    "orphan_spans",
    "unknown_stages",
    "pending_traces",
    "busy_s",
    "behind_s",
)


@dataclass(slots=True)
class _Pending:
    """A trace with spans that no stored prompt shows yet: its first and last such arrival (ns), and how many spans."""

    first_ns: int
    last_ns: int
    spans: int


@dataclass
class _Trouble:
    """What storage refused in a run: traces that stand alone, and the last error; whether it took others."""

    traces: list[Trace] = field(default_factory=list)
    error: Exception | None = None
    failures: int = 0
    successes: int = 0


class AssemblerService:
    """Assembles prompts from what arrives; one thread, or `run_once` by hand.

    client_factory: makes a client for the calling thread. grace_s: quiet seconds before a trace with its root is
    assembled; orphan_s: the same for a trace whose root has not come; longest_s: after its first new span a trace is
    assembled even if spans still come. poll_s: seconds between looks. select: SQL of other rules
    (`rules_sql.compile_select`).
    """

    def __init__(
        self,
        client_factory: Callable[[], Client],
        *,
        grace_s: float = 2.0,
        orphan_s: float = 10.0,
        longest_s: float = 30.0,
        poll_s: float = 1.0,
        shard: Shard | None = None,
        config: AssembleConfig | None = None,
        select: str | None = None,
        own_spans: OwnSpans | None = None,
    ) -> None:
        self._factory = client_factory
        self._grace_ns = int(grace_s * _S)
        self._orphan_ns = int(max(orphan_s, grace_s) * _S)
        self._longest_ns = int(max(longest_s, grace_s) * _S)
        self._poll_s = poll_s
        self._shard = shard or Shard()
        self._config = config or AssembleConfig()
        self._select = select
        self._own_spans = own_spans
        self._local = threading.local()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pending: dict[Trace, _Pending] = {}
        self._clocks: dict[str, ClockPool] = {}
        self._seen = np.empty(0, dtype=np.uint64)
        self._seen_at = np.empty(0, dtype=np.int64)
        #: Arrivals are read up to here; -1 until the stored position is known.
        self._read_ns = -1
        self._written_ns = 0
        #: The newest arrival that has been assembled.
        self._done_ns = 0
        self._stats: dict[str, float] = dict.fromkeys(_STATS, 0)

    @property
    def stats(self) -> dict[str, float]:
        """Totals (`runs traces spans prompts failed_traces errors orphan_spans unknown_stages busy_s`), of what was
        assembled, each time it was; gauges (`pending_traces behind_s`)."""
        return dict(self._stats)

    def start(self) -> None:
        """Start following in a thread of its own. Idempotent."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._follow, name="promptpath-assembler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish the batch at hand and stop; what is pending is found again by the next start. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def run_once(self) -> int:
        """Look once and assemble what is ready. Returns the prompts written.

        Raises StorageError if storage fails; nothing is lost, the next run tries again.
        """
        return self._run(everything=False)

    def flush(self) -> int:
        """Assemble everything that has arrived, without waiting for quiet. Returns the prompts written."""
        return self._run(everything=True)

    def close(self) -> None:
        """Close the calling thread's client."""
        client = getattr(self._local, "client", None)
        if client is not None:
            self._local.client = None
            with suppress(Exception):
                client.close()

    def _follow(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self.run_once()
                failures = 0
            except Exception as error:
                # Storage may be down for long; the thread must outlive it.
                failures += 1
                self._stats["errors"] += 1
                if failures == 1:
                    _log.warning("assembler: %s; it tries again", error)
                self.close()
            self._stop.wait(min(self._poll_s * 2 ** min(failures, 6), 30.0))
        self.close()

    def _stopping(self) -> bool:
        return self._stop.is_set() and threading.current_thread() is self._thread

    def _client(self) -> Client:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._factory()
        return client

    def _run(self, *, everything: bool) -> int:
        with self._lock:
            began = time.monotonic()
            client = self._client()
            now = database_now_ns(client)
            if self._read_ns < 0:
                self._read_ns = self._written_ns = read_position(client, self._shard)
            written = 0
            more = True
            trouble = _Trouble()
            while more and not self._stopping():
                more = self._read(client, now)
                self._tell(now)
                ready = self._ready(client, now, everything=everything)
                ready = [trace for trace in ready if trace not in trouble.traces]
                for batch in batches([(trace, self._pending[trace].spans) for trace in ready]):
                    written += self._assemble(client, batch, trouble)
                    self._remember(client, now)
                    self._tell(now + int((time.monotonic() - began) * _S))
                    if self._stopping():
                        break
            written += self._try_again(client, trouble)
            self._remember(client, now)
            self._stats["runs"] += 1
            self._tell(now)
            self._stats["busy_s"] += time.monotonic() - began
            return written

    def _tell(self, now: int) -> None:
        """How far behind it is; also while a run lasts, which under overload may be minutes."""
        self._stats["pending_traces"] = len(self._pending)
        oldest = min((one.first_ns for one in self._pending.values()), default=now)
        self._stats["behind_s"] = max(0.0, (now - min(oldest, self._read_ns)) / _S)

    def _read(self, client: Client, now: int) -> bool:
        """Take in new arrivals; whether there may be more than one page of them."""
        after = min(self._read_ns, now - _SETTLED_NS)
        while True:
            page = arrivals_after(client, after, self._shard, _PAGE_ROWS)
            new = ~np.isin(page.key, self._seen)
            for index in np.flatnonzero(new).tolist():
                at, spans = int(page.at_ns[index]), int(page.spans[index])
                known = self._pending.setdefault(page.trace[index], _Pending(at, at, 0))
                known.first_ns, known.last_ns = min(known.first_ns, at), max(known.last_ns, at)
                known.spans += spans
            self._seen = np.concatenate((self._seen, page.key[new]))
            self._seen_at = np.concatenate((self._seen_at, page.at_ns[new]))
            full = len(page.key) >= _PAGE_ROWS
            self._read_ns = max(self._read_ns, int(page.at_ns[-1]) if full else now)
            # A page of nothing but known rows is the overlap: go on behind it.
            if not full or new.any():
                break
            after = int(page.at_ns[-1])
        unsettled = self._seen_at > min(self._read_ns, now - _SETTLED_NS)
        self._seen, self._seen_at = self._seen[unsettled], self._seen_at[unsettled]
        return full

    def _ready(self, client: Client, now: int, *, everything: bool) -> list[Trace]:
        """Pending traces whose time has come, by first arrival."""
        if everything:
            ready = set(self._pending)
        else:
            old = {
                trace
                for trace, one in self._pending.items()
                if now - one.last_ns >= self._orphan_ns or now - one.first_ns >= self._longest_ns
            }
            quiet = [
                trace
                for trace, one in self._pending.items()
                if trace not in old and now - one.last_ns >= self._grace_ns
            ]
            ready = old
            for first in range(0, len(quiet), BATCH_TRACES):
                ready |= rooted(client, quiet[first : first + BATCH_TRACES])
        return sorted(ready, key=lambda trace: (self._pending[trace].first_ns, trace))

    def _assemble(self, client: Client, batch: Sequence[Trace], trouble: _Trouble) -> int:
        """Assemble one batch; a trace that cannot be assembled or stored does not hold up the others.

        Raises whatever storage fails with, if it is storage that fails and not one of these traces.
        """
        tenant, began = batch[0].tenant, time.perf_counter()
        try:
            if tenant not in self._clocks:
                self._clocks[tenant] = read_clocks(client, tenant)
            clocks = self._clocks[tenant]
            # Stamped by when they were read: of two assemblers at one prompt the one that saw more wins, not the
            # slower.
            config = stamped(self._config, database_now_ns(client))
            spans, traces = read_whole(client, [trace.id for trace in batch], self._select, tenant)
        except Exception as error:
            return self._apart(client, batch, trouble, error)
        try:
            tally = Tally()
            prompts = assemble(spans, config, clocks, tally)
        except Exception as error:
            if len(batch) > 1:
                return self._halves(client, batch, trouble)
            self._set_aside(batch[0], "assembled", error)
            return 0
        try:
            prompts = self._explained(client, prompts, tally, tenant)
            written = insert_prompts(client, prompts, trace_ids=traces, tenant=tenant, as_of_ns=config.assembled_at_ns)
            remember(client, prompts, tenant)
            write_clocks(client, clocks, tenant)
        except Exception as error:
            return self._apart(client, batch, trouble, error)
        trouble.successes += 1
        if self._own_spans is not None and not all(is_own(trace.id) for trace in batch):
            said = {"traces": len(batch), "spans": spans.num_rows, "prompts": written}
            self._own_spans.add("assemble batch", time.perf_counter() - began, said)
        self._finish(batch)
        self._stats["traces"] += len(batch)
        self._stats["spans"] += spans.num_rows
        self._stats["prompts"] += written
        self._stats["orphan_spans"] += tally.orphans
        self._stats["unknown_stages"] += tally.unknown_stages
        return written

    def _explained(self, client: Client, prompts: pa.Table, tally: Tally, tenant: str) -> pa.Table:
        """`prompts` with what storage says of their stalls; as they are if it cannot say: no row waits for that."""
        try:
            return explain(client, prompts, tally.open_stalls, tenant)
        except Exception as error:
            database_now_ns(client)
            self._stats["errors"] += 1
            _log.warning("assembler: causes of stalls cannot be looked up: %s", error)
            return prompts

    def _apart(self, client: Client, batch: Sequence[Trace], trouble: _Trouble, error: Exception) -> int:
        """Storage refused a batch: look for the trace it refuses, which stays pending for `_try_again`."""
        trouble.failures += 1
        trouble.error = error
        if is_passing(error) or (trouble.failures > _ALL_FAIL and not trouble.successes):
            raise error
        # Raises if storage does not answer at all.
        database_now_ns(client)
        if len(batch) > 1:
            return self._halves(client, batch, trouble)
        trouble.traces.append(batch[0])
        return 0

    def _halves(self, client: Client, batch: Sequence[Trace], trouble: _Trouble) -> int:
        # Every other one, so that bad ones that came one after another do not make all of a half.
        return sum(self._assemble(client, half, trouble) for half in (batch[::2], batch[1::2]))

    def _try_again(self, client: Client, trouble: _Trouble) -> int:
        """Traces that storage refused by themselves once more; those it refuses while it takes others are set aside.

        Raises the last error where it took nothing else: then it may be storage, and all of them stay pending.
        """
        written = 0
        for _ in range(1, _TRIES):
            if not trouble.traces or self._stop.wait(_RETRY_S):
                break
            refused, trouble.traces = trouble.traces, []
            written += sum(self._assemble(client, [trace], trouble) for trace in refused)
        if trouble.traces and trouble.error is not None and not self._stop.is_set():
            if not trouble.successes:
                raise trouble.error
            for trace in trouble.traces:
                self._set_aside(trace, "stored", trouble.error)
        return written

    def _set_aside(self, trace: Trace, what: str, error: Exception) -> None:
        """A trace that fails again and again, alone: its spans stay stored, it has no row until more spans come."""
        _log.error("assembler: trace %s cannot be %s: %s", trace.id, what, error, exc_info=error)
        self._stats["failed_traces"] += 1
        self._finish([trace])

    def _finish(self, batch: Sequence[Trace]) -> None:
        for trace in batch:
            self._done_ns = max(self._done_ns, self._pending.pop(trace).last_ns)

    def _remember(self, client: Client, now: int) -> None:
        """Write the position behind which nothing is left to do, if there was work since and it has moved on enough."""
        position = min(self._read_ns, now - _SETTLED_NS)
        position = min([position, *(one.first_ns - 1 for one in self._pending.values())])
        new_work = self._done_ns > self._written_ns and position > self._written_ns
        if new_work and (position >= self._done_ns or position - self._written_ns > _REMEMBER_NS):
            write_position(client, self._shard, position)
            self._written_ns = position
