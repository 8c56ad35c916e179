"""What `promptpath bench NAME` measures: a module for each name, found by NAMES, with `measure(size) -> Figures`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

#: Where each is, and what it says of itself. A module is loaded when it is asked for.
NAMES: Final[dict[str, tuple[str, str]]] = {
    "assemble": ("promptpath.cli.benches.assemble", "spans made into prompts, a second of one core"),
    "size": ("promptpath.cli.benches.size", "what spans, tokens and prompts take on disk"),
    "ingest": ("promptpath.cli.benches.ingest", "OTLP from a socket to a row: CPU a span, and how long a sender waits"),
    "overhead": ("promptpath.cli.benches.overhead", "what recording costs the traced program, beside other recorders"),
    "query": ("promptpath.cli.benches.query", "how long the dashboard's queries take, directly and over HTTP"),
}


@dataclass
class Figures:
    """What a bench found. figures: in the units that their names end with. ratios: over 1, we are better; None where
    there was nothing to compare with."""

    name: str
    machine: dict[str, Any]
    figures: dict[str, float]
    ratios: dict[str, float | None] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As design §8 has it: `{"name", "machine", "figures", "ratios"}`."""
        return asdict(self)
