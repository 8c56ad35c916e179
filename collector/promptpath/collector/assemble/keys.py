"""Ids that spans of one request share across traces: in one spelling, whatever a system puts before and behind them.

vLLM answers `X-Request-Id: foo` with request `chatcmpl-foo`, knows it inside as `chatcmpl-foo-1a2b3c4d` and its
choices as `chatcmpl-foo-0` or `0_chatcmpl-foo`; a gateway has `foo` or the answer's `chatcmpl-foo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.ragged import array_of, bools_of
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.texts import filled

#: What joined a prompt's spans, the surest first; index into the values of `joined_by`.
JOINED_BY: Final[tuple[str, ...]] = ("", "request_id", "response_id", "bootstrap_id", "time")
BY_REQUEST, BY_RESPONSE, BY_BOOTSTRAP, BY_TIME = range(1, len(JOINED_BY))

_COLUMNS: Final = (
    ("request_id", BY_REQUEST),
    ("correlation_id", BY_REQUEST),
    ("response_id", BY_RESPONSE),
    ("bootstrap_id", BY_BOOTSTRAP),
)
_PREFIX: Final = r"^(?:\d{1,3}_)?(?:(?:chatcmpl|cmpl|embd|pool|score|rerank|gnt|gen)-|resp_|msg_)"
_INTERNAL: Final = r"-[0-9a-f]{8}$"
_CHOICE: Final = r"-\d{1,3}$"
#: Values that say there is no id.
_NOTHING: Final = ("", "-", "0", "none", "null", "nil", "undefined", "unknown")
#: Rooms and ids are different things, even where they are the same number.
_ROOM: Final = "room "


@dataclass
class Keys:
    """Which span has which id: r rows, a span having none or several.

    row: of the span table. key: code of the id; equal ids have equal codes. kind: BY_*. exact: the id itself, not one
    with an ending taken off. names: shape (codes,), the ids as text.
    """

    row: Ints
    key: Ints
    kind: Ints
    exact: Bools
    names: pa.Array

    def __len__(self) -> int:
        return len(self.row)


def find(table: pa.Table) -> Keys:
    """The ids of the spans in `table` (SPAN_SCHEMA) that have a stage or are inference calls.

    A row may repeat where a span has one id under two names.
    """
    counts = bools_of(array_of(table["inference"])) | filled(array_of(table["stage"]))
    rows: list[Ints] = []
    kinds: list[Ints] = []
    exacts: list[Bools] = []
    texts: list[pa.Array] = []
    for name, kind in _COLUMNS:
        column = array_of(table[name])
        if not filled(column).any():
            continue
        encoded = column.dictionary_encode()
        word = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        usable = pc.invert(pc.is_in(pc.utf8_lower(encoded.dictionary), pa.array(_NOTHING)))
        usable = np.asarray(usable.to_numpy(zero_copy_only=False), dtype=np.bool_)
        if not usable.any():
            continue
        row = np.flatnonzero(counts & usable[word]).astype(np.int64)
        for text, different in _spellings(encoded.dictionary, kind):
            some = row if different is None else row[different[word[row]]]
            rows.append(some)
            kinds.append(np.full(len(some), kind, dtype=np.int64))
            exacts.append(np.full(len(some), different is None, dtype=np.bool_))
            texts.append(text.take(pa.array(word[some])))
    if not rows:
        none = np.empty(0, dtype=np.int64)
        return Keys(none, none, none, np.empty(0, dtype=np.bool_), pa.array([], type=pa.string()))
    keys = pa.concat_arrays(texts).dictionary_encode()
    code = keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return Keys(np.concatenate(rows), code, np.concatenate(kinds), np.concatenate(exacts), keys.dictionary)


def _spellings(words: pa.Array, kind: int) -> list[tuple[pa.Array, Bools | None]]:
    """The ids that each word may stand for: first the id itself, then those with endings taken off, where different."""
    if kind == BY_BOOTSTRAP:
        return [(pc.binary_join_element_wise(pa.scalar(_ROOM), words, ""), None)]
    base = pc.replace_substring_regex(words, _PREFIX, "")
    outer = pc.replace_substring_regex(base, _INTERNAL, "")
    found: list[tuple[pa.Array, Bools | None]] = [(base, None)]
    seen = [base]
    for text in (outer, pc.replace_substring_regex(base, _CHOICE, ""), pc.replace_substring_regex(outer, _CHOICE, "")):
        different = np.asarray(pc.not_equal(text, "").to_numpy(zero_copy_only=False), dtype=np.bool_)
        for other in seen:
            different &= np.asarray(pc.not_equal(text, other).to_numpy(zero_copy_only=False), dtype=np.bool_)
        seen.append(text)
        if different.any():
            found.append((text, different))
    return found


def of_traces(table: pa.Table) -> pa.Table:
    """What to look up other traces of the same prompts by: `trace_id`, `key`, distinct.

    Besides the ids: each trace's own id, and the traces that its parentless spans link to, so that a link is found
    from both of its ends.
    """
    found = find(table)
    traces = table["trace_id"].combine_chunks()
    ids = pa.table([traces.take(pa.array(found.row)), found.names.take(pa.array(found.key))], names=["trace_id", "key"])
    linked = links(table)
    to = pa.table([linked["trace_id"], own_keys(linked["linked"].combine_chunks())], names=["trace_id", "key"])
    return pa.concat_tables([ids, to]).combine_chunks().group_by(["trace_id", "key"]).aggregate([])


def links(table: pa.Table) -> pa.Table:
    """The other traces that the parentless spans of each trace link to: `trace_id`, `linked`."""
    roots = table.filter(pc.equal(table["parent_id"], "")).select(["trace_id", "link_traces"]).combine_chunks()
    column = roots["link_traces"].combine_chunks()
    linked = pa.table(
        [roots["trace_id"].combine_chunks().take(pc.list_parent_indices(column)), pc.list_flatten(column)],
        names=["trace_id", "linked"],
    )
    return linked.filter(pc.not_equal(linked["linked"], linked["trace_id"]))


def own_keys(trace_ids: pa.Array) -> pa.Array:
    """The keys under which traces are found by those that they link to."""
    return pc.binary_join_element_wise(pa.scalar("trace "), trace_ids, "")
