"""Sends prompts with the OpenAI client and writes down what it saw: `load.py URL AT_ONCE < PLAN`, JSON lines out.

It is instrumented as a user would do it, and knows nothing of what the instrumentation sees. Of each token it notes
when it had it (`at_ns`) and when the bytes came that it was in (`came_ns`), from when it asked; of the request, when it
went out (`sent_ns`).
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from openai import APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient
from opentelemetry import trace

import promptpath.auto  # noqa: F401

_tracer = trace.get_tracer("load")


def _switches() -> int:
    """How often the machine has taken the processor from this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class _Wire:
    """When a request of ours went out, and when the newest bytes of its answer came [ns]."""

    def __init__(self) -> None:
        self.sent_ns = self.came_ns = 0


_wire: ContextVar[_Wire] = ContextVar("wire")


class _Noted:
    """The bytes of an answer, noted as they come."""

    def __init__(self, chunks: AsyncIterator[bytes], wire: _Wire) -> None:
        self._chunks, self._wire = chunks, wire

    def __aiter__(self) -> _Noted:
        return self

    async def __anext__(self) -> bytes:
        data = await anext(self._chunks)
        self._wire.came_ns = time.perf_counter_ns()
        return data

    async def aclose(self) -> None:
        await self._chunks.aclose()  # type: ignore[attr-defined]


async def _going_out(_: Any) -> None:
    _wire.get().sent_ns = time.perf_counter_ns()


async def _coming_in(response: Any) -> None:
    read, wire = response.aiter_bytes, _wire.get()
    response.aiter_bytes = lambda *size: _Noted(read(*size), wire)


async def one(client: AsyncOpenAI, job: dict[str, Any]) -> dict[str, Any]:
    """Does one job; the span around it is no inference call, it only tells the trace."""
    with _tracer.start_as_current_span("job") as span:
        seen: dict[str, Any] = {"job": job, "trace_id": f"{span.get_span_context().trace_id:032x}"}
        await _send(client, job, seen)
    return seen


async def _send(client: AsyncOpenAI, job: dict[str, Any], seen: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "model": job.get("model", "tiny"),
        "messages": [{"role": "user", "content": job["text"]}],
        "max_tokens": job["max_tokens"],
        "extra_body": job.get("extra", {"ignore_eos": True}),
    }
    if "n" in job:
        arguments["n"] = job["n"]
    if job.get("stream", True):
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    create = client.chat.completions.create  # the client imports half of itself here
    wire = _Wire()
    _wire.set(wire)
    began_ns = time.perf_counter_ns()
    try:
        answer = await create(**arguments)
    except APIStatusError as error:
        seen["status"] = error.status_code
        return
    if not job.get("stream", True):
        seen["output_tokens"] = answer.usage.completion_tokens
        return
    at_ns: list[int] = []
    came_ns: list[int] = []
    switches: list[int] = []
    choice: int | None = None
    async for chunk in answer:
        if chunk.usage is not None:
            seen["output_tokens"] = chunk.usage.completion_tokens
        for part in chunk.choices:
            if part.delta.content and (choice is None or part.index == choice):
                choice = part.index
                # Of several tokens in the same bytes, the next one is looked for when this one is done with.
                came_ns.append(max(wire.came_ns - began_ns, at_ns[-1] if at_ns else 0))
                at_ns.append(time.perf_counter_ns() - began_ns)
                switches.append(_switches())
        if len(at_ns) == job.get("hang_up_after"):
            await answer.close()
            break
    seen |= {"at_ns": at_ns, "came_ns": came_ns, "sent_ns": wire.sent_ns - began_ns, "switches": switches}


async def main(url: str, plan: list[dict[str, Any]], at_once: int) -> None:
    """All jobs, so many at once."""
    turn = asyncio.Semaphore(at_once)

    async def wait_and_do(client: AsyncOpenAI, job: dict[str, Any]) -> dict[str, Any]:
        async with turn:
            return await one(client, job)

    http = DefaultAsyncHttpxClient(event_hooks={"request": [_going_out], "response": [_coming_in]})
    async with AsyncOpenAI(
        base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120, http_client=http
    ) as client:
        for seen in await asyncio.gather(*(wait_and_do(client, job) for job in plan)):
            print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.load(sys.stdin), int(sys.argv[2])))
