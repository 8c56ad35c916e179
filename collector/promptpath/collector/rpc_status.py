"""`google.rpc.Status`: how both receivers say what was wrong and when to come back."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2


def status(code: int, message: str, *, retry_after_s: float | None = None) -> Any:
    """A Status message; with `retry_after_s` it carries a RetryInfo, which makes the refusal a retryable one."""
    result = status_pb2.Status(code=code, message=message)
    if retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(retry_after_s * 1e9))
        result.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return result
