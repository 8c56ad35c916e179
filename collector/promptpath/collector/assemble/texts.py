"""Text columns without a Python string: lengths, words of fixed width, codes, gathers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.assemble.ragged import codes_of
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.sorting import Words, order_by

Bytes = npt.NDArray[np.uint8]

_WORD_BYTES: Final = 8
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Offsets, shape (n + 1,), and the bytes they point into; '' where null."""
    if column.null_count:
        column = column.fill_null("")
    _, offsets, data = column.buffers()
    begin = column.offset
    if offsets is None or len(column) == 0:
        return np.zeros(len(column) + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    starts = np.frombuffer(offsets, dtype=np.int32)[begin : begin + len(column) + 1]
    return starts, np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)


def filled(column: pa.Array) -> Bools:
    """Where a text column (dictionaries too) is neither null nor ''."""
    if pa.types.is_dictionary(column.type):
        if column.null_count:
            column = column.fill_null("")
        word = filled(column.dictionary)
        indices = column.indices.to_numpy()
        return np.take(word, indices) if len(word) else np.zeros(len(column), dtype=np.bool_)
    offsets, _ = bytes_of(column)
    return np.not_equal(offsets[1:], offsets[:-1])


def _fixed(column: pa.Array, width: int) -> tuple[Bools, Words] | None:
    """Where a column has text, and that text as big-endian words, shape (filled, width / 8); None if any has another
    width."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    offsets, data = bytes_of(column)
    length = offsets[1:] - offsets[:-1]
    some = length != 0
    if not bool((some == (length == width)).all()):
        return None
    text = data[offsets[0] : offsets[-1]]
    # Big-endian words compare as the texts do.
    return some, text.view(">u8").reshape(-1, width // _WORD_BYTES).astype(np.uint64)


def ids_of(own: pa.Array, named: pa.Array) -> tuple[Words, Words, Bools]:
    """Two columns of ids as pairs of words, shape (n, 2), that are equal where the ids are, and sort as they do; and
    where `named` names one."""
    fixed, others = _fixed(own, 16), _fixed(named, 16)
    if fixed is None or others is None or not fixed[0].all():
        both = pa.concat_arrays([own.cast(pa.string()), named.cast(pa.string())])
        pairs = np.zeros((len(both), 2), dtype=np.uint64)
        pairs[:, 0] = codes_of(both)[0]
        return pairs[: len(own)], pairs[len(own) :], filled(named)
    some, words = others
    pairs = np.zeros((len(named), 2), dtype=np.uint64)
    pairs[some] = words
    return fixed[1], pairs, some


def take_pairs(pairs: Words, rows: Ints) -> tuple[Words, Words]:
    """The pairs at `rows`, the first words and the second; each pair fetched at once."""
    taken = np.ascontiguousarray(pairs).view(np.complex128)[:, 0].take(rows).view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(taken[:, 0]), np.ascontiguousarray(taken[:, 1])


def ranks_of(column: pa.Array) -> Ints:
    """A text column as codes that sort as the texts do."""
    begins = _pieces(column, 32)
    if begins is not None:
        ranks = _ranks_of(column.take(pa.array(begins)))
        return np.repeat(ranks, np.diff(np.append(begins, len(column))))
    return _ranks_of(column)


def _pieces(column: pa.Array, width: int) -> Ints | None:
    """Where a text differs from the one before it, in a column that mostly repeats the one before; else None.

    Only for texts of `width` bytes.
    """
    if len(column) == 0 or not _fixed_width(column, width):
        return None
    offsets, data = bytes_of(column)
    words = data[offsets[0] : offsets[-1]].view(np.uint64).reshape(len(column), -1)
    new = np.ones(len(column), dtype=np.bool_)
    np.not_equal(words[1:, -1], words[:-1, -1], out=new[1:])
    if 4 * np.count_nonzero(new) > len(new):
        return None
    for word in words.T[:-1]:
        new[1:] |= word[1:] != word[:-1]
    begins = np.flatnonzero(new)
    return begins if 4 * len(begins) <= len(new) else None


def _ranks_of(column: pa.Array) -> Ints:
    fixed = _fixed(column, 32)
    if fixed is None or not fixed[0].all() or len(column) == 0:
        return codes_of(column)[0]
    words = np.ascontiguousarray(fixed[1].T)
    mixed = words[0].copy()
    for word in words[1:]:
        mixed *= _SPREAD
        mixed += word
    encoded = pa.array(mixed).dictionary_encode()
    code = encoded.indices.to_numpy()
    example = np.empty(len(encoded.dictionary), dtype=np.int64)
    example[code] = np.arange(len(code), dtype=np.int64)
    distinct = words[:, example]
    # What they mix to and all words but the last leave but one value for the last.
    if any(bool((distinct[number][code] != word).any()) for number, word in enumerate(words[:-1])):
        return codes_of(column)[0]  # two texts that mix to one word
    rank = np.empty(len(example), dtype=np.int64)
    rank[order_by(*distinct)] = np.arange(len(example), dtype=np.int64)
    ranks: Ints = rank[code]
    return ranks


def sparse_codes_of(column: pa.Array) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    """A text column that is mostly empty as codes, in no order, into a list whose first entry is ''."""
    if pa.types.is_dictionary(column.type):
        return _codes_of_words(column.fill_null("") if column.null_count else column)
    some = np.flatnonzero(filled(column))
    if len(some) == 0:
        return np.zeros(len(column), dtype=np.int16), [""]
    encoded = column.take(pa.array(some)).dictionary_encode()
    names = ["", *encoded.dictionary.to_pylist()]
    small = len(names) <= np.iinfo(np.int16).max
    codes: npt.NDArray[np.signedinteger[Any]] = np.zeros(len(column), dtype=np.int16 if small else np.int32)
    codes[some] = encoded.indices.to_numpy() + 1
    return codes, names


def _codes_of_words(column: pa.Array) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
    words = column.dictionary.to_pylist()
    names = ["", *dict.fromkeys(word for word in words if word)]
    code = {name: number for number, name in enumerate(names)}
    kind = np.int16 if len(names) <= np.iinfo(np.int16).max else np.int32
    codes = np.array([code.get(word, 0) for word in words] or [0], dtype=kind)
    return codes.take(column.indices.to_numpy()), names


def texts_of_ids(column: pa.Array, rows: Ints, words: tuple[Words, Words]) -> pa.Array:
    """The ids at `rows`. words: what `ids_of` made of them."""
    if _fixed_width(column, 16) and len(rows) * 16 <= np.iinfo(np.int32).max:
        text = np.empty((len(rows), 2), dtype=">u8")
        text[:, 0], text[:, 1] = words
        starts = np.arange(0, 16 * (len(rows) + 1), 16, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(starts), pa.py_buffer(text)])
    return column.take(pa.array(rows)).cast(pa.string()).fill_null("")


def _fixed_width(column: pa.Array, width: int) -> bool:
    if pa.types.is_dictionary(column.type):
        return False
    offsets, _ = bytes_of(column)
    return bool((offsets[1:] - offsets[:-1] == width).all())


def take_ids(column: pa.Array, rows: Ints) -> pa.Array:
    """`column` at `rows`, all of them there. Faster than Arrow where every text has 16 bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    offsets, data = bytes_of(column)
    size = len(rows)
    if size == 0 or size * 16 > np.iinfo(np.int32).max or not bool((offsets[1:] - offsets[:-1] == 16).all()):
        return column.take(pa.array(rows))
    chosen = data[offsets[0] : offsets[-1]].view("V16")[rows]
    starts = np.arange(0, 16 * (size + 1), 16, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), size, [None, pa.py_buffer(starts), pa.py_buffer(chosen)])
