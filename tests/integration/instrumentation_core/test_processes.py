"""Fork, spawn and every way in which a process may end: each span is exported once, by the process that made it."""

from __future__ import annotations

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

AUTO = "import promptpath.auto\nfrom promptpath.instrumentation import prompt, recorder, stage\n"


def by_name(receiver: Any) -> dict[str, Any]:
    spans = receiver.spans()
    assert len({span["id"] for span in spans}) == len(spans), f"exported twice: {spans}"
    assert len({span["name"] for span in spans}) == len(spans), f"exported twice: {spans}"
    return {span["name"]: span for span in spans}


def test_the_end_of_a_program_sends_what_is_left(programs: Any, receiver: Any) -> None:
    assert programs.python(AUTO + "with prompt('chat'), stage('prefill'): pass") == (0, "", "")
    spans = by_name(receiver)
    assert set(spans) == {"chat", "prefill"}
    assert spans["prefill"]["parent"] == spans["chat"]["id"]
    resource = spans["chat"]["resource"]
    assert resource["service.name"] == "program"
    assert {"host.id", "host.name", "process.pid", "service.instance.id"} <= set(resource)


def test_the_end_of_a_short_program_sends_by_grpc_too(programs: Any) -> None:
    """Its first export comes when the interpreter ends, where not everything can be imported any more."""
    arrived: list[str] = []

    def export(body: bytes, _: Any) -> bytes:
        request = ExportTraceServiceRequest.FromString(body)
        arrived.extend(s.name for r in request.resource_spans for scope in r.scope_spans for s in scope.spans)
        return b""

    server = grpc.server(ThreadPoolExecutor(2))
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    methods = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        code, out, err = programs.python(
            AUTO + "with prompt('chat'), stage('prefill'): pass",
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
        )
    finally:
        server.stop(None)
    assert (code, out, err) == (0, "", "")
    assert sorted(arrived) == ["chat", "prefill"]


def test_spans_go_out_within_a_second_while_the_program_runs(programs: Any, receiver: Any) -> None:
    program = programs.write("runs.py", AUTO + "with prompt('chat'): pass\nprint('ended', flush=True)\ninput()")
    process = programs.start(sys.executable, str(program))
    assert process.stdout.readline() == "ended\n"
    began = time.monotonic()
    receiver.wait_for("chat")
    assert time.monotonic() - began < 5  # a delay of 500 ms, on a busy machine
    process.kill()


def test_fork(programs: Any, receiver: Any) -> None:
    # open-telemetry/opentelemetry-python#3307, #1497: a fork loses spans or exports them twice
    code, _, err = programs.python(
        AUTO
        + """
        import os
        with stage("queue", name="warm up"):  # a connection, a thread and a batch from before the fork
            pass
        recorder.force_flush(5000)
        with stage("queue", name="waiting in the queue at the fork"):
            pass
        with prompt("chat"):
            children = []
            for number in range(2):
                child = os.fork()
                if child == 0:
                    with stage("prefill", name=f"child {number}"):
                        pass
                    break
                children.append(child)
            else:
                with stage("prefill", name="parent"):
                    pass
        # Every process leaves the block, and ends, in the ordinary way.
        for child in children if child else ():
            assert os.waitpid(child, 0)[1] == 0
        """.replace("\n        ", "\n"),
        PYTHONWARNINGS="ignore::DeprecationWarning",  # newer releases warn of forks with threads
    )
    assert (code, err) == (0, "")
    spans = by_name(receiver)
    assert set(spans) == {"warm up", "waiting in the queue at the fork", "chat", "child 0", "child 1", "parent"}
    for name in ("child 0", "child 1", "parent"):
        assert spans[name]["parent"] == spans["chat"]["id"]
        assert spans[name]["trace"] == spans["chat"]["trace"]
    processes = {
        name: (spans[name]["resource"]["process.pid"], spans[name]["resource"]["service.instance.id"])
        for name in ("parent", "child 0", "child 1")
    }
    assert len({pid for pid, _ in processes.values()}) == 3
    assert len({instance for _, instance in processes.values()}) == 3
    assert spans["chat"]["resource"]["process.pid"] == processes["parent"][0]
    assert len({span["resource"]["host.id"] for span in spans.values()}) == 1


def test_multiprocessing_in_each_way(programs: Any, receiver: Any) -> None:
    program = """
    import multiprocessing
    import promptpath.auto
    from promptpath.instrumentation import prompt, stage

    def work(name):
        with stage("prefill", name=name):
            pass

    if __name__ == "__main__":
        for way in ("fork", "spawn", "forkserver"):
            process = multiprocessing.get_context(way).Process(target=work, args=(way,))
            process.start()
            process.join()
            assert process.exitcode == 0
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(work, ["pool"])
            pool.close()
            pool.join()
        work("main")
    """
    code, _, err = programs.python(program)
    assert (code, err) == (0, "")
    spans = by_name(receiver)
    assert set(spans) == {"fork", "spawn", "forkserver", "pool", "main"}
    assert {span["resource"]["service.name"] for span in spans.values()} == {"program"}
    assert len({span["resource"]["process.pid"] for span in spans.values()}) == 5


def test_sigterm_kills_as_before_and_sends_what_is_left(programs: Any, receiver: Any) -> None:
    program = programs.write("waits.py", AUTO + "with prompt('chat'): pass\nprint('up', flush=True)\ninput()")
    process = programs.start(sys.executable, str(program), OTEL_BSP_SCHEDULE_DELAY="60000")
    assert process.stdout.readline() == "up\n"
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM
    assert receiver.names() == ["chat"]


def test_sigterm_while_the_program_is_ending(programs: Any, receiver: Any) -> None:
    # The signal comes while the main thread hands spans over at its exit, and holds the locks of that.
    code, _, err = programs.python(
        AUTO
        + """
import os, signal
from promptpath.instrumentation import builder
hand_over = builder.hand_over
def and_signal(span):
    if span.name == "chat":
        os.kill(os.getpid(), signal.SIGTERM)
    hand_over(span)
builder.hand_over = and_signal
builder.builder._asleep = False  # leave it to the exit
for _ in range(3):
    with prompt("chat" if _ == 1 else "embeddings"):
        pass
"""
    )
    assert (code, err) == (-signal.SIGTERM, "")
    assert receiver.names() == ["chat", "embeddings", "embeddings"]


def test_a_handler_of_the_programs_own_is_left_alone(programs: Any, receiver: Any) -> None:
    program = programs.write(
        "handles.py",
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        + AUTO
        + "with prompt('chat'): pass\nprint('up', flush=True)\ninput()",
    )
    process = programs.start(sys.executable, str(program))
    assert process.stdout.readline() == "up\n"
    process.terminate()
    assert process.wait(20) == 7
    assert receiver.names() == ["chat"]


def test_without_a_collector_nothing_is_harmed_and_one_line_is_said(lonely: Any) -> None:
    began = time.monotonic()
    code, out, err = lonely.python(
        AUTO
        + """
import time
for number in range(3):
    with prompt("chat") as p:
        p.mark()
    recorder.force_flush(700)
began = time.monotonic()
for number in range(1000):
    with prompt("chat"):
        pass
print(time.monotonic() - began < 2)
"""
    )
    assert (code, out) == (0, "True\n")
    assert err.count("\n") == 1
    assert err.startswith("promptpath: spans cannot be sent to http://127.0.0.1:")
    assert time.monotonic() - began < 20


def test_a_program_that_does_nothing_ends_at_once_and_silently(lonely: Any) -> None:
    code, out, err = lonely.python(
        "import threading, sys\nimport promptpath.auto\n"
        "print(threading.active_count(), 'requests' in sys.modules, 'grpc' in sys.modules)"
    )
    assert (code, out, err) == (0, "1 False False\n", "")


PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
def set_up():
    provider = TracerProvider(resource=Resource.create({"service.name": "theirs"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
"""


def test_a_provider_set_before_is_used(programs: Any, receiver: Any) -> None:
    code, _, err = programs.python(PROVIDER + "set_up()\n" + AUTO + "with prompt('chat'): pass")
    assert (code, err) == (0, "")
    assert [(span["name"], span["resource"]["service.name"]) for span in receiver.spans()] == [("chat", "theirs")]


def test_a_provider_set_after_takes_over_and_its_own_spans_go_out(programs: Any, receiver: Any) -> None:
    code, _, err = programs.python(
        PROVIDER
        + AUTO
        + """
with prompt("early"):
    pass
set_up()
with trace.get_tracer("program").start_as_current_span("their own"), prompt("late"):
    pass
"""
    )
    assert (code, err) == (0, "")
    spans = by_name(receiver)
    assert {name: span["resource"]["service.name"] for name, span in spans.items()} == {
        "early": "program",
        "their own": "theirs",
        "late": "theirs",
    }
    assert spans["late"]["parent"] == spans["their own"]["id"]


def test_a_forked_worker_flushes_the_programs_own_provider(programs: Any, receiver: Any) -> None:
    code, _, err = programs.python(
        PROVIDER
        + """
import multiprocessing
def work():
    with stage("prefill", name="worker"):
        pass
set_up()
"""
        + AUTO
        + """
process = multiprocessing.get_context("fork").Process(target=work)
process.start()
process.join()
"""
    )
    assert (code, err) == (0, "")
    assert [(span["name"], span["resource"]["service.name"]) for span in receiver.spans()] == [("worker", "theirs")]


def test_a_disabled_sdk_sends_nothing(programs: Any, receiver: Any) -> None:
    assert programs.python(AUTO + "with prompt('chat'): pass", OTEL_SDK_DISABLED="true") == (0, "", "")
    assert programs.python(AUTO + "with prompt('chat'): pass", OTEL_TRACES_EXPORTER="none") == (0, "", "")
    assert receiver.spans() == []


def test_the_manual_api_without_auto_leaves_the_program_alone(programs: Any, receiver: Any) -> None:
    code, out, err = programs.python(
        "from promptpath.instrumentation import prompt\nimport threading\n"
        "with prompt('chat') as p:\n    p.mark()\nprint(p.headers(), threading.active_count())"
    )
    assert (code, out, err) == (0, "{} 1\n", "")
    assert receiver.spans() == []


METRICS = """
from opentelemetry import metrics
metrics.get_meter("program").create_counter("before").add(1)
early = metrics.get_meter("program").create_counter("proxied")
from promptpath.instrumentation import meters
meters.ensure()
early.add(1)
metrics.get_meter("program").create_counter("after").add(1)
"""


def test_metrics_go_out_where_a_shim_has_some(programs: Any, receiver: Any) -> None:
    assert programs.python("import promptpath.auto\n" + METRICS) == (0, "", "")
    assert receiver.metrics == {"proxied", "after"}


def test_metrics_without_a_collector(lonely: Any) -> None:
    code, _, err = lonely.python("import promptpath.auto\n" + METRICS, OTEL_METRIC_EXPORT_INTERVAL="100")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("promptpath: metrics cannot be sent to http://127.0.0.1:")
    assert lonely.python("import promptpath.auto\n" + METRICS, OTEL_METRICS_EXPORTER="none") == (0, "", "")


def test_a_meter_provider_of_the_program_is_used_also_when_set_after(programs: Any, receiver: Any) -> None:
    own = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
def names():
    data = reader.get_metrics_data()
    return [m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
metrics.set_meter_provider(MeterProvider([reader]))
"""
    code, out, err = programs.python("import promptpath.auto\n" + own + METRICS + "print(names())")
    assert (code, out, err) == (0, "['before', 'proxied', 'after']\n", "")
    code, out, err = programs.python(
        "import promptpath.auto\n"
        + METRICS
        + own
        + "metrics.get_meter('x').create_counter('late').add(1)\nprint(names())"
    )
    assert (code, out, err) == (0, "['late']\n", "")


DOCTOR = """
import json
from promptpath.instrumentation import doctor
print(json.dumps(doctor.report()))
"""


def test_the_doctors_report(programs: Any, receiver: Any) -> None:
    code, out, err = programs.python(
        AUTO + "with prompt('chat'): pass\nrecorder.force_flush(5000)" + DOCTOR,
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url.replace("://", "://user:secret@"),
        OTEL_EXPORTER_OTLP_HEADERS="authorization=secret",
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="promptpath_openai",
    )
    assert (code, err) == (0, "")
    assert "secret" not in out
    report = json.loads(out)
    assert report["sdk"]["state"] == "set up by promptpath"
    assert report["sdk"]["resource"]["service.name"] == "program"
    assert report["exporters"] == [
        {"name": "otlp_proto_http", "endpoint": f"{receiver.url}/v1/traces", "sent": 1, "lost": 0, "last_error": ""}
    ]
    assert report["spans"] == {"handed": 1, "waiting": 0, "dropped": {}}
    assert report["environment"]["OTEL_EXPORTER_OTLP_HEADERS"] == "(set)"
    assert report["shims"]["promptpath_openai"]["state"] == "disabled"
    assert report["failures"] == {}
    assert abs(report["clock_drift_ns"]) < 1_000_000_000


def test_the_doctors_report_where_nothing_is_set_up(programs: Any, receiver: Any) -> None:
    code, out, err = programs.python(
        "from promptpath.instrumentation import prompt\nwith prompt('chat'): pass" + DOCTOR
    )
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["sdk"]["state"] == "no SDK"
    assert report["exporters"] == []
    assert report["spans"]["dropped"] == {"no_provider": 1}
    code, out, err = programs.python(PROVIDER + "set_up()\n" + AUTO + "with prompt('chat'): pass" + DOCTOR)
    assert json.loads(out)["sdk"]["state"] == "set up by the program"
