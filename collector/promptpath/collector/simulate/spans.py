"""Spans as the simulation makes them: in true time, before any clock has shown it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from promptpath import semconv
from promptpath.collector.simulate.deliveries import Deliveries
from promptpath.collector.simulate.stack import Node, Value
from promptpath.semconv import Stage

INTERNAL: Final = 1
SERVER: Final = 2
CLIENT: Final = 3


@dataclass(eq=False, slots=True)
class Span:
    """One span of ours.

    node: the process that sends it; since_ns: when that took up the request (its clock is anchored then); start_ns,
    end_ns: true time; attributes: in order, without those that are made on sending (token gaps); error: `error.type`,
    '' if none.
    """

    node: Node
    since_ns: int
    scope: str
    name: str
    kind: int
    trace: bytes
    id: bytes
    parent: bytes
    start_ns: int
    end_ns: int = 0
    attributes: list[tuple[str, Value | tuple[int, ...]]] = field(default_factory=list)
    error: str = ""
    found: Deliveries | None = None

    def note(self, key: str, value: Value | tuple[int, ...]) -> None:
        """One more attribute."""
        self.attributes.append((key, value))


def staged(stage: Stage) -> tuple[str, str]:
    """The attribute that names a stage."""
    return _STAGED[stage]


_STAGED: Final = {stage: (semconv.STAGE, stage.value) for stage in Stage}
