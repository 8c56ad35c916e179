"""Senders that hang up before they are answered."""

from __future__ import annotations

import os
import threading

import grpc
import pytest

from promptpath.collector.otlp import Signal

from .running import RunningCollector, make_spans, wait_for

#: How long the slow disk takes to sync, and a sender waits that does not wait for it.
SYNC_S = 1.0
PATIENCE_S = 0.3


class Disk:
    """The collector's disk; while `is_slow`, every sync takes `SYNC_S` longer."""

    def __init__(self) -> None:
        self._slow = threading.Event()
        self._syncing = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if self._slow.is_set():
            self._syncing.set()
            threading.Event().wait(SYNC_S)
        _fdatasync(fd)

    def slow_down(self) -> None:
        self._syncing.clear()
        self._slow.set()

    def recover(self) -> None:
        """Once a sync is under way, the later ones are as fast as ever."""
        assert self._syncing.wait(20)
        self._slow.clear()


_fdatasync = os.fdatasync


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


def test_a_call_that_is_cancelled_holds_up_nobody(collector: RunningCollector, disk: Disk) -> None:
    """Also while its request is on its way to the disk."""
    disk.slow_down()
    with grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}") as channel:
        call = channel.unary_unary(Signal.TRACES.rpc_method)
        with pytest.raises(grpc.RpcError) as caught:
            call(make_spans(1, first=1, name="cancelled").SerializeToString(), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        disk.recover()
        assert call(make_spans(1, first=2, name="after").SerializeToString(), timeout=20) == b""
    wait_for(
        lambda: collector.sql("SELECT SpanName FROM otel_traces ORDER BY ALL") == [["after"], ["cancelled"]], "both"
    )
