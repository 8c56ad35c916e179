"""TLS files: faults are named with option and file before anything listens; changed files are taken in."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from promptpath.collector.tls import Tls, TlsError, TlsFiles

CA = trustme.CA()


def files(folder: Path, name: str = "localhost") -> TlsFiles:
    folder.mkdir(exist_ok=True)
    issued = CA.issue_cert(name)
    found = TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")
    issued.private_key_pem.write_to_path(found.key)
    found.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    CA.cert_pem.write_to_path(found.client_ca)
    return found


def test_good_files(tmp_path: Path) -> None:
    context = files(tmp_path).context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem").context().verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: f.cert.unlink(), r"--tls-cert .*cert.pem: No such file"),
        (lambda f: f.key.unlink(), r"--tls-key .*key.pem: No such file"),
        (lambda f: f.client_ca.unlink(), r"--tls-client-ca .*ca.pem: No such file"),
        (lambda f: f.cert.write_text("x"), "--tls-cert .*no certificate in PEM"),
        (lambda f: f.key.write_text("x"), "--tls-key .*no private key in PEM"),
        (lambda f: f.client_ca.write_text("x"), "--tls-client-ca .*no certificates in PEM"),
        (lambda f: CA.issue_cert("other").private_key_pem.write_to_path(f.key), "it is not the key of .*cert.pem"),
    ],
)
def test_faults_are_named(tmp_path: Path, spoil: object, message: str) -> None:
    found = files(tmp_path)
    spoil(found)  # type: ignore[operator]
    with pytest.raises(TlsError, match=message):
        Tls(found)


def test_an_encrypted_key_is_refused_not_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    found = files(tmp_path)
    key = serialization.load_pem_private_key(found.key.read_bytes(), None)
    found.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(TlsError, match="encrypted"):
        Tls(found)


def test_broken_files_leave_the_old_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = files(tmp_path)
    tls = Tls(found)
    found.cert.write_text("x")
    tls.refresh()
    assert "stays in use" in caplog.text
    files(tmp_path)
    caplog.clear()
    tls.refresh()
    assert caplog.text == ""
