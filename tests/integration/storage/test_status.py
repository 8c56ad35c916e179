"""`promptpath storage`: what it says of a store, also while a collector has it open."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from promptpath.cli.app import root
from promptpath.storage import StorageError, ingest, owner
from promptpath.storage.rows import insert_prompts
from promptpath.storage.schema import migrations
from promptpath.storage.status import store_status
from tests.integration.collector.running import RunningCollector

from .otlp_rows import CAPTURES, requests
from .prompt_rows import T0_NS, prompt, table

_BODY = b"".join(requests(CAPTURES / "vllm-detailed" / "traces.pb"))


def _run(*arguments: str) -> str:
    done = CliRunner().invoke(root, ["storage", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_tables(store: Any) -> None:
    ingest.insert(store.client, "traces", _BODY, "a")
    insert_prompts(store.client, table(prompt(1), prompt(2)))
    found = store_status(store.open(readonly=True))
    assert (found.schema_version, found.schema_known) == (len(migrations()), len(migrations()))
    tables = {one.table: one for one in found.tables}
    assert set(tables) >= {"otel_traces", "prompts_rows", "otel_logs", "schema_migrations"}

    (bounds,) = store.dicts(
        "SELECT toUnixTimestamp64Micro(toDateTime64(min(Timestamp), 6)) AS first,"
        " toUnixTimestamp64Micro(toDateTime64(max(Timestamp), 6)) AS last, count() AS spans FROM otel_traces"
    )
    spans = tables["otel_traces"]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert (spans.rows, spans.parts, spans.partitions, spans.ttl_s) == (bounds["spans"], 1, 1, None)
    assert spans.oldest == epoch + dt.timedelta(microseconds=bounds["first"])
    assert spans.newest == epoch + dt.timedelta(microseconds=bounds["last"])
    assert 0 < spans.bytes_compressed < spans.bytes_uncompressed
    assert spans.bytes_compressed < spans.bytes_on_disk
    assert spans.bytes_per_row == round(spans.bytes_compressed / spans.rows, 1)

    prompts = tables["prompts_rows"]
    assert prompts.oldest == epoch + dt.timedelta(microseconds=(T0_NS + 1) // 1000)
    empty = tables["otel_logs"]
    assert (empty.rows, empty.parts, empty.bytes_per_row, empty.oldest, empty.newest) == (0, 0, None, None, None)
    assert tables["trace_arrivals"].ttl_s == 30 * 86_400


def test_the_command_opens_a_store_and_asks_its_collector(tmp_path: Path) -> None:
    url = f"chdb://{tmp_path}"
    assert "applied 0001 traces" in _run("migrate", "--storage", url, "--ttl", "otel_logs=3d,prompts=0")
    assert _run("migrate", "--storage", url, "--ttl", "otel_logs=3d", "--ttl", "prompts=0") == "up to date\n"
    assert _run("migrate", "--storage", url, "--dry-run") == ""
    alone = json.loads(_run("status", "--storage", url, "--format", "json"))
    assert {one["table"]: one["ttl_s"] for one in alone["tables"]}["otel_logs"] == 3 * 86_400
    assert alone["journal"]["segments"] == 0
    assert owner.find(tmp_path) is None

    with RunningCollector(tmp_path, retention={"otel_traces": 3600}) as collector:
        request = urllib.request.Request(
            f"http://127.0.0.1:{collector.ports.http}/v1/traces", _BODY, {"Content-Type": "application/x-protobuf"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        # Another process finds the owner of the store by itself.
        command = [sys.executable, "-m", "promptpath.cli", "storage", "status", "--storage", url, "--format", "json"]
        elsewhere = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
        assert elsewhere["schema_version"] == len(migrations())
        # This one is the owner: it asks by the address.
        sql = f"clickhouse://127.0.0.1:{collector.ports.sql}/promptpath"
        arguments = ["status", "--storage", sql, "--journal", str(tmp_path / "journal")]
        served = json.loads(_run(*arguments, "--format", "json"))
        shown = _run(*arguments)
    assert {one["table"] for one in served["tables"]} == {one["table"] for one in alone["tables"]}
    assert {one["table"]: one["ttl_s"] for one in served["tables"]}["otel_traces"] == 3600
    assert served["schema_version"] == len(migrations())
    assert f"schema   version {len(migrations())} of {len(migrations())}" in shown
    assert "otel_traces_trace_id_ts" in shown
    assert "1h" in shown


def test_what_waits_in_the_journal(tmp_path: Path) -> None:
    _run("migrate", "--storage", f"chdb://{tmp_path}")
    journal = tmp_path / "elsewhere"
    (journal / "quarantine").mkdir(parents=True)
    (journal / "1.otlp").write_bytes(b"x" * 2048)
    (journal / "2.otlp").write_bytes(b"x" * 1024)
    (journal / "quarantine" / "3.0.pb").write_bytes(b"x")
    arguments = ["status", "--storage", f"chdb://{tmp_path}", "--journal", str(journal)]
    found = json.loads(_run(*arguments, "--format", "json"))["journal"]
    assert found["oldest_age_s"] >= 0
    del found["oldest_age_s"]
    assert found == {"folder": str(journal), "segments": 2, "bytes": 3072, "quarantined": 1}
    shown = _run(*arguments)
    assert re.search(r"journal  2 segments, 3\.0 KiB, the oldest \d+ s old; 1 requests set aside", shown)


def test_a_store_without_a_schema(tmp_path: Path) -> None:
    from promptpath.storage import connect

    client = connect(f"chdb://{tmp_path}")
    with pytest.raises(StorageError, match="the store is empty: start `promptpath collector`"):
        store_status(client)
    client.close()


def test_a_dry_run_makes_no_store(tmp_path: Path) -> None:
    printed = _run("migrate", "--dry-run", "--storage", f"chdb://{tmp_path}/none")
    assert not (tmp_path / "none").exists()
    assert [line for line in printed.splitlines() if line.startswith("-- 0")] == [
        f"-- {step.version:04d} {step.name}" for step in migrations()
    ]
    assert printed.count(";\n\n") == 1 + sum(len(step.statements) for step in migrations())
    on_cluster = _run("migrate", "--dry-run", "--storage", "clickhouse://127.0.0.1:1/prod?cluster=big")
    assert "this is the schema from its beginning" in on_cluster
    assert "otel_traces_local ON CLUSTER 'big'" in on_cluster
    assert "Distributed('big', 'prod', 'otel_traces_local', cityHash64(TraceId))" in on_cluster


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ttl", "spans=1d"], "no table 'spans' has a retention of its own"),
        (["--cluster", "a'b", "--dry-run"], "is no name of a cluster"),
    ],
)
def test_wrong_use(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    from promptpath.cli.app import main

    assert main(["storage", "migrate", *arguments]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_settings_may_stand_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "promptpath.toml"
    config.write_text(f'storage = "chdb://{tmp_path}/store"\nttl = "otel_traces=7d,otel_logs=0"\n')
    _run("migrate", "--config", str(config))
    found = json.loads(_run("status", "--config", str(config), "--format", "json"))
    kept = {one["table"]: one["ttl_s"] for one in found["tables"]}
    assert (kept["otel_traces"], kept["otel_logs"]) == (7 * 86_400, None)
