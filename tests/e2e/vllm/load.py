"""Sends prompts with the OpenAI client and writes down what it saw: `load.py URL AT_ONCE < PLAN`, JSON lines out.

It is instrumented as a user would do it, and knows nothing of what the instrumentation sees.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

from openai import APIStatusError, AsyncOpenAI
from opentelemetry import trace

import promptpath.auto  # noqa: F401

_tracer = trace.get_tracer("load")


def _switches() -> int:
    """How often the machine has taken the processor from this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


async def one(client: AsyncOpenAI, job: dict[str, Any]) -> dict[str, Any]:
    """Does one job; the span around it is no inference call, it only tells the trace."""
    with _tracer.start_as_current_span("job") as span:
        seen: dict[str, Any] = {"job": job, "trace_id": f"{span.get_span_context().trace_id:032x}"}
        await _send(client, job, seen)
    return seen


async def _send(client: AsyncOpenAI, job: dict[str, Any], seen: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": job["text"]}],
        "max_tokens": job["max_tokens"],
        "n": job.get("n", 1),
        "extra_body": {"ignore_eos": True},
    }
    if job.get("stream", True):
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    create = client.chat.completions.create  # the client imports half of itself here
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
    switches: list[int] = []
    choice: int | None = None
    async for chunk in answer:
        if chunk.usage is not None:
            seen["output_tokens"] = chunk.usage.completion_tokens
        for part in chunk.choices:
            if part.delta.content and (choice is None or part.index == choice):
                choice = part.index
                at_ns.append(time.perf_counter_ns() - began_ns)
                switches.append(_switches())
        if len(at_ns) == job.get("hang_up_after"):
            await answer.close()
            break
    seen |= {"at_ns": at_ns, "switches": switches}


async def main(url: str, plan: list[dict[str, Any]], at_once: int) -> None:
    """All jobs, so many at once."""
    turn = asyncio.Semaphore(at_once)

    async def wait_and_do(client: AsyncOpenAI, job: dict[str, Any]) -> dict[str, Any]:
        async with turn:
            return await one(client, job)

    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        for seen in await asyncio.gather(*(wait_and_do(client, job) for job in plan)):
            print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.load(sys.stdin), int(sys.argv[2])))
