"""Tells, from the bytes of a server-sent event stream as they pass, which of them deliver content.

Content is text, reasoning, a refusal, or (part of) a tool call. A frame that names a role, carries usage or metadata,
pings, or ends the stream delivers nothing. Read are the streams of OpenAI's chat completions, completions and
responses, Anthropic's messages, and TGI's `generate_stream`. No JSON is parsed while the stream runs (unless several
choices must be told apart): a few searches over the bytes decide, and what is wanted at the end (usage, model, finish
reasons) is parsed then.

Quotes inside JSON strings are escaped, so that a key in quotes found by these searches is a key and never the model's
words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

from promptpath.instrumentation.shims import genai

#: A frame longer than this is not looked at; the stream is read on from the next one.
MAX_FRAME_BYTES: Final = 1 << 20

_END_OF_FRAME: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_CHAT_CONTENT: Final = re.compile(
    rb'"(?:content|reasoning_content|reasoning|text|refusal)"\s*:\s*"[^"]'
    rb'|"tool_calls"\s*:\s*\[\s*\{|"function_call"\s*:\s*\{'
)
_ANTHROPIC_CONTENT: Final = re.compile(rb'"(?:text|thinking|partial_json)"\s*:\s*"[^"]')
_RESPONSES_CONTENT: Final = re.compile(rb'"type"\s*:\s*"response\.[a-z_.]*\.delta"')
_RESPONSES_DELTA: Final = re.compile(rb'"delta"\s*:\s*"[^"]')
_TGI_CONTENT: Final = re.compile(rb'"token"\s*:\s*\{[^{}]*"text"\s*:\s*"[^"]')
#: The text of a frame that delivers nothing but text.
_PLAIN_TEXT: Final = re.compile(
    rb'(?:"delta"\s*:\s*\{\s*"content"|"type"\s*:\s*"text_delta"\s*,\s*"text")\s*:\s*"((?:[^"\\]|\\.)+)"'
)
#: What makes a frame more than its text: such a frame is not taken as the pattern of others.
_SPECIAL: Final = re.compile(rb'"(?:usage|finish_reason|stop_reason)"\s*:\s*["{]')
_QUOTE: Final = ord('"')
_FINISH: Final = re.compile(rb'"(?:finish_reason|stop_reason)"\s*:\s*"([^"]+)"')
_RESPONSES_END: Final = re.compile(rb'"type"\s*:\s*"response\.(completed|incomplete|failed)"')
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
_MODEL: Final = re.compile(rb'"model"\s*:\s*"')
_ERROR: Final = re.compile(rb'^data:\s*\{\s*"error"\s*:|^event:\s*error\b|"type"\s*:\s*"error"', re.MULTILINE)


class SseScanner:
    """Fed with the chunks of one stream, says for each how many frames with content it completed.

    Args:
        choices: how many choices (`n`) were asked for. With more than one, only frames of the choice that was delivered
            first are counted.

    Attributes:
        finished: a finish reason or the stream's own end mark has been seen: the answer is complete.
        failed: an error frame has been seen.
    """

    __slots__ = (
        "_choice",
        "_choices",
        "_described",
        "_finish",
        "_head",
        "_head_bytes",
        "_lessons",
        "_lines",
        "_rest",
        "_skipping",
        "_tail",
        "_usage",
        "failed",
        "finished",
    )

    def __init__(self, choices: int = 1) -> None:
        self._choices = choices
        self._choice: int | None = None
        self._tail = bytearray()
        self._skipping = False
        # What comes before and after the text in this stream's frames, once learnt.
        self._head = self._rest = b"\0"
        self._head_bytes = 0
        self._lines = -1
        self._lessons = 0 if choices > 1 else 3
        self._described: bytes | None = None
        self._usage: list[bytes] = []
        self._finish: list[str] = []
        self.finished = False
        self.failed: bytes | None = None

    def feed(self, chunk: bytes) -> int:
        """Frames with content that end in this chunk."""
        # Most frames of a stream differ in their text only, so one that begins and ends as those before delivers text.
        if (
            chunk.startswith(self._head)
            and chunk.endswith(self._rest)
            and chunk[self._head_bytes] != _QUOTE
            and chunk.count(b"\n") == self._lines
            and not self._tail
        ):
            return 1
        if not self._tail and not self._skipping:
            # Nearly always a chunk is one whole frame.
            for end in (b"\n\n", b"\r\n\r\n"):
                if chunk.endswith(end) and len(_END_OF_FRAME.findall(chunk)) == 1:
                    return self._frame(chunk)
        return self._feed_pieces(chunk)

    def _learn(self, frame: bytes) -> None:
        """Remember what comes before and after the text of a plain text frame."""
        if not self._lessons or self._skipping:
            return
        text = _PLAIN_TEXT.search(frame)
        if text is None or _SPECIAL.search(frame) is not None:
            return
        self._lessons -= 1
        self._head = frame[: text.start(1)]
        self._head_bytes = text.start(1)
        self._rest = frame[text.end(1) :]
        self._lines = frame.count(b"\n")

    def _feed_pieces(self, chunk: bytes) -> int:
        tail = self._tail
        search_from = max(0, len(tail) - 3)
        tail += chunk
        delivered = 0
        start = 0
        for end in _END_OF_FRAME.finditer(tail, search_from):
            if self._skipping:
                self._skipping = False
            else:
                delivered += self._frame(bytes(tail[start : end.end()]))
            start = end.end()
        del tail[:start]
        if len(tail) > MAX_FRAME_BYTES:
            self._skipping = True
            del tail[:-3]
        return delivered

    def _frame(self, frame: bytes) -> int:
        """1 if the frame delivers content."""
        if b'"choices"' in frame:
            content = _CHAT_CONTENT.search(frame) is not None
            self._note_finish(frame)
            if content and self._choices > 1:
                content = self._is_of_the_choice(frame)
        elif b'"response.' in frame:
            content = _RESPONSES_CONTENT.search(frame) is not None and _RESPONSES_DELTA.search(frame) is not None
            if not content:
                self._note_responses(frame)
        elif b"content_block_delta" in frame:
            content = _ANTHROPIC_CONTENT.search(frame) is not None
        elif b'"token"' in frame:
            content = _TGI_CONTENT.search(frame) is not None
            if b'"finish_reason"' in frame:
                self._note_finish(frame)
        else:
            content = False
            self._note_other(frame)
        if b'"usage"' in frame and _USAGE.search(frame) is not None:
            self._usage = [*self._usage[:1], frame]
        if self._described is None and b'"model"' in frame and _MODEL.search(frame) is not None:
            self._described = frame
        if content:
            self._learn(frame)
            return 1
        return 0

    def _is_of_the_choice(self, frame: bytes) -> bool:
        """With several choices in one stream: whether content is of the one that was delivered first."""
        body = _data_of(frame)
        choices = body.get("choices") if body is not None else None
        if not isinstance(choices, list):
            return False
        indexes = [
            choice.get("index", 0)
            for choice in choices
            if isinstance(choice, Mapping)
            and (choice.get("text") or _CHAT_CONTENT.search(json.dumps(choice.get("delta") or {}).encode()))
        ]
        if self._choice is None and indexes:
            self._choice = indexes[0]
        return self._choice in indexes

    def _note_finish(self, frame: bytes) -> None:
        match = _FINISH.search(frame)
        if match is not None:
            self.finished = True
            self._finish.append(match.group(1).decode("utf-8", "replace"))

    def _note_responses(self, frame: bytes) -> None:
        end = _RESPONSES_END.search(frame)
        if end is not None:
            self.finished = True
            if end.group(1) == b"failed":
                self.failed = frame
            else:
                self._finish.append("stop" if end.group(1) == b"completed" else "length")

    def _note_other(self, frame: bytes) -> None:
        if b"[DONE]" in frame or b'"message_stop"' in frame:
            self.finished = True
        elif b'"message_delta"' in frame:
            self._note_finish(frame)
        elif b"error" in frame and _ERROR.search(frame) is not None:
            self.failed = frame

    def error_type(self) -> str | None:
        """`error.type` of an error frame, if there was one: the code or type that it names, else `stream_error`."""
        if self.failed is None:
            return None
        body = _data_of(self.failed) or {}
        error = body.get("error") or body
        if isinstance(body.get("response"), Mapping):
            error = body["response"].get("error") or {}
        for key in ("code", "type"):
            value = error.get(key) if isinstance(error, Mapping) else None
            if isinstance(value, str | int) and value != "error":
                return str(value)
        return "stream_error"

    def attributes(self) -> dict[str, AttributeValue]:
        """What the frames said of the answer: model, id, finish reasons, usage."""
        found: dict[str, AttributeValue] = {}
        for frame in (self._described, *self._usage):
            body = _data_of(frame) if frame is not None else None
            if body is not None:
                found.update(genai.response_attributes(body))
        if self._finish:
            found[genai.FINISH_REASONS] = tuple(self._finish)
        return found


def _data_of(frame: bytes) -> Mapping[str, Any] | None:
    """The JSON object in a frame's `data` lines; None if there is none."""
    lines = [line[5:] for line in frame.splitlines() if line.startswith(b"data:")]
    try:
        body = json.loads(b"\n".join(lines))
    except ValueError:
        return None
    return body if isinstance(body, Mapping) else None
