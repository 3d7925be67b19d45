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
from seqloom.training.run_guard import RECORD, holder_of, locked
from training.locks import held, write_record
from training.toy import make_trainer


def test_a_lock_names_its_process_and_goes_with_it(tmp_path: Path) -> None:
    with locked(tmp_path):
        record = json.loads((tmp_path / RECORD).read_text())
        assert record == {"pid": os.getpid(), "host": socket.gethostname()}
    assert list(tmp_path.iterdir()) == []


def test_a_lock_goes_when_the_run_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused_with_its_holder(tmp_path: Path) -> None:
    with held(tmp_path, os.getppid()), pytest.raises(UsageError) as caught:
        make_trainer(tmp_path)[0].train()
    assert f"in use by process {os.getppid()} on {socket.gethostname()}" in str(caught.value)
    assert (tmp_path / RECORD).exists()


def test_a_process_that_is_killed_releases_its_lock(tmp_path: Path) -> None:
    code = f"from seqloom.training.run_guard import locked\nfrom pathlib import Path\n\
with locked(Path({str(tmp_path)!r})):\n    print(flush=True)\n    input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert holder_of(tmp_path) == f"process {child.pid} on {socket.gethostname()}"
    with pytest.raises(UsageError, match=f"in use by process {child.pid}"), locked(tmp_path):
        pass
    child.kill()
    child.communicate()
    assert (tmp_path / RECORD).exists()
    assert holder_of(tmp_path) is None
    assert make_trainer(tmp_path, steps=1)[0].train().step == 1
    assert not list(tmp_path.glob("lock*"))


@pytest.mark.parametrize(("is_begun", "way"), [(True, "Copy the run to a place"), (False, "Name another folder")])
def test_a_folder_that_cannot_be_written_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool, way: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if is_begun:
        (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UsageError, match=rf"cannot be written: Read-only file system; .* {way}"), locked(tmp_path):
        pass


def test_a_record_from_another_host_counts_as_a_lock(tmp_path: Path) -> None:
    path = write_record(tmp_path, 1, "another-host")
    message = f"process 1 on another-host; .* delete {path} if it has ended"
    with pytest.raises(UsageError, match=message), locked(tmp_path):
        pass


@pytest.mark.parametrize("name", ["lock", RECORD])
def test_a_record_cut_short_is_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"pid"')
    with locked(tmp_path):
        assert json.loads((tmp_path / RECORD).read_text())["pid"] == os.getpid()
