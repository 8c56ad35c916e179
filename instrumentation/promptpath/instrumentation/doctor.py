"""What `promptpath doctor` says of this process: is it instrumented, where do its spans go, what was lost."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any, Final

from opentelemetry import trace as trace_api
from opentelemetry.sdk.version import __version__ as sdk_version

from promptpath.instrumentation import bootstrap, clock, exit_flush, pipeline, registry, safety, wrapping
from promptpath.instrumentation.builder import builder
from promptpath.instrumentation.exporting import exporter_names, redact

#: Never shown, whatever they hold.
_SECRET: Final = ("HEADERS", "KEY", "CERTIFICATE", "TOKEN", "PASSWORD", "CREDENTIAL")


def _environment() -> dict[str, str]:
    """The variables that steer us, secrets hidden, URLs without user and password."""
    return {
        name: "(set)" if any(word in name for word in _SECRET) else redact(value)
        for name, value in sorted(os.environ.items())
        if name.startswith(("OTEL_", "PROMPTPATH_"))
    }


def _endpoint(exporter: str) -> str:
    given = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if given:
        return redact(given)
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter == "otlp_proto_grpc":
        return redact(base or "http://localhost:4317")
    if exporter == "otlp_proto_http":
        return redact(base or "http://localhost:4318").rstrip("/") + "/v1/traces"
    return ""


def _exporters() -> list[dict[str, Any]]:
    names = exporter_names("traces")
    return [
        {
            "name": name,
            "endpoint": redact(processor.exporter.endpoint) or _endpoint(name),
            "sent": processor.exporter.outage.sent,
            "lost": processor.exporter.outage.lost,
            "last_error": processor.exporter.outage.last_error,
        }
        for name, processor in zip(names, bootstrap.processors(), strict=False)
    ]


def _sdk() -> dict[str, Any]:
    provider = pipeline.sdk_provider()
    if provider is None:
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        kind = type(trace_api.get_tracer_provider())
        return {
            "version": sdk_version,
            "state": "disabled by OTEL_SDK_DISABLED" if disabled else "no SDK",
            "provider": f"{kind.__module__}.{kind.__qualname__}",
        }
    return {
        "version": sdk_version,
        "state": "set up by promptpath" if provider is bootstrap.own_provider() else "set up by the program",
        "provider": f"{type(provider).__module__}.{type(provider).__qualname__}",
        "sampler": provider.sampler.get_description(),
        "processors": [
            type(processor).__name__
            for processor in getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
        ],
        "resource": dict(provider.resource.attributes),
    }


def report() -> dict[str, Any]:
    """The state of the instrumentation of this process. Plain values, ready for JSON; no secrets; asks no network.

    Keys: `python`, `pid`, `sdk`, `exporters` (of a provider of ours), `shims` (name to state, version, reason),
    `skipped` (places to patch that are not there), `failures` (place to count), `spans` (`handed`, `waiting`,
    `dropped` by reason), `clock_drift_ns` (the wall clock against the anchored one), `environment`.
    """
    return {
        "python": sys.version.split()[0],
        "pid": os.getpid(),
        "sdk": _sdk(),
        "exporters": _exporters(),
        "shims": {name: _plain(asdict(shim)) for name, shim in registry.status().items()},
        "skipped": wrapping.skipped(),
        "failures": safety.failures(),
        "spans": {
            "handed": builder.handed,
            "waiting": builder.waiting,
            "dropped": exit_flush.dropped_by_reason(),
        },
        "clock_drift_ns": clock.drift_ns(),
        "environment": _environment(),
    }


def _plain(shim: dict[str, Any]) -> dict[str, Any]:
    return {**shim, "library": list(shim["library"])}
