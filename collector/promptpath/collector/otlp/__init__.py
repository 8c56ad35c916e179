"""The OpenTelemetry protocol, read once for every way in: HTTP, gRPC and files.

Pure functions from bytes to a checked request. Nothing here does I/O, and nothing here runs once per span while the
data is good: protobuf is checked by the C parser, identifiers by C-driven iteration, and only a body that has
something wrong with it is walked.
"""

from promptpath.collector.otlp.encoding import decompress
from promptpath.collector.otlp.errors import Malformed, OtlpError, TooLarge, TooSlow, Unsupported
from promptpath.collector.otlp.reader import JSON, PROTOBUF, Reader, Request, media_type
from promptpath.collector.otlp.signals import Signal

__all__ = [
    "JSON",
    "PROTOBUF",
    "Malformed",
    "OtlpError",
    "Reader",
    "Request",
    "Signal",
    "TooLarge",
    "TooSlow",
    "Unsupported",
    "decompress",
    "media_type",
]
