"""Finding the shims and setting each to work when, and only when, its library is imported.

Shims are entry points of the group `opentelemetry_instrumentor` whose names start with `promptpath_`, so
`opentelemetry-instrument` finds the same ones. A shim is a `BaseInstrumentor` with one thing more:

    library: ClassVar[tuple[str, ...]]      # module names; the import of any one sets it to work

`OTEL_PYTHON_DISABLED_INSTRUMENTATIONS` (names, or `*`) keeps shims off.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any, Final, Literal

import wrapt
from packaging.requirements import Requirement

from promptpath.instrumentation import meters
from promptpath.instrumentation.safety import note_failure

GROUP: Final = "opentelemetry_instrumentor"
PREFIX: Final = "promptpath_"
#: Shims of inference engines, by the place of their module.
_ENGINES: Final = "promptpath.instrumentation.shims.engine."

State = Literal["instrumented", "waiting", "busy", "disabled", "conflict", "failed", "not installed"]

_log: Final = logging.getLogger("promptpath")
_lock: Final = threading.Lock()


@dataclass
class ShimStatus:
    """What became of a shim.

    Attributes:
        name: its entry point's name.
        library: the modules whose import sets it to work.
        installed: version of the library that is installed, None if it is not.
        state: `waiting` until the library is imported.
        reason: why it is not instrumented, where that needs saying.
    """

    name: str
    library: tuple[str, ...] = ()
    installed: str | None = None
    state: State = "waiting"
    reason: str = ""
    is_engine: bool = False


_shims: Final[dict[str, ShimStatus]] = {}
_instrumentors: Final[dict[str, Any]] = {}


def activate() -> None:
    """Register every shim. Idempotent; never raises."""
    disabled = {name.strip() for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
    for found in _entry_points():
        status = ShimStatus(found.name, is_engine=found.value.startswith(_ENGINES))
        if _shims.setdefault(found.name, status) is not status:
            continue
        if found.name in disabled or "*" in disabled:
            status.state, status.reason = "disabled", "by OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
            continue
        try:
            _register(found, status)
        except Exception as error:
            _fail(status, error)


def _entry_points() -> list[EntryPoint]:
    try:
        return [found for found in entry_points(group=GROUP) if found.name.startswith(PREFIX)]
    except Exception as error:
        note_failure("registry.entry_points", error)
        return []


def _register(found: EntryPoint, status: ShimStatus) -> None:
    instrumentor = found.load()()
    _instrumentors[found.name] = instrumentor
    status.library = tuple(instrumentor.library)

    def imported(_module: object) -> None:
        _imported(status, instrumentor)

    for module in status.library:
        wrapt.register_post_import_hook(imported, module)


def _imported(status: ShimStatus, instrumentor: Any) -> None:
    # The lock covers the claim only. Instrumenting may import, and an import lock taken under ours could meet a thread
    # that waits for ours under that import lock.
    with _lock:
        if status.state != "waiting":
            return
        status.state = "busy"
    try:
        status.installed, conflict = _check(instrumentor.instrumentation_dependencies())
        if conflict:
            status.state, status.reason = "conflict", conflict
            _log.warning("promptpath: %s is not instrumented: %s", status.name, conflict)
            return
        if not instrumentor.is_instrumented_by_opentelemetry:
            # Ours has been checked: any one of the libraries is enough, which the base class cannot say.
            instrumentor.instrument(skip_dep_check=True)
        status.state = "instrumented"
    except Exception as error:
        _fail(status, error)
        return
    if status.is_engine:
        meters.ensure()


def _fail(status: ShimStatus, error: Exception) -> None:
    status.state, status.reason = "failed", f"{type(error).__name__}: {error}"
    note_failure(f"shim {status.name}", error)


def _check(requirements: Any) -> tuple[str | None, str]:
    """The installed version, and why it cannot be instrumented ('' if it can). One satisfied requirement is enough."""
    installed: str | None = None
    unmet: list[str] = []
    for text in requirements:
        requirement = Requirement(text)
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            continue
        installed = installed or found
        if requirement.specifier.contains(found, prereleases=True):
            return found, ""
        unmet.append(f"{requirement.name} {found} is installed, and {text} is what it knows")
    # Imported but not installed (a checkout on the path): nothing is known against it.
    return installed, "; ".join(unmet)


def deactivate() -> None:
    """Take every shim off again and forget it."""
    for name, status in list(_shims.items()):
        if status.state == "instrumented":
            try:
                _instrumentors[name].uninstrument()
            except Exception as error:
                note_failure(f"shim {name}", error)
        # A hook that still waits for its library finds this and does nothing.
        status.state, status.reason = "disabled", "taken off"
    _shims.clear()
    _instrumentors.clear()


def status() -> dict[str, ShimStatus]:
    """What became of each shim, by name."""
    return {name: _look_up(shim, _instrumentors.get(name)) for name, shim in list(_shims.items())}


def _look_up(shim: ShimStatus, instrumentor: Any) -> ShimStatus:
    """A copy of the status; of a waiting shim, with what it waits for."""
    if shim.state != "waiting" or instrumentor is None:
        return replace(shim)
    if instrumentor.is_instrumented_by_opentelemetry:  # by opentelemetry-instrument
        return replace(shim, state="instrumented")
    try:
        installed, conflict = _check(instrumentor.instrumentation_dependencies())
    except Exception as error:
        note_failure(f"shim {shim.name}", error)
        return replace(shim)
    if conflict:
        return replace(shim, installed=installed, reason=conflict)
    if installed is None:
        return replace(shim, state="not installed")
    return replace(shim, installed=installed, reason="its library has not been imported")
