"""Simulations kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.collector.simulate import Scenario, simulate
from promptpath.collector.simulate.encode import Protobuf

Row = dict[str, Any]


class Memory:
    """A sink that keeps requests."""

    def __init__(self) -> None:
        self.encoder = Protobuf()
        self.bodies: list[bytes] = []
        self.spans = 0

    def write(self, body: bytes, spans: int) -> None:
        self.bodies.append(body)
        self.spans += spans

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[list[bytes], list[Row]]]:
    """Requests and rows of the truth of a scenario."""

    def made(**knobs: Any) -> tuple[list[bytes], list[Row]]:
        out: Path = tmp_path_factory.mktemp("simulated")
        sink = Memory()
        result = simulate(Scenario(**knobs), [sink], out)
        assert sink.spans == result.counts.spans - result.counts.lost + result.counts.doubled
        return sink.bodies, pq.read_table(out / "truth.parquet").to_pylist()

    return made


@pytest.fixture(scope="session")
def spans_of() -> Callable[[list[bytes]], list[Row]]:
    """Spans in requests, as dicts."""

    def read(bodies: list[bytes]) -> list[Row]:
        found = []
        for body in bodies:
            (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
            of_resource = {pair.key: pair.value for pair in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {pair.key: pair.value for pair in span.attributes}
                    found.append(
                        {
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "name": span.name,
                            "start": span.start_time_unix_nano,
                            "end": span.end_time_unix_nano,
                            "service": of_resource["service.name"].string_value,
                            "host": of_resource["host.id"].string_value,
                            "scope": scope.scope.name,
                            "stage": attributes["promptpath.stage"].string_value
                            if "promptpath.stage" in attributes
                            else "",
                            "gaps": [one.int_value for one in attributes["promptpath.token.gaps_us"].array_value.values]
                            if "promptpath.token.gaps_us" in attributes
                            else [],
                        }
                    )
        return found

    return read
