"""Gaps between deliveries of tokens, and what is computed from them: ITL percentiles, TPOT, stalls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.delivery import FirstTokens, Prompts, source_of
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, first_of_group, spans_of
from promptpath.collector.assemble.schema import (
    IS_CONTAINER,
    NO_NS,
    STAGE_CODE,
    AssembleConfig,
    Bools,
    Floats,
    Ints,
)
from promptpath.collector.assemble.sorting import exact_sums, order_by
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage


@dataclass
class Deliveries:
    """Deliveries of m prompts. source: index into SOURCES, 0 where no hop saw them; node: who saw them, -1.

    gaps_us, tokens: the gaps of all prompts and the tokens at the end of each, shape (g,), sorted by prompt; prompt:
    shape (g,). first_tokens: shape (m,), tokens of the first delivery, -1 where none was seen. delivered: shape (m,),
    tokens of all deliveries.
    """

    source: Ints
    node: Ints
    prompt: Ints
    gaps_us: Ints
    tokens: Ints
    first_tokens: Ints
    delivered: Ints


def deliveries(nodes: Nodes, tree: Tree, prompts: Prompts, lost: Bools, columns: Columns) -> Deliveries:
    """Deliveries at the root, else at the outermost hop that saw tokens, else as the engine computed them."""
    gaps = columns["gaps_us"]
    offsets = gaps.offsets.to_numpy()
    has = columns.filled("gaps_us")[nodes.row] & ~lost
    has[nodes.spans :] = False
    size = len(prompts)
    chosen = first_of_group(prompts.of, prompts.order, has & IS_CONTAINER[tree.stage], size)
    computed = first_of_group(prompts.of, prompts.order, has & (tree.stage == STAGE_CODE[Stage.DECODE]), size)
    chosen = np.where(chosen != NONE, chosen, computed)

    seen = np.flatnonzero(chosen != NONE)
    row = nodes.row[chosen[seen]]
    begin = offsets[row].astype(np.int64)
    each = offsets[row + 1] - begin
    at = spans_of(begin, each)
    begins = np.cumsum(each) - each
    is_first = np.zeros(len(at), dtype=np.bool_)
    is_first[begins] = True
    prompt = np.repeat(seen, each)
    tokens = counts_of(columns["counts"], row, each)
    values = gaps.values.to_numpy(zero_copy_only=False).take(at).astype(np.int64)
    first_tokens = np.full(size, -1, dtype=np.int64)
    first_tokens[seen] = tokens[begins]
    delivered = exact_sums(prompt, tokens, size)
    rest = np.flatnonzero(~is_first)
    return Deliveries(
        source=source_of(tree, chosen),
        node=chosen,
        prompt=prompt.take(rest),
        gaps_us=values.take(rest),
        tokens=tokens.take(rest),
        first_tokens=first_tokens,
        delivered=delivered,
    )


def counts_of(counts: pa.Array, rows: Ints, each: Ints) -> Ints:
    """Tokens of every delivery of the spans at `rows`, `each` deliveries a span; 1 where the span gives no count."""
    offsets = counts.offsets.to_numpy()
    begin = offsets[rows].astype(np.int64)
    length = offsets[rows + 1] - begin
    if not length.any():
        return np.ones(int(each.sum()), dtype=np.int64)
    within = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    given = within < np.repeat(length, each)
    tokens = np.ones(len(within), dtype=np.int64)
    tokens[given] = counts.values.to_numpy(zero_copy_only=False)[(np.repeat(begin, each) + within)[given]]
    return tokens


@dataclass
class Latencies:
    """Per prompt, shape (m,), NO_NS where there is no value. stalls: -1 where no deliveries were seen; stalled: shape
    (g,), which gaps they are."""

    itl_p50: Ints
    itl_p99: Ints
    itl_max: Ints
    tpot: Ints
    stalls: Ints
    stalled: Bools


def latencies(
    found: Deliveries, first: FirstTokens, output_tokens: Ints, decode_ns: Ints, config: AssembleConfig
) -> Latencies:
    """ITL percentiles, TPOT and stalls.

    output_tokens: shape (m,), of the choice whose deliveries were seen, -1 where unknown. decode_ns: shape (m,), first
    to last token as the engine computed them, for prompts whose deliveries nobody saw; NO_NS where unknown.
    """
    size = len(first.ttft)
    gap_ns = found.gaps_us * 1000
    seen = (found.first_tokens >= 0) & (first.ttft != NO_NS)
    p50, p99, top = _quantiles(found.prompt, gap_ns, found.tokens, size, (0.5, 0.99, 1.0))
    single = bool((found.tokens == 1).all())
    median = p50 if single else _quantiles(found.prompt, gap_ns, np.ones_like(found.tokens), size, (0.5,))[0]

    threshold = np.maximum(np.nan_to_num(median) * config.stall_factor, config.stall_min_ns)
    stalled = gap_ns > threshold[found.prompt]
    stalls = np.bincount(found.prompt[stalled], minlength=size).astype(np.int64)
    stalls[found.first_tokens < 0] = -1

    last = np.where(found.first_tokens >= 0, exact_sums(found.prompt, gap_ns, size), decode_ns)
    count = np.where(output_tokens >= 0, output_tokens, np.where(seen, found.delivered, 0))
    has_tpot = (count >= 2) & (first.ttft != NO_NS) & (last != NO_NS)
    tpot = np.where(has_tpot, np.rint(last / np.maximum(count - 1, 1)), NO_NS).astype(np.int64)
    return Latencies(_whole(p50), _whole(p99), _whole(top), tpot, stalls, stalled)


def _whole(values: Floats) -> Ints:
    """Rounded to integers, NO_NS for NaN."""
    return np.where(np.isnan(values), NO_NS, np.rint(np.nan_to_num(values))).astype(np.int64)


def _quantiles(group: Ints, values: Ints, weights: Ints, size: int, wanted: tuple[float, ...]) -> list[Floats]:
    """Quantiles of each group's samples with linear interpolation, a value of weight k being k samples of value / k;
    NaN if none.

    group: shape (g,), sorted; values: 0 or more. The samples are never written out: ranks are looked up in the running
    sum of weights.
    """
    some = weights > 0
    if not some.all():
        group, values, weights = group[some], values[some], weights[some]
    results = [np.full(size, np.nan) for _ in wanted]
    if len(group) == 0:
        return results
    samples = exact_sums(group, weights, size)
    start = np.cumsum(samples) - samples
    single = len(weights) == int(samples.sum())
    # Floats that are not negative sort as their bits do.
    each = values if single else values / weights
    order = order_by(group, each.view(np.int64))
    each = each[order].astype(np.float64)
    reach = None if single else np.cumsum(weights[order])

    def at(sample: Ints) -> Floats:
        return each[sample if reach is None else np.searchsorted(reach, sample, side="right")]

    has = samples > 0
    for result, quantile in zip(results, wanted, strict=True):
        rank = quantile * (samples[has] - 1)
        low = np.floor(rank).astype(np.int64)
        high = np.minimum(low + 1, samples[has] - 1)
        lower = at(start[has] + low)
        result[has] = lower + (at(start[has] + high) - lower) * (rank - low)
    return results
