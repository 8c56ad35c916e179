"""Who a process says it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from promptpath.instrumentation import resource


@pytest.mark.parametrize(
    ("command_line", "name"),
    [
        (["/usr/bin/python3", "/srv/app.py", "--x"], "app"),
        (["python", "-X", "dev", "-u", "/venv/bin/uvicorn", "app:app"], "uvicorn"),
        (["python", "-m", "vllm.entrypoints.api_server", "-m", "x"], "vllm.entrypoints.api_server"),
        (["python", "-m", "pkg.__main__"], "pkg"),
        (["python", "/srv/pkg/__main__.py"], "pkg"),
        (["python", "-c", "print()"], "python"),
        (["python"], "python"),
    ],
)
def test_the_name_of_a_program(command_line: list[str], name: str) -> None:
    assert resource.service_name(command_line) == name


def test_a_spawned_worker_has_its_parents_name(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"]
    monkeypatch.delenv("PROMPTPATH_PARENT_SERVICE", raising=False)
    assert resource.service_name(worker) == "python"
    monkeypatch.setenv("PROMPTPATH_PARENT_SERVICE", "engine")
    assert resource.service_name(worker) == "engine"
    assert resource.service_name(["python", "other.py"]) == "other"


def test_the_host_by_what_is_there(tmp_path: Path) -> None:
    missing, empty, boot = (str(tmp_path / name) for name in ("missing", "empty", "boot"))
    Path(empty).write_text("uninitialized\n")
    Path(boot).write_text("1234\n")
    assert resource.host_id([missing, empty, boot]) == "1234"
    assert resource.host_id([missing]) == os.uname().nodename


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    ours = dict(resource.make().attributes)
    assert ours["process.pid"] == os.getpid()
    assert ours["service.name"] == resource.service_name(__import__("sys").orig_argv)
    assert {"host.id", "host.name", "service.instance.id", "telemetry.sdk.name"} <= set(ours)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.id=h,service.instance.id=i,deployment.environment=d")
    theirs = dict(resource.make().attributes)
    assert [theirs[key] for key in ("service.name", "host.id", "service.instance.id", "deployment.environment")] == [
        "mine",
        "h",
        "i",
        "d",
    ]
