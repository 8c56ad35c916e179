"""What end-to-end tests need beyond Python packages: installed once, kept under `~/.cache/promptpath-tests`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptpath.collector import auth
from tests.e2e.environments import CACHE
from tests.e2e.vllm import environment
from tests.integration.collector.running import RunningCollector

_JS = Path(__file__).parent / "js"
_INSTALL_S = 300

TOKEN = auth.new_token()
TENANT = "acme"


@pytest.fixture(scope="session")
def js() -> Path:
    """A folder with `send.js` and the packages that it needs, of exactly the versions in the lock file."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed, so OpenTelemetry's JavaScript exporters were not tested")
    names = ("package.json", "package-lock.json")
    version = hashlib.sha256(b"".join((_JS / name).read_bytes() for name in names)).hexdigest()[:12]
    folder = CACHE / f"otlp-js-{version}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in names:
                shutil.copy(_JS / name, folder)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
            assert done.returncode == 0, done.stderr
            (folder / "done").touch()
        shutil.copy(_JS / "send.js", folder)
    return folder


@pytest.fixture(scope="session")
def vllm_environment() -> environment.Environment:
    """vLLM, with the engines that run on the same torch beside it."""
    return environment.make()


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCollector]:
    """A collector that asks for tokens, as one that others reach does."""
    folder = tmp_path_factory.mktemp("collector")
    scopes = [auth.Scope.INGEST, auth.Scope.QUERY]
    auth.write(folder / "tokens.toml", [auth.entry("exporters", TENANT, TOKEN, scopes)])
    with RunningCollector(folder / "store", tokens=folder / "tokens.toml") as running:
        yield running
