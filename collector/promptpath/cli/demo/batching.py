"""One model, many requests: a thread that steps OpenVINO GenAI's continuous batching, and hands tokens to asyncio."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The demo tells nobody that it runs: without this package OpenVINO sends no usage statistics.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino_genai  # noqa: E402

_log = logging.getLogger(__name__)

#: `step` keeps the interpreter to itself. So the next one waits until every token of the last is on its way and every
#: request that has arrived is queued, and then for so many rounds of the event loop without either; a round without
#: work costs some 10 us.
_QUIET_ROUNDS = 4
#: The longest such wait, in seconds: a slow reader must not stop the batch.
_LOOP_WAIT_S = 0.02


class EngineFull(Exception):
    """As many requests wait as may wait."""


class EngineFailed(Exception):
    """The model could not go on with a request."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one step gave one request: its new token ids, and on the last one why it ended (`stop` or `length`)."""

    ids: list[int]
    finish_reason: str | None


class Generation:
    """The answer to one request, as it grows. Iterate it once, and `close` it."""

    def __init__(self, handle: Any, owner: Batcher, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.handle = handle
        self.begun = False
        self._owner = owner
        self._ready: asyncio.Queue[Tokens | EngineFailed] = asyncio.Queue()
        self._over = False
        self._closed = False

    def push(self, item: Tokens | EngineFailed) -> None:
        """Called on the event loop's thread by the batcher."""
        if not self._closed:
            self._owner.pace.more()
            self._ready.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[Tokens]:
        while not self._over:
            item = await self._ready.get()
            try:
                if isinstance(item, EngineFailed):
                    self._over = True
                    raise item
                self._over = item.finish_reason is not None
                yield item
            finally:  # it comes back for more when what it was given is on its way
                self._owner.pace.done()

    def stop(self) -> None:
        """The answer is complete as it is: a stop string came. Close it then."""
        self.handle.stop()
        self._over = True

    def close(self) -> None:
        """Gives its place free. If the answer is not complete, nobody wants the rest: the model stops working on it."""
        if self._closed:
            return
        self._closed = True
        self._owner.release(self, cancel=not self._over)
        while not self._ready.empty():
            self._ready.get_nowait()
            self._owner.pace.done()


class Pace:
    """How much the event loop has to do before the next step; used on its thread only."""

    def __init__(self) -> None:
        self.owed = 0

    def more(self) -> None:
        """A token to pass on, or a request to queue."""
        self.owed += 1

    def done(self) -> None:
        """One of those is done."""
        self.owed -= 1


class Arrival:
    """A request on its way into the queue: the next step waits for it, for a moment."""

    def __init__(self, pace: Pace) -> None:
        self._pace: Pace | None = pace
        pace.more()

    def over(self) -> None:
        """It is queued, or never will be."""
        if self._pace is not None:
            self._pace.done()
            self._pace = None


class Batcher:
    """Owns a `ContinuousBatchingPipeline` and the thread that steps it while there is work."""

    def __init__(
        self, gguf: Path, *, max_num_seqs: int, max_waiting: int, kv_blocks: int, max_batched_tokens: int, threads: int
    ) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.num_kv_blocks = kv_blocks
        scheduler.max_num_seqs = max_num_seqs
        scheduler.max_num_batched_tokens = max_batched_tokens
        scheduler.dynamic_split_fuse = True
        scheduler.enable_prefix_caching = False
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(gguf), scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
        )
        self.tokenizer = self.pipeline.get_tokenizer()
        vocabulary: dict[bytes, int] = self.tokenizer.get_vocab()
        self.bytes_of: dict[int, bytes] = {token: text for text, token in vocabulary.items()}
        for special in (self.tokenizer.get_bos_token_id(), self.tokenizer.get_eos_token_id()):
            self.bytes_of.pop(special, None)
        self.pace = Pace()
        self._capacity = max_num_seqs + max_waiting
        self._ids = itertools.count()
        self._live: dict[int, Generation] = {}
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._breathed = threading.Event()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine-step", daemon=True)

    def start(self) -> None:
        """Starts the stepping thread; to be called on the event loop that will read the answers."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Ends the stepping thread after the step it is in."""
        self._stopping = True
        self._work.set()
        self._breathed.set()
        self._thread.join(timeout=5)

    @property
    def active(self) -> int:
        """Requests running or waiting."""
        return len(self._live)

    def warm_up(self) -> None:
        """Answers once before anybody asks: the first steps compile kernels. To be called before `start`."""
        config = self.config(max_tokens=3, temperature=0.0, top_p=None, seed=None)
        handle = self.pipeline.add_request(next(self._ids), self.tokenizer.encode("Hello there").input_ids, config)
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
        handle.read_all()

    def config(self, *, max_tokens: int, temperature: float, top_p: float | None, seed: int | None) -> Any:
        """A GenerationConfig; temperature 0 is greedy."""
        config = self.pipeline.get_config()
        config.max_new_tokens = max_tokens
        config.do_sample = temperature > 0
        if temperature > 0:
            config.temperature = temperature
            if top_p is not None:
                config.top_p = top_p
            if seed is not None:
                config.rng_seed = seed
        return config

    def submit(self, input_ids: Any, config: Any) -> Generation:
        """Queues a request. `input_ids` is the tokenizer's tensor, 1 x tokens.

        Raises:
            EngineFull: no room; nothing was queued.
        """
        if len(self._live) >= self._capacity:
            raise EngineFull(f"{self._capacity} requests are running or waiting already")
        request_id = next(self._ids)
        handle = self.pipeline.add_request(request_id, input_ids, config)
        generation = Generation(handle, self, int(input_ids.shape[1]))
        with self._lock:
            self._live[request_id] = generation
        self._work.set()
        return generation

    def release(self, generation: Generation, *, cancel: bool) -> None:
        """Forgets a request, and tells the model to if it is still at it."""
        with self._lock:
            for request_id, live in list(self._live.items()):
                if live is generation:
                    del self._live[request_id]
                    break
            else:
                return
        if cancel:
            generation.handle.cancel()
            self._work.set()

    def _run(self) -> None:
        while not self._stopping:
            if not self.pipeline.has_non_finished_requests():
                self._work.wait()
                self._work.clear()
                continue
            # Whoever holds the interpreter gives it up in the middle of its work: look again when it is ours.
            waited_until_s = time.monotonic() + _LOOP_WAIT_S
            while self.pace.owed > 0 and time.monotonic() < waited_until_s and not self._stopping:
                self._hand_over([])
            try:
                self.pipeline.step()
                self._hand_over(self._read())
            except Exception as failure:
                _log.exception("a step of the model failed")
                with self._lock:
                    failed = list(self._live.values())
                for generation in failed:
                    generation.handle.cancel()
                self._hand_over([(generation, EngineFailed(str(failure))) for generation in failed])

    def _read(self) -> list[tuple[Generation, Tokens | EngineFailed]]:
        with self._lock:
            live = list(self._live.values())
        news: list[tuple[Generation, Tokens | EngineFailed]] = []
        for generation in live:
            handle = generation.handle
            if not handle.can_read():
                status = handle.get_status()
                if status == openvino_genai.GenerationStatus.IGNORED:
                    news.append((generation, EngineFailed("the prompt does not fit into the KV cache")))
                continue
            output = next(iter(handle.read().values()), None)
            if output is None:  # cancelled between the two calls
                continue
            news.append((generation, Tokens(list(output.generated_ids), _FINISH.get(output.finish_reason))))
        # First tokens first: somebody is waiting for them.
        news.sort(key=lambda item: item[0].begun)
        for generation, _ in news:
            generation.begun = True
        return news

    def _hand_over(self, news: list[tuple[Generation, Tokens | EngineFailed]]) -> None:
        assert self._loop is not None
        self._breathed.clear()
        try:
            self._loop.call_soon_threadsafe(self._deliver, news)
        except RuntimeError:  # the loop is closed: the server is going down
            self._stopping = True
            return
        self._breathed.wait(2 * _LOOP_WAIT_S)

    def _deliver(self, news: list[tuple[Generation, Tokens | EngineFailed]]) -> None:
        for generation, item in news:
            generation.push(item)
        self._breathe(_QUIET_ROUNDS, time.monotonic() + _LOOP_WAIT_S)

    def _breathe(self, rounds: int, deadline_s: float) -> None:
        assert self._loop is not None
        if rounds and time.monotonic() < deadline_s:
            left = rounds - 1 if self.pace.owed <= 0 else _QUIET_ROUNDS
            self._loop.call_soon(self._breathe, left, deadline_s)
        else:
            self._breathed.set()


_FINISH = {
    openvino_genai.GenerationFinishReason.STOP: "stop",
    openvino_genai.GenerationFinishReason.LENGTH: "length",
}
