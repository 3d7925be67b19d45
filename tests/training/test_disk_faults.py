"""Kills, failing calls, full disks and lost permissions: an old checkpoint or the new one, a sentence, no part."""

import errno
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from core.limits import files_up_to
from seqloom.core.errors import SeqloomError, TrainingError, UsageError
from seqloom.core.events import Event, ignore
from seqloom.core.files import write_atomically
from seqloom.training.checkpoint import (
    Checkpoint,
    Disk,
    LazyTensors,
    checkpoint_steps,
    newest_checkpoint,
    pointed_step,
    prune,
    repair_pointers,
    write_checkpoint,
)
from seqloom.training.run_guard import remove_leftovers
from training.faults import as_nobody, at_each_call, dies_at, fails_at, in_child
from training.toy import make_trainer, same_bits

DISK = Disk()


def make(step: int, *, numbers: int = 3) -> Checkpoint:
    weights = {"w": torch.full((numbers,), float(step))}
    return Checkpoint(
        step=step, weights=weights, optimiser={}, generators={"torch": torch.zeros(1, 3)}, state={"step": step}
    )


def begin(run: Path) -> Path:
    """A run with checkpoints of two steps, the first of which the next save will remove."""
    for step in (1, 10):
        write_checkpoint(run, make(step), is_best=False, disk=DISK)
    return run


def save(run: Path) -> str:
    write_checkpoint(run, make(20), is_best=True, disk=DISK)
    prune(run, up_to=20, keep=2, average=0, save_every=10, disk=DISK)
    return "saved"


def assert_usable(run: Path) -> int:
    """The run is as a resume wants it, which tidies it up; the step that it goes on from."""
    said: list[Event] = []
    remove_leftovers(run, listener=said.append)
    found = newest_checkpoint(run, listener=ignore, strict=True)
    assert found is not None
    assert same_bits(found.weights, make(found.step).weights)
    repair_pointers(run, latest=found.step, best=found.step, disk=DISK)
    prune(run, up_to=found.step, keep=2, average=0, save_every=10, disk=DISK)
    assert (pointed_step(run, "latest"), pointed_step(run, "best")) == (found.step, found.step)
    steps = {10: [1, 10], 20: [10, 20]}[found.step]
    assert checkpoint_steps(run) == steps
    names = {"best", "latest", *(f"step-{step}" for step in steps)}
    assert {path.name for path in (run / "checkpoints").iterdir()} == names
    return found.step


# --- F2: killed inside the write protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_at_any_call_of_the_write_protocol_leaves_an_old_or_the_new_checkpoint(
    tmp_path: Path, before: bool
) -> None:
    template = begin(tmp_path / "template")

    def killed_at(at: int) -> int:
        run = tmp_path / f"run-{at}"
        shutil.copytree(template, run)

        def action() -> str:
            with at_each_call(dies_at(at), before=before):
                return save(run)

        code, words = in_child(action)
        assert code in (0, -signal.SIGKILL), words
        found = assert_usable(run)
        shutil.rmtree(run)
        return 0 if code == 0 else found

    found = [killed_at(1)]
    while found[-1]:
        found.append(killed_at(len(found) + 1))
    # Folder, four files, manifest, folder; name, folder; twice a pointer; and the old one goes, file by file.
    assert len(found) > 20
    assert found == [*sorted(found[:-1]), 0]
    assert set(found) == {10, 20, 0}


# --- F4: calls that fail ---------------------------------------------------------------------------------------------


def test_a_failure_of_any_call_is_a_sentence_and_leaves_an_old_or_the_new_checkpoint(tmp_path: Path) -> None:
    template = begin(tmp_path / "template")
    at, steps = 0, []
    while not steps or steps[-1]:
        at += 1
        run = Path(shutil.copytree(template, tmp_path / f"run-{at}"))
        message = ""
        with at_each_call(fails_at(at, OSError(errno.EIO, os.strerror(errno.EIO)))) as calls:
            try:
                save(run)
            except (TrainingError, OSError) as error:
                message = str(error)
        # Folders that are there already need not be made.
        assert "Input/output error" in message or len(calls) < at or calls[at - 1] == "mkdir"
        steps.append(assert_usable(run) if len(calls) >= at else 0)
        shutil.rmtree(run)
    assert set(steps) == {10, 20, 0}


@contextmanager
def open_to_all() -> Iterator[Path]:
    """A folder that nobody may look into, with all above it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


def test_a_read_only_folder_is_refused_with_its_name_and_the_reason() -> None:
    with open_to_all() as folder:
        folder.chmod(0o555)

        def action() -> str:
            as_nobody(folder)
            make_trainer(folder / "run")[0].train()
            return "trained"

        code, words = in_child(action)
    assert code == 1
    assert words.startswith(f"UsageError: {folder}/run cannot be written: Permission denied; ")
    assert words.endswith("Name another folder")


def test_a_lost_permission_is_reported_and_ends_the_run_at_its_last_save_only() -> None:
    with open_to_all() as folder:
        folder.chmod(0o777)

        def action() -> str:
            as_nobody(folder)
            trainer, events = make_trainer(folder / "run", steps=6, validate_every=0)
            tell = trainer.listener

            def lose(event: Event) -> None:
                tell(event)
                if event.kind == "saved":
                    (folder / "run" / "checkpoints").chmod(0o555)

            trainer.listener = lose
            object.__setattr__(trainer.checkpointer, "listener", lose)
            try:
                trainer.train()
            except TrainingError as error:
                return json.dumps([[e["message"] for e in events if e.kind == "save_failed"], str(error)])
            return "trained"

        code, words = in_child(action)
        (told,), last = json.loads(words)
        found = newest_checkpoint(folder / "run", listener=ignore, strict=True)
    assert code == 0
    assert "step-4 could not be written into" in told
    assert told.endswith("Permission denied. Training continues")
    assert "step-6 could not be written" in last
    assert last.endswith(f"Last checkpoint: step 2. Resume with: seqloom train --resume {folder}/run")
    assert found is not None
    assert found.step == 2


# --- F3: no room -----------------------------------------------------------------------------------------------------


def test_a_limit_of_file_sizes_gives_what_is_needed_and_names_the_limit(tmp_path: Path) -> None:
    begin(tmp_path)
    sentence = (
        r"step-20 could not be written .*: File too large; it needs 48,\d\d\d bytes, and a limit on the size of files"
    )
    with files_up_to(20_000), pytest.raises(TrainingError, match=sentence):
        write_checkpoint(tmp_path, make(20, numbers=10_000), is_best=True, disk=DISK)
    assert checkpoint_steps(tmp_path) == [1, 10]
    assert newest_checkpoint(tmp_path, listener=ignore, strict=True) is not None
    assert not list(tmp_path.rglob("*partial*"))


class OnFullDevice(Disk):
    """A disk whose texts go to the device that is always full."""

    def write_text(self, path: Path, text: str) -> None:
        with Path("/dev/full").open("w", encoding="utf-8") as file:
            file.write(text)


def test_the_full_device_gives_what_is_needed_and_what_is_free(tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(TrainingError, match=r"No space left on device; it needs 29 bytes and [\d,]+ bytes are free"):
        write_checkpoint(tmp_path, make(20), is_best=True, disk=OnFullDevice())
    assert checkpoint_steps(tmp_path) == [1, 10]
    assert not list(tmp_path.rglob("*partial*"))


class Optimistic(Disk):
    """A disk that promises room which it does not have."""

    def free_bytes(self, folder: Path) -> int:
        return 1 << 40


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        begin(place)
        for disk, reason in ((DISK, ""), (Optimistic(), "No space left on device; ")):
            sentence = rf"step-20 could not be written .*{reason}it needs [\d,]+ bytes and [\d,]+ bytes are free"
            with pytest.raises(TrainingError, match=sentence):
                write_checkpoint(place, make(20, numbers=100_000), is_best=True, disk=disk)
            assert checkpoint_steps(place) == [1, 10]
            assert newest_checkpoint(place, listener=ignore, strict=True) is not None
            assert not list(place.rglob("*partial*"))
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_text_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write_atomically(path, "old")
    with files_up_to(100), pytest.raises(SeqloomError, match=r"File too large; it needs 200 bytes, and a limit"):
        write_atomically(path, "x" * 200)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_save_that_must_succeed_ends_the_run(tmp_path: Path) -> None:
    class Full(Disk):
        def write_tensors(self, path: Path, tensors: Mapping[str, Tensor] | LazyTensors) -> None:
            if "step-4." in path.parent.name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write_tensors(path, tensors)

    trainer, _ = make_trainer(tmp_path, steps=9)
    object.__setattr__(trainer.checkpointer, "disk", Full())
    with pytest.raises(
        TrainingError, match=r"step-4 could not be written .*No space left.*Last checkpoint: step 3. Resume"
    ):
        trainer.train(strict_save=True)
    assert checkpoint_steps(tmp_path) == [2, 3]


def test_a_lock_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UsageError, match="run cannot be written: File exists"):
        make_trainer(tmp_path / "run")[0].train()
