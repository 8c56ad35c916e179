"""Which of the installation's extras a command needs."""

from __future__ import annotations

import importlib.util

from promptpath.cli.errors import Wrong

#: A few modules of each extra that tell whether it is installed; all of them are asked for by name in `pyproject.toml`.
MODULES: dict[str, tuple[str, ...]] = {
    "collector": ("chdb", "clickhouse_connect", "fastapi", "grpc", "pyarrow", "rich", "uvicorn"),
    "dashboard": ("altair", "clickhouse_connect", "pandas", "pyarrow", "streamlit"),
    "demo": ("fastapi", "httpx", "openai", "openvino_genai", "uvicorn"),
}


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [module for module in MODULES[extra] if importlib.util.find_spec(module) is None]


def need(command: str, *extras: str) -> None:
    """Ends a command that cannot run in this installation.

    Raises:
        Wrong: with the one command that installs what is missing.
    """
    lacking = [extra for extra in extras if missing(extra)]
    if lacking:
        modules = ", ".join(missing(lacking[0]))
        raise Wrong(
            f"'promptpath {command}' needs what is not installed here ({modules}): "
            f"pip install 'promptpath[{','.join(lacking)}]'"
        )
