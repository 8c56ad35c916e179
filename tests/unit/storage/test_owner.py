"""The owner of an embedded store: one at a time, and what a dead one left behind does not count."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.permissions import without_root_s_permissions

from promptpath.storage import StorageError, owner

_HOLD = """
import sys
from promptpath.storage import owner
claim = owner.claim(sys.argv[1], sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _other_process(directory: Path, sql_url: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _HOLD, str(directory), sql_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_nobody_owns_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert owner.find(tmp_path / "none") is None
    assert owner.find(tmp_path) is None


def test_claim_publish_release(tmp_path: Path) -> None:
    with owner.claim(tmp_path / "new" / "store") as claim:
        found = owner.find(tmp_path / "new/store")
        assert found is not None
        assert (found.pid, found.sql_url) == (os.getpid(), "")
        claim.publish("clickhouse://127.0.0.1:1234/promptpath")
        found = owner.find(tmp_path / "new/store")
        assert found is not None
        assert found.sql_url == "clickhouse://127.0.0.1:1234/promptpath"
    assert owner.find(tmp_path / "new/store") is None
    claim.release()  # harmless when repeated
    owner.claim(tmp_path / "new/store").release()
    owner.release(tmp_path / "new/store")


def test_another_process_is_found_and_refuses_us(tmp_path: Path) -> None:
    with _other_process(tmp_path, "clickhouse://127.0.0.1:1/x") as process:
        found = owner.find(tmp_path)
        assert found is not None
        assert (found.pid, found.sql_url) == (process.pid, "clickhouse://127.0.0.1:1/x")
        with pytest.raises(StorageError, match=f"in use by process {process.pid}: stop it"):
            owner.claim(tmp_path)


def test_a_killed_owner_is_forgotten(tmp_path: Path) -> None:
    with _other_process(tmp_path, "clickhouse://127.0.0.1:1/x") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads((tmp_path / "owner.json").read_text())["pid"] == process.pid
        assert owner.find(tmp_path) is None
        owner.claim(tmp_path).release()


def test_damaged_owner_file_of_a_live_owner(tmp_path: Path) -> None:
    with _other_process(tmp_path):
        (tmp_path / "owner.json").write_text('{"pid": ')
        with pytest.raises(StorageError, match="damaged while a process has the store open: restart the collector"):
            owner.find(tmp_path)
    # Without a live owner nobody reads it.
    assert owner.find(tmp_path) is None


def test_a_forked_child_owns_nothing(tmp_path: Path) -> None:
    with owner.claim(tmp_path) as claim:
        child = os.fork()
        if child == 0:
            claim.release()
            os._exit(0 if owner.claimed_here(tmp_path) is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (tmp_path / "owner.json").exists()
        found = owner.find(tmp_path)
        assert found is not None
        assert found.pid == os.getpid()


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(StorageError, match="is not a directory: use another one"):
            owner.claim(path)


def test_no_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", f"from promptpath.storage import owner; owner.claim({str(tmp_path)!r})"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=without_root_s_permissions,
    )
    assert done.returncode == 1
    assert re.search("StorageError: .*write permission", done.stderr)


def test_a_directory_that_nobody_may_write() -> None:
    with pytest.raises(StorageError, match="cannot write to /proc/"):
        owner.claim("/proc/self")
