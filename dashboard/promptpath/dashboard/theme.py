"""Colours of the dashboard, chosen once and used by every chart and table.

A hue says the domain, a shade within it the part, so that the breakdown and the waterfall read alike. The hues are near
those of Okabe and Ito's palette for colour-blind readers; nothing is told by colour alone (labels and tooltips say it
too).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from promptpath.semconv import STAGE_DOMAIN, Domain, Part, Stage, Status

DOMAIN_COLOR: Final[dict[Domain, str]] = {
    Domain.REQUEST_NETWORK: "#2b7bba",
    Domain.CONTROL_PLANE: "#b5529c",
    Domain.CPU: "#e69f00",
    Domain.GPU: "#109a73",
    Domain.GPU_FABRIC: "#7a7a1f",
    Domain.UNKNOWN: "#8b95a1",
}

DOMAIN_LABEL: Final[dict[Domain, str]] = {
    Domain.REQUEST_NETWORK: "Request network",
    Domain.CONTROL_PLANE: "Control plane",
    Domain.CPU: "CPU",
    Domain.GPU: "GPU / inference",
    Domain.GPU_FABRIC: "GPU fabric",
    Domain.UNKNOWN: "Unattributed",
}

PART_COLOR: Final[dict[Part, str]] = {
    Part.NETWORK: "#2b7bba",
    Part.GATEWAY: "#b5529c",
    Part.ROUTER: "#dc9ccb",
    Part.TOKENIZE: "#f4c95d",
    Part.QUEUE: "#d95f02",
    Part.PREFILL: "#109a73",
    Part.POST: "#a6761d",
    Part.STREAM: "#86bfe6",
    Part.UNATTRIBUTED: "#a3acb6",
}

PART_HELP: Final[dict[Part, str]] = {
    Part.NETWORK: "DNS, TCP, TLS, and what a caller waited beyond what its callee took, both ways",
    Part.GATEWAY: "authentication, rate limits, policy, and the gateway's own time",
    Part.ROUTER: "model choice, fallback, failed attempts, and the router's own time",
    Part.TOKENIZE: "reading the request, chat template, text to token ids",
    Part.QUEUE: "waiting in the engine's scheduler",
    Part.PREFILL: "first scheduled to first token computed, transfers to and between devices included",
    Part.POST: "token ids to text, guardrails, structure of the output",
    Part.STREAM: "first token ready, not yet handed to the socket",
    Part.UNATTRIBUTED: "inside a hop, where no stage was seen",
}

STATUS_COLOR: Final[dict[Status, str]] = {
    Status.OK: "#2b7bba",
    Status.ERROR: "#c0392b",
    Status.SERVER_ABORT: "#e0705f",
    Status.TIMEOUT: "#d95f02",
    Status.RATE_LIMITED: "#e6b800",
    Status.REJECTED: "#b5529c",
    Status.BLOCKED: "#6f4a8e",
    Status.CLIENT_ABORT: "#8b95a1",
}

QUANTILE_COLOR: Final[dict[str, str]] = {"p50": "#2b7bba", "p95": "#e69f00", "p99": "#c0392b"}

STALL_COLOR: Final = "#c0392b"
TOKEN_COLOR: Final = "#109a73"


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours that depend on the page being light or dark; the rest works on both."""

    text: str
    muted: str
    line: str
    heat: tuple[str, str]
    surface: str


LIGHT: Final = Ink(text="#1d2733", muted="#5d6b7a", line="#d9dfe7", heat=("#dcebf7", "#08306b"), surface="#ffffff")
DARK: Final = Ink(text="#dbe3ec", muted="#95a3b3", line="#333d49", heat=("#1d3a57", "#b9dcff"), surface="#12171d")


def ink(kind: Literal["light", "dark"] | str | None) -> Ink:
    """The ink for Streamlit's theme type; light where it is not known yet."""
    return DARK if kind == "dark" else LIGHT


def stage_domain(stage: str) -> Domain:
    """Domain of a stage's name, `UNKNOWN` for a stage this version has never heard of."""
    try:
        return STAGE_DOMAIN[Stage(stage)]
    except ValueError:
        return Domain.UNKNOWN


def status_color(status: str) -> str:
    """Colour of a status, that of an error for one this version has never heard of."""
    try:
        return STATUS_COLOR[Status(status)]
    except ValueError:
        return STATUS_COLOR[Status.ERROR]
