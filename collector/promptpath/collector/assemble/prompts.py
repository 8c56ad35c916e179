"""The columns of `prompts`, from what the other modules found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble import hops, segments, status
from promptpath.collector.assemble.attempts import Attempts
from promptpath.collector.assemble.breakdown import Painted
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.delivery import SOURCES, FirstTokens, Prompts
from promptpath.collector.assemble.keys import JOINED_BY
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import (
    NONE,
    bools_of,
    codes_of,
    first_of_group,
    firsts,
    ints_of,
    list_array,
    nullable,
    take_texts,
)
from promptpath.collector.assemble.schema import (
    NO_NS,
    PARTS,
    PROMPT_SCHEMA,
    STAGE_CODE,
    AssembleConfig,
    Bools,
    Ints,
)
from promptpath.collector.assemble.tokens import Deliveries, latencies
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage, Status

_ABORTED: Final = (Status.CLIENT_ABORT, Status.SERVER_ABORT, Status.TIMEOUT)
_UINT16_MAX: Final = 0xFFFF


@dataclass
class Batch:
    """Everything known of one batch of spans: n nodes, m prompts."""

    table: pa.Table
    nodes: Nodes
    tree: Tree
    axis: Axis
    attempts: Attempts
    prompts: Prompts

    def pick(self, valid: Bools) -> Ints:
        """The first valid node of each prompt in the order of `Prompts.order`; shape (m,), -1 where none is."""
        return first_of_group(self.prompts.of, self.prompts.order, valid, len(self.prompts))

    def column(self, name: str) -> pa.Array:
        return self.table[name].combine_chunks()

    def rows(self, node: Ints) -> Ints:
        """Table rows of nodes; -1 stays -1."""
        return np.where(node == NONE, NONE, self.nodes.row[node])

    def ints(self, name: str) -> tuple[Ints, Bools]:
        """An integer column of the n nodes and where it is known; parts of spans know nothing."""
        column = self.column(name)
        known = column.is_valid().to_numpy(zero_copy_only=False)[self.nodes.row]
        known &= np.arange(len(self.nodes)) < self.nodes.spans
        return ints_of(column, 0)[self.nodes.row], known

    def outermost_int(self, name: str) -> Ints:
        """Of each prompt the outermost known value, -1 where none."""
        values, known = self.ints(name)
        node = self.pick(known)
        return np.where(node == NONE, -1, values[node])

    def texts(self, name: str) -> tuple[Ints, list[str]]:
        """A text column of the n nodes as codes into a list whose first entry is ''."""
        codes, names = codes_of(self.column(name))
        codes = codes[self.nodes.row] + 1
        if names and names[0] == "":
            codes[codes == 1] = 0
        codes[self.nodes.spans :] = 0
        return codes, ["", *names]

    def outermost_text(self, name: str) -> pa.Array:
        """Of each prompt the outermost text that is not empty, else ''."""
        codes, names = self.texts(name)
        node = self.pick(codes > 0)
        return pa.array(names, type=pa.string()).take(pa.array(np.where(node == NONE, 0, codes[node])))

    def sums(self, name: str) -> Ints:
        """Sum over each prompt's spans that know a value; -1 where none does."""
        values, known = self.ints(name)
        known &= self.prompts.of != NONE
        total = np.zeros(len(self.prompts), dtype=np.int64)
        np.add.at(total, self.prompts.of[known], values[known])
        total[np.bincount(self.prompts.of[known], minlength=len(total)) == 0] = -1
        return total


def not_streaming(batch: Batch) -> tuple[Bools, Bools]:
    """Shape (m,) each: prompts whose outermost span that says so did not stream, and prompts that did.

    Embeddings come in one piece, whatever is said.
    """
    column = batch.column("streaming")
    known = column.is_valid().to_numpy(zero_copy_only=False)[batch.nodes.row]
    known &= np.arange(len(batch.nodes)) < batch.nodes.spans
    says = bools_of(column)[batch.nodes.row]
    node = batch.pick(known)
    operation, names = batch.texts("operation")
    outermost = batch.pick(operation > 0)
    whole = np.array([name == "embeddings" for name in names])[np.where(outermost == NONE, 0, operation[outermost])]
    return whole | ((node != NONE) & ~says[node]), ~whole & (node != NONE) & says[node]


def build(
    batch: Batch,
    first: FirstTokens,
    painted: Painted,
    found: Deliveries,
    streams: tuple[Bools, Bools],
    config: AssembleConfig,
) -> pa.Table:
    """The prompt table, PROMPT_SCHEMA, m rows sorted by trace id, start and span id."""
    nodes, tree, prompts = batch.nodes, batch.tree, batch.prompts
    size = len(prompts)
    root = prompts.root
    columns: dict[str, pa.Array] = {}

    def ints(name: str, values: Ints, missing: int = NO_NS) -> None:
        columns[name] = nullable(values, values != missing, PROMPT_SCHEMA.field(name).type)

    ids = take_texts(batch.column("span_id"), nodes.row[root])
    columns |= {"prompt_id": ids, "root_span_id": ids}
    columns["trace_id"] = take_texts(batch.column("trace_id"), nodes.row[root])
    columns["start_time"] = pa.array(nodes.start[root]).cast(PROMPT_SCHEMA.field("start_time").type)
    columns["end_time"] = pa.array(nodes.start[root] + first.end).cast(PROMPT_SCHEMA.field("end_time").type)
    for name in ("tenant", "operation", "finish_reason"):
        columns[name] = batch.outermost_text(name)
    columns["service"] = take_texts(batch.column("service"), nodes.row[root])
    _models(batch, first, columns)

    ended = status.endings(_evidence(batch))
    columns["status"] = pa.array(status.STATUS_NAMES).take(pa.array(ended.status))
    columns["error_type"] = _error_types(batch, ended)
    saw_above = (first.source > 0) & (first.source != SOURCES.index("engine"))
    columns["streaming"] = nullable(streams[1] | saw_above, streams[0] | streams[1] | saw_above, pa.bool_())

    output = _tokens(batch, found, ended.status, columns)
    ints("ttft_ns", first.ttft)
    columns["ttft_source"] = pa.array(SOURCES).take(pa.array(first.source))
    ints("ttft_engine_ns", first.engine)
    ints("e2e_ns", first.end)
    # Usage counts all choices, deliveries are of the one that came first.
    of_choice = np.where(batch.outermost_int("choices") > 1, -1, output)
    late = latencies(found, first, of_choice, _decode_ns(batch), config)
    ints("tpot_ns", late.tpot)
    ints("itl_p50_ns", late.itl_p50)
    ints("itl_p99_ns", late.itl_p99)
    ints("itl_max_ns", late.itl_max)
    ints("stalls", late.stalls, -1)
    for index, part in enumerate(PARTS):
        ints(f"ttft_{part}_ns", np.where(first.ttft == NO_NS, NO_NS, painted.parts[:, index]))
    columns |= segments.build(nodes, tree, prompts, first, painted, batch.table)
    columns["gaps_us"] = list_array(found.prompt, pa.array(found.gaps_us).cast(pa.uint32()), size)
    deliveries = np.minimum(found.tokens, _UINT16_MAX)
    columns["gap_tokens"] = list_array(found.prompt, pa.array(deliveries).cast(pa.uint16()), size)
    ints("first_tokens", found.first_tokens, -1)
    columns["gaps_source"] = pa.array(SOURCES).take(pa.array(found.source))
    ints("first_byte_ns", _first_byte(batch))
    ints("retry_ns", painted.retry)
    columns |= hops.build(nodes, tree, batch.axis, prompts, batch.column("gpu_uuids"))
    ints("attempts", np.clip(batch.attempts.made[root], 0, _UINT16_MAX))
    ints("preemptions", batch.sums("preemptions"), -1)
    ints("tcp_rtt_us", batch.outermost_int("tcp_rtt_us"), -1)
    ints("tcp_retransmits", batch.sums("tcp_retransmits"), -1)
    _clock(batch, first, columns)
    # The least sure of what joined the prompt's spans.
    joined = np.zeros(size, dtype=np.int64)
    np.maximum.at(joined, prompts.of[prompts.order], tree.joined[prompts.order])
    columns["joined_by"] = pa.array(JOINED_BY).take(pa.array(joined))
    calls, answered = batch.attempts.calls[root], batch.attempts.calls_answered[root]
    columns["completeness"] = nullable(answered / np.maximum(calls, 1), calls > 0, pa.float32())
    _agents(batch, columns)
    _cost(batch, columns)
    columns["energy_j"] = pa.nulls(size, pa.float64())
    columns["assembled_at"] = pa.array(np.full(size, config.assembled_at_ns)).cast(
        PROMPT_SCHEMA.field("assembled_at").type
    )
    columns["joined_traces"] = _joined_traces(batch)
    for name in ("at_us", "gap_us", "cause", "detail"):
        columns[f"stall_causes.{name}"] = pa.array([[]] * size, type=PROMPT_SCHEMA.field(f"stall_causes.{name}").type)
    return pa.table([columns[name] for name in PROMPT_SCHEMA.names], schema=PROMPT_SCHEMA)


def _models(batch: Batch, first: FirstTokens, columns: dict[str, pa.Array]) -> None:
    """`model`: what answered, else what the engine was asked for, else what was asked for at the root."""
    asked, names = batch.texts("request_model")
    answered, answered_names = batch.texts("model")
    outermost = batch.pick(asked > 0)
    request = np.where(outermost == NONE, 0, asked[outermost])
    engine = np.where(first.server == NONE, 0, asked[first.server])
    by = batch.pick(answered > 0)
    model = np.where(by == NONE, 0, answered[by])
    columns["request_model"] = pa.array(names).take(pa.array(request))
    both = pa.array([*answered_names, *names])
    fallback = np.where(engine > 0, engine, request) + len(answered_names)
    columns["model"] = both.take(pa.array(np.where(model > 0, model, fallback)))


def _evidence(batch: Batch) -> status.Evidence:
    root = batch.prompts.root
    alive = ~batch.attempts.lost
    abort, abort_names = batch.texts("abort")
    error, error_names = batch.texts("error_type")
    finish, finish_names = batch.texts("finish_reason")
    http, http_known = batch.ints("http_status")
    failed = batch.nodes.failed

    def outermost(codes: Ints, valid: Bools) -> Ints:
        node = batch.pick(valid & alive)
        return np.where(node == NONE, 0, codes[node])

    return status.Evidence(
        abort_names=abort_names,
        root_abort=abort[root],
        any_abort=outermost(abort, abort > 0),
        error_names=error_names,
        root_error=error[root],
        any_error=outermost(error, error > 0),
        root_http=np.where(http_known[root], http[root], 0),
        any_http=outermost(http, http_known),
        root_failed=failed[root],
        any_failed=batch.pick(failed & alive) != NONE,
        finish_names=finish_names,
        root_finish=finish[root],
        any_finish=outermost(finish, finish > 0),
    )


def _error_types(batch: Batch, ended: status.Endings) -> pa.Array:
    """`error_type`: the exception type, else the HTTP status; '' for prompts that ended well."""
    _, names = batch.texts("error_type")
    distinct, where = np.unique(ended.http, return_inverse=True)
    words = [*names, *(str(code) if code >= 400 else "" for code in distinct.tolist())]
    code = np.where(ended.error > 0, ended.error, len(names) + where)
    code = np.where(ended.status == status.STATUS_NAMES.index(Status.OK), 0, code)
    return pa.array(words, type=pa.string()).take(pa.array(code))


def _tokens(batch: Batch, found: Deliveries, ended: Ints, columns: dict[str, pa.Array]) -> Ints:
    """The token counts; returns output tokens, -1 where unknown."""
    output = batch.outermost_int("output_tokens")
    output = np.maximum(output, _of_all_choices(batch, output))
    aborted = np.isin(ended, [status.STATUS_NAMES.index(one) for one in _ABORTED])
    # Of an answer cut short only what was delivered counts, not what the engine went on to make. Where the engine's
    # span is all there is, its own count stands.
    engine_only = batch.tree.stage[batch.prompts.root] == STAGE_CODE[Stage.SERVER]
    countable = (found.first_tokens >= 0) & ((found.source != SOURCES.index("engine")) | engine_only)
    delivered = np.where(countable, found.delivered, np.where(engine_only, output, -1))
    output = np.where(aborted, delivered, output)
    values = {
        "input_tokens": batch.outermost_int("input_tokens"),
        "cached_tokens": batch.outermost_int("cached_tokens"),
        "output_tokens": output,
        "reasoning_tokens": batch.outermost_int("reasoning_tokens"),
    }
    for name, value in values.items():
        columns[name] = nullable(np.maximum(value, 0), value >= 0, PROMPT_SCHEMA.field(name).type)
    return output


def _of_all_choices(batch: Batch, outermost: Ints) -> Ints:
    """Output tokens summed over an engine's spans of one request id: with n > 1 each span is a choice; shape (m,)."""
    nodes, prompts, server = batch.nodes, batch.prompts, batch.tree.stage == STAGE_CODE[Stage.SERVER]
    values, known = batch.ints("output_tokens")
    named = np.array([bool(name) for name in nodes.request_names] or [False])[nodes.request]
    node = np.flatnonzero(server & known & named & (prompts.of != NONE) & ~batch.attempts.lost)
    # Only spans of the request id that the outermost engine span has, and only where that span's own count is the
    # prompt's.
    outer = batch.pick(server & known & named)
    node = node[nodes.request[node] == nodes.request[outer[prompts.of[node]]]]
    total = np.zeros(len(prompts), dtype=np.int64)
    np.add.at(total, prompts.of[node], values[node])
    own = np.where(outer == NONE, -1, values[outer])
    return np.where((own >= 0) & (own == outermost), total, outermost)


def _decode_ns(batch: Batch) -> Ints:
    """Duration of the engine's decode, first to last token; NO_NS without one. Shape (m,)."""
    node = batch.pick((batch.tree.stage == STAGE_CODE[Stage.DECODE]) & ~batch.attempts.lost)
    return np.where(node == NONE, NO_NS, batch.nodes.end[node] - batch.nodes.start[node])


def _first_byte(batch: Batch) -> Ints:
    """First byte or headers as the outermost hop that tells saw them, from the root's start; NO_NS if nobody tells."""
    values, known = batch.ints("first_byte_ns")
    node = batch.pick(known & ~batch.attempts.lost)
    at = batch.nodes.start[node] + batch.axis.shift[node] - batch.nodes.start[batch.prompts.root]
    return np.where(node == NONE, NO_NS, at + values[node])


def _joined_traces(batch: Batch) -> pa.Array:
    """Traces of each prompt's spans other than its root's, sorted."""
    nodes, prompts = batch.nodes, batch.prompts
    away = prompts.order[nodes.trace[prompts.order] != nodes.trace[prompts.root[prompts.of[prompts.order]]]]
    away = away[np.lexsort((nodes.trace[away], prompts.of[away]))]
    away = away[firsts(prompts.of[away] * len(nodes) + nodes.trace[away])]
    return list_array(prompts.of[away], take_texts(batch.column("trace_id"), nodes.row[away]), len(prompts))


def _clock(batch: Batch, first: FirstTokens, columns: dict[str, pa.Array]) -> None:
    """Offset of the engine's clock against the root's, and its error; null on one host."""
    server, root = first.server, batch.prompts.root
    apart = (server != NONE) & (batch.tree.host[server] != batch.tree.host[root])
    columns["clock_offset_ns"] = nullable(-batch.axis.shift[server], apart, pa.int64())
    columns["clock_error_ns"] = nullable(batch.axis.error[server], apart, pa.int64())


def _agents(batch: Batch, columns: dict[str, pa.Array]) -> None:
    """`workflow_id`, `agent_name`, `conversation_id`: from the agent spans around a prompt, else its own."""
    root, tree = batch.prompts.root, batch.tree
    columns["workflow_id"] = take_texts(batch.column("span_id"), batch.rows(tree.workflow[root]))
    for name in ("agent_name", "conversation_id"):
        codes, names = batch.texts(name)
        own = batch.pick(codes > 0)
        near, far = tree.nearest_agent[root], tree.workflow[root]
        code = np.zeros(len(root), dtype=np.int64)
        for node in (far, near) if name == "agent_name" else (far, near, own):
            code = np.where((node != NONE) & (codes[node] > 0), codes[node], code)
        code = np.where((code == 0) & (own != NONE), codes[own], code)
        columns[name] = pa.array(names, type=pa.string()).take(pa.array(code))


def _cost(batch: Batch, columns: dict[str, pa.Array]) -> None:
    column = batch.column("cost_usd")
    known = column.is_valid().to_numpy(zero_copy_only=False)[batch.nodes.row]
    known &= np.arange(len(batch.nodes)) < batch.nodes.spans
    node = batch.pick(known)
    values = column.fill_null(0.0).to_numpy(zero_copy_only=False)[batch.rows(node)]
    columns["cost_usd"] = nullable(values, node != NONE, pa.float64())
