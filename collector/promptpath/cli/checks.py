"""What `promptpath doctor` looks at. Each check yields findings; none needs more than what is installed."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import urlsplit

from promptpath.cli import extras, ports

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. A problem has something to do about it in its text."""

    level: Level
    about: str
    text: str

    def as_row(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def installation() -> Iterator[Finding]:
    """Version, Python, extras."""
    python = ".".join(str(number) for number in sys.version_info[:3])
    yield Finding("ok", "promptpath", f"{version('promptpath')} on Python {python}")
    for extra in extras.MODULES:
        lacking = extras.missing(extra)
        if not lacking:
            yield Finding("ok", f"extra {extra}", "installed")
        else:
            yield Finding("note", f"extra {extra}", f"not installed (pip install 'promptpath[{extra}]' adds it)")


def exporter(environment: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Where the spans of a program started from here would go, and whether somebody listens there."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield Finding("problem", "exporter", "OTEL_SDK_DISABLED=true: nothing is sent; unset it")
        return
    chosen = environment.get("OTEL_TRACES_EXPORTER", "otlp")
    if not chosen.startswith("otlp"):
        yield Finding("note", "exporter", f"OTEL_TRACES_EXPORTER={chosen}: spans do not go to a collector by OTLP")
        return
    url, protocol, source = otlp_endpoint(environment)
    parts = urlsplit(url if "//" in url else f"//{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("", "http", "https"):
        yield Finding("problem", "exporter", f"{source}={url} is no address: write http://HOST:PORT")
        return
    port = port or (4317 if protocol == "grpc" else 443 if parts.scheme == "https" else 80)
    if ports.answers(host, port):
        yield Finding("ok", "exporter", f"OTLP ({protocol}) to {host}:{port} ({source}); it accepts connections")
    else:
        yield Finding(
            "problem",
            "exporter",
            f"nobody listens on {host}:{port} ({source}): start 'promptpath up', or set OTEL_EXPORTER_OTLP_ENDPOINT",
        )


def otlp_endpoint(environment: Mapping[str, str]) -> tuple[str, str, str]:
    """URL, protocol, and what said so, for traces, as OpenTelemetry's variables are read."""
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or ("grpc" if environment.get("OTEL_TRACES_EXPORTER", "").endswith("grpc") else "http/protobuf")
    )
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if environment.get(name):
            return environment[name], protocol, name
    return ("http://localhost:4317" if protocol == "grpc" else "http://localhost:4318"), protocol, "default"


def shims() -> Iterator[Finding]:
    """Which libraries here are instrumented when a program imports them."""
    from promptpath.instrumentation import registry

    registry.activate()
    for name, status in sorted(registry.status().items()):
        library = name.removeprefix(registry.PREFIX)
        if status.state == "not installed" and not any(map(_is_there, status.library)):
            yield Finding("note", f"shim {library}", "its library is not installed")
        elif status.state in ("conflict", "failed") or (
            status.state == "waiting" and "is what it knows" in status.reason
        ):
            yield Finding("problem", f"shim {library}", f"cannot instrument: {status.reason}")
        elif status.state == "disabled":
            yield Finding("note", f"shim {library}", f"disabled {status.reason}")
        else:
            yield Finding("ok", f"shim {library}", f"ready for {library} {status.installed or ''}".rstrip())


def _is_there(module: str) -> bool:
    """Whether a module can be found; what it is part of is imported for that."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # what it is part of is not there
        return False


def store(storage: str | None, services: Sequence[str], quiet_minutes: int) -> Iterator[Finding]:
    """The store, and when each service was heard of last."""
    if extras.missing("collector"):
        return
    from promptpath.storage import StorageError, connect, data_dir, migrate
    from promptpath.storage import owner as owners

    try:
        folder = data_dir(storage)
        if folder is not None and not (folder / "chdb").exists():
            yield Finding("note", "storage", f"{folder} holds nothing yet: 'promptpath up' makes it")
            yield from (_silent(name, quiet_minutes) for name in services)
            return
        if folder is not None:
            owner = owners.find(folder)
            who = f"the collector with pid {owner.pid} serves it at {owner.shown_url}" if owner else "no collector runs"
            yield Finding("ok", "storage", f"{folder}: {who}")
        client = connect(storage, readonly=True)
    except StorageError as failure:
        yield Finding("problem", "storage", str(failure))
        return
    except OSError as failure:  # a folder that may not be looked into
        yield Finding("problem", "storage", f"cannot read {failure.filename} ({failure.strerror}): run as its owner")
        return
    try:
        pending = migrate(client, dry_run=True)
        if pending:
            yield Finding(
                "note", "storage", f"{len(pending)} migrations are to come: the next 'promptpath up' applies them"
            )
            return
        yield from _heard_of(client, services, quiet_minutes)
    except StorageError as failure:
        yield Finding("problem", "storage", str(failure))
    finally:
        client.close()


def _heard_of(client: Any, services: Sequence[str], quiet_minutes: int) -> Iterator[Finding]:
    prompts, newest = client.query("SELECT count(), max(start_time) FROM prompts").result_rows[0]
    yield Finding(
        "ok", "prompts", f"{prompts} stored" + (f", the newest of {newest:%Y-%m-%d %H:%M:%S} UTC" if prompts else "")
    )
    # A day back: a service that was switched off longer ago is not silent, it is gone.
    seen = client.query(
        "SELECT ServiceName, max(Timestamp), count() FROM otel_traces WHERE Timestamp > now() - INTERVAL 1 DAY "
        "GROUP BY ServiceName ORDER BY ServiceName"
    ).result_rows
    now = dt.datetime.now(dt.UTC)
    for service, last, spans in seen:
        minutes = (now - _utc(last)).total_seconds() / 60
        if minutes <= quiet_minutes:
            yield Finding("ok", f"service {service}", f"{spans} spans in a day, the last {_ago(minutes)} ago")
        elif service in services:
            yield _silent(service, quiet_minutes, f"the last came {_ago(minutes)} ago")
        else:
            text = f"no spans from {service} in {quiet_minutes} minutes; the last came {_ago(minutes)} ago"
            yield Finding("note", f"service {service}", text)
    yield from (_silent(name, quiet_minutes) for name in services if name not in {row[0] for row in seen})


def _silent(service: str, quiet_minutes: int, last: str = "none came in a day") -> Finding:
    return Finding(
        "problem",
        f"service {service}",
        f"no spans from {service} in {quiet_minutes} minutes ({last}): is it up, started with 'promptpath run' or "
        "'import promptpath.auto', and does OTEL_EXPORTER_OTLP_ENDPOINT there lead here?",
    )


def _utc(at: dt.datetime) -> dt.datetime:
    return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at


def _ago(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    if minutes < 120:
        return f"{minutes:.0f} minutes"
    return f"{minutes / 60:.0f} hours"


def listening(host: str, chosen: Mapping[str, int]) -> Iterator[Finding]:
    """Whether somebody listens on the ports that `promptpath up` takes."""
    for option, port in chosen.items():
        if port:
            taken = ports.answers(host, port, 0.5)
            yield Finding("ok", f"port {port}", f"{'in use' if taken else 'free'} (--{option})")
