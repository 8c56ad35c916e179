"""The three signals: names, request and response messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2


class Signal(StrEnum):
    """What a request carries; the value is the last part of its HTTP path."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"

    @property
    def request(self) -> Any:
        """The protobuf class of the export request."""
        return _MESSAGES[self][0]

    @property
    def response(self) -> Any:
        """The protobuf class of the export response."""
        return _MESSAGES[self][1]

    @property
    def rejected_field(self) -> str:
        """The response's field that counts what was not accepted."""
        return _REJECTED[self]

    @property
    def rpc_method(self) -> str:
        """Full gRPC method name."""
        return _METHODS[self]


_MESSAGES: Final[dict[Signal, tuple[Any, Any]]] = {
    Signal.TRACES: (trace_service_pb2.ExportTraceServiceRequest, trace_service_pb2.ExportTraceServiceResponse),
    Signal.METRICS: (metrics_service_pb2.ExportMetricsServiceRequest, metrics_service_pb2.ExportMetricsServiceResponse),
    Signal.LOGS: (logs_service_pb2.ExportLogsServiceRequest, logs_service_pb2.ExportLogsServiceResponse),
}
_REJECTED: Final = {
    Signal.TRACES: "rejected_spans",
    Signal.METRICS: "rejected_data_points",
    Signal.LOGS: "rejected_log_records",
}
_METHODS: Final = {
    Signal.TRACES: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    Signal.METRICS: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    Signal.LOGS: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
