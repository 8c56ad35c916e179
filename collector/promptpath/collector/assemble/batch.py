"""Everything known of one batch of spans, and how its prompts are asked what their spans say."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.assemble.attempts import Attempts
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.delivery import Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, first_of_group, firsts
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.sorting import exact_sums
from promptpath.collector.assemble.tree import Tree

#: Columns that few spans say something in, of which a prompt has what its first such span says.
_SPARSE: Final = (
    "streaming",
    "choices",
    "operation",
    "model",
    "request_model",
    "finish_reason",
    "http_status",
    "error_type",
    "abort",
    "tenant",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "preemptions",
    "tcp_rtt_us",
    "tcp_retransmits",
    "first_byte_ns",
    "cost_usd",
    "conversation_id",
    "agent_name",
)


@dataclass
class Batch:
    """Everything known of one batch of spans: n nodes, m prompts."""

    columns: Columns
    nodes: Nodes
    tree: Tree
    axis: Axis
    attempts: Attempts
    prompts: Prompts
    _firsts: dict[tuple[str, bool, bool], Ints] = field(default_factory=dict)
    _mutes: list[bool] | None = None

    @cached_property
    def order(self) -> Ints:
        """The spans of `Prompts.order`, without parts of spans."""
        order = self.prompts.order
        return order if self.nodes.spans == len(self.nodes) else order[order < self.nodes.spans]

    @cached_property
    def order_rows(self) -> Ints:
        """The table rows of `order`."""
        return self.nodes.row[self.order]

    def pick(self, valid: Bools) -> Ints:
        """The first valid node of each prompt in the order of `Prompts.order`; shape (m,), -1 where none is."""
        return first_of_group(self.prompts.of, self.prompts.order, valid, len(self.prompts))

    @cached_property
    def _says(self) -> tuple[Ints, npt.NDArray[np.uint32]]:
        """Those of `order` that say anything in a column of `_SPARSE`, and in which, a bit each."""
        bits = self.columns.bits(_SPARSE).take(self.order_rows)
        any_said = np.flatnonzero(bits)
        return self.order.take(any_said), bits.take(any_said)

    def saying(self, name: str) -> Ints:
        """The spans that say something in a column of `_SPARSE`, in the order of `order`."""
        if self.columns.says(name) is self.columns.nowhere:
            return np.empty(0, dtype=np.int64)
        node, bits = self._says
        return node.compress((bits & np.uint32(1 << _SPARSE.index(name))) != 0)

    def first(self, name: str, *, of_answer: bool = False, of_end: bool = False) -> Ints:
        """The first span of each prompt that says something in a column of `_SPARSE`; shape (m,), -1 where none does.
        Not to be changed.

        What guardrails called says nothing of the prompt. of_end: nor does an attempt that another one outlived.
        of_answer: nor does a prefill worker.
        """
        key = (name, of_answer, of_end)
        if key not in self._firsts:
            result = np.full(len(self.prompts), NONE, dtype=np.int64)
            node = self.saying(name)
            for mute in self._mute(of_answer, of_end):
                node = node[~mute[node]]
            if len(node):
                prompt = self.prompts.of[node]
                at = firsts(prompt)
                result[prompt[at]] = node[at]
            self._firsts[key] = result
        return self._firsts[key]

    def _mute(self, of_answer: bool, of_end: bool) -> list[Bools]:
        """Which nodes `first` does not ask."""
        tried = self.attempts
        told = (tried.recovered, of_answer or of_end), (tried.prepared, of_answer), (tried.guard != 0, True)
        if self._mutes is None:
            self._mutes = [bool(mute.any()) for mute, _ in told]
        return [mute for (mute, asked), some in zip(told, self._mutes, strict=True) if asked and some]

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def rows(self, node: Ints) -> Ints:
        """Table rows of nodes; -1 stays -1."""
        return np.where(node == NONE, NONE, self.nodes.row[node])

    def ints(self, name: str) -> tuple[Ints, Bools]:
        """An integer column of the n nodes and where it is known; parts of spans know nothing."""
        known = self.columns.known(name)[self.nodes.row]
        known[self.nodes.spans :] = False
        return np.where(known, self.columns.raw(name)[self.nodes.row], 0), known

    def outermost_int(self, name: str) -> Ints:
        """Of each prompt the outermost known value, -1 where none."""
        return self.int_at(name, self.first(name), -1)

    def int_at(self, name: str, node: Ints, missing: int) -> Ints:
        """A column's values at spans, `missing` where the span is -1 or knows none."""
        row = self.rows(node)
        known = (node != NONE) & self.columns.known(name)[row]
        return np.where(known, self.columns.raw(name)[row], missing)

    def coded(self, name: str) -> tuple[npt.NDArray[np.signedinteger[Any]], list[str]]:
        """A text column by row of the table, as codes into a list whose first entry is ''."""
        return self.columns.coded(name)

    def code_at(self, name: str, node: Ints) -> Ints:
        """Codes of a text column at nodes; 0 where the node is -1 or a part of a span."""
        span = (node != NONE) & (node < self.nodes.spans)
        return np.where(span, self.coded(name)[0][self.nodes.row[node]], 0).astype(np.int64)

    def outermost_text(self, name: str) -> pa.Array:
        """Of each prompt the outermost text that is not empty, else ''."""
        code = self.code_at(name, self.first(name, of_answer=True))
        return self.columns.words(name).take(pa.array(code))

    def sums(self, name: str) -> Ints:
        """Sum over each prompt's spans that know a value; -1 where none does."""
        node = self.saying(name)
        prompt = self.prompts.of[node]
        total = exact_sums(prompt, self.int_at(name, node, 0), len(self.prompts))
        total[np.bincount(prompt, minlength=len(total)) == 0] = -1
        return total


def not_streaming(batch: Batch) -> tuple[Bools, Bools]:
    """Shape (m,) each: prompts whose outermost span that says so did not stream, and prompts that did.

    Embeddings come in one piece, whatever is said.
    """
    node = batch.first("streaming")
    says = batch.columns.true("streaming")[batch.nodes.row[node]]
    _, names = batch.coded("operation")
    code = batch.code_at("operation", batch.first("operation"))
    whole = np.array([name == "embeddings" for name in names])[code]
    return whole | ((node != NONE) & ~says), ~whole & (node != NONE) & says
