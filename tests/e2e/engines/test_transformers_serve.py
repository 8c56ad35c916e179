"""`transformers serve` under `promptpath run`: each prompt's row against what the client saw."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.vllm.conftest import (
    MS,
    Stack,
    clean_environment,
    duration_of,
    gaps_off,
    only,
    parts_add_up,
    spans_of,
    wait_until_healthy,
)
from tests.e2e.vllm.environment import Environment
from tests.integration.collector.running import RunningCollector

_COMPLETE = "has(segments.stage, 'decode')"


@pytest.fixture(scope="module")
def stack(vllm_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("serve")
    with RunningCollector(home / "store", assemble=True) as collector, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        run = [str(vllm_environment.bin / "promptpath"), "run", "--service", "hf", "--role", "server", "--"]
        serve = [str(vllm_environment.bin / "transformers"), "serve", str(vllm_environment.model), "--device", "cpu"]
        log = home / "serve.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*run, *serve, "--host", "127.0.0.1", "--port", str(port)],
                env=clean_environment(home)
                | {
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.ports.http}",
                },
                cwd=home,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(f"{url}/health", process, log)
            yield Stack(url, collector, home)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_streams(stack: Stack, vllm_environment: Environment) -> None:
    model = str(vllm_environment.model)
    asked = {"model": model, "max_tokens": 16, "extra": {}}
    plan = [{"text": f"{index} what does a router do"} | asked for index in range(12)]
    seen = stack.send(plan, at_once=3)
    rows = stack.rows(seen, _COMPLETE)
    judged = waited = 0
    for one in seen:
        row = only(rows[one["trace_id"]])
        assert (row["status"], row["ttft_source"]) == ("ok", "client")
        assert parts_add_up(row)
        assert abs(int(row["ttft_ns"]) - one["at_ns"][0]) < MS
        off, seen_well = gaps_off(row, one)
        assert off == 0
        judged += seen_well
        assert row["output_tokens"] == one["output_tokens"]
        assert [spans_of(row, stage) for stage in ("queue", "prefill", "decode")] == [1, 1, 1]
        waited += duration_of(row, "queue") > MS
    assert judged > len(seen)
    assert waited > len(seen) // 2  # one thread generates, and three prompts are sent at a time
