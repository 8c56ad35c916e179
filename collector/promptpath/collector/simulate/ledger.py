"""The truth of one prompt's time: where the request was, and from the first token on, where that token was.

The simulation writes it down as it happens, in true time, instant by instant and without gaps; so the parts sum to the
TTFT by themselves. What the parts mean is the documentation's "Definitions, exactly".
"""

from __future__ import annotations

from promptpath.semconv import Part


class Ledger:
    """Time spent by one prompt on the way to its first token.

    Attributes:
        start_ns, at_ns: when it began, and up to when time is accounted for.
        spent: [part, ns] in order.
        retry_ns: time lost in attempts that failed and were made again, back-off included.
        source: outermost hop that has seen the first token so far, '' if none.
    """

    __slots__ = ("at_ns", "retry_ns", "source", "spent", "start_ns")

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.at_ns = start_ns
        self.spent: list[list[str | int]] = []
        self.retry_ns = 0
        self.source = ""

    def spend(self, part: Part, until_ns: int) -> list[str | int]:
        """Time up to an instant belongs to a part. Returns the entry, whose part may be put right later."""
        entry: list[str | int] = [part.value, until_ns - self.at_ns]
        assert until_ns >= self.at_ns, "time runs backwards"
        self.spent.append(entry)
        self.at_ns = until_ns
        return entry

    def attempt(self) -> tuple[int, int, int]:
        """An attempt begins: what `lose` wants back if it fails."""
        return len(self.spent), self.at_ns, self.retry_ns

    def lose(self, mark: tuple[int, int, int], failed_ns: int, again_ns: int) -> None:
        """The attempt failed before its first token and is made again: all of it, and the back-off, is the router's."""
        count, began_ns, retry_ns = mark
        del self.spent[count:]
        self.at_ns = began_ns
        self.source = ""
        self.spend(Part.ROUTER, failed_ns)
        self.spend(Part.ROUTER, again_ns)
        self.retry_ns = retry_ns + again_ns - began_ns

    def seen(self, source: str) -> None:
        """A hop (client, gateway, router, engine) has the first token now, at `at_ns`."""
        self.source = source

    @property
    def ttft_ns(self) -> int | None:
        """Start to the first token at the outermost hop that saw it; None if none did."""
        return self.at_ns - self.start_ns if self.source else None

    def parts(self) -> dict[str, int]:
        """Every part of the TTFT [ns]."""
        sums = {part.value: 0 for part in Part}
        for part, ns in self.spent:
            sums[str(part)] += int(ns)
        return sums
