"""Storage URLs: both forms, and one line of advice for every wrong one."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from promptpath.storage import StorageError, connect, data_dir
from promptpath.storage.urls import EmbeddedUrl, ServerUrl, default_dir, parse, redacted


def test_embedded_url() -> None:
    assert parse("chdb:///var/lib/with%20space") == EmbeddedUrl(Path("/var/lib/with space"))


def test_server_url_with_everything() -> None:
    assert parse("clickhouse://me:p%40ss@db.example:9443/prod?secure=1&connect_timeout=5") == ServerUrl(
        hosts=(("db.example", 9443),),
        database="prod",
        username="me",
        password="p@ss",
        options=(("secure", True), ("connect_timeout", 5)),
    )


@pytest.mark.parametrize(
    ("url", "port"),
    [("clickhouse://h", 8123), ("clickhouse://h?secure=1", 8443), ("clickhouse://h?secure=0", 8123)],
)
def test_server_port_follows_encryption(url: str, port: int) -> None:
    target = parse(url)
    assert isinstance(target, ServerUrl)
    assert (target.hosts, target.database, target.username) == ((("h", port),), "promptpath", "default")


def test_password_is_never_shown() -> None:
    target = parse("clickhouse://me:secret@db/x")
    assert isinstance(target, ServerUrl)
    assert "secret" not in target.shown


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("http://db:8123", "use chdb:///directory"),
        ("/var/lib/promptpath", "use chdb:///directory"),
        ("", "use chdb:///directory"),
        ("chdb://relative/dir", "three slashes"),
        ("chdb:///dir?x=1", "takes no parameters"),
        ("clickhouse://", "names no host"),
        ("clickhouse://h:99999", "use chdb:///directory or clickhouse://"),
        ("clickhouse://h/da-ta", "letters, digits and underscores"),
        ("clickhouse://h?colour=red", "use one of secure"),
        ("clickhouse://h?secure=maybe", "secure=1 or secure=0"),
        ("clickhouse://h?connect_timeout=soon", "whole seconds"),
    ],
)
def test_wrong_urls_say_what_to_do_in_one_line(url: str, advice: str) -> None:
    with pytest.raises(StorageError) as caught:
        connect(url)
    message = str(caught.value)
    assert advice in message
    assert "\n" not in message


def test_default_directory_respects_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_dir() == tmp_path / "promptpath"
    assert data_dir() == tmp_path / "promptpath"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_dir() == tmp_path / ".local/share/promptpath"
    assert data_dir("clickhouse://h") is None


def test_several_hosts() -> None:
    target = parse("clickhouse://me:p@h1:9000,h2,[::1]:8124/prod?cluster={cluster}")
    assert isinstance(target, ServerUrl)
    assert target.hosts == (("h1", 9000), ("h2", 8123), ("::1", 8124))
    assert (target.cluster, target.options) == ("{cluster}", ())
    assert target.shown == "h1:9000,h2:8123,[::1]:8124/prod"


@pytest.mark.parametrize(
    "url",
    [
        "clickhouse://me:s3cret@h:99999",
        "clickhouse://me:s3cret@",
        "clickhouse://me:s3cret@h/da-ta",
        "clickhouse://me:s3cret@h,,h2/x",
        "clickhouse://me:s3cret@h?colour=red",
        "clickhouse://me:s3cret@[::1/x",
        "clickhouse://me:s3cret/x@h y/x",
        "clickhouse://me:s3cret@h?cluster=a'b",
        "clickhouse://me:s3cret@h?ca_cert=/nowhere/ca.pem",
        "postgres://me:s3cret@h/x",
        "chdb://me:s3cret@h/x",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        connect(url)
    shown = "".join(traceback.format_exception(caught.value)).replace(repr(url), "").replace(url, "")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in shown


def test_a_url_is_shown_without_its_password() -> None:
    assert redacted("clickhouse://me:p@ss/w@h1,h2/x?secure=1") == "clickhouse://me:***@h1,h2/x?secure=1"
    assert redacted("clickhouse://h/x") == "clickhouse://h/x"
    assert redacted("chdb:///var/a:b@c") == "chdb:///var/a:b@c"
    assert "p@ss" not in repr(parse("clickhouse://me:p@ss@h"))
