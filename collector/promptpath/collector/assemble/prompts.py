"""The columns of `prompts`, from what the other modules found."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble import hops, segments, stalls, status
from promptpath.collector.assemble.batch import Batch
from promptpath.collector.assemble.breakdown import Painted
from promptpath.collector.assemble.clamped import LONGEST_NS
from promptpath.collector.assemble.delivery import SOURCES, FirstTokens
from promptpath.collector.assemble.keys import JOINED_BY
from promptpath.collector.assemble.ragged import (
    NONE,
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
from promptpath.collector.assemble.sorting import exact_sums, order_by, runs
from promptpath.collector.assemble.stalls import Prefills
from promptpath.collector.assemble.texts import take_ids
from promptpath.collector.assemble.tokens import Deliveries, latencies
from promptpath.semconv import Stage, Status

_ABORTED: Final = (Status.CLIENT_ABORT, Status.SERVER_ABORT, Status.TIMEOUT)
_STATUSES: Final = pa.array(status.STATUS_NAMES)
_SOURCES: Final = pa.array(SOURCES)
_JOINED_BY: Final = pa.array(JOINED_BY)
_UINT16_MAX: Final = 0xFFFF


def in_order(parts: list[pa.Table]) -> pa.Table:
    """The prompts of several windows in one table; by trace id, start and span id."""
    table = pa.concat_tables(parts) if len(parts) > 1 else parts[0]
    trace = table["trace_id"].combine_chunks()
    if len(trace) < 2 or not pc.any(pc.greater(trace[:-1], trace[1:])).as_py():
        return table
    keys = [("trace_id", "ascending"), ("start_time", "ascending"), ("prompt_id", "ascending")]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def build(
    batch: Batch,
    first: FirstTokens,
    painted: Painted,
    found: Deliveries,
    streams: tuple[Bools, Bools],
    config: AssembleConfig,
    others: Prefills,
    opened: list[pa.Table],
    endless: Bools,
) -> pa.Table:
    """The prompt table, PROMPT_SCHEMA, m rows sorted by trace id, start and span id.

    endless: shape (m,), prompts of which it is not known when they began or ended.
    """
    nodes, tree, prompts = batch.nodes, batch.tree, batch.prompts
    size = len(prompts)
    root = prompts.root
    columns: dict[str, pa.Array] = {}

    def ints(name: str, values: Ints, missing: int = NO_NS) -> None:
        columns[name] = nullable(values, values != missing, PROMPT_SCHEMA.field(name).type)

    ids = take_ids(nodes.span_ids, nodes.owner[root])
    columns |= {"prompt_id": ids, "root_span_id": ids}
    columns["trace_id"] = take_texts(batch.column("trace_id"), nodes.row[root])
    everywhere = np.ones(size, dtype=np.bool_)
    start = nodes.start[root]
    for name, at in (("start_time", start), ("end_time", start + first.end)):
        columns[name] = nullable(at, everywhere, PROMPT_SCHEMA.field(name).type)
    for name in ("tenant", "operation", "finish_reason"):
        columns[name] = batch.outermost_text(name)
    columns["service"] = pa.array(nodes.service_names, type=pa.string()).take(pa.array(nodes.service[root]))
    _models(batch, first, columns)

    ended = status.endings(_evidence(batch))
    columns["status"] = _STATUSES.take(pa.array(ended.status))
    columns["error_type"] = _error_types(batch, ended)
    saw_above = (first.source > 0) & (first.source != SOURCES.index("engine"))
    columns["streaming"] = nullable(streams[1] | saw_above, streams[0] | streams[1] | saw_above, pa.bool_())

    output = _tokens(batch, found, ended.status, columns)
    ints("ttft_ns", first.ttft)
    columns["ttft_source"] = _SOURCES.take(pa.array(first.source))
    ints("ttft_engine_ns", first.engine)
    ints("e2e_ns", np.where(endless, NO_NS, first.end))
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
    columns |= segments.build(nodes, tree, prompts, first, painted)
    columns["gaps_us"] = list_array(found.prompt, pa.array(found.gaps_us.astype(np.uint32)), size)
    deliveries = np.minimum(found.tokens, _UINT16_MAX)
    columns["gap_tokens"] = list_array(found.prompt, pa.array(deliveries.astype(np.uint16)), size)
    ints("first_tokens", found.first_tokens, -1)
    columns["gaps_source"] = _SOURCES.take(pa.array(found.source))
    ints("first_byte_ns", _first_byte(batch))
    ints("retry_ns", painted.retry)
    columns |= hops.build(nodes, tree, batch.axis, prompts, batch.columns)
    ints("attempts", np.clip(batch.attempts.made[root], 0, _UINT16_MAX))
    ints("preemptions", batch.sums("preemptions"), -1)
    ints("tcp_rtt_us", batch.outermost_int("tcp_rtt_us"), -1)
    ints("tcp_retransmits", batch.sums("tcp_retransmits"), -1)
    _clock(batch, first, columns)
    # The least sure of what joined the prompt's spans.
    joined = np.zeros(size, dtype=np.int64)
    some = prompts.order[tree.joined[prompts.order] > 0]
    np.maximum.at(joined, prompts.of[some], tree.joined[some])
    columns["joined_by"] = _JOINED_BY.take(pa.array(joined))
    calls, answered = batch.attempts.calls[root], batch.attempts.calls_answered[root]
    columns["completeness"] = nullable(answered / np.maximum(calls, 1), calls > 0, pa.float32())
    _agents(batch, columns)
    _cost(batch, columns)
    columns["energy_j"] = pa.nulls(size, pa.float64())
    now = np.full(size, config.assembled_at_ns)
    columns["assembled_at"] = nullable(now, everywhere, PROMPT_SCHEMA.field("assembled_at").type)
    columns["joined_traces"] = _joined_traces(batch)
    columns |= stalls.build(nodes, tree, batch.axis, prompts, first, found, late.stalled, batch.columns, others, opened)
    return pa.table([columns[name] for name in PROMPT_SCHEMA.names], schema=PROMPT_SCHEMA)


def _models(batch: Batch, first: FirstTokens, columns: dict[str, pa.Array]) -> None:
    """`model`: what answered, else what the engine was asked for, else what was asked for at the root."""
    _, names = batch.coded("request_model")
    _, answered_names = batch.coded("model")
    request = batch.code_at("request_model", batch.first("request_model"))
    engine = batch.code_at("request_model", first.server)
    model = batch.code_at("model", batch.first("model"))
    columns["request_model"] = batch.columns.words("request_model").take(pa.array(request))
    both = pa.array([*answered_names, *names])
    fallback = np.where(engine > 0, engine, request) + len(answered_names)
    columns["model"] = both.take(pa.array(np.where(model > 0, model, fallback)))


def _evidence(batch: Batch) -> status.Evidence:
    root = batch.prompts.root
    alive = ~(batch.attempts.beside | batch.attempts.recovered)
    failed = batch.nodes.failed

    def outermost(name: str, *, of_answer: bool = False) -> Ints:
        # Lost attempts stand last in a prompt's order: where the first is one, all are.
        node = batch.first(name, of_answer=of_answer, of_end=True)
        return np.where((node != NONE) & alive[node], node, NONE)

    def both(name: str) -> tuple[Ints, Ints, list[str]]:
        said = outermost(name, of_answer=True)
        return batch.code_at(name, root), batch.code_at(name, said), batch.coded(name)[1]

    root_abort, any_abort, abort_names = both("abort")
    root_error, any_error, error_names = both("error_type")
    root_finish, any_finish, finish_names = both("finish_reason")
    return status.Evidence(
        abort_names=abort_names,
        root_abort=root_abort,
        any_abort=any_abort,
        error_names=error_names,
        root_error=root_error,
        any_error=any_error,
        root_http=batch.int_at("http_status", root, 0),
        any_http=batch.int_at("http_status", outermost("http_status"), 0),
        root_failed=failed[root],
        any_failed=batch.pick(failed & alive) != NONE,
        finish_names=finish_names,
        root_finish=root_finish,
        any_finish=any_finish,
    )


def _error_types(batch: Batch, ended: status.Endings) -> pa.Array:
    """`error_type`: the exception type, else the HTTP status; '' for prompts that ended well."""
    _, names = batch.coded("error_type")
    distinct, where = np.unique(ended.http, return_inverse=True)
    words = [*names, *(str(code) if code >= 400 else "" for code in distinct.tolist())]
    code = np.where(ended.error > 0, ended.error, len(names) + where)
    code = np.where(ended.status == status.STATUS_NAMES.index(Status.OK), 0, code)
    return pa.array(words, type=pa.string()).take(pa.array(code))


def _tokens(batch: Batch, found: Deliveries, ended: Ints, columns: dict[str, pa.Array]) -> Ints:
    """The token counts; returns output tokens, -1 where unknown."""
    output = batch.int_at("output_tokens", batch.first("output_tokens", of_answer=True), -1)
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
    named = server & (nodes.request > 0)
    if not named.any():
        return outermost
    values, known = batch.ints("output_tokens")
    node = np.flatnonzero(named & known & (prompts.of != NONE) & ~batch.attempts.beside)
    # Only spans of the request id that the outermost engine span has, and only where that span's own count is the
    # prompt's.
    outer = batch.pick(named & known)
    node = node[nodes.request[node] == nodes.request[outer[prompts.of[node]]]]
    total = exact_sums(prompts.of[node], values[node], len(prompts))
    own = np.where(outer == NONE, -1, values[outer])
    return np.where((own >= 0) & (own == outermost), total, outermost)


def _decode_ns(batch: Batch) -> Ints:
    """Duration of the engine's decode, first to last token; NO_NS without one. Shape (m,)."""
    node = batch.pick((batch.tree.stage == STAGE_CODE[Stage.DECODE]) & ~batch.attempts.beside)
    return np.where(node == NONE, NO_NS, batch.nodes.end[node] - batch.nodes.start[node])


def _first_byte(batch: Batch) -> Ints:
    """First byte or headers as the outermost hop that tells saw them, from the root's start; NO_NS if nobody tells."""
    node = batch.first("first_byte_ns")
    node = np.where(batch.attempts.beside[node], NONE, node)
    values = batch.int_at("first_byte_ns", node, 0)
    at = batch.nodes.start[node] + batch.axis.shift[node] - batch.nodes.start[batch.prompts.root]
    return np.where((node == NONE) | (np.abs(at) > LONGEST_NS) | (values > LONGEST_NS), NO_NS, at + values)


def _joined_traces(batch: Batch) -> pa.Array:
    """Traces of each prompt's spans other than its root's, sorted."""
    nodes, prompts = batch.nodes, batch.prompts
    away = prompts.order[nodes.trace[prompts.order] != nodes.trace[prompts.root[prompts.of[prompts.order]]]]
    away = away[order_by(prompts.of[away], nodes.trace[away])]
    away = away[runs(prompts.of[away], nodes.trace[away])]
    return list_array(prompts.of[away], take_texts(batch.column("trace_id"), nodes.row[away]), len(prompts))


def _clock(batch: Batch, first: FirstTokens, columns: dict[str, pa.Array]) -> None:
    """Offset of the engine's clock against the root's, and its error; null on one host."""
    server, root = first.server, batch.prompts.root
    apart = (server != NONE) & (batch.tree.host[server] != batch.tree.host[root])
    columns["clock_offset_ns"] = nullable(batch.axis.offset[server], apart, pa.int64())
    columns["clock_error_ns"] = nullable(batch.axis.error[server], apart, pa.int64())


def _agents(batch: Batch, columns: dict[str, pa.Array]) -> None:
    """`workflow_id`, `agent_name`, `conversation_id`: from the agent spans around a prompt, else its own."""
    root, tree = batch.prompts.root, batch.tree
    columns["workflow_id"] = take_texts(batch.column("span_id"), batch.rows(tree.workflow[root]))
    run = tree.workflow[root]
    for name, times in (("workflow_start", batch.nodes.start), ("workflow_end", batch.nodes.end)):
        columns[name] = nullable(times[run], run != NONE, PROMPT_SCHEMA.field(name).type)
    for name in ("agent_name", "conversation_id"):
        own = batch.code_at(name, batch.first(name))
        near, far = tree.nearest_agent[root], tree.workflow[root]
        said = [batch.code_at(name, far), batch.code_at(name, near)]
        code = np.zeros(len(root), dtype=np.int64)
        for other in said if name == "agent_name" else [*said, own]:
            code = np.where(other > 0, other, code)
        code = np.where(code == 0, own, code)
        columns[name] = batch.columns.words(name).take(pa.array(code))


def _cost(batch: Batch, columns: dict[str, pa.Array]) -> None:
    row = batch.rows(batch.first("cost_usd"))
    columns["cost_usd"] = batch.column("cost_usd").take(pa.array(row, mask=row == NONE))
