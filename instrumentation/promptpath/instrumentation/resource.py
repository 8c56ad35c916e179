"""Who sends the spans: the resource of a process, from `OTEL_*` and from what the machine says.

What the user has set (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`) always wins. Semantics: OpenTelemetry's resource
conventions for `host`, `process`, `service`.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from opentelemetry.sdk.resources import Resource

from promptpath import semconv

#: Set in our environment so that `multiprocessing`'s spawned children, whose command line says nothing, have our name.
PARENT_SERVICE_VARIABLE: Final = "PROMPTPATH_PARENT_SERVICE"

_MACHINE_IDS: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id")
#: Interpreter options that take a value.
_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def host_id(paths: Sequence[str] = _MACHINE_IDS) -> str:
    """The machine's id: its machine id, else the id of this boot, else its name."""
    for path in paths:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text and text != "uninitialized":
            return text
    return socket.gethostname()


def program_name(command_line: Sequence[str]) -> str:
    """What a Python process runs, from its original command line: a script's or module's name, else `python`."""
    arguments = iter(command_line[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, "python").removesuffix(".__main__")
        if argument == "-c":
            break
        if argument in _WITH_VALUE:
            next(arguments, None)
        elif not argument.startswith("-"):
            path = Path(argument)
            return path.parent.name if path.name == "__main__.py" else path.stem
    return "python"


def is_spawned_worker(command_line: Sequence[str]) -> bool:
    """Whether this is a process that `multiprocessing` has spawned."""
    return "--multiprocessing-fork" in command_line or any(
        "multiprocessing.forkserver" in argument for argument in command_line
    )


def service_name(command_line: Sequence[str]) -> str:
    """The service's name where the user has set none."""
    if is_spawned_worker(command_line):
        inherited = os.environ.get(PARENT_SERVICE_VARIABLE)
        if inherited:
            return inherited
    return program_name(command_line)


def make() -> Resource:
    """The resource of this process. Reads `OTEL_*` and the machine id; asks no network."""
    found = Resource.create()
    ours: dict[str, str | int] = {
        semconv.SERVICE_NAME: service_name(sys.orig_argv),
        semconv.SERVICE_INSTANCE_ID: str(uuid.uuid4()),
        semconv.HOST_ID: host_id(),
        semconv.HOST_NAME: socket.gethostname(),
        semconv.PROCESS_PID: os.getpid(),
    }
    given = {
        key
        for key, value in found.attributes.items()
        if key != semconv.SERVICE_NAME or not str(value).startswith("unknown_service")
    }
    return found.merge(Resource({key: value for key, value in ours.items() if key not in given}))
