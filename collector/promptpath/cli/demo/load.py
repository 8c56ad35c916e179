"""The demo's client: a program that asks questions with the OpenAI library, and notes what it measured itself.

`python -m promptpath.cli.demo.load --url http://127.0.0.1:8080/v1 --out records.json`

One line of JSON a finished prompt goes to standard output. What it measures, it measures with its own clock around the
library's calls, as any program could: `promptpath demo` holds the stored rows against it.
"""

from __future__ import annotations

import promptpath.auto  # noqa: F401  isort: skip  (all that a program writes to be traced)

import argparse
import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from opentelemetry import trace

from promptpath.cli.demo import prompts
from promptpath.cli.demo.prompts import Question

_tracer = trace.get_tracer("demo-client")


@dataclass(slots=True)
class Record:
    """What the client knows of one prompt. Times are of its own clock; None where there was no such moment."""

    kind: str
    concurrency: int
    model: str
    trace_id: str
    order: int
    """The place among the prompts of its trace: 0, but in an agent's run."""
    streamed: bool
    outcome: Literal["answered", "aborted", "refused", "failed"] = "failed"
    http_status: int | None = None
    deltas: int = 0
    ttft_ns: int | None = None
    e2e_ns: int = 0


@contextmanager
def _asking(question: Question, concurrency: int) -> Iterator[Record]:
    # The program's own span, as many programs have one for each thing they do: it says which trace the prompt is in.
    with _tracer.start_as_current_span("ask") as span:
        yield _record(question, concurrency, trace_id=span.get_span_context().trace_id)


def _record(question: Question, concurrency: int, *, trace_id: int, order: int = 0) -> Record:
    return Record(question.kind, concurrency, question.model, f"{trace_id:032x}", order, question.stream)


def _failed(record: Record, failure: openai.APIError) -> None:
    status = getattr(failure, "status_code", None)
    record.http_status = status
    record.outcome = "refused" if status in (401, 413, 429) else "failed"


class Client:
    """Asks with `AsyncOpenAI`, or with `OpenAI` where one thing is done after the other."""

    def __init__(self, url: str) -> None:
        self._async = {key: AsyncOpenAI(base_url=url, api_key=key, max_retries=0) for key in _KEYS}
        self._sync = OpenAI(base_url=url, api_key=prompts.OTHER_KEY, max_retries=0)

    async def ask(self, question: Question, concurrency: int) -> Record:
        """Sends one question and reads the answer, or hangs up in the middle of it."""
        create = self._async[question.key].chat.completions.create
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question.text}]
        with _asking(question, concurrency) as record:
            start_ns = time.perf_counter_ns()
            try:
                if not question.stream:
                    await create(
                        model=question.model,
                        messages=messages,
                        max_tokens=question.max_tokens,
                        temperature=question.temperature,
                    )
                    record.outcome = "answered"
                else:
                    stream = await create(
                        model=question.model,
                        messages=messages,
                        max_tokens=question.max_tokens,
                        temperature=question.temperature,
                        stream=True,
                        stream_options={"include_usage": True},
                    )
                    record.outcome = "answered"
                    async for chunk in stream:
                        if not (chunk.choices and chunk.choices[0].delta.content):
                            continue
                        if record.ttft_ns is None:
                            record.ttft_ns = time.perf_counter_ns() - start_ns
                        record.deltas += 1
                        if record.deltas == question.tokens_before_abort:
                            await stream.close()
                            record.outcome = "aborted"
                            break
            except openai.APIError as failure:
                _failed(record, failure)
            record.e2e_ns = time.perf_counter_ns() - start_ns
        return record

    def agent(self, calls: int, seed: int, say: Callable[[Record], None]) -> None:
        """One agent's run: it plans, looks things up with a tool, and answers, in `calls` calls of the model."""
        rng = random.Random(seed)
        create = self._sync.chat.completions.create
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": "You plan trips. Answer in one short sentence."}
        ]
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "trip-planner"}
        with _tracer.start_as_current_span("invoke_agent trip-planner", attributes=attributes) as run:
            for step in range(calls):
                question = prompts.question(rng, "streamed", prompts.MODEL)
                if step % 3 == 2:
                    messages.append({"role": "user", "content": f"The search found this: {self._search(rng)}. Go on."})
                else:
                    messages.append({"role": "user", "content": question.text})
                record = _record(question, 1, trace_id=run.get_span_context().trace_id, order=step)
                record.kind = "agent"
                answer = ""
                start_ns = time.perf_counter_ns()
                try:
                    for chunk in create(
                        model=question.model, messages=messages[:1] + messages[-4:], max_tokens=16, stream=True
                    ):
                        if chunk.choices and (content := chunk.choices[0].delta.content):
                            if record.ttft_ns is None:
                                record.ttft_ns = time.perf_counter_ns() - start_ns
                            record.deltas += 1
                            answer += content
                    record.outcome = "answered"
                except openai.APIError as failure:
                    _failed(record, failure)
                record.e2e_ns = time.perf_counter_ns() - start_ns
                messages.append({"role": "assistant", "content": answer or "I do not know."})
                say(record)

    def _search(self, rng: random.Random) -> str:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        with _tracer.start_as_current_span("execute_tool search", attributes=attributes):
            time.sleep(rng.uniform(0.005, 0.02))  # what the tool takes
            return rng.choice(("a night train at nine", "two small hotels", "a ferry on Sundays", "no flights"))

    async def close(self) -> None:
        """Closes all connections."""
        self._sync.close()
        for client in self._async.values():
            await client.close()


_KEYS = (prompts.KEY, prompts.OTHER_KEY, prompts.TRIAL_KEY, prompts.UNKNOWN_KEY)


def _say(records: list[Record], record: Record) -> None:
    records.append(record)
    print(json.dumps(asdict(record)), flush=True)


async def _round(client: Client, part: prompts.Round, records: list[Record]) -> None:
    waiting = list(reversed(part.questions))

    async def asker() -> None:
        while waiting:
            _say(records, await client.ask(waiting.pop(), part.concurrency))

    await asyncio.gather(*(asker() for _ in range(part.concurrency)))


async def run(url: str, count: int, agent_calls: int, seed: int) -> list[Record]:
    """Sends everything, and returns what was measured, in the order in which it ended."""
    client = Client(url)
    records: list[Record] = []
    try:
        for part in prompts.plan(count, seed):
            await _round(client, part, records)
        # On this thread: an agent of this kind does one thing after the other.
        client.agent(agent_calls, seed, lambda record: _say(records, record))
    finally:
        await client.close()
    return records


def total(count: int, agent_calls: int, seed: int) -> int:
    """How many prompts `run` will send."""
    return sum(len(part.questions) for part in prompts.plan(count, seed)) + agent_calls


def main() -> None:
    """Sends the prompts and writes the records."""
    parser = argparse.ArgumentParser(prog="python -m promptpath.cli.demo.load", description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="base URL of the API, with /v1")
    parser.add_argument("--out", type=Path, required=True, help="where the records go, as JSON")
    parser.add_argument("--prompts", type=int, default=150)
    parser.add_argument("--agent-calls", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    records = asyncio.run(run(args.url, args.prompts, args.agent_calls, args.seed))
    args.out.write_text(json.dumps([asdict(record) for record in records]))


if __name__ == "__main__":
    main()
