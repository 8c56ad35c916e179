"""Small array tools: ragged gathers, the first value of each group, text columns as codes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.schema import Bools, Ints

NONE: Final = -1


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
    return np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1]))).astype(np.int64)


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
    counts = np.bincount(groups, minlength=size) if len(groups) else np.zeros(size, dtype=np.int64)
    return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


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
    indices = pa.array(rows, mask=rows < 0)
    return column.take(indices).fill_null("")


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


def nullable(values: Any, valid: Bools, arrow_type: pa.DataType) -> pa.Array:
    """A column with nulls where not valid, and where an integer is none that the type can hold: nobody counted that."""
    values = np.asarray(values)
    if pa.types.is_integer(arrow_type):
        bounds = np.iinfo(arrow_type.to_pandas_dtype())
        valid = valid & (values >= bounds.min) & (values <= bounds.max)
        values = np.where(valid, values, 0)
    return pa.array(values, mask=~valid).cast(arrow_type)


def ints_of(column: pa.Array, missing: int) -> Ints:
    """A nullable integer column as int64, `missing` where null."""
    if column.null_count == len(column):
        return np.full(len(column), missing, dtype=np.int64)
    return np.asarray(column.fill_null(missing).to_numpy(zero_copy_only=False), dtype=np.int64)


def bools_of(column: pa.Array) -> Bools:
    """A nullable boolean column, null as False."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
