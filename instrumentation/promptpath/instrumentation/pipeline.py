"""What of the program's OpenTelemetry SDK a span of ours needs: sampler, ids, resource, span processors.

The provider is looked up whenever a span starts, so one that the program sets later is used from then on. An `SDK`
tracer is the one place that has all of it, in every release since 1.30. Without an SDK spans record nothing and pass
the context on.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from opentelemetry import trace as trace_api
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, StaticSampler
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import AttributeValue


def _package_version() -> str:
    try:
        return version("promptpath")
    except PackageNotFoundError:
        return ""


def _always(sampler: Any) -> Decision | None:
    """What a sampler always decides; None if it is not known to."""
    if type(sampler).should_sample is not StaticSampler.should_sample:
        return None
    decision: Decision | None = getattr(sampler, "_decision", None)
    return decision


def _by_parent(sampler: Any) -> tuple[Decision | None, ...]:
    """What a sampler always decides for a root, and for children of local and remote parents, sampled and not."""
    if type(sampler).should_sample is not ParentBased.should_sample:
        return (_always(sampler),) * 5
    delegates = (
        "_root",
        "_local_parent_sampled",
        "_remote_parent_sampled",
        "_local_parent_not_sampled",
        "_remote_parent_not_sampled",
    )
    return tuple(_always(getattr(sampler, name, None)) for name in delegates)


def _yes() -> bool:
    return True


class Pipeline:
    """One tracer of the SDK and what is known about its sampler, per provider and scope.

    Attributes:
        samples_roots, samples_local, samples_remote: True if the sampler is known to sample every root, every child of
            a sampled local parent, of a sampled remote parent; then it is not asked.
        drops_local, drops_remote: the same for dropping every child of an unsampled parent.
        is_enabled: asks whether the SDK's configuration has this scope switched on.
    """

    __slots__ = (
        "drops_local",
        "drops_remote",
        "is_enabled",
        "new_span_id",
        "new_trace_id",
        "root_flags",
        "sampler",
        "samples_local",
        "samples_remote",
        "samples_roots",
        "tracer",
    )

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.sampler: Sampler = tracer.sampler
        self.is_enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", _yes)
        self.new_span_id = tracer.id_generator.generate_span_id
        self.new_trace_id = tracer.id_generator.generate_trace_id
        is_random = getattr(tracer.id_generator, "is_trace_id_random", None)
        self.root_flags = 2 if is_random is not None and is_random() else 0
        root, local, remote, local_not, remote_not = _by_parent(self.sampler)
        self.samples_roots = root is Decision.RECORD_AND_SAMPLE
        self.samples_local = local is Decision.RECORD_AND_SAMPLE
        self.samples_remote = remote is Decision.RECORD_AND_SAMPLE
        self.drops_local = local_not is Decision.DROP
        self.drops_remote = remote_not is Decision.DROP

    def ask_sampler(
        self,
        context: Context,
        trace_id: int,
        name: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        links: tuple[Link, ...],
    ) -> tuple[Decision, dict[str, AttributeValue], TraceState | None]:
        """The sampler's decision, attributes and trace state for a span that is about to start."""
        result = self.sampler.should_sample(context, trace_id, name, kind, attributes, links)
        changed: Any = result.attributes
        return result.decision, dict(changed) if changed else {}, result.trace_state


_provider: object = None
_sdk: TracerProvider | None = None
_pipelines: Final[dict[str, Pipeline | None]] = {}
_version: str | None = None
#: Called with every SDK provider that is seen for the first time.
on_new_provider: Final[list[Any]] = []


def sdk_provider() -> TracerProvider | None:
    """The SDK provider that the program has set now, if it has one."""
    provider: Any = trace_api.get_tracer_provider()
    if provider is _provider:
        return _sdk
    return _look_at(provider)


def _look_at(provider: Any) -> TracerProvider | None:
    global _provider, _sdk
    # Some set a wrapper that has the SDK's provider inside.
    inner = provider if isinstance(provider, TracerProvider) else getattr(provider, "provider", None)
    sdk = inner if isinstance(inner, TracerProvider) else None
    _pipelines.clear()
    _sdk = sdk
    # A wrapper may get its SDK later: look again each time until it has.
    _provider = provider if sdk is not None else None
    if sdk is not None:
        for tell in on_new_provider:
            tell(sdk)
    return sdk


def pipeline(scope: str) -> Pipeline | None:
    """The pipeline for spans of a scope, or None where there is no SDK, or it is disabled (`OTEL_SDK_DISABLED`)."""
    if trace_api.get_tracer_provider() is not _provider and sdk_provider() is None:
        return None
    try:
        found = _pipelines[scope]
    except KeyError:
        found = _pipelines[scope] = _make(scope)
    return found if found is not None and found.is_enabled() else None


def _make(scope: str) -> Pipeline | None:
    global _version
    if _sdk is None:
        return None
    if _version is None:
        _version = _package_version()
    tracer = _sdk.get_tracer(scope, _version)
    return Pipeline(tracer) if isinstance(tracer, Tracer) else None


def forget() -> None:
    """Forget the provider; the next span looks for it anew (after a fork its resource may be another)."""
    global _provider, _sdk
    _provider = None
    _sdk = None
    _pipelines.clear()
