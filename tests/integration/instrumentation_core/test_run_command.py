"""`promptpath run` in real processes: scripts, modules, console scripts, their children, and other `sitecustomize`s."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RUN = "import sys\nfrom promptpath.instrumentation.run import main\nsys.exit(main(sys.argv[1:]))"
SPAN = "from promptpath.instrumentation import prompt\nwith prompt('chat'): pass\n"


def run(programs: Any, *arguments: str, **variables: str) -> tuple[int, str, str]:
    # -I: this process itself takes nothing from the folder that the command is to see.
    result: tuple[int, str, str] = programs.run(sys.executable, "-I", "-c", RUN, *arguments, **variables)
    return result


def services(receiver: Any) -> list[tuple[str, str]]:
    return [(span["name"], span["resource"]["service.name"]) for span in receiver.spans()]


def test_a_script_and_a_module(programs: Any, receiver: Any) -> None:
    programs.write("app.py", SPAN + "import sys\nprint(sys.argv)\nsys.exit(3)")
    assert run(programs, "--", sys.executable, "app.py", "--x") == (3, "['app.py', '--x']\n", "")
    assert run(programs, sys.executable, "-m", "app")[0] == 3
    assert services(receiver) == [("chat", "app")] * 2


def test_service_and_role(programs: Any, receiver: Any) -> None:
    programs.write("app.py", SPAN + "import os\nprint(os.environ['PROMPTPATH_ROLE'])")
    assert run(programs, "--service", "mine", "--role", "router", "--", sys.executable, "app.py")[1] == "router\n"
    assert services(receiver) == [("chat", "mine")]


def test_a_console_script_found_on_the_path(programs: Any, receiver: Any, tmp_path: Path) -> None:
    script = programs.write("bin/my-server", f"#!{sys.executable}\n{SPAN}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    assert run(programs, "--", "my-server", PATH=path) == (0, "", "")
    assert services(receiver) == [("chat", "my-server")]


def test_processes_that_the_program_starts_are_instrumented_too(programs: Any, receiver: Any) -> None:
    programs.write("worker.py", SPAN)
    programs.write(
        "main.py",
        """
        import multiprocessing, subprocess, sys

        def work():
            from promptpath.instrumentation import stage
            with stage("prefill"):
                pass

        if __name__ == "__main__":
            subprocess.run([sys.executable, "worker.py"], check=True)
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
        """,
    )
    assert run(programs, "--", sys.executable, "main.py") == (0, "", "")
    assert services(receiver) == [("chat", "worker"), ("prefill", "main")]


def test_another_sitecustomize_runs_first_and_as_before(programs: Any, receiver: Any) -> None:
    programs.write("sitecustomize.py", "import sys\nprint('theirs', 'promptpath.auto' in sys.modules)\nvalue = 5")
    programs.write("app.py", "import sitecustomize\nprint(sitecustomize.value)\n" + SPAN)
    assert run(programs, "--", sys.executable, "app.py") == (0, "theirs False\n5\n", "")
    assert services(receiver) == [("chat", "app")]


def test_another_sitecustomize_that_fails_does_not_keep_us_out(programs: Any, receiver: Any) -> None:
    programs.write("sitecustomize.py", "raise ValueError('theirs')")
    programs.write("app.py", SPAN)
    code, _, err = run(programs, "--", sys.executable, "app.py")
    assert code == 0
    assert "ValueError: theirs" in err
    assert services(receiver) == [("chat", "app")]


def test_an_interpreter_without_promptpath_runs_the_program_and_says_so(programs: Any, receiver: Any) -> None:
    programs.write("promptpath/__init__.py", "raise ImportError('not installed')")
    programs.write("app.py", "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(1)'])\nprint('ran')")
    code, out, err = run(programs, "--", sys.executable, "-u", "app.py")
    assert (code, out) == (0, "1\nran\n")
    assert err.count("\n") == 1
    assert err.startswith(f"promptpath: {sys.executable} cannot import promptpath (not installed)")


def test_no_such_command(programs: Any) -> None:
    code, out, err = run(programs, "--", "no-such-command")
    assert (code, out, err.count("\n")) == (127, "", 1)
    assert run(programs, "--bogus")[0] == 2


APP = """
from promptpath.instrumentation import stage

async def app(scope, receive, send):
    assert scope["type"] == "http"
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    with stage("server", headers=headers, name=scope["path"]):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_uvicorn_that_is_told_to_stop_loses_nothing(
    programs: Any, receiver: Any, unused_port: Callable[[], int], workers: int
) -> None:
    programs.write("my_app.py", APP)
    port = unused_port()
    process = programs.start(
        *(sys.executable, "-I", "-c", RUN, "--service", "server", "--"),
        *(str(Path(sys.executable).with_name("uvicorn")), "my_app:app", "--lifespan", "off"),
        *("--port", str(port), "--workers", str(workers)),
        OTEL_BSP_SCHEDULE_DELAY="60000",
    )
    header = "00-000000000000000000000000000000ff-00000000000000ee-01"
    asked = []
    deadline = time.monotonic() + 60
    while len(asked) < 10:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{len(asked)}", headers={"traceparent": header})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                assert answer.read() == b"ok"
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)  # not up yet
            continue
        asked.append(f"/{len(asked)}")
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert "Traceback" not in err + out
    assert receiver.names() == asked
    assert {(span["parent"], span["resource"]["service.name"]) for span in receiver.spans()} == {
        ("00000000000000ee", "server")
    }


FAKE_SHIM = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from promptpath.instrumentation.wrapping import unwrap_all, wrap

class Instrumentor(BaseInstrumentor):
    library = ("pp_library",)
    def instrumentation_dependencies(self):
        return ()
    def _instrument(self, **kwargs):
        wrap("pp_library", "hello", lambda wrapped, _, args, kwargs: wrapped(*args, **kwargs) + "!")
    def _uninstrument(self, **kwargs):
        unwrap_all()
"""


def test_opentelemetry_instrument_finds_the_same_shims(programs: Any, receiver: Any) -> None:
    programs.write("pp_library.py", "def hello():\n    return 'hello'\n")
    programs.write("pp_shim.py", FAKE_SHIM)
    programs.write("pp_shim-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pp-shim\nVersion: 1.0\n")
    programs.write(
        "pp_shim-1.0.dist-info/entry_points.txt",
        "[opentelemetry_instrumentor]\npromptpath_library = pp_shim:Instrumentor\n"
        # What opentelemetry-distro brings.
        "[opentelemetry_configurator]\nconfigurator = opentelemetry.sdk._configuration:_OTelSDKConfigurator\n",
    )
    programs.write("app.py", "import pp_library\nprint(pp_library.hello())\n" + SPAN)
    instrument = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    variables = {
        "OTEL_SERVICE_NAME": "theirs",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    code, out, err = programs.run(instrument, sys.executable, "app.py", **variables)
    assert (code, out) == (0, "hello!\n"), err
    assert services(receiver) == [("chat", "theirs")]
    # Both at once: one provider, one wrapper.
    code, out, err = run(programs, "--", instrument, sys.executable, "app.py", **variables)
    assert (code, out) == (0, "hello!\n"), err
    assert services(receiver) == [("chat", "theirs")] * 2
