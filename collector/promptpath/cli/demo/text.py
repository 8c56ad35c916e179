"""Token ids to text, piece by piece, as a stream needs it."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence


class IncrementalText:
    """Turns token ids into text that is never cut inside a character.

    A token of a byte-level vocabulary may end in the middle of a character. `bytes_of` (token id to the bytes it stands
    for; ids that are missing, such as special tokens, stand for none) tells when the ids so far end at a character's
    end; only then `decode` turns all ids held back into text.
    """

    def __init__(self, decode: Callable[[list[int]], str], bytes_of: Mapping[int, bytes]) -> None:
        self._decode = decode
        self._bytes_of = bytes_of
        self._held: list[int] = []
        self._boundary = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Sequence[int]) -> str:
        """The text that `ids` complete; empty while a character is incomplete."""
        self._held.extend(ids)
        for token in ids:
            self._boundary.decode(self._bytes_of.get(token, b""))
        if self._boundary.getstate()[0]:
            return ""
        return self._flush()

    def finish(self) -> str:
        """The text of what is still held back: an answer cut off inside a character."""
        return self._flush()

    def _flush(self) -> str:
        if not self._held:
            return ""
        text = self._decode(self._held)
        self._held = []
        return text


class StopAt:
    """Cuts a stream of text before the first of some strings, which may lie across pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._hold = max((len(stop) for stop in self._stops), default=1) - 1
        self._text = ""
        self.stopped = False

    def push(self, piece: str) -> str:
        """What of the text so far is certain not to belong to a stop string. Empty once stopped."""
        if self.stopped:
            return ""
        if not self._stops:
            return piece
        self._text += piece
        found = [at for at in (self._text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped = True
            return self._text[: min(found)]
        certain = max(0, len(self._text) - self._hold)
        out, self._text = self._text[:certain], self._text[certain:]
        return out

    def finish(self) -> str:
        """What was held back, when no stop string came."""
        out, self._text = ("" if self.stopped else self._text), ""
        return out
