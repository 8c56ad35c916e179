"""`promptpath tokens`: made, listed, revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from promptpath.cli.app import main
from promptpath.collector.auth import Scope, Tokens, Unauthenticated


def test_a_token_is_shown_once_and_good_until_it_is_revoked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ["--tokens", str(tmp_path / "new" / "tokens.toml")]
    assert main(["tokens", "create", *file, "--name", "a", "--tenant", "acme"]) == 0
    token = capsys.readouterr().out.strip()
    assert (
        main(["tokens", "create", *file, "--name", "q", "--tenant", "b", "--scope", "query", "--scope", "ingest"]) == 0
    )
    capsys.readouterr()
    assert Tokens(Path(file[1])).verify(token, Scope.INGEST).tenant == "acme"
    assert main(["tokens", "list", *file, "--format", "json"]) == 0
    out = capsys.readouterr().out
    assert [json.loads(line) for line in out.splitlines()] == [
        {"name": "a", "tenant": "acme", "scopes": ["ingest"]},
        {"name": "q", "tenant": "b", "scopes": ["ingest", "query"]},
    ]
    assert token not in out
    assert main(["tokens", "list", *file]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["a     acme    ingest", "q     b       ingest query"]
    assert main(["tokens", "revoke", *file, "a"]) == 0
    with pytest.raises(Unauthenticated):
        Tokens(Path(file[1])).verify(token, Scope.INGEST)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--name", "a b", "--tenant", "t"], "name 'a b': use letters"),
        (["create", "--name", "known", "--tenant", "t"], "has a token 'known' already"),
        (["revoke", "nobody"], "has no token 'nobody'"),
    ],
)
def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    file = ["--tokens", str(tmp_path / "tokens.toml")]
    main(["tokens", "create", *file, "--name", "known", "--tenant", "t"])
    capsys.readouterr()
    assert main(["tokens", arguments[0], *file, *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
