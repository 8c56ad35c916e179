"""What recording costs the program that is traced, beside others that could record the same."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from promptpath.cli.benches import Figures
from promptpath.cli.benches.machine import machine
from promptpath.cli.benches.overhead_work import MISSING

_WORK: Final = "promptpath.cli.benches.overhead_work"
#: Ours first; the others may not be installed.
RECORDERS: Final = ("promptpath", "sdk", "logfire", "ddtrace")
_ROUNDS: Final = 5

Costs = dict[str, float]


def measure(prompts: int) -> Figures:
    """Records `prompts` prompts of a server span, six stages and 128 tokens with each of RECORDERS, in processes of
    their own, in turns; the best of some rounds, for other work on the machine only ever adds.

    ns_per_token, us_per_stage: processor time of the request's thread. us_per_prompt: of the whole process, spans built
    and handed to a processor of spans that keeps none included; us_per_bare_prompt: without tokens. ratios.*_cpu: the
    others' us_per_prompt over ours (of ddtrace, which has nothing that it records for a token, us_per_bare_prompt);
    None where one is not installed.
    """
    found: dict[str, Costs] = {}
    with _agent() as port:
        for _ in range(_ROUNDS):
            for recorder in RECORDERS:
                costs = _run(recorder, prompts, port)
                if costs is not None:
                    best = found.setdefault(recorder, costs)
                    found[recorder] = {name: min(best[name], cost) for name, cost in costs.items()}
    ours = found.pop("promptpath")
    figures = dict(ours)
    for recorder, costs in found.items():
        figures |= {f"{recorder}_{name}": cost for name, cost in costs.items()}
    ratios: dict[str, float | None] = {}
    for recorder in RECORDERS[1:]:
        theirs = found.get(recorder)
        what = "us_per_prompt" if theirs is None or "us_per_prompt" in theirs else "us_per_bare_prompt"
        ratios[f"{recorder}_cpu"] = None if theirs is None else round(theirs[what] / ours[what], 2)
    return Figures("overhead", machine(), {name: round(cost, 2) for name, cost in figures.items()}, ratios)


def _run(recorder: str, prompts: int, port: int) -> Costs | None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "DD_", "LOGFIRE_"))}
    done = subprocess.run(
        [sys.executable, "-m", _WORK, recorder, str(prompts)],
        env=kept | {"DD_TRACE_AGENT_URL": f"http://127.0.0.1:{port}", "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false"},
        capture_output=True,
        text=True,
    )
    if done.returncode == MISSING:
        return None
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise RuntimeError(f"{recorder} could not be measured: {why[-1]}")
    costs: Costs = json.loads(done.stdout.splitlines()[-1])
    return costs


class _Takes(http.server.BaseHTTPRequestHandler):
    """Stands where ddtrace's agent would be, in this process, so that its work is not counted."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def _agent() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Takes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
