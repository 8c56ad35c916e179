"""Tokens: the file, who is let in, and what a change of the file does."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import stat
from pathlib import Path

import pytest

from promptpath.collector import auth
from promptpath.collector.auth import Forbidden, Scope, Tokens, TokensError, Unauthenticated

TOKEN = auth.new_token()
OTHER = auth.new_token()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    auth.write(path, [auth.entry("a", "acme", TOKEN), auth.entry("q", "globex", OTHER, [Scope.QUERY, Scope.INGEST])])
    return path


def test_a_token_is_256_random_bits_and_only_its_hash_is_kept(file: Path) -> None:
    assert TOKEN.startswith("pp_")
    assert len(base64.urlsafe_b64decode(TOKEN.removeprefix("pp_") + "=")) == 32
    text = file.read_text()
    assert TOKEN not in text
    assert hashlib.sha256(TOKEN.encode()).hexdigest() in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_written_is_read(file: Path) -> None:
    assert auth.read(file) == [
        auth.Entry("a", "acme", auth.digest(TOKEN), frozenset({Scope.INGEST})),
        auth.Entry("q", "globex", auth.digest(OTHER), frozenset({Scope.INGEST, Scope.QUERY})),
    ]


def test_bearer_and_basic(file: Path) -> None:
    tokens = Tokens(file)
    assert tokens.authenticate(f"Bearer {TOKEN}", Scope.INGEST).tenant == "acme"
    assert tokens.authenticate(f"bearer  {OTHER} ", Scope.QUERY).name == "q"
    basic = "Basic " + base64.b64encode(f"anyone:{OTHER}".encode()).decode()
    assert tokens.authenticate(basic, Scope.QUERY, basic=True).tenant == "globex"
    with pytest.raises(Unauthenticated):
        tokens.authenticate(basic, Scope.QUERY)


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "Bearer", "Bearer ", "Bearer x", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Basic !"),
        *("Basic eA==", "Bearer " + "x" * 100_000, "Bearer \udcff", "Bearer " + auth.digest(TOKEN)),
    ],
    ids=range(13),
)
def test_everything_else_is_refused(file: Path, header: str | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        Tokens(file).authenticate(header, Scope.INGEST, basic=True)
    assert caught.value.http_status == 401
    assert TOKEN not in str(caught.value)


def test_a_scope_that_a_token_lacks(file: Path) -> None:
    with pytest.raises(Forbidden, match="'a' lacks the scope 'query'") as caught:
        Tokens(file).verify(TOKEN, Scope.QUERY)
    assert (caught.value.http_status, caught.value.rpc_code) == (403, 7)


def test_a_change_of_the_file_counts_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_LOOK_S", 0.0)
    tokens = Tokens(file)
    auth.write(file, [auth.entry("q", "globex", OTHER)])
    with pytest.raises(Unauthenticated):
        tokens.verify(TOKEN, Scope.INGEST)
    assert tokens.verify(OTHER, Scope.INGEST).tenant == "globex"


def test_a_file_that_breaks_leaves_the_tokens_in_force(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = Tokens(file)
    for breaks in (lambda: file.write_text("[[token]"), lambda: os.remove(file)):
        breaks()
        with caplog.at_level(logging.ERROR):
            tokens.reload()
        assert "stay in force" in caplog.text
        assert tokens.verify(TOKEN, Scope.INGEST).tenant == "acme"


GOOD = f'[[token]]\nname = "a"\ntenant = "t"\nsha256 = "{"0" * 64}"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "no valid TOML"),
        ("tokens = 3", "unknown key 'tokens'"),
        ("token = 3", "write each as a table"),
        (GOOD + 'scope = "x"', "token 1: unknown key 'scope'"),
        (GOOD + 'scopes = "ingest"', "token 1: scopes: a list of ingest, query"),
        (GOOD + "scopes = []", "token 1: scopes"),
        (GOOD + 'scopes = ["admin"]', "token 1: scopes"),
        (GOOD.replace('"t"', '""'), "token 1: tenant"),
        (GOOD.replace('"t"', '"a b"'), "token 1: tenant"),
        (GOOD.replace('"a"', "3"), "token 1: name"),
        (GOOD.replace("0" * 64, "0" * 63), "token 1: sha256"),
        (GOOD + GOOD, "name 'a' is there twice"),
        (GOOD + GOOD.replace('"a"', '"b"'), "is there twice"),
    ],
)
def test_faults_in_the_file_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(TokensError, match=message) as caught:
        Tokens(path)
    assert str(path) in str(caught.value)


def test_a_file_that_others_may_write_is_told_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    Tokens(file)
    assert caplog.text == ""
    file.chmod(0o620)
    Tokens(file)
    assert "chmod 600" in caplog.text


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TokensError, match="promptpath tokens create"):
        Tokens(tmp_path / "none.toml")
    with pytest.raises(TokensError, match="cannot read"):
        Tokens(tmp_path)
