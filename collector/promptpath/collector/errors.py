"""What keeps a collector from starting, and a request from being kept. Messages are one line and say what to do."""

from __future__ import annotations


class CollectorError(Exception):
    """The collector cannot run as it is configured."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class PortTaken(CollectorError):
    """Somebody else listens on a port that was asked for."""

    def __init__(self, option: str, host: str, port: int) -> None:
        super().__init__(f"port {port} on {host} is taken: stop what listens there, or choose another with {option}")
        self.option = option
        self.port = port


class JournalError(Exception):
    """A request cannot be kept now; the sender is asked to come back."""


class JournalFull(JournalError):
    """The backlog has reached its limit: storage is slower than the senders, or does not answer."""


class JournalUnavailable(JournalError):
    """The disk refuses, or the collector is stopping."""
