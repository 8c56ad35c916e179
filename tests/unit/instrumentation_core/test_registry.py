"""Shims are found by entry point and act when their library is imported; all with real distributions on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promptpath.instrumentation import registry

SHIM = """
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from promptpath.instrumentation.wrapping import unwrap_all, wrap

class Instrumentor(BaseInstrumentor):
    library = {library!r}
    def instrumentation_dependencies(self):
        return {needs!r}
    def _instrument(self, **kwargs):
        {body}
        wrap("{module}", "hello", lambda wrapped, _, args, kwargs: wrapped(*args, **kwargs) + "!")
    def _uninstrument(self, **kwargs):
        unwrap_all()
"""

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Puts a library `pp_<name>` and its shim `promptpath_<name>` on the path; returns the shim's name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", raising=False)

    def make_one(
        name: str,
        *,
        version: str | None = "2.5",
        needs: tuple[str, ...] | None = None,
        body: str = "pass",
        also: tuple[str, ...] = (),
    ) -> str:
        module = f"pp_{name}"
        (tmp_path / f"{module}.py").write_text("def hello():\n    return 'hello'\n")
        if version is not None:
            info = tmp_path / f"pp_{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pp-{name}\nVersion: {version}\n")
        shim = tmp_path / f"pp_{name}_shim-1.0.dist-info"
        shim.mkdir()
        (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pp-{name}-shim\nVersion: 1.0\n")
        (shim / "entry_points.txt").write_text(
            f"[opentelemetry_instrumentor]\npromptpath_{name} = pp_{name}_shim:Instrumentor\n"
        )
        (tmp_path / f"pp_{name}_shim.py").write_text(
            SHIM.format(library=(module, *also), needs=needs or (f"pp-{name} >= 2, < 3",), body=body, module=module)
        )
        return f"promptpath_{name}"

    registry.deactivate()
    yield make_one
    registry.deactivate()
    for module in [module for module in sys.modules if module.startswith("pp_")]:
        del sys.modules[module]


def hello(name: str) -> str:
    __import__(f"pp_{name}")
    return str(sys.modules[f"pp_{name}"].hello())


def state(shim: str) -> tuple[str, str | None, str]:
    found = registry.status()[shim]
    return found.state, found.installed, found.reason


def test_a_library_imported_after(make: Make) -> None:
    shim = make("after")
    registry.activate()
    assert state(shim) == ("waiting", "2.5", "its library has not been imported")
    assert "pp_after" not in sys.modules
    assert hello("after") == "hello!"
    assert state(shim) == ("instrumented", "2.5", "")
    registry.activate()
    assert hello("after") == "hello!"
    registry.deactivate()
    assert hello("after") == "hello"


def test_a_library_imported_before(make: Make) -> None:
    shim = make("before")
    assert hello("before") == "hello"
    registry.activate()
    assert hello("before") == "hello!"
    assert state(shim) == ("instrumented", "2.5", "")


@pytest.mark.parametrize("disabled", ["promptpath_off", "other, promptpath_off", "*"])
def test_a_disabled_shim(make: Make, monkeypatch: pytest.MonkeyPatch, disabled: str) -> None:
    shim = make("off")
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", disabled)
    registry.activate()
    assert hello("off") == "hello"
    assert state(shim) == ("disabled", None, "by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS")


def test_a_release_that_the_shim_does_not_know(make: Make) -> None:
    shim = make("new", version="3.0")
    registry.activate()
    assert hello("new") == "hello"
    assert state(shim) == ("conflict", "3.0", "pp-new 3.0 is installed, and pp-new >= 2, < 3 is what it knows")


def test_any_one_of_two_libraries_is_enough(make: Make) -> None:
    shim = make("either", needs=("pp-absent >= 1", "pp-either >= 2"), also=("pp_absent",))
    registry.activate()
    assert hello("either") == "hello!"
    assert state(shim) == ("instrumented", "2.5", "")


def test_a_library_that_is_not_installed(make: Make) -> None:
    shim = make("absent", version=None)
    registry.activate()
    assert state(shim) == ("not installed", None, "")
    # A checkout on the path has no version; nothing is known against it.
    assert hello("absent") == "hello!"
    assert state(shim) == ("instrumented", None, "")


def test_a_broken_shim_harms_nobody(make: Make) -> None:
    shim = make("broken", body="raise RuntimeError('broken')")
    registry.activate()
    assert hello("broken") == "hello"
    assert state(shim) == ("failed", "2.5", "RuntimeError: broken")


def test_a_shim_that_cannot_be_loaded(make: Make, tmp_path: Path) -> None:
    shim = make("unloadable")
    (tmp_path / "pp_unloadable_shim.py").write_text("import there_is_no_such_module\n")
    registry.activate()
    assert hello("unloadable") == "hello"
    assert state(shim)[0] == "failed"


def test_ours_are_found() -> None:
    registry.deactivate()
    registry.activate()
    assert {"promptpath_asgi", "promptpath_httpx", "promptpath_openai"} <= set(registry.status())
    registry.deactivate()
