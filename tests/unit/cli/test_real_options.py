"""The options of the real commands: every one has its variable and its key, and help names it."""

from __future__ import annotations

import click
import pytest

from promptpath.cli.app import _COMMANDS, main, root
from promptpath.cli.options import known_keys

#: Per call, not settings: they have neither variable nor key.
PER_CALL = {"once", "quick", "slowest", "latest", "services", "config", "help"}


@pytest.fixture
def context() -> click.Context:
    return click.Context(root, info_name="promptpath")


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_has_its_variable(context: click.Context, name: str) -> None:
    found = root.get_command(context, name)
    assert found is not None
    for parameter in found.params:
        if isinstance(parameter, click.Option) and parameter.name not in PER_CALL:
            long = next(text for text in parameter.opts if text.startswith("--"))
            assert parameter.envvar == "PROMPTPATH_" + long[2:].replace("-", "_").upper()


def test_keys(context: click.Context) -> None:
    assert sorted(known_keys(root, context)) == [
        "aborts", "allow_anonymous", "arrival_rate", "arrivals", "choices", "cluster", "cors_origin",
        "dashboard_port", "doubled", "drift_ppm", "embeddings", "encoding", "endpoint", "engines", "errors",
        "format", "gateway_port", "grace_s", "grpc_port", "guardrails", "host", "hosts", "http_port",
        "journal", "journal_max_bytes",
        "late", "late_s", "limit", "log_format", "log_level", "lost", "max_body_bytes", "model",
        "non_streaming", "ntp_step", "order", "out", "output", "own_spans", "preemption", "prompts", "quiet_minutes",
        "rate", "regression", "rejections", "role", "rules", "seed", "service", "shard", "signal", "since",
        "skew", "spans", "sql_max_memory_bytes", "sql_max_result_bytes", "sql_max_result_rows",
        "sql_max_seconds", "sql_port", "stalls", "start", "status", "storage", "systems", "tenant",
        "tls_cert", "tls_client_ca", "tls_key", "tokens", "topology", "trace", "ttl", "until",
    ]  # fmt: skip


@pytest.mark.parametrize("name", _COMMANDS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: promptpath {name} ")


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in _COMMANDS)
