"""What can be wrong with a request, and how HTTP and gRPC say so."""

from __future__ import annotations

from http import HTTPStatus
from typing import ClassVar, Final

#: Codes of `google.rpc.Code` that the receivers answer with.
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14


class OtlpError(Exception):
    """A request that is refused for good: sending it again cannot help. The message names the fault and its place."""

    http_status: ClassVar[int]
    rpc_code: ClassVar[int]
    #: Value of the `reason` label of the refusal counter.
    reason: ClassVar[str]


class Malformed(OtlpError):
    """Bytes that are not what their content type says."""

    http_status = HTTPStatus.BAD_REQUEST
    rpc_code = INVALID_ARGUMENT
    reason = "malformed"


class TooLarge(OtlpError):
    """A body over the limit, as it came or once decompressed."""

    http_status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    rpc_code = RESOURCE_EXHAUSTED
    reason = "too_large"


class TooSlow(OtlpError):
    """A body that does not come. What was there of it is dropped; its sender may try again."""

    http_status = HTTPStatus.REQUEST_TIMEOUT
    rpc_code = DEADLINE_EXCEEDED
    reason = "too_slow"


class Unsupported(OtlpError):
    """A content type or content encoding that is not read here."""

    http_status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    rpc_code = UNIMPLEMENTED
    reason = "unsupported"
