"""`promptpath dashboard`: the pages, served by Streamlit in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import sys

from promptpath.cli import ports
from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import PREFIX, command, default_env, option, storage_option

_APP = "promptpath.dashboard.app"


def app_path() -> str:
    """The file that Streamlit runs, found without importing it."""
    spec = importlib.util.find_spec(_APP)
    if spec is None or spec.origin is None:
        raise Wrong(
            "the dashboard is not part of this installation: pip install --force-reinstall 'promptpath[dashboard]'"
        )
    return spec.origin


def argv(host: str, port: int) -> list[str]:
    """The command that serves the dashboard."""
    settings = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
    }
    return [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        app_path(),
        *(f"--{key}={value}" for key, value in settings.items()),
    ]


def environment(storage: str | None) -> dict[str, str]:
    """The environment of that command: it reads `storage`."""
    return default_env() | ({PREFIX + "STORAGE": storage} if storage is not None else {})


@command("dashboard")
@storage_option
@option("--host", default="127.0.0.1", help="The address to listen on.")
@option("--dashboard-port", type=int, default=8501, help="The dashboard; 0: any free one.")
def dashboard(storage: str | None, host: str, dashboard_port: int) -> None:
    """Serves the dashboard over what is stored.

    An embedded store is read through the collector that has it open, or opened where none runs.
    """
    need("dashboard", "dashboard")
    from promptpath.storage.urls import default_dir, parse

    parse(storage if storage is not None else f"chdb://{default_dir()}")
    port = ports.claim(host, dashboard_port, "--dashboard-port")
    print(f"dashboard  http://{host}:{port}", flush=True)
    command_line = argv(host, port)
    os.execve(command_line[0], command_line, environment(storage))
