"""What the assembler reads and writes: Arrow schemas, stage codes, settings.

Input is one row a span, as `read_spans.sql` and the rules select it: rules have already turned a system's own names
into stages, first-token times and token counts. Output is one row a prompt, the columns of the table `prompts`. All
times are int64 nanoseconds: `start_ns` since the Unix epoch, everything else since the span's (or prompt's) start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.semconv import STAGE_PART, Part, Stage

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class AssembleError(ValueError):
    """Spans that do not have the columns or types the assembler reads."""


@dataclass(frozen=True)
class AssembleConfig:
    """Settings of an assembly.

    assembled_at_ns: the value of `assembled_at`; the newest row of a prompt wins in storage.
    stall_factor, stall_min_ns: a gap is a stall when it is over both `stall_factor` medians and `stall_min_ns`.
    """

    assembled_at_ns: int = 0
    stall_factor: float = 4.0
    stall_min_ns: int = 50_000_000


#: A stage of the rules' own: an HTTP server span of which nothing says whether it is a gateway or an inference server.
#: The tree decides: a gateway where a call leaves it, else a server.
INBOUND: Final = "inbound"

#: What else a rule knows of a span. FORWARD: a relay that leaves no span for the call that it makes; FORWARDED: the
#: same, and its upstream is known to have been called. PREFILL, DECODE: a call of, or a span in, such a worker.
FORWARD: Final = "forward"
FORWARDED: Final = "forwarded"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
#: A span that names a stage which is none.
UNKNOWN_STAGE: Final = "unknown stage"
ROLE_CODE: Final = {name: code for code, name in enumerate(("", FORWARD, FORWARDED, PREFILL, DECODE, UNKNOWN_STAGE))}

_text = pa.string()
_int = pa.int64()

#: One row a span. Text is '' where unknown, numbers are null where unknown.
SPAN_SCHEMA: Final = pa.schema(
    [
        ("trace_id", _text),
        ("span_id", _text),
        ("parent_id", _text),
        ("start_ns", _int),
        ("duration_ns", _int),
        ("clamped", _text),
        ("kind", _text),
        ("scope", _text),
        ("service", _text),
        ("process", _text),
        ("host", _text),
        ("loopback", pa.bool_()),
        ("stage", _text),
        ("role", _text),
        ("inference", pa.bool_()),
        ("agent", pa.bool_()),
        ("failed", pa.bool_()),
        ("gaps_us", pa.list_(pa.uint32())),
        ("counts", pa.list_(pa.uint16())),
        ("first_token_ns", _int),
        ("first_byte_ns", _int),
        ("part_stages", pa.list_(_text)),
        ("part_starts_ns", pa.list_(_int)),
        ("part_durations_ns", pa.list_(_int)),
        ("streaming", pa.bool_()),
        ("choices", _int),
        ("operation", _text),
        ("model", _text),
        ("request_model", _text),
        ("finish_reason", _text),
        ("http_status", _int),
        ("error_type", _text),
        ("abort", _text),
        ("tenant", _text),
        ("request_id", _text),
        ("response_id", _text),
        ("correlation_id", _text),
        ("bootstrap_id", _text),
        ("input_tokens", _int),
        ("cached_tokens", _int),
        ("output_tokens", _int),
        ("reasoning_tokens", _int),
        ("preemptions", _int),
        ("tcp_rtt_us", _int),
        ("tcp_retransmits", _int),
        ("cost_usd", pa.float64()),
        ("conversation_id", _text),
        ("agent_name", _text),
        ("gpu_uuids", pa.list_(_text)),
        ("link_traces", pa.list_(_text)),
        ("link_spans", pa.list_(_text)),
        ("preempted_us", pa.list_(_int)),
    ]
)

_time = pa.timestamp("ns", tz="UTC")
PARTS: Final[tuple[Part, ...]] = tuple(Part)

#: The columns of the table `prompts`, in its order.
PROMPT_SCHEMA: Final = pa.schema(
    [
        ("prompt_id", _text),
        ("trace_id", _text),
        ("root_span_id", _text),
        ("start_time", _time),
        ("end_time", _time),
        ("tenant", _text),
        ("service", _text),
        ("model", _text),
        ("operation", _text),
        ("streaming", pa.bool_()),
        ("status", _text),
        ("error_type", _text),
        ("finish_reason", _text),
        ("input_tokens", pa.uint32()),
        ("cached_tokens", pa.uint32()),
        ("output_tokens", pa.uint32()),
        ("reasoning_tokens", pa.uint32()),
        ("ttft_ns", _int),
        ("ttft_source", _text),
        ("ttft_engine_ns", _int),
        ("e2e_ns", _int),
        ("tpot_ns", _int),
        ("itl_p50_ns", _int),
        ("itl_p99_ns", _int),
        ("itl_max_ns", _int),
        ("stalls", pa.uint32()),
        *((f"ttft_{part}_ns", _int) for part in PARTS),
        ("segments.stage", pa.list_(_text)),
        ("segments.hop", pa.list_(_text)),
        ("segments.span_id", pa.list_(_text)),
        ("segments.start_ns", pa.list_(_int)),
        ("segments.duration_ns", pa.list_(_int)),
        ("segments.critical", pa.list_(pa.bool_())),
        ("gaps_us", pa.list_(pa.uint32())),
        ("gap_tokens", pa.list_(pa.uint16())),
        ("first_tokens", pa.uint32()),
        ("first_byte_ns", _int),
        ("retry_ns", _int),
        ("gaps_source", _text),
        ("request_model", _text),
        ("hops", pa.list_(_text)),
        ("hosts", pa.list_(_text)),
        ("gpu_uuids", pa.list_(_text)),
        ("attempts", pa.uint16()),
        ("preemptions", pa.uint32()),
        ("tcp_rtt_us", pa.uint32()),
        ("tcp_retransmits", pa.uint32()),
        ("clock_offset_ns", _int),
        ("clock_error_ns", _int),
        ("joined_by", _text),
        ("completeness", pa.float32()),
        ("workflow_id", _text),
        ("conversation_id", _text),
        ("agent_name", _text),
        ("cost_usd", pa.float64()),
        ("energy_j", pa.float64()),
        ("assembled_at", _time),
        ("joined_traces", pa.list_(_text)),
        ("stall_causes.at_us", pa.list_(pa.uint64())),
        ("stall_causes.gap_us", pa.list_(pa.uint32())),
        ("stall_causes.cause", pa.list_(_text)),
        ("stall_causes.detail", pa.list_(_text)),
        ("workflow_start", _time),
        ("workflow_end", _time),
    ]
)

# --- stage codes: 0 is no stage, then the vocabulary, then INBOUND ----------------------------------------------------
STAGES: Final[tuple[Stage, ...]] = tuple(Stage)
STAGE_NAMES: Final[tuple[str, ...]] = ("", *(str(s) for s in STAGES), INBOUND)
STAGE_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(STAGE_NAMES)}


def stage_set(*stages: Stage) -> Bools:
    """A lookup table over stage codes: True at the codes of `stages`."""
    table = np.zeros(len(STAGE_NAMES), dtype=np.bool_)
    table[[STAGE_CODE[s] for s in stages]] = True
    return table


#: The part of a TTFT a stage's own time is, as an index into PARTS; -1 for stages that are in none.
PART_OF_STAGE: Final[npt.NDArray[np.int64]] = np.array(
    [-1]
    + [-1 if (part := STAGE_PART[s]) is None else PARTS.index(part) for s in STAGES]
    + [PARTS.index(Part.UNATTRIBUTED)],
    dtype=np.int64,
)

IS_CALLER: Final = stage_set(Stage.CLIENT, Stage.CALL)
IS_CONNECT: Final = stage_set(Stage.DNS, Stage.TCP, Stage.TLS)
IS_RELAY: Final = stage_set(Stage.EDGE, Stage.GATEWAY, Stage.ROUTER)
#: Spans that contain the way of a prompt through a hop, and so may have seen its tokens pass.
IS_CONTAINER: Final = IS_CALLER | IS_RELAY | stage_set(Stage.SERVER)

NO_NS: Final = np.iinfo(np.int64).min
"""Stands for "not seen" in int64 arrays of times."""


#: Texts of which a batch has few. They may come as dictionaries, which saves telling them apart again.
CODED: Final = (
    *("clamped", "kind", "scope", "service", "process", "host", "stage", "role", "operation", "model", "request_model"),
    *("finish_reason", "error_type", "abort", "tenant"),
)
_SPAN_COLUMNS: Final = tuple((field.name, field.type) for field in SPAN_SCHEMA)
_DICTIONARY: Final = pa.dictionary(pa.int32(), _text)


def check_spans(spans: pa.Table, *, coded: bool = False) -> pa.Table:
    """`spans` with exactly the columns and types of SPAN_SCHEMA, in one chunk.

    coded: texts of which there are few stay dictionaries, if they came as such.

    Raises AssembleError naming the column that is missing or has a type that cannot be read.
    """
    given = dict(zip(spans.column_names, spans.columns, strict=True))
    columns = []
    for name, kind in _SPAN_COLUMNS:
        if name not in given:
            raise AssembleError(f"spans: column {name!r} is missing")
        column = given[name]
        if coded and name in CODED and column.type == _DICTIONARY:
            columns.append(column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0))
            continue
        if column.type != kind:
            try:
                column = column.cast(kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise AssembleError(f"spans: column {name!r} is {column.type}, not {kind}: {error}") from None
        columns.append(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    return pa.Table.from_arrays(columns, names=SPAN_SCHEMA.names)
