"""Bearer tokens: who may send or query, and for which tenant.

A token is 256 random bits, of which the file keeps the SHA-256. What cannot be guessed needs neither a salt nor a slow
hash: these protect passwords, which people choose, and would only cost time on every request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import threading
import time
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Final

from promptpath.collector.errors import CollectorError

_log = logging.getLogger(__name__)

#: What a token begins with, so that people and secret scanners know one when they see it.
PREFIX: Final = "pp_"
_RANDOM_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = {"name", "tenant", "sha256", "scopes"}
#: How often a request may have the file looked at.
_LOOK_S: Final = 1.0
#: Codes of `google.rpc.Code`.
_UNAUTHENTICATED: Final = 16
_PERMISSION_DENIED: Final = 7
#: Longer values of `Authorization` are not even hashed.
_MAX_HEADER: Final = 4096


class Scope(StrEnum):
    """What a token is good for."""

    INGEST = "ingest"
    QUERY = "query"


@dataclass(frozen=True)
class Entry:
    """A token in the file. `sha256`: of the token, in hex. `tenant` is written on every row that it sends."""

    name: str
    tenant: str
    sha256: str
    scopes: frozenset[Scope]


class AuthError(Exception):
    """A request that is refused for whom it comes from. The message never has the token."""

    http_status: ClassVar[int]
    rpc_code: ClassVar[int]
    #: Value of the `reason` label of the refusal counter.
    reason: ClassVar[str]
    #: Value of `WWW-Authenticate`.
    challenge: ClassVar[str]


class Unauthenticated(AuthError):
    """No token, or one that is not known (any more)."""

    http_status = HTTPStatus.UNAUTHORIZED
    rpc_code = _UNAUTHENTICATED
    reason = "unauthenticated"
    challenge = 'Bearer realm="promptpath"'


class Forbidden(AuthError):
    """A known token without the scope that this takes."""

    http_status = HTTPStatus.FORBIDDEN
    rpc_code = _PERMISSION_DENIED
    reason = "forbidden"
    challenge = 'Bearer realm="promptpath", error="insufficient_scope"'


class TokensError(CollectorError):
    """The tokens file cannot be used; the message names the place and the remedy."""


class Tokens:
    """The tokens of a file, read again when it changes. Safe from any thread.

    A file that cannot be read any more leaves the tokens of before in force, and is logged: half-written or lost, it
    must not lock everyone out.
    """

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Raises:
            TokensError: it is not there, or not what it should be.
        """
        self.path = path
        #: Looking tokens up by a keyed hash of them tells nobody anything by the time it takes.
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._looked_at = time.monotonic()
        self._entries = self._index(read(path))
        if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            _log.warning("%s: others than its owner may write tokens into it: chmod 600 it", path)

    def authenticate(self, authorization: str | None, scope: Scope, *, basic: bool = False) -> Entry:
        """The token of an `Authorization` value: `Bearer TOKEN`, with `basic` also `Basic` with it as the password.

        Raises:
            Unauthenticated: none, or not known. Forbidden: it lacks the scope.
        """
        return self.verify(token_in(authorization, basic=basic), scope)

    def verify(self, token: str, scope: Scope) -> Entry:
        """The entry of a token.

        Raises:
            Unauthenticated: not known. Forbidden: it lacks the scope.
        """
        self._look()
        found = None
        if len(token) <= _MAX_HEADER:
            found = self._entries.get(self._keyed(digest(token)))
        if found is None or not hmac.compare_digest(found.sha256, digest(token)):
            raise Unauthenticated("the token is not known: ask for a new one")
        if scope not in found.scopes:
            raise Forbidden(f"the token {found.name!r} lacks the scope {scope.value!r}")
        return found

    def reload(self) -> None:
        """Reads the file again now; what is wrong with it is logged."""
        with self._lock:
            self._stamp = _stamp(self.path)
            try:
                self._entries = self._index(read(self.path))
            except TokensError as error:
                _log.error("%s; the tokens read before stay in force", error)
            else:
                _log.info("tokens: %d read from %s", len(self._entries), self.path)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            if _stamp(self.path) != self._stamp:
                self.reload()

    def _index(self, entries: Iterable[Entry]) -> dict[bytes, Entry]:
        return {self._keyed(entry.sha256): entry for entry in entries}

    def _keyed(self, sha256: str) -> bytes:
        return hashlib.blake2b(sha256.encode(), key=self._key).digest()


def new_token() -> str:
    """A token: 256 random bits behind `PREFIX`."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest(token: str) -> str:
    """What the file keeps of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def entry(name: str, tenant: str, token: str, scopes: Collection[Scope] = (Scope.INGEST,)) -> Entry:
    """An entry for the file.

    Raises:
        TokensError: a name or tenant that cannot be one.
    """
    for what, text in (("name", name), ("tenant", tenant)):
        if not _NAME.fullmatch(text):
            raise TokensError(
                f"{what} {text!r}: use letters, digits and . _ @ / -, at most 128, a letter or digit first"
            )
    return Entry(name, tenant, digest(token), frozenset(scopes))


def read(path: Path) -> list[Entry]:
    """The entries of a tokens file.

    Raises:
        TokensError: names the file, the place and what to do.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise TokensError(f"there is no tokens file {path}: make one with promptpath tokens create") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TokensError(f"{path} is no valid TOML: {error}") from None
    except OSError as error:
        raise TokensError(f"cannot read the tokens file {path}: {error.strerror}") from None
    for key in document:
        if key != "token":
            raise TokensError(f"{path}: unknown key {key!r}: tokens are tables, [[token]]")
    tables = document.get("token", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise TokensError(f"{path}: token: write each as a table, [[token]]")
    entries = [_entry_of(table, f"{path}: token {number}") for number, table in enumerate(tables, 1)]
    for what in ("name", "sha256"):
        seen: set[str] = set()
        for found in entries:
            value = getattr(found, what)
            if value in seen:
                raise TokensError(f"{path}: {what} {value!r} is there twice: take one out")
            seen.add(value)
    return entries


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Replaces a tokens file as a whole, readable by its owner only.

    Raises:
        TokensError: it cannot be written.
    """
    blocks = [
        f"[[token]]\nname = {_quoted(one.name)}\ntenant = {_quoted(one.tenant)}\nsha256 = {_quoted(one.sha256)}\n"
        f"scopes = [{', '.join(_quoted(scope.value) for scope in sorted(one.scopes))}]\n"
        for one in entries
    ]
    text = "# Tokens of promptpath collector, hashed. Changed by promptpath tokens.\n" + "".join(
        f"\n{b}" for b in blocks
    )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TokensError(f"cannot write the tokens file {path}: {error.strerror}") from None


def _entry_of(table: dict[str, Any], place: str) -> Entry:
    for key in table:
        if key not in _KEYS:
            raise TokensError(f"{place}: unknown key {key!r}: known are {', '.join(sorted(_KEYS))}")
    for key in ("name", "tenant"):
        if not isinstance(table.get(key), str) or not _NAME.fullmatch(table[key]):
            raise TokensError(f"{place}: {key}: a text of letters, digits and . _ @ / - is needed")
    if not isinstance(table.get("sha256"), str) or not _HASH.fullmatch(table["sha256"]):
        raise TokensError(f"{place}: sha256: the SHA-256 of the token is needed, 64 hex digits")
    scopes = table.get("scopes", [Scope.INGEST.value])
    known = [scope.value for scope in Scope]
    if not isinstance(scopes, list) or not scopes or any(scope not in known for scope in scopes):
        raise TokensError(f"{place}: scopes: a list of {', '.join(known)} is needed")
    return Entry(table["name"], table["tenant"], table["sha256"], frozenset(Scope(scope) for scope in scopes))


def token_in(authorization: str | None, *, basic: bool = False) -> str:
    """The token of an `Authorization` value: `Bearer TOKEN`, with `basic` also `Basic` with it as the password.

    Raises:
        Unauthenticated: there is none.
    """
    if not authorization:
        raise Unauthenticated("no token: send Authorization: Bearer TOKEN")
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if basic and scheme.lower() == "basic":
        return _password(value.strip())
    raise Unauthenticated("not a bearer token: send Authorization: Bearer TOKEN")


def _password(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthenticated("the Basic credentials are not base64 of user:token") from None


def _quoted(text: str) -> str:
    return f'"{text}"'  # names and hashes have nothing that needs escaping


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
