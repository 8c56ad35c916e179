"""The columns of a span table, each looked at once however many windows of nodes ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.assemble.ragged import array_of, bools_of, codes_of, known, raw_of
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.texts import filled, sparse_codes_of


class Columns:
    """`table` by column, and what is true of whole columns, by row of the table."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        #: Of a column that says nothing at all.
        self.nowhere = np.zeros(table.num_rows, dtype=np.bool_)
        self._arrays: dict[str, pa.Array] = {}
        self._bits: dict[tuple[str, ...], npt.NDArray[np.uint32]] = {}
        self._known: dict[str, Bools] = {}
        self._filled: dict[str, Bools] = {}
        self._coded: dict[str, tuple[npt.NDArray[np.signedinteger[Any]], list[str]]] = {}
        self._words: dict[str, pa.Array] = {}
        self._raw: dict[str, npt.NDArray[Any]] = {}
        self._true: dict[str, Bools] = {}
        self._ranked: dict[str, tuple[Ints, list[str]]] = {}

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._arrays:
            self._arrays[name] = array_of(self.table[name])
        return self._arrays[name]

    def known(self, name: str) -> Bools:
        """Where a column has a value."""
        if name not in self._known:
            found = known(self[name])
            self._known[name] = found if found.any() else self.nowhere
        return self._known[name]

    def filled(self, name: str) -> Bools:
        """Where a column of texts or lists is neither null nor empty."""
        if name not in self._filled:
            column = self[name]
            if pa.types.is_list(column.type):
                offsets = column.offsets.to_numpy()
                found = np.not_equal(offsets[1:], offsets[:-1])
            else:
                found = filled(column)
            self._filled[name] = found if found.any() else self.nowhere
        return self._filled[name]

    def says(self, name: str) -> Bools:
        """Where a column says something: a text that is not empty, else any value."""
        is_text = pa.types.is_string(self[name].type) or pa.types.is_dictionary(self[name].type)
        return self.filled(name) if is_text else self.known(name)

    def bits(self, names: tuple[str, ...]) -> npt.NDArray[np.uint32]:
        """Which of some columns say something, a bit each, the first the lowest; by row."""
        if names not in self._bits:
            found = np.zeros(self.table.num_rows, dtype=np.uint32)
            for number, name in enumerate(names):
                says = self.says(name)
                if says is not self.nowhere:
                    found |= says.astype(np.uint32) << np.uint32(number)
            self._bits[names] = found
        return self._bits[names]

    def coded(self, name: str) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
        """A text column as codes, in no order, into a list whose first entry is ''."""
        if name not in self._coded:
            self._coded[name] = sparse_codes_of(self[name])
        return self._coded[name]

    def words(self, name: str) -> pa.Array:
        """The texts that the codes of `coded` stand for."""
        if name not in self._words:
            self._words[name] = pa.array(self.coded(name)[1], type=pa.string())
        return self._words[name]

    def raw(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers as it lies in memory: anything where it is not `known`."""
        if name not in self._raw:
            self._raw[name] = raw_of(self[name])
        return self._raw[name]

    def true(self, name: str) -> Bools:
        """Where a column of booleans is true."""
        if name not in self._true:
            self._true[name] = bools_of(self[name])
        return self._true[name]

    def ranked(self, name: str) -> tuple[Ints, list[str]]:
        """All texts of a column of lists as codes that sort as the texts do, and the texts."""
        if name not in self._ranked:
            self._ranked[name] = codes_of(self[name].values)
        return self._ranked[name]
