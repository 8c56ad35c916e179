"""Run by the interpreter before the program, where `promptpath run` has put this folder on `PYTHONPATH`.

Another `sitecustomize` that this one hides runs first, as it would have; a provider that it sets is then used.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys


def _run_hidden() -> None:
    """Run the `sitecustomize` that is found without this folder, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _is_helper() -> bool:
    """A process of Python's own that runs no program: the resource tracker."""
    return any("multiprocessing.resource_tracker" in argument for argument in sys.orig_argv[:4])


def _instrument() -> None:
    try:
        import promptpath.auto  # noqa: F401
    except ImportError as error:
        # Said by the program that was asked for, not by every interpreter that it starts in turn.
        if os.environ.get("PROMPTPATH_RUN_PID") == str(os.getpid()):
            print(
                f"promptpath: {sys.executable} cannot import promptpath ({error}); the program runs without it. "
                "Install promptpath into that environment",
                file=sys.stderr,
            )
    except Exception as error:
        print(f"promptpath: the program runs without it: {error}", file=sys.stderr)


try:
    _run_hidden()
finally:
    if not _is_helper():
        _instrument()
