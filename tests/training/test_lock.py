"""One trainer per run folder, and settings of the C library."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.core.errors import UsageError
from seqloom.training.run_guard import locked
from training.toy import make_trainer


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def put(run: Path, pid: int, host: str) -> Path:
    path = run / "lock"
    path.write_text(json.dumps({"pid": pid, "host": host}))
    return path


def test_a_lock_names_its_process_and_goes_with_it(tmp_path: Path) -> None:
    with locked(tmp_path):
        record = json.loads((tmp_path / "lock").read_text())
        assert record == {"pid": os.getpid(), "host": socket.gethostname()}
    assert list(tmp_path.iterdir()) == []


def test_a_lock_goes_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", [socket.gethostname(), "another-host"])
def test_a_folder_in_use_is_refused_with_the_holder_and_the_way_out(tmp_path: Path, host: str) -> None:
    path = put(tmp_path, os.getppid(), host)
    with pytest.raises(UsageError) as caught:
        make_trainer(tmp_path)[0].train()
    assert f"in use by process {os.getppid()} on {host}" in str(caught.value)
    assert f"delete {path} if it is gone" in str(caught.value)
    assert path.exists()


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    put(tmp_path, dead_pid(), socket.gethostname())
    assert make_trainer(tmp_path, steps=1)[0].train().step == 1
    assert not list(tmp_path.glob("lock*"))


@pytest.mark.parametrize(("is_begun", "way"), [(True, "Copy the run to a place"), (False, "Name another folder")])
def test_a_folder_that_cannot_be_written_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool, way: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if is_begun:
        (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UsageError, match=rf"cannot be written: Read-only file system; .* {way}"), locked(tmp_path):
        pass


def test_a_dead_process_on_another_host_cannot_be_told_from_a_living_one(tmp_path: Path) -> None:
    put(tmp_path, dead_pid(), "another-host")
    with pytest.raises(UsageError, match="another-host"), locked(tmp_path):
        pass


def test_a_lock_cut_short_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid"')
    with locked(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_locks_are_taken_over_and_held_without_hard_links_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    put(tmp_path, dead_pid(), socket.gethostname())
    with locked(tmp_path):
        pass
    put(tmp_path, os.getppid(), socket.gethostname())
    with pytest.raises(UsageError, match=f"in use by process {os.getppid()}"), locked(tmp_path):
        pass
