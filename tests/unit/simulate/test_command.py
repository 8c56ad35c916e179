"""`promptpath simulate`: options, files, one-line errors."""

from __future__ import annotations

import json
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.cli import main
from promptpath.cli.simulate import simulate
from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.collector.simulate.scenario import ARRIVALS, DEFAULT_TOPOLOGY, Scenario, parse_systems


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["simulate", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def ids_of(body: bytes) -> list[bytes]:
    message = ExportTraceServiceRequest.FromString(body)
    return [
        span.span_id for resource in message.resource_spans for scope in resource.scope_spans for span in scope.spans
    ]


def test_defaults_are_the_scenarios() -> None:
    options: dict[str, Any] = {
        parameter.name: parameter.default for parameter in simulate.params if isinstance(parameter, click.Option)
    }
    assert parse_systems(options["systems"]) == Scenario().systems
    renamed = {"prompts": "count", "skew_s": "skew", "ntp_step_s": "ntp_step"}
    for field in fields(Scenario):
        if field.name not in ("start_ns", "topology", "regressions", "systems"):
            assert options[renamed.get(field.name, field.name)] == field.default, field.name
    assert options["topology"] == DEFAULT_TOPOLOGY
    (arrivals,) = (parameter for parameter in simulate.params if parameter.name == "arrivals")
    assert isinstance(arrivals.type, click.Choice)
    assert tuple(arrivals.type.choices) == ARRIVALS


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    code, said, _ = call(
        capsys, "--prompts", "40", "--out", str(out), "--spans", "both", "--format", "json", "--lost", "0.1"
    )
    assert code == 0
    figures = json.loads(said)
    assert sorted(path.name for path in out.iterdir()) == [
        "clocks.parquet", "traces.jsonl", "traces.pb", "truth.parquet",
    ]  # fmt: skip
    data, ids, at = (out / "traces.pb").read_bytes(), [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        ids += ids_of(data[at + 4 : at + 4 + size])
        at += 4 + size
    lines = (out / "traces.jsonl").read_bytes().splitlines()
    assert ids == [one for line in lines for one in ids_of(to_protobuf(Signal.TRACES, line))]
    assert len(lines) == figures["requests"]
    assert len(ids) == figures["spans"] - figures["lost"] + figures["doubled"]
    truth = pq.read_table(out / "truth.parquet")
    assert (truth.num_rows, sum(truth["whole"].to_pylist())) == (figures["prompts"], figures["whole_prompts"])
    assert figures["prompts"] == 40
    clocks = pq.read_table(out / "clocks.parquet")
    assert clocks.column_names == ["host", "host_name", "at", "offset_ns"]
    assert {host for row in truth["hosts"].to_pylist() for host in row} <= set(clocks["host"].to_pylist())


def test_the_same_start_gives_the_same_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert call(capsys, "--prompts", "20", "--start", "2026-01-31T12:00", "--out", name)[0] == 0
    assert (tmp_path / "a/traces.pb").read_bytes() == (tmp_path / "b/traces.pb").read_bytes()


def test_only_the_truth(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said, _ = call(capsys, "--prompts", "20", "--spans", "none", "--out", "x")
    assert code == 0
    assert "written to x: truth.parquet, clocks.parquet" in said
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["clocks.parquet", "truth.parquet"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say where to: --out DIRECTORY for files"),
        (["--out", "x", "--topology", "fool"], "topology 'fool' is not known"),
        (["--out", "x", "--regression", "stage=queue,factor=2"], "stage 'queue' is none of"),
        (["--out", "x", "--late", "2"], "2.0 is not in the range 0.0<=x<=1.0"),
        (["--out", "x", "--start", "soon"], "'soon' is no time"),
        (["--endpoint", "127.0.0.1:4318"], "is no URL of a collector: write http://host:4318"),
        (["--endpoint", "http://127.0.0.1:1", "--prompts", "3"], "cannot send to http://127.0.0.1:1"),
        (["--out", "/dev/null/x"], "/dev/null/x: Not a directory"),
    ],
)
def test_one_line_of_error(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    code, said, errors = call(capsys, *arguments)
    assert (code, said) == (2, "")
    assert says in errors
    assert errors.count("\n") == 1
