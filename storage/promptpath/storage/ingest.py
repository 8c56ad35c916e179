"""OTLP into storage: raw protobuf request bodies, decoded by ClickHouse itself.

A batch is one or more request bodies of one signal, concatenated (which by protobuf's rules is again one request).
It enters the Null table `otlp_<signal>`; the materialized views behind that table take it apart. No Python code touches
a span, except where a value is nested deeper than those views declare: such a batch is rewritten once, deep values
becoming JSON text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from promptpath.storage.errors import StorageError, reason
from promptpath.storage.nesting import flatten

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

Signal = Literal["traces", "metrics", "logs"]

_PROTOS: Final = Path(__file__).parent / "otlp"
_IMPORT: Final = 'import "common.proto";\n'
#: Field 2045 of a request, `envelope`: three fixed64, packed.
_ENVELOPE: Final = struct.Struct("<QQQ")
_ENVELOPE_TAG: Final = b"\xea\x7f"
ENVELOPE_BYTES: Final = len(_ENVELOPE_TAG) + 1 + _ENVELOPE.size
#: Times that are believed of senders: from five years before they are received to a day after. Every day is a
#: partition, so this bounds them, far below `non_replicated_deduplication_window`.
MAX_AGE_NS: Final = 5 * 366 * 86_400 * 10**9
MAX_AHEAD_NS: Final = 86_400 * 10**9
#: Times that are believed of what nobody received just now, such as a file: 2000 to 2099. The schema says the same.
RECORDED_FROM_NS: Final = 946_684_800 * 10**9
RECORDED_TO_NS: Final = 4_102_444_800 * 10**9 - 1
#: What the views throw on a value that is nested deeper than they declare.
_TOO_DEEP: Final = "OTLP value nested too deep"
#: Errors that say "these bytes are no such request" rather than "the database has a problem".
_BAD_BODY: Final = frozenset(
    {
        "ATTEMPT_TO_READ_AFTER_EOF",
        "CANNOT_READ_ALL_DATA",
        "INCORRECT_DATA",
        "PROTOBUF_BAD_CAST",
        "TOO_LARGE_STRING_SIZE",
        "UNKNOWN_PROTOBUF_FORMAT",
    }
)
#: Errors that no waiting mends: the schema or the user's rights are not what they must be.
_REFUSED: Final = frozenset(
    {
        "ACCESS_DENIED",
        "AUTHENTICATION_FAILED",
        "ILLEGAL_COLUMN",
        "ILLEGAL_TYPE_OF_ARGUMENT",
        "NOT_ENOUGH_PRIVILEGES",
        "NOT_FOUND_COLUMN_IN_BLOCK",
        "NO_SUCH_COLUMN_IN_TABLE",
        "NUMBER_OF_COLUMNS_DOESNT_MATCH",
        "QUERY_IS_PROHIBITED",
        "READONLY",
        "SYNTAX_ERROR",
        "THERE_IS_NO_COLUMN",
        "TYPE_MISMATCH",
        "UNKNOWN_DATABASE",
        "UNKNOWN_FORMAT",
        "UNKNOWN_FUNCTION",
        "UNKNOWN_IDENTIFIER",
        "UNKNOWN_SETTING",
        "UNKNOWN_TABLE",
        "UNKNOWN_TYPE",
        "UNKNOWN_USER",
        "WRONG_PASSWORD",
    }
)
#: Names of errors as the database writes them.
_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\b")


class BadBody(StorageError):
    """The batch is no OTLP request of its signal: set it aside, or split it to find the bad request."""


class Refused(StorageError):
    """Storage will take nothing of this signal until somebody changes its schema or the user's rights."""


def envelope(received_ns: int, oldest_ns: int = RECORDED_FROM_NS, newest_ns: int = RECORDED_TO_NS) -> bytes:
    """Goes before the bodies of a batch: when it was received, and which times in it are believed (ns since the epoch).

    Others are stored as times that can be, and flagged (`Clamped`), with what was sent beside them. It must be the same
    whenever a batch is sent again: a time that moved into another partition would be a second row.
    """
    return _ENVELOPE_TAG + bytes((_ENVELOPE.size,)) + _ENVELOPE.pack(received_ns, oldest_ns, newest_ns)


def envelope_bytes(data: bytes) -> int:
    """How long the envelope is with which a batch begins; 0 where it has none. Those of older ones are shorter."""
    known = data.startswith(_ENVELOPE_TAG) and len(data) > len(_ENVELOPE_TAG) and data[2] in (16, _ENVELOPE.size)
    return len(_ENVELOPE_TAG) + 1 + data[2] if known else 0


def insert(client: Client, signal: Signal, body: bytes | Path, token: str) -> int:
    """Stores one batch, once.

    Args:
        client: a client that may write.
        signal: which kind of requests `body` holds.
        body: concatenated `Export…ServiceRequest` messages, or a file of them.
        token: names the batch. A batch that is sent again under its token, whole or after a crash half way, is not
            stored twice.

    Returns:
        The batch's size in bytes. (Rows are not counted: the database does not say how many a view wrote.)

    Raises:
        BadBody: the bytes are no such request; nothing is stored.
        Refused: the schema or the user's rights are not as they must be; no retry helps until that is mended.
        StorageError: something that may pass (network, memory, disk); try again with the same token.
    """
    size = body.stat().st_size if isinstance(body, Path) else len(body)
    if size == 0:
        return 0
    try:
        _send(client, signal, body, token)
    except Exception as error:
        if _TOO_DEEP not in str(error):
            raise _failure(signal, error) from error
        data = body.read_bytes() if isinstance(body, Path) else body
        try:
            _send(client, signal, flatten(signal, data), token)
        except Exception as again:
            raise _failure(signal, again) from again
    return size


def _send(client: Client, signal: Signal, body: bytes | Path, token: str) -> None:
    settings = {**_settings(signal, _is_embedded(client)), "insert_deduplication_token": token}
    if isinstance(body, Path):
        with body.open("rb") as file:
            client.raw_insert(f"otlp_{signal}", insert_block=file, fmt="ProtobufSingle", settings=settings)
    else:
        client.raw_insert(f"otlp_{signal}", insert_block=body, fmt="ProtobufSingle", settings=settings)


@lru_cache(maxsize=6)
def _settings(signal: Signal, is_embedded: bool) -> Mapping[str, Any]:
    return {
        **(_schema_file(signal) if is_embedded else _schema_text(signal)),
        "format_schema_message_name": "Request",
        "input_format_protobuf_oneof_presence": 1,
        "output_format_json_escape_forward_slashes": 0,
        "output_format_json_quote_denormals": 0,
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        # Spans with wild timestamps must not hold up the batch that they came in.
        "throw_on_max_partitions_per_insert_block": 0,
        # Both cost more than they save: planning is most of a small insert, branches are cheap.
        "query_plan_merge_expressions": 0,
        "short_circuit_function_evaluation": "disable",
    }


def _schema_text(signal: Signal) -> Mapping[str, str]:
    """The schema as text, for a server, which does not have our files."""
    texts = [(_PROTOS / f"{name}.proto").read_text() for name in ("common", signal)]
    return {"format_schema_source": "string", "format_schema": texts[0] + texts[1].split(_IMPORT, 1)[1]}


def _schema_file(signal: Signal) -> Mapping[str, str]:
    """The schema as a file: of a text the embedded engine would keep a copy, `__cache__` in the working directory."""
    return {"format_schema_source": "file", "format_schema": str(_PROTOS / f"{signal}.proto")}


def _is_embedded(client: Client) -> bool:
    return str(client.uri).startswith("chdb:")


def is_readable(client: Client, signal: Signal) -> bool:
    """Whether the database can read requests of a signal at all: it is sent one that holds nothing."""
    try:
        _send(client, signal, envelope(0), f"probe-{signal}")
    except Exception as error:
        return not isinstance(_failure(signal, error), BadBody)
    return True


def _failure(signal: Signal, error: Exception) -> StorageError:
    codes = set(_NAME.findall(str(error)))
    if codes & _BAD_BODY or any(code.startswith("CANNOT_PARSE") for code in codes):
        return BadBody(f"these bytes are no OTLP {signal} request ({reason(error)}): set them aside")
    if codes & _REFUSED:
        return Refused(f"storage does not take {signal} ({reason(error)}): mend its schema or the user's rights")
    return StorageError(f"cannot store {signal} ({reason(error)}): try again with the same token")
