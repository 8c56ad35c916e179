"""Small array tools: ragged gathers, the first value of each group, text columns as codes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.schema import Bools, Ints

NONE: Final = -1

_NS: Final = pa.timestamp("ns", "UTC")
_NUMPY_TYPES: Final = {
    _NS: np.dtype(np.int64),
    **{
        kind: np.dtype(kind.to_pandas_dtype())
        for kind in (pa.int64(), pa.uint32(), pa.uint16(), pa.float32(), pa.float64())
    },
}
#: The least and the most that an integer column holds.
_BOUNDS: Final = {
    kind: (int(np.iinfo(of).min), int(np.iinfo(of).max))
    for kind, of in _NUMPY_TYPES.items()
    if pa.types.is_integer(kind)
}


def spans_of(starts: Ints, counts: Ints) -> Ints:
    """The concatenated ranges start, start+1, ... start+count-1 of each pair; shape (sum(counts),)."""
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.cumsum(counts) - counts
    return np.repeat(starts - offsets, counts) + np.arange(total, dtype=np.int64)


def firsts(groups: Ints) -> Ints:
    """Positions at which a new group starts in an array whose equal values are adjacent."""
    if len(groups) == 0:
        return np.empty(0, dtype=np.int64)
    new = np.empty(len(groups), dtype=np.bool_)
    new[0] = True
    np.not_equal(groups[1:], groups[:-1], out=new[1:])
    return np.flatnonzero(new)


def first_of_group(groups: Ints, order: Ints, valid: Bools, size: int) -> Ints:
    """For each group 0..size-1 the first index of `order` that is valid, else -1.

    groups, valid: per index; order: indices sorted by group and then by preference.
    """
    result = np.full(size, NONE, dtype=np.int64)
    if not valid.any():
        return result
    chosen = order[valid[order]]
    at = firsts(groups[chosen])
    result[groups[chosen[at]]] = chosen[at]
    return result


def offsets_of(groups: Ints, size: int) -> pa.Array:
    """List offsets (int32) of values sorted by group 0..size-1."""
    offsets = np.zeros(size + 1, dtype=np.int32)
    if len(groups):
        np.cumsum(np.bincount(groups, minlength=size), out=offsets[1:])
    return pa.array(offsets)


def list_array(groups: Ints, values: pa.Array, size: int) -> pa.Array:
    """A list column: `values` (sorted by group) gathered into rows 0..size-1."""
    return pa.ListArray.from_arrays(offsets_of(groups, size), values)


def codes_of(column: pa.Array) -> tuple[Ints, list[str]]:
    """A text column as codes and the texts they stand for. Codes rank the texts, so they sort as the texts do."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary
    order = pc.sort_indices(words)
    rank = np.zeros(max(len(words), 1), dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(words), dtype=np.int64)
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(0)
    return rank[indices.to_numpy(zero_copy_only=False)], words.take(order).to_pylist()


def take_texts(column: pa.Array, rows: Ints) -> pa.Array:
    """Texts at `rows`; '' where the row is -1."""
    missing = rows < 0
    if missing.all():
        return pa.repeat(pa.scalar("", type=pa.string()), len(rows))
    if not missing.any():
        taken = column.take(pa.array(rows))
        return taken.fill_null("") if taken.null_count else taken
    return column.take(pa.array(rows, mask=missing)).fill_null("")


def array_of(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece, not copied where it is."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def known(column: pa.Array) -> Bools:
    """Where a column is not null."""
    valid = column.buffers()[0]
    if valid is None or column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].view(np.bool_)


def nullable(values: npt.NDArray[Any], valid: Bools, arrow_type: pa.DataType) -> pa.Array:
    """A column with nulls where not valid, and where an integer is none that the type can hold: nobody counted that."""
    if arrow_type in _BOUNDS:
        low, high = _BOUNDS[arrow_type]
        valid = valid & (values >= low) & (values <= high)
    everywhere = bool(valid.all())
    bits = None if everywhere else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(arrow_type):
        data = np.packbits(values, bitorder="little")
    else:
        # What a column holds where it is null is never read.
        data = np.where(valid, values, 0).astype(_NUMPY_TYPES[arrow_type], copy=False)
    nulls = 0 if everywhere else len(valid) - int(np.count_nonzero(valid))
    return pa.Array.from_buffers(arrow_type, len(valid), [bits, pa.py_buffer(np.ascontiguousarray(data))], nulls)


def raw_of(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers of a column, not copied; anything where it is null."""
    data = column.buffers()[1]
    kind = column.type.to_pandas_dtype()
    if data is None:
        return np.zeros(len(column), dtype=kind)
    return np.frombuffer(data, dtype=kind)[column.offset : column.offset + len(column)]


def ints_of(column: pa.Array, missing: int) -> Ints:
    """A nullable integer column as int64, `missing` where null."""
    if column.null_count == len(column):
        return np.full(len(column), missing, dtype=np.int64)
    values = raw_of(column).astype(np.int64, copy=False)
    return np.where(known(column), values, missing) if column.null_count else values


def bools_of(column: pa.Array) -> Bools:
    """A nullable boolean column, null as False."""
    data = column.buffers()[1]
    if data is None or column.null_count == len(column):
        return np.zeros(len(column), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    values = bits[column.offset : column.offset + len(column)].view(np.bool_)
    return values & known(column) if column.null_count else values
