"""The demo's inference server with the real model, in its own process, uninstrumented."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from promptpath.cli.demo.openai_format import CHAT_PATH
from promptpath.cli.ports import free_port

pytestmark = pytest.mark.model


def eventually(true: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("engine") / "log"
    options = ["--port", str(port), "--name", "small", "--max-num-seqs", "2", "--max-waiting", "1"]
    options += ["--kv-blocks", "128", "--max-model-len", "512"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "promptpath.cli.demo.engine", *options], stdout=out, stderr=subprocess.STDOUT
        )

    def up() -> bool:
        assert process.poll() is None, Path(log).read_text()
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            return False

    try:
        eventually(up)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def body(text: str, **more: object) -> dict[str, object]:
    return {"model": "small", "messages": [{"role": "user", "content": text}]} | more


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert data.pop() == "[DONE]"
    return [json.loads(text) for text in data]


def test_streamed_and_whole_say_the_same(engine: str) -> None:
    question = body("What is the capital of France?", max_tokens=24)
    whole = httpx.post(engine + CHAT_PATH, json=question, timeout=60).json()
    streamed = httpx.post(
        engine + CHAT_PATH, json=question | {"stream": True, "stream_options": {"include_usage": True}}, timeout=60
    )
    got = events(streamed)
    first, *middle, last, usage = got
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle)
    assert "Paris" in text
    assert text == whole["choices"][0]["message"]["content"]
    assert last["choices"][0] == {"index": 0, "delta": {}, "finish_reason": whole["choices"][0]["finish_reason"]}
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"]
    assert len({chunk["id"] for chunk in got}) == 1


def test_length_and_stop(engine: str) -> None:
    cut = httpx.post(engine + CHAT_PATH, json=body("Tell me a long story.", max_tokens=4), timeout=60).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 4
    stopped = httpx.post(
        engine + CHAT_PATH, json=body("What is the capital of France?", max_tokens=24, stop=[" Paris"]), timeout=60
    ).json()
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert " Paris" not in stopped["choices"][0]["message"]["content"]


def test_full_and_freed_by_a_hang_up(engine: str) -> None:
    question = body("Write a very long story about the sea.", max_tokens=300, stream=True)
    with httpx.Client(timeout=60) as client:
        open_answers = []
        for _ in range(3):
            request = client.build_request("POST", engine + CHAT_PATH, json=question)
            open_answers.append(client.send(request, stream=True))
        assert [answer.status_code for answer in open_answers] == [200, 200, 200]
        refused = client.post(engine + CHAT_PATH, json=question)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_full")
        assert refused.headers["retry-after"] == "1"
        for answer in open_answers:
            answer.close()
    # 300 tokens of three prompts would take longer than this.
    eventually(lambda: httpx.get(f"{engine}/health").json() == {"active": 0}, within_s=5)
    with ThreadPoolExecutor(2) as pool:
        both = list(
            pool.map(lambda text: httpx.post(engine + CHAT_PATH, json=body(text, max_tokens=3), timeout=60), "ab")
        )
    assert [answer.status_code for answer in both] == [200, 200]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"messages": []}, "messages: "),
        ({"max_tokens": 0}, "max_tokens: "),
        ({"max_tokens": 600}, "exceed the context of 512"),
        ({"n": 2}, "n: "),
    ],
)
def test_bad_requests(engine: str, wrong: dict[str, object], said: str) -> None:
    answer = httpx.post(engine + CHAT_PATH, json=body("a") | wrong, timeout=60)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
