"""Several servers behind one client: the next one answers where one is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from clickhouse_connect.driver.httputil import get_pool_manager_options
from urllib3 import PoolManager
from urllib3.exceptions import ConnectTimeoutError, HTTPError, MaxRetryError, NewConnectionError
from urllib3.response import BaseHTTPResponse

from promptpath.storage.urls import Host, bracketed

_log = logging.getLogger(__name__)

#: What a server that goes down, or a proxy before one that is gone, answers.
_GONE: Final = frozenset({502, 503, 504})
#: The options of a client that its pool of connections takes.
_POOL_OPTIONS: Final = ("ca_cert", "verify", "client_cert", "client_cert_key")


class FailoverPool(PoolManager):
    """Sends requests for the first host of `hosts` to whichever of them answers; safe from any thread.

    A request that found no connection goes to the next host at once: nothing has been sent. One that lost its
    connection half way fails, for it may have been carried out; the request after it goes to the next host (reads are
    repeated by the client, inserts by whoever made them, under their token).
    """

    def __init__(self, scheme: str, hosts: tuple[Host, ...], **options: Any) -> None:
        super().__init__(**options)
        self._bases = tuple(f"{scheme}://{bracketed(host)}:{port}" for host, port in hosts)
        self._at = 0
        self._lock = threading.Lock()

    @property
    def current(self) -> str:
        """The address that answers."""
        return self._bases[self._at]

    def urlopen(  # type: ignore[override]
        self, method: str, url: str, redirect: bool = True, **options: Any
    ) -> BaseHTTPResponse:
        rest = url.removeprefix(self._bases[0])
        failure: HTTPError | None = None
        for at in self._order():
            try:
                answer = super().urlopen(method, self._bases[at] + rest, redirect, **options)
            except HTTPError as error:
                self._leave(at)
                if not _was_never_sent(error):
                    raise
                failure = error
                continue
            if answer.status in _GONE:
                self._leave(at)
            return answer
        assert failure is not None
        raise failure

    def _order(self) -> Iterator[int]:
        first = self._at
        for step in range(len(self._bases)):
            yield (first + step) % len(self._bases)

    def _leave(self, at: int) -> None:
        with self._lock:
            if self._at == at:
                self._at = (at + 1) % len(self._bases)
                _log.warning("storage: %s does not answer, turning to %s", self._bases[at], self.current)


def _was_never_sent(error: HTTPError) -> bool:
    cause = error.reason if isinstance(error, MaxRetryError) else error
    return isinstance(cause, NewConnectionError | ConnectTimeoutError)


def pool_for(hosts: tuple[Host, ...], options: Mapping[str, Any]) -> FailoverPool:
    """The pool of connections of this process to some hosts; all clients share what is known of them."""
    chosen = tuple((name, options[name]) for name in _POOL_OPTIONS if name in options)
    return _pool("https" if options.get("secure") else "http", hosts, chosen)


@lru_cache(maxsize=64)
def _pool(scheme: str, hosts: tuple[Host, ...], options: tuple[tuple[str, Any], ...]) -> FailoverPool:
    # One try each: the next host is the second one.
    return FailoverPool(scheme, hosts, **get_pool_manager_options(**dict(options)))
