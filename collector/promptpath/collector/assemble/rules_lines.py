"""Which line of a TOML document holds a key: Python's TOML reader does not say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: A path into a document: keys of tables, indices of arrays.
KeyPath = tuple[str | int, ...]

_SKIP: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
#: Quoted text, the long forms first.
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN: Final = re.compile(r"[^,\]}#\n]*")
_ESCAPE: Final = re.compile(r"\\(.)")


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """The line, from 1, of every key and array element of a TOML document that Python's reader has accepted."""
    return _Scanner(text).lines


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """The line of a key, or of the nearest table around it that is there; 1 where nothing of it is."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    """Walks through a valid document once; values are skipped, keys are noted."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lines: dict[KeyPath, int] = {}
        self._counted_to = (0, 1)
        self._tables: dict[KeyPath, int] = {}
        around: KeyPath = ()
        while self._more():
            if self._take("[["):
                around = self._header(again=True)
                self._take("]]")
            elif self._take("["):
                around = self._header(again=False)
                self._take("]")
            else:
                self._pair(around)

    def _more(self) -> bool:
        self._match(_SKIP)
        return self.at < len(self.text)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]

    def _take(self, what: str) -> bool:
        if not self.text.startswith(what, self.at):
            return False
        self.at += len(what)
        return True

    def _line(self) -> int:
        position, line = self._counted_to
        line += self.text.count("\n", position, self.at)
        self._counted_to = (self.at, line)
        return line

    def _keys(self) -> list[str]:
        """A key, dotted or not."""
        keys = []
        while True:
            self._match(_BLANK)
            quoted = self.text[self.at] in "\"'"
            word = self._match(_STRING if quoted else _BARE_KEY)
            keys.append(_ESCAPE.sub(r"\1", word[1:-1]) if quoted else word)
            self._match(_BLANK)
            if not self._take("."):
                return keys

    def _header(self, *, again: bool) -> KeyPath:
        """The path of a `[table]` or, `again`, of one more `[[table]]`."""
        line = self._line()
        path: KeyPath = ()
        keys = self._keys()
        for index, key in enumerate(keys):
            path = (*path, key)
            if again and index == len(keys) - 1:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                self.lines.setdefault(path, line)
                path = (*path, self._tables[path])
            self.lines.setdefault(path, line)
        return path

    def _pair(self, around: KeyPath) -> None:
        line = self._line()
        path = around
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._take("=")
        self._match(_BLANK)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            index = 0
            while self._more() and not self._take("]"):
                self.lines[(*path, index)] = self._line()
                self._value((*path, index))
                index += 1
                self._match(_SKIP)
                self._take(",")
        elif self._take("{"):
            while self._more() and not self._take("}"):
                self._pair(path)
                self._match(_SKIP)
                self._take(",")
        elif self.text[self.at] in "\"'":
            self._match(_STRING)
        else:
            self._match(_PLAIN)
