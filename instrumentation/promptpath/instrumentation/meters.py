"""Metrics of the engine shims: a meter provider, made only where one is wanted and the program has none."""

from __future__ import annotations

import os
from typing import Any, Final

from opentelemetry import metrics as metrics_api
from opentelemetry.metrics import _internal

from promptpath.instrumentation import pipeline, resource, termination
from promptpath.instrumentation.exporting import Outage, exporter_names, load_exporter
from promptpath.instrumentation.safety import guarded

#: Our default, where `OTEL_METRIC_EXPORT_INTERVAL` is not set [ms].
_INTERVAL_MS: Final = 5_000
_made: Final[list[Any]] = []


@guarded("meters.ensure")
def ensure() -> None:
    """Set up metrics by OTLP unless the program has, or `OTEL_METRICS_EXPORTER` is `none`. Idempotent; never raises."""
    if _made or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    if getattr(_internal, "_METER_PROVIDER", None) is not None:
        return
    names = exporter_names("metrics")
    if names:
        _make(names)


def _make(names: list[str]) -> None:
    # Half of the SDK: only where metrics are wanted.
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    interval_ms = None if os.environ.get("OTEL_METRIC_EXPORT_INTERVAL") else _INTERVAL_MS
    readers = [
        PeriodicExportingMetricReader(_hushed(load_exporter("metrics", name)()), export_interval_millis=interval_ms)
        for name in names
    ]
    tracing = pipeline.sdk_provider()
    provider = MeterProvider(
        readers, resource=tracing.resource if tracing is not None else resource.make(), shutdown_on_exit=False
    )
    _made.append(provider)
    termination.shut_down_at_exit(provider.shutdown)
    _install(provider)


def _hushed(exporter: Any) -> Any:
    """The exporter, saying an outage once instead of at every export."""
    outage = Outage("metrics", lambda: str(getattr(exporter, "_endpoint", "")))
    export = exporter.export

    def quietly(*args: Any, **kwargs: Any) -> Any:
        results: list[Any] = []

        def send() -> bool:
            results.append(export(*args, **kwargs))
            return bool(results[0].name == "SUCCESS")

        from opentelemetry.sdk.metrics.export import MetricExportResult

        outage.attempt(send, 1)
        return results[0] if results else MetricExportResult.FAILURE

    exporter.export = quietly
    return exporter


def _install(provider: Any) -> None:
    """Make it the global provider in such a way that the program may still set its own (see `bootstrap`)."""
    if hasattr(_internal, "_METER_PROVIDER") and hasattr(_internal, "_PROXY_METER_PROVIDER"):
        _internal._METER_PROVIDER = provider
        _internal._PROXY_METER_PROVIDER.on_set_meter_provider(provider)
    else:
        metrics_api.set_meter_provider(provider)
