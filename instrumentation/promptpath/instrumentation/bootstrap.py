"""Setting up OpenTelemetry for a program that has not: what `import promptpath.auto` does.

The SDK follows the standard `OTEL_*` variables; unset, spans go by OTLP/HTTP to localhost:4318 within half a second. A
provider that the program has set is used and left alone, and one that it sets later takes the place of ours. Importing
asks no network and leaves no thread running.
"""

from __future__ import annotations

import os
import uuid
from functools import partial
from typing import Any, Final

from opentelemetry import trace as trace_api
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from promptpath import semconv
from promptpath.instrumentation import exit_flush, meters, pipeline, readable, registry, resource, termination
from promptpath.instrumentation.exporting import (
    BatchProcessor,
    QuietExporter,
    exporter_names,
    load_exporter,
    prepare_exporter,
)
from promptpath.instrumentation.safety import guarded

_own: TracerProvider | None = None
_processors: Final[list[BatchProcessor]] = []
_configured = False


def own_provider() -> TracerProvider | None:
    """The provider that we have made in this process, if we have."""
    return _own


def processors() -> list[BatchProcessor]:
    """The batch processors of our provider, one for each exporter."""
    return list(_processors)


def configure() -> None:
    """Set up the SDK if the program has none, then act on every library that has a shim. Idempotent; never raises."""
    global _configured
    if _configured:
        return
    _configured = True
    _set_up()
    registry.activate()


@guarded("bootstrap")
def _set_up() -> None:
    if pipeline.sdk_provider() is None and isinstance(trace_api.get_tracer_provider(), trace_api.ProxyTracerProvider):
        _make_provider()
    termination.arrange()
    name = _service_name()
    if name:
        os.environ[resource.PARENT_SERVICE_VARIABLE] = name
    if os.environ.get("OTEL_METRICS_EXPORTER", "none") != "none":
        meters.ensure()


def _service_name() -> str:
    provider = pipeline.sdk_provider()
    name = provider.resource.attributes.get(semconv.SERVICE_NAME) if provider is not None else None
    return str(name or "")


def _make_provider() -> None:
    global _own
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return
    provider = TracerProvider(resource=resource.make(), shutdown_on_exit=False)
    for name in exporter_names("traces"):
        prepare_exporter(name)
        processor = BatchProcessor(QuietExporter(partial(_exporter, name)))
        _processors.append(processor)
        provider.add_span_processor(processor)
        exit_flush.drop_sources.append(processor.dropped)
    _own = provider
    exit_flush.own_providers.append(provider)
    _install(provider)
    termination.shut_down_at_exit(provider.shutdown)
    termination.is_in_vain = _is_in_vain
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork_in_child)


def _exporter(name: str) -> Any:
    return load_exporter("traces", name)()


def _is_in_vain() -> bool:
    return bool(_processors) and all(processor.exporter.outage.is_down for processor in _processors)


def _install(provider: TracerProvider) -> None:
    """Make it the global provider, in such a way that the program may still set its own.

    OpenTelemetry lets the global provider be set once and ignores a second; a program that is instrumented from the
    outside must not lose its own tracing to that.
    """
    if getattr(trace_api, "_TRACER_PROVIDER", provider) is None:
        trace_api._TRACER_PROVIDER = provider
    if trace_api.get_tracer_provider() is not provider:
        trace_api.set_tracer_provider(provider)


@guarded("bootstrap.fork")
def _after_fork_in_child() -> None:
    if _own is None:
        return
    child: dict[str, str | int] = {semconv.PROCESS_PID: os.getpid(), semconv.SERVICE_INSTANCE_ID: str(uuid.uuid4())}
    update = getattr(_own, "_update_resource", None)
    if update is not None:
        update(Resource(child))
    readable.overlay.update(child)
    readable.forget_resources()
