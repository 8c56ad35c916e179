"""The shape of the project: imports point one way, the light part stays light, a wheel holds everything."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("instrumentation", "collector", "storage", "dashboard")
# What a module of each package may import of promptpath, beside itself.
ALLOWED = {
    "promptpath.auto": {"promptpath.semconv", "promptpath.instrumentation"},
    "promptpath.semconv": set(),
    "promptpath.instrumentation": {"promptpath.semconv", "promptpath.auto"},
    "promptpath.storage": {"promptpath.semconv"},
    "promptpath.collector": {"promptpath.semconv", "promptpath.storage"},
    "promptpath.cli": {
        "promptpath.semconv",
        "promptpath.storage",
        "promptpath.collector",
        "promptpath.instrumentation",
        "promptpath.auto",
    },
    "promptpath.dashboard": {"promptpath.semconv", "promptpath.storage"},
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for folder in FOLDERS:
        base = ROOT / folder
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append((name, path))
    return found


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {node.module} if node.module != "promptpath" else {f"promptpath.{a.name}" for a in node.names}
    return names


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imported(path)
        if name.startswith("promptpath.")
        and package_of(name) != package_of(module)
        and package_of(name) not in ALLOWED[package_of(module)]
    ]
    assert wrong == []


def test_promptpath_is_a_namespace() -> None:
    assert [str(folder) for folder in FOLDERS if (ROOT / folder / "promptpath" / "__init__.py").exists()] == []
    missing = {
        str(path.parent.relative_to(ROOT))
        for name, path in modules()
        if name.count(".") >= 2 and not (path.parent / "__init__.py").exists()
    }
    assert missing == set()


def test_the_light_part_imports_nothing_of_the_extras() -> None:
    # In a process of its own: every light module is imported while the extras' libraries are made unimportable.
    code = textwrap.dedent(
        """
        import importlib, pkgutil, sys
        heavy = {"fastapi", "chdb", "streamlit", "clickhouse_connect", "pyarrow", "numpy", "altair", "uvicorn",
                 "pandas", "openai", "httpx", "httpx2", "starlette", "tokenizers", "openvino_genai", "rich",
                 "torch", "transformers", "ctranslate2", "onnxruntime_genai"}
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in heavy:
                    raise ModuleNotFoundError(f"no {name} in a light install", name=name)
        sys.meta_path.insert(0, Refuse())
        import promptpath.semconv, promptpath.instrumentation, promptpath.cli
        for info in pkgutil.walk_packages(promptpath.instrumentation.__path__, "promptpath.instrumentation."):
            if "sitecustomize" not in info.name:
                importlib.import_module(info.name)
        import promptpath.auto
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={"OTEL_SDK_DISABLED": "true", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_a_wheel_holds_every_package_and_data_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", *FOLDERS], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert inside == {name.split("/", 1)[1] for name in tracked}
