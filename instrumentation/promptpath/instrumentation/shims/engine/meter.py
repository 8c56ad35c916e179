"""Metrics of an engine's steps: `promptpath.engine.{running,waiting,kv_cache.usage,step.duration}`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from promptpath.instrumentation.safety import guard


class EngineMeter:
    """Keeps the last values of each engine, to be read when metrics are exported: a step costs next to nothing.

    Args:
        scope: the engine shim's instrumentation scope.
    """

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._last: weakref.WeakKeyDictionary[Any, tuple[int, int, float | None]] = weakref.WeakKeyDictionary()
        self._duration: metrics.Histogram | None = None
        self._prefill_tokens: metrics.Histogram | None = None
        self._decode_tokens: metrics.Histogram | None = None

    def step(
        self,
        engine: object,
        running: int,
        waiting: int,
        cache_usage: float | None,
        duration_s: float,
        prefill_tokens: int | None = None,
        decode_tokens: int | None = None,
    ) -> None:
        """A step is over.

        Args:
            engine: which.
            running, waiting: requests.
            cache_usage: of the KV cache, 0 to 1; None where the engine does not say.
            duration_s: of the step [s].
            prefill_tokens, decode_tokens: that the step computed; None where the engine does not say.
        """
        self._last[engine] = (running, waiting, cache_usage)
        if self._duration is None:
            self._make()
        if self._duration is not None:
            self._duration.record(duration_s)
        if prefill_tokens and self._prefill_tokens is not None:
            self._prefill_tokens.record(prefill_tokens)
        if decode_tokens and self._decode_tokens is not None:
            self._decode_tokens.record(decode_tokens)

    def forget(self) -> None:
        """Nothing is reported from now on."""
        self._last.clear()

    def _make(self) -> None:
        with guard("engine.meter"):
            meter = metrics.get_meter(self._scope)
            meter.create_observable_gauge(
                "promptpath.engine.running", [self._read(0)], "{request}", "Requests that steps work on."
            )
            meter.create_observable_gauge(
                "promptpath.engine.waiting", [self._read(1)], "{request}", "Requests that no step has worked on yet."
            )
            meter.create_observable_gauge(
                "promptpath.engine.kv_cache.usage", [self._read(2)], "1", "Share of the KV cache that is in use."
            )
            self._duration = meter.create_histogram(
                "promptpath.engine.step.duration",
                "s",
                "Time a step took.",
                explicit_bucket_boundaries_advisory=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5],
            )
            self._prefill_tokens, self._decode_tokens = (
                meter.create_histogram(
                    f"promptpath.engine.step.{kind}_tokens",
                    "{token}",
                    f"Tokens of {kind} that a step computed, of steps with any.",
                    explicit_bucket_boundaries_advisory=[float(1 << power) for power in range(16)],
                )
                for kind in ("prefill", "decode")
            )

    def _read(self, index: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            values = [value for engine in list(self._last.values()) if (value := engine[index]) is not None]
            if values:
                yield Observation(max(values) if index == 2 else sum(values))

        return observe
