"""TLS for the receivers: the files, checked before anything listens, and read again when they change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptpath.collector.errors import CollectorError

_log = logging.getLogger(__name__)


class TlsError(CollectorError):
    """A certificate, key or client CA that cannot be used; the message names the option and the file."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and the CAs that clients must have one of (mTLS)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For servers, TLS 1.2 and newer.

        Raises:
            TlsError: a file is not there, is none of its kind, or the key belongs to another certificate.
        """
        for path, option in ((self.cert, "--tls-cert"), (self.key, "--tls-key"), (self.client_ca, "--tls-client-ca")):
            if path is not None:
                _readable(path, option)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError:
                raise TlsError(f"--tls-client-ca {self.client_ca}: no certificates in PEM in it") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def stamp(self) -> tuple[float, ...]:
        """Changes when a file does."""
        paths = [self.cert, self.key, *([self.client_ca] if self.client_ca is not None else [])]
        try:
            return tuple(part for path in paths for part in (path.stat().st_mtime, path.stat().st_ino))
        except OSError:
            return ()

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        except _Encrypted:
            raise TlsError(
                f"--tls-key {self.key}: it is encrypted, which no program can answer for: decrypt it"
            ) from None
        except ssl.SSLError as error:
            if "KEY_VALUES_MISMATCH" in str(error):
                raise TlsError(f"--tls-key {self.key}: it is not the key of {self.cert}") from None
            which, path, what = "--tls-cert", self.cert, "certificate"
            if b"CERTIFICATE-----" in self.cert.read_bytes():
                which, path, what = "--tls-key", self.key, "private key"
            raise TlsError(f"{which} {path}: no {what} in PEM in it") from None


class Tls:
    """TLS of a running collector. `refresh` takes in changed files for what handshakes from then on."""

    def __init__(self, files: TlsFiles) -> None:
        """Reads the files.

        Raises:
            TlsError: they cannot be used.
        """
        self.files = files
        self.context = files.context()
        self._stamp = files.stamp()

    def refresh(self) -> None:
        """Looks whether the files have changed; what cannot be used is logged, and the old stays in force.

        A context that is in use takes a new certificate, but keeps its client CAs.
        """
        stamp = self.files.stamp()
        if stamp in (self._stamp, ()):
            return
        self._stamp = stamp
        try:
            self.files.context()
            self.context.load_cert_chain(self.files.cert, self.files.key)
        except (TlsError, OSError, ssl.SSLError) as error:
            _log.error("%s; the certificate read before stays in use", error)
        else:
            _log.info("TLS: read %s again", self.files.cert)

    def grpc_credentials(self) -> Any:
        """For a gRPC server; its library asks for the files before every handshake."""
        import grpc

        def configuration() -> Any:
            return grpc.ssl_server_certificate_configuration(
                [(self.files.key.read_bytes(), self.files.cert.read_bytes())],
                None if self.files.client_ca is None else self.files.client_ca.read_bytes(),
            )

        return grpc.dynamic_ssl_server_credentials(
            configuration(),
            self._changed(configuration),
            require_client_authentication=self.files.client_ca is not None,
        )

    def _changed(self, configuration: Callable[[], Any]) -> Callable[[], Any]:
        """What gives a new configuration when the files have changed and can be used, else None."""
        seen = self.files.stamp()

        def fetch() -> Any:
            nonlocal seen
            stamp = self.files.stamp()
            if stamp in (seen, ()):
                return None
            seen = stamp
            try:
                self.files.context()
                return configuration()
            except (TlsError, OSError, ssl.SSLError) as error:
                _log.error("%s; the certificate read before stays in use", error)
                return None

        return fetch


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    raise _Encrypted


def _readable(path: Path, option: str) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise TlsError(f"{option} {path}: {error.strerror}") from None
