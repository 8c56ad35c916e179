"""`promptpath run [--service NAME] [--role ROLE] -- COMMAND...`: instrument a program without a change to its code.

The command replaces this process, with a folder first on `PYTHONPATH` whose `sitecustomize` imports `promptpath.auto`.
So it works for scripts, modules and console scripts (`uvicorn`, `vllm serve`), and for the Python processes that they
start in turn.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

#: Values of `PROMPTPATH_ROLE`: what the requests of a process are.
ROLES: Final = ("gateway", "router", "server", "edge")
USAGE: Final = "usage: promptpath run [--service NAME] [--role gateway|router|server|edge] -- COMMAND [ARGUMENT ...]"
#: The folder with our `sitecustomize.py`.
AUTOLOAD: Final = Path(__file__).with_name("autoload")

_OPTIONS: Final = {"--service": "OTEL_SERVICE_NAME", "--role": "PROMPTPATH_ROLE"}


class UsageError(Exception):
    """The command line cannot be understood; the text says what is wrong and what to do."""


def parse(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command line into environment variables to set and the command.

    Raises:
        UsageError: unknown option, missing value, unknown role, or no command.
    """
    variables: dict[str, str] = {}
    rest = list(argv)
    while rest and rest[0].startswith("-"):
        option, has_value, value = rest.pop(0).partition("=")
        if option == "--":
            break
        if option not in _OPTIONS:
            raise UsageError(f"unknown option {option}; put -- before the command")
        if not has_value:
            if not rest or rest[0] == "--":
                raise UsageError(f"{option} needs a value")
            value = rest.pop(0)
        if option == "--role" and value not in ROLES:
            raise UsageError(f"{value!r} is no role; one of {', '.join(ROLES)}")
        variables[_OPTIONS[option]] = value
    if not rest:
        raise UsageError("no command given")
    return variables, rest


def environment(base: dict[str, str], variables: dict[str, str]) -> dict[str, str]:
    """The environment for the command: the base, the variables, and our folder first on `PYTHONPATH`."""
    changed = {**base, **variables}
    others = [path for path in changed.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(AUTOLOAD)]
    changed["PYTHONPATH"] = os.pathsep.join([str(AUTOLOAD), *others])
    # Kept over exec, so that the program asked for can be told from those that it starts.
    changed["PROMPTPATH_RUN_PID"] = str(os.getpid())
    return changed


def main(argv: Sequence[str]) -> int:
    """Replace this process by the command, instrumented. Returns only if that fails.

    Returns:
        2 for wrong use, 127 if there is no such command, 126 if it cannot be run; one line on stderr says why.
    """
    try:
        variables, command = parse(argv)
    except UsageError as error:
        return _complain(f"{error}. {USAGE}", 2)
    program = shutil.which(command[0])
    if program is None:
        if Path(command[0]).is_file():
            return _complain(
                f"{command[0]} is not executable; for a script: promptpath run -- python {command[0]}", 126
            )
        return _complain(f"no command {command[0]!r} on PATH; check its name, or give its path", 127)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        _replace(program, command, environment(dict(os.environ), variables))
    except OSError as error:
        return _complain(f"{program} cannot be run: {error.strerror}", 126)


def _replace(program: str, command: list[str], variables: dict[str, str]) -> NoReturn:
    os.execve(program, command, variables)


def _complain(text: str, code: int) -> int:
    print(f"promptpath run: {text}", file=sys.stderr)
    return code
