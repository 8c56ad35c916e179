"""Spans of ours against what the SDK would have made of them: ids, flags, nesting, sampling, suppression, loss."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from promptpath.instrumentation import clock, exit_flush, recorder, safety
from promptpath.instrumentation.builder import Builder, builder

SCOPE = "promptpath.test"


def start(name: str = "s", **options: Any) -> recorder.LiveSpan:
    return recorder.start(name, scope=SCOPE, **options)


def whole(**changes: Any) -> dict[str, Any]:
    return {
        "name": "s",
        "kind": "INTERNAL",
        "trace_id": 0xA1,
        "span_id": 1,
        "flags": 1,
        "trace_state": {},
        "parent": None,
        "attributes": {},
        "events": [],
        "links": [],
        "status": ("UNSET", None),
        "scope": SCOPE,
        "resource": {"service.name": "test"},
        "dropped": (0, 0, 0),
        **changes,
    }


def from_header(traceparent: str, tracestate: str = "") -> Context:
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    return propagate.extract(carrier, Context())


def header_under(span: recorder.LiveSpan) -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, span.context)
    return carrier


class TestWhole:
    def test_a_request_with_a_stage_and_tokens(self, sdk: Any) -> None:
        began = clock.mono()
        span = start(
            "POST /v1/chat/completions",
            stage="server",
            kind=SpanKind.SERVER,
            attributes={"gen_ai.request.model": "m"},
            start_mono_ns=began,
        )
        with recorder.use(span):
            recorder.record("prefill", scope=SCOPE, stage="prefill", start_mono_ns=began + 5, end_mono_ns=began + 9)
        span.deliveries_mono_ns = [began + 2_000_400, began + 2_000_900, began + 7_000_000]
        span.delivery_counts = [1, 4, 1]
        span.set("gen_ai.usage.output_tokens", 6)
        span.end(end_mono_ns=began + 8_000_000)

        prefill, request = sdk.spans()
        assert (prefill.start_time, prefill.end_time) == (clock.wall_ns(began + 5), clock.wall_ns(began + 9))
        assert (request.start_time, request.end_time) == (clock.wall_ns(began), clock.wall_ns(began + 8_000_000))
        assert [sdk.as_dict(span) for span in (prefill, request)] == [
            whole(name="prefill", span_id=2, parent=1, attributes={"promptpath.stage": "prefill"}),
            whole(
                name="POST /v1/chat/completions",
                kind="SERVER",
                attributes={
                    "gen_ai.request.model": "m",
                    "gen_ai.usage.output_tokens": 6,
                    "promptpath.stage": "server",
                    "promptpath.token.gaps_us": (2000, 1, 4999),
                    "promptpath.token.counts": (1, 4, 1),
                },
            ),
        ]

    def test_counts_are_left_out_when_all_are_one(self, sdk: Any) -> None:
        span = start(stage="decode")
        span.mark()
        span.mark(1)
        span.mark(0)
        span.end()
        (found,) = sdk.dicts()
        assert len(found["attributes"].pop("promptpath.token.gaps_us")) == 2
        assert found == whole(attributes={"promptpath.stage": "decode"})

    def test_marks_count(self, sdk: Any) -> None:
        span = start()
        for tokens in (1, 1, 3, 0, 1):
            span.mark(tokens)
        assert span.delivery_counts == [1, 1, 3, 1]
        assert len(span.deliveries_mono_ns) == 4

    def test_failure_events_links_and_names_as_any_instrumentation_sets_them(self, sdk: Any) -> None:
        other = SpanContext(0xFF, 0xEE, True, TraceFlags(1))
        span = start(links=[Link(other)])
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            now = trace.get_current_span()
            now.set_attribute("user.id", "u")
            now.set_attributes({"a": [1, 2], "b": 1.5})
            now.add_event("e", {"k": "v"})
            now.add_link(SpanContext(0xFF, 0xDD, True, TraceFlags(1)))
            now.record_exception(ValueError("what the prompt said"))
            now.update_name("renamed")
        span.fail("503", "unavailable")
        span.end()
        assert sdk.dicts() == [
            whole(
                name="renamed",
                attributes={"user.id": "u", "a": (1, 2), "b": 1.5, "error.type": "503"},
                events=[("e", {"k": "v"}), ("exception", {"exception.type": "ValueError"})],
                links=[0xEE, 0xDD],
                status=("ERROR", "unavailable"),
            )
        ]

    def test_status_as_opentelemetry_sets_it(self, sdk: Any) -> None:
        for status in (Status(StatusCode.OK), StatusCode.OK):
            span = start()
            span.set_status(status)
            span.end()
        assert [found["status"] for found in sdk.dicts()] == [("OK", None), ("OK", None)]

    def test_nothing_changes_after_the_end(self, sdk: Any) -> None:
        span = start()
        span.mark()
        span.end()
        span.set("late", 1)
        span.update({"late": 1})
        span.mark()
        span.fail("late")
        span.add_event("late")
        span.add_link(SpanContext(1, 1, True))
        span.update_name("late")
        span.set_status(StatusCode.ERROR)
        span.end()
        (found,) = sdk.dicts()
        assert len(found["attributes"].pop("promptpath.token.gaps_us")) == 1
        assert found == whole()

    def test_end_takes_wall_clock_too(self, sdk: Any) -> None:
        span = start(start_mono_ns=clock.mono() - 1000)
        span.end(clock.wall_ns(span.start_mono_ns + 500))
        backwards = start()
        backwards.end(end_mono_ns=backwards.start_mono_ns - 10)
        first, second = sdk.spans()
        assert first.end_time - first.start_time == 500
        assert second.end_time == second.start_time

    def test_span_limits_of_the_program_hold(self, make_sdk: Callable[..., Any]) -> None:
        sdk = make_sdk(span_limits=SpanLimits(max_span_attributes=2, max_span_attribute_length=3))
        span = start(attributes={"a": "12345", "b": 1, "c": 2})
        span.end()
        assert sdk.dicts() == [whole(attributes={"b": 1, "c": 2}, dropped=(1, 0, 0))]


class TestNesting:
    def test_foreign_spans_nest_under_ours_and_ours_under_theirs(self, sdk: Any) -> None:
        tracer = trace.get_tracer("foreign")
        with tracer.start_as_current_span("outer"), recorder.use(start("middle")) as middle:
            with tracer.start_as_current_span("inner"):
                recorder.record("leaf", scope=SCOPE, stage=None, start_mono_ns=1, end_mono_ns=2)
            middle.end()
        parents = {found["name"]: found["parent"] for found in sdk.dicts()}
        assert parents == {"outer": None, "middle": 1, "inner": 2, "leaf": 3}

    def test_a_parent_may_be_given_as_span_or_context(self, sdk: Any) -> None:
        root = start("root")
        with recorder.use(start("elsewhere")):
            by_span = start("by span", parent=root)
            by_context = start("by context", parent=by_span.context)
            root_again = start("new trace", parent=Context())
        for span in (by_span, by_context, root_again):
            span.end()
        assert [(found["name"], found["parent"], found["trace_id"]) for found in sdk.dicts()] == [
            ("by span", 1, 0xA1),
            ("by context", 3, 0xA1),
            ("new trace", None, 0xA3),
        ]

    def test_an_ended_parent_still_is_one(self, sdk: Any) -> None:
        root = start("root")
        root.end()
        recorder.record("late child", scope=SCOPE, stage=None, start_mono_ns=1, end_mono_ns=2, parent=root)
        assert [(found["name"], found["parent"]) for found in sdk.dicts()] == [("root", None), ("late child", 1)]

    async def test_tasks_and_threads(self, sdk: Any) -> None:
        async def one(number: int) -> None:
            span = start(f"task {number}")
            with recorder.use(span):
                await asyncio.sleep(0)
                assert recorder.current() is span
                await asyncio.to_thread(
                    recorder.record, f"thread {number}", scope=SCOPE, stage=None, start_mono_ns=1, end_mono_ns=2
                )
            span.end()

        with recorder.use(start("root")) as root:
            await asyncio.gather(*(one(number) for number in range(5)))
        root.end()
        found = {span["name"]: span for span in sdk.dicts()}
        assert len(found) == 11
        for number in range(5):
            assert found[f"task {number}"]["parent"] == found["root"]["span_id"]
            assert found[f"thread {number}"]["parent"] == found[f"task {number}"]["span_id"]

    def test_detaching_elsewhere_is_quiet(self, sdk: Any, caplog: pytest.LogCaptureFixture) -> None:
        token = contextvars.copy_context().run(recorder.attach, start())
        recorder.detach(token)
        assert caplog.records == []


class TestEnclosing:
    def test_request_and_tokens_span(self, sdk: Any) -> None:
        assert recorder.request_span() is None
        assert recorder.tokens_span() is None
        with recorder.use(start(stage="gateway", kind=SpanKind.SERVER)) as gateway:
            with recorder.use(start("authenticate", stage="gateway")) as step:
                assert recorder.current() is step
                assert recorder.request_span() is gateway
                assert recorder.tokens_span() is gateway
            with recorder.use(start(stage="client", kind=SpanKind.CLIENT)) as client:
                assert recorder.request_span() is gateway
                assert recorder.tokens_span() is client
                with trace.get_tracer("foreign").start_as_current_span("between"):
                    assert recorder.current() is None
                    assert recorder.request_span() is gateway
                with recorder.use(start(stage="server", kind=SpanKind.SERVER)) as server:
                    assert recorder.request_span() is server
                    assert recorder.tokens_span() is server
            gateway.end()
            assert recorder.request_span() is None

    def test_a_request_may_be_internal_where_another_has_the_server_span(self, sdk: Any) -> None:
        with trace.get_tracer("foreign").start_as_current_span("POST", kind=SpanKind.SERVER):  # noqa: SIM117
            with recorder.use(start(stage="server")) as server:
                assert recorder.request_span() is server

    def test_context_given_to_another_thread_carries_it(self, sdk: Any) -> None:
        server = start(stage="server", kind=SpanKind.SERVER)
        found: list[object] = []

        def engine() -> None:
            token = context_api.attach(server.context)
            found.append(recorder.request_span())
            recorder.detach(token)
            found.append(recorder.request_span())

        thread = threading.Thread(target=engine)
        thread.start()
        thread.join()
        assert found == [server, None]


SAMPLED = "00-000000000000000000000000000000ff-00000000000000ee-01"
UNSAMPLED = "00-000000000000000000000000000000ff-00000000000000ee-00"
RANDOM_SAMPLED = "00-000000000000000000000000000000ff-00000000000000ee-03"
RANDOM_UNSAMPLED = "00-000000000000000000000000000000ff-00000000000000ee-02"


class Watching(Sampler):
    """Decides by the span's name and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):  # type: ignore[no-untyped-def]
        self.asked.append((name, dict(attributes or {})))
        decision = {"drop": Decision.DROP, "only": Decision.RECORD_ONLY}.get(name, Decision.RECORD_AND_SAMPLE)
        return SamplingResult(decision, {**(attributes or {}), "sampler": "watching"}, None)

    def get_description(self) -> str:
        return "Watching"


class TestSampling:
    @pytest.mark.parametrize("header", [UNSAMPLED, RANDOM_UNSAMPLED])
    def test_an_unsampled_parent_is_passed_on_as_it_came(self, sdk: Any, header: str) -> None:
        span = start(parent=from_header(header, "vendor=1"), stage="server")
        assert not span.recording
        assert header_under(span) == {"traceparent": header, "tracestate": "vendor=1"}
        with recorder.use(span):
            child = start("child")
            assert not child.recording
            assert header_under(child) == {"traceparent": header, "tracestate": "vendor=1"}
            assert recorder.request_span() is None
        for dead in (child, span):
            dead.mark()
            dead.set("a", 1)
            dead.fail("x")
            dead.end()
        assert sdk.dicts() == []
        assert span.deliveries_mono_ns == []

    @pytest.mark.parametrize(("header", "flags"), [(SAMPLED, "01"), (RANDOM_SAMPLED, "03")])
    def test_a_sampled_parent(self, sdk: Any, header: str, flags: str) -> None:
        span = start(parent=from_header(header, "vendor=1"))
        assert header_under(span) == {
            "traceparent": f"00-000000000000000000000000000000ff-0000000000000001-{flags}",
            "tracestate": "vendor=1",
        }
        span.end()
        assert sdk.dicts() == [
            whole(trace_id=0xFF, parent=0xEE, flags=int(flags, 16), trace_state={"vendor": "1"}),
        ]

    @pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF)])
    def test_an_unsampled_root_says_so_downstream(self, make_sdk: Callable[..., Any], sampler: Sampler) -> None:
        sdk = make_sdk(sampler=sampler)
        span = start()
        assert not span.recording
        assert header_under(span) == {"traceparent": "00-000000000000000000000000000000a1-0000000000000001-00"}
        with recorder.use(span):
            assert header_under(start("child")) == header_under(span)
        span.end()
        assert sdk.dicts() == []

    def test_always_on_samples_under_an_unsampled_parent(self, make_sdk: Callable[..., Any]) -> None:
        sdk = make_sdk(sampler=ALWAYS_ON)
        span = start(parent=from_header(UNSAMPLED))
        child = start(parent=span)
        child.end()
        span.end()
        assert [(found["flags"], found["parent"]) for found in sdk.dicts()] == [(1, 1), (1, 0xEE)]

    def test_a_ratio_decides_by_trace_id_as_the_sdk_does(self, make_sdk: Callable[..., Any]) -> None:
        sdk = make_sdk(sampler=ParentBased(TraceIdRatioBased(0.5)), id_generator=None)
        tracer = trace.get_tracer("foreign")
        agree = []
        for _ in range(50):
            with recorder.use(start("root")) as root, tracer.start_as_current_span("child") as child:
                agree.append(root.recording == child.is_recording())
            root.end()
        assert all(agree)
        roots = [span for span in sdk.dicts() if span["name"] == "root"]
        assert 5 < len(roots) < 45

    def test_the_sampler_sees_stage_and_attributes_and_may_change_them(self, make_sdk: Callable[..., Any]) -> None:
        sampler = Watching()
        sdk = make_sdk(sampler=sampler)
        start("keep", stage="queue", attributes={"a": 1}).end()
        only = start("only")
        assert only.recording
        only.end()
        assert not start("drop").recording
        assert sampler.asked == [("keep", {"a": 1, "promptpath.stage": "queue"}), ("only", {}), ("drop", {})]
        # RECORD_ONLY reaches processors, and none that exports takes it.
        assert sdk.dicts() == [
            whole(name="keep", attributes={"a": 1, "promptpath.stage": "queue", "sampler": "watching"})
        ]

    def test_a_child_dropped_under_a_sampled_parent_is_unsampled_downstream(self, make_sdk: Callable[..., Any]) -> None:
        make_sdk(sampler=Watching())
        dropped = start("drop", parent=from_header(SAMPLED))
        assert header_under(dropped) == {"traceparent": UNSAMPLED}

    def test_a_failing_sampler_harms_nobody(self, make_sdk: Callable[..., Any]) -> None:
        class Broken(Watching):
            def should_sample(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
                raise RuntimeError("broken")

        make_sdk(sampler=Broken())
        before = safety.failures().get("recorder.start", 0)
        span = start(parent=from_header(SAMPLED))
        assert not span.recording
        assert header_under(span)["traceparent"] == SAMPLED
        span.end()
        assert safety.failures()["recorder.start"] == before + 1


class TestSuppression:
    @pytest.mark.parametrize("key", [_SUPPRESS_INSTRUMENTATION_KEY, "suppress_instrumentation"], ids=["key", "name"])
    def test_suppressed_spans_record_nothing_and_pass_the_context_on(self, sdk: Any, key: str) -> None:
        context = context_api.set_value(key, True, from_header(SAMPLED))
        dropped = recorder.dropped()
        span = start(parent=context)
        assert not span.recording
        assert header_under(span) == {"traceparent": SAMPLED}
        token = context_api.attach(context)
        with recorder.use(start()) as here:
            assert not here.recording
            assert not start("child").recording
            assert not start("child", parent=here).recording
            assert header_under(here) == {"traceparent": SAMPLED}
        recorder.detach(token)
        assert sdk.dicts() == []
        assert recorder.dropped() == dropped


class TestProviders:
    def test_without_an_sdk_spans_are_counted_and_the_context_passes(self, no_sdk: None) -> None:
        dropped = recorder.dropped()
        span = start(parent=from_header(SAMPLED, "vendor=1"))
        assert not span.recording
        assert header_under(span) == {"traceparent": SAMPLED, "tracestate": "vendor=1"}
        root = start()
        assert header_under(root) == {}
        assert not start(parent=root).recording
        assert recorder.force_flush(1000)
        assert recorder.dropped() - dropped == 2

    def test_a_provider_set_later_is_used_from_then_on(self, no_sdk: None, make_sdk: Callable[..., Any]) -> None:
        start("too early").end()
        first = make_sdk()
        running = start("in first")
        second = make_sdk(resource=Resource({"service.name": "second"}))
        start("in second").end()
        running.end()
        assert second.dicts() == [whole(name="in second", resource={"service.name": "second"})]
        assert first.dicts() == [whole(name="in first")]

    def test_a_provider_inside_a_wrapper(self, make_sdk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        sdk = make_sdk()

        class Wrapper(trace.TracerProvider):
            provider = sdk.provider

            def get_tracer(self, *arguments: Any, **options: Any) -> trace.Tracer:
                return sdk.provider.get_tracer(*arguments, **options)

        monkeypatch.setattr(trace, "_TRACER_PROVIDER", Wrapper())
        start().end()
        assert sdk.dicts() == [whole()]

    def test_a_disabled_sdk(self, make_sdk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        sdk = make_sdk()
        span = start(parent=from_header(SAMPLED))
        assert not span.recording
        assert header_under(span) == {"traceparent": SAMPLED}
        assert sdk.dicts() == []


class Flushed(SpanProcessor):
    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # older releases return None
        return True


class TestProcessors:
    def test_a_processor_that_acts_on_the_start_is_told(self, sdk: Any) -> None:
        class Baggage(Flushed):
            seen: ClassVar[list[str]] = []

            def on_start(self, span: Any, parent_context: Context | None = None) -> None:
                span.set_attributes(dict(baggage.get_all(parent_context)))
                self.seen.append(f"start {span.name}")

            def on_end(self, span: ReadableSpan) -> None:
                self.seen.append(f"end {span.name}")

        sdk.provider._active_span_processor._span_processors = (
            Baggage(),
            *sdk.provider._active_span_processor._span_processors,
        )
        parent = start("parent", parent=baggage.set_baggage("tenant", "t", Context()))
        start("child", parent=parent).end()
        parent.end()
        assert [(found["name"], found["attributes"]) for found in sdk.dicts()] == [
            ("child", {"tenant": "t"}),
            ("parent", {"tenant": "t"}),
        ]
        assert Baggage.seen == ["start child", "end child", "start parent", "end parent"]

    def test_one_that_fails_at_the_start_loses_nothing(self, sdk: Any) -> None:
        class Broken(Flushed):
            def on_start(self, span: Any, parent_context: Context | None = None) -> None:
                raise RuntimeError

        sdk.provider.add_span_processor(Broken())
        start().end()
        assert sdk.dicts() == [whole()]


class TestLoss:
    def test_a_queue_of_three_and_five_pushed_drops_two(self, sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        # open-telemetry/opentelemetry-python#3152: dropped spans are counted nowhere
        small = Builder(3)
        monkeypatch.setattr(small, "_asleep", False)  # no thread: nothing is taken meanwhile
        monkeypatch.setattr("promptpath.instrumentation.live._push", small.push)
        for number in range(5):
            start(str(number)).end()
        assert small.dropped() == {"queue_full": 2}
        assert small.drain() == 3
        assert [found["name"] for found in sdk.dicts()] == ["0", "1", "2"]

    def test_what_is_lost_is_in_the_sum(self, sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        before = recorder.dropped()
        monkeypatch.setattr(builder, "limit", 0)
        start().end()
        assert recorder.dropped() == before + 1
        assert exit_flush.dropped_by_reason()["queue_full"] >= 1

    def test_threads_that_start_spans_at_once_lose_and_double_none(self, make_sdk: Callable[..., Any]) -> None:
        sdk = make_sdk(id_generator=None)
        before = builder.handed, recorder.dropped()
        gate = threading.Barrier(8)

        def work() -> None:
            gate.wait()
            for _ in range(100):
                with recorder.use(start("root")) as root:
                    recorder.record("leaf", scope=SCOPE, stage=None, start_mono_ns=1, end_mono_ns=2)
                    root.mark()
                root.end()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = sdk.dicts()
        ids = {span["span_id"]: span for span in found}
        assert (len(found), len(ids)) == (1600, 1600)
        assert all(ids[span["parent"]]["name"] == "root" for span in found if span["name"] == "leaf")
        assert (builder.handed - before[0], recorder.dropped() - before[1]) == (1600, 0)

    def test_a_failing_processor_loses_its_span_only(self, sdk: Any) -> None:
        class Broken(type(sdk.provider._active_span_processor._span_processors[0])):  # type: ignore[misc]
            def on_end(self, span: ReadableSpan) -> None:
                if span.name == "bad":
                    raise RuntimeError("broken")

        sdk.provider.add_span_processor(Broken(sdk.exporter))
        before = builder.not_built.value
        for name in ("good", "bad", "good too"):
            start(name).end()
        assert [found["name"] for found in sdk.dicts()] == ["good", "bad", "good too"]
        assert builder.not_built.value == before + 1

    def test_a_value_no_exporter_could_take_does_not_lose_the_span(self, sdk: Any) -> None:
        span = start()
        span.set("bad", object())  # type: ignore[arg-type]
        span.set("good", 1)
        span.end()
        (found,) = sdk.dicts()
        assert found["attributes"]["good"] == 1

    def test_the_thread_takes_spans_without_a_flush(self, sdk: Any) -> None:
        for round_ in range(2):
            start(str(round_)).end()
            deadline = clock.mono() + 5_000_000_000
            while not sdk.exporter.get_finished_spans() and clock.mono() < deadline:
                threading.Event().wait(0.01)
            assert [span.name for span in sdk.exporter.get_finished_spans()] == [str(round_)]
            sdk.exporter.clear()
            while not builder._asleep and clock.mono() < deadline:  # the next is to find it asleep
                threading.Event().wait(0.01)
        done = threading.Event()
        assert builder.run_errand(done.set)
        assert done.wait(5)


def test_the_id_of_a_prompt_comes_by_baggage(sdk: Any) -> None:
    context = baggage.set_baggage("promptpath.prompt.id", "00ab", from_header(SAMPLED))
    start("request", stage="server", parent=context).end()
    start("stage", stage="queue", parent=context).end()
    assert [found["attributes"] for found in sdk.dicts()] == [
        {"promptpath.prompt.id": "00ab", "promptpath.stage": "server"},
        {"promptpath.stage": "queue"},
    ]
