"""Lines of keys in TOML, which Python's reader does not tell."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.assemble.rules_lines import KeyPath, key_lines, line_of

DOCUMENT = '''\
# a comment with [brackets] = and "quotes"
system = "x"
"quoted key" = 1
a.b.'c.d' = 2     # dotted
long = """
not = "a key"
[nor] this"""
literal = \'\'\'
# nor this \'\'\'
list = [
  "one",  # with a comment ]
  { name = "two", inner = { deep = [1, 2] } },
]
[table]
key = 2026-01-01T00:00:00Z
[[span]]
name = "first"
match = { kind = "SERVER", attribute = { "x.y" = true } }
[span.fields]
model = ["m"]
[[span]]
name = "second"
[[span.from_start]]
stage = "queue"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("system",), 2),
        (("quoted key",), 3),
        (("a", "b", "c.d"), 4),
        (("a", "b"), 4),
        (("long",), 5),
        (("literal",), 8),
        (("list",), 10),
        (("list", 0), 11),
        (("list", 1), 12),
        (("list", 1, "inner", "deep", 1), 12),
        (("table",), 14),
        (("table", "key"), 15),
        (("span", 0), 16),
        (("span", 0, "name"), 17),
        (("span", 0, "match", "attribute", "x.y"), 18),
        (("span", 0, "fields"), 19),
        (("span", 0, "fields", "model", 0), 20),
        (("span", 1, "name"), 22),
        (("span", 1, "from_start", 0, "stage"), 24),
        (("span", 1, "from_start", 0, "duration"), 23),
        (("span", 1, "no", "such"), 21),
        (("nothing",), 1),
        ((), 1),
    ],
)
def test_lines(path: KeyPath, line: int) -> None:
    tomllib.loads(DOCUMENT)
    assert line_of(key_lines(DOCUMENT), path) == line


def _paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in _paths(inner, (*path, key)))]


_text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8)
_scalars = st.one_of(st.integers(-9, 9), st.booleans(), _text)
_values = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3))


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_quoted(key)} = {_written(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_written(inner) for inner in value) + "]"
    return _quoted(value) if isinstance(value, str) else str(value).lower()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.dictionaries(_text, _values, max_size=6))
def test_every_key_of_any_document_has_its_line(document: dict[str, Any]) -> None:
    text = "".join(f"\n# {number}\n{_quoted(key)} = {_written(value)}\n" for number, (key, value) in
                   enumerate(document.items()))  # fmt: skip
    assert tomllib.loads(text) == document
    lines = key_lines(text)
    for number, (key, value) in enumerate(document.items()):
        for path in _paths(value, (key,)):
            assert line_of(lines, path) == 3 + 3 * number
