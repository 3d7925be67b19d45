"""The write protocol: a failure at any call leaves the old checkpoint whole, and damage is never loaded."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seqloom.core.errors import ModelError, TrainingError
from seqloom.core.events import Event, ignore
from seqloom.training.checkpoint import (
    Checkpoint,
    Disk,
    LazyTensors,
    NewerFormatError,
    checkpoint_folder,
    checkpoint_steps,
    final_folders,
    newest_checkpoint,
    point,
    pointed_step,
    prune,
    read_checkpoint,
    repair_pointers,
    write_checkpoint,
)
from seqloom.training.run_guard import remove_leftovers
from training.toy import make_trainer, same_bits, weights

DISK = Disk()


class Failing(Disk):
    """A disk that does its n-th call by halves, if at all, and fails. What fails is an error, or a dying process."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.calls, self.at, self.error = 0, at, error

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise self.error

    def make_folder(self, folder: Path) -> None:
        self._count()
        super().make_folder(folder)

    def write_tensors(self, path: Path, tensors: Mapping[str, Tensor] | LazyTensors) -> None:
        super().write_tensors(path, tensors)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        self._count()
        path.write_bytes(content)

    def write_text(self, path: Path, text: str) -> None:
        path.write_text(text[: len(text) // 2])
        self._count()
        path.unlink()
        super().write_text(path, text)

    def sync_folder(self, folder: Path) -> None:
        self._count()
        super().sync_folder(folder)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def replace_text(self, path: Path, text: str) -> None:
        self._count()
        super().replace_text(path, text)

    def remove_folder(self, folder: Path) -> None:
        next(folder.iterdir()).unlink()
        self._count()
        super().remove_folder(folder)


class PowerCut(BaseException):
    """Stands for a kill: nothing that the code does afterwards counts."""


def make(step: int) -> Checkpoint:
    tensors = {"w": torch.full((3,), float(step))}
    return Checkpoint(
        step=step, weights=tensors, optimiser={}, generators={"torch": torch.zeros(1, 3)}, state={"step": step}
    )


def write(run: Path, step: int, *, is_best: bool = False) -> Path:
    return write_checkpoint(run, make(step), is_best=is_best, disk=DISK)


CALLS = 13
"""Folder, four files, manifest, sync, name, sync, two pointers; then one old checkpoint is renamed and removed."""

NAMED = 8
"""The call that gives the new checkpoint its name."""


def test_a_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    folder = write(tmp_path, 5, is_best=True)
    found = read_checkpoint(folder)
    assert found.step == 5
    assert found.state == {"step": 5}
    assert same_bits(found.weights, make(5).weights)
    assert (pointed_step(tmp_path, "latest"), pointed_step(tmp_path, "best")) == (5, 5)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best", "latest", "step-5"]


def save(run: Path, disk: Disk) -> None:
    write_checkpoint(run, make(20), is_best=True, disk=disk)
    prune(run, up_to=20, keep=2, average=0, save_every=10, disk=disk)


def test_the_number_of_calls_is_known(tmp_path: Path) -> None:
    for step in (1, 10):
        write(tmp_path, step)
    disk = Failing(0, OSError())
    save(tmp_path, disk)
    assert disk.calls == CALLS


@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_disk_that_fails_at_any_call_leaves_an_old_or_the_new_checkpoint_and_no_part(tmp_path: Path, at: int) -> None:
    for step in (1, 10):
        write(tmp_path, step)
    with pytest.raises((TrainingError, OSError), match="No space left"):
        save(tmp_path, Failing(at, OSError(28, "No space left on device")))
    found = newest_checkpoint(tmp_path, listener=ignore)
    assert found is not None
    assert same_bits(found.weights, make(found.step).weights)
    assert found.step == (10 if at <= NAMED else 20)
    if at <= NAMED:
        assert not list((tmp_path / "checkpoints").glob("*partial*"))
        assert checkpoint_steps(tmp_path) == [1, 10]


@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_process_that_dies_at_any_call_leaves_what_the_next_one_can_use(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 10):
        write(tmp_path, step)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # the dead tidy nothing up
        with pytest.raises(PowerCut):
            save(tmp_path, Failing(at, PowerCut()))
    said: list[Event] = []
    remove_leftovers(tmp_path, listener=said.append)
    found = newest_checkpoint(tmp_path, listener=said.append)
    assert found is not None
    assert same_bits(found.weights, make(found.step).weights)
    assert found.step == (10 if at <= NAMED else 20)
    # What was left unfinished is told of; nothing whole is called damaged.
    assert not any("DAMAGED" in event["message"] for event in said)
    assert not list((tmp_path / "checkpoints").glob("*partial*"))
    repair_pointers(tmp_path, latest=found.step, best=found.step, disk=DISK)
    assert (pointed_step(tmp_path, "latest"), pointed_step(tmp_path, "best")) == (found.step, found.step)


def test_too_little_room_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    class Full(Disk):
        def free_bytes(self, folder: Path) -> int:
            return 10

    with pytest.raises(TrainingError, match=r"step-5 could not be written .*it needs 29 bytes and 10 bytes are free"):
        write_checkpoint(tmp_path, make(5), is_best=False, disk=Full())
    assert list((tmp_path / "checkpoints").iterdir()) == []


DAMAGE = {
    "cut": ("model.safetensors", lambda content: content[:-1]),
    "extended": ("model.safetensors", lambda content: content + b"\0"),
    "a bit flipped": ("model.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
    "emptied": ("optim.safetensors", lambda _: b""),
    "state edited": ("state.json", lambda content: content.replace(b"20", b"21")),
    "manifest cut": ("manifest.json", lambda content: content[:-2]),
    "manifest of another step": ("manifest.json", lambda content: content.replace(b'"step": 20', b'"step": 10')),
    "manifest is a list": ("manifest.json", lambda _: b"[]"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_loudly(tmp_path: Path, damage: str) -> None:
    write(tmp_path, 10)
    folder = write(tmp_path, 20)
    name, change = DAMAGE[damage]
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(ModelError, match="step-20"):
        read_checkpoint(folder)
    said: list[Event] = []
    found = newest_checkpoint(tmp_path, listener=said.append)
    assert found is not None
    assert found.step == 10
    assert len(said) == 1
    assert said[0]["message"].startswith("DAMAGED CHECKPOINT: falling back to step 10 (")
    assert "step-20" in said[0]["message"]


@pytest.mark.parametrize("name", ["model.safetensors", "optim.safetensors", "rng.safetensors", "state.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, 10)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name}: missing"):
        read_checkpoint(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=f"{name}: not in the manifest"):
        read_checkpoint(folder)


def test_nothing_but_damage_is_an_error_and_no_new_beginning(tmp_path: Path) -> None:
    (write(tmp_path, 10) / "state.json").unlink()
    with pytest.raises(ModelError, match="no checkpoint of this run can be read"):
        newest_checkpoint(tmp_path, listener=ignore)
    assert newest_checkpoint(tmp_path / "elsewhere", listener=ignore) is None


def test_a_newer_format_is_refused_rather_than_stepped_over(tmp_path: Path) -> None:
    write(tmp_path, 10)
    manifest = write(tmp_path, 20) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(NewerFormatError, match="has format 2 and this version reads up to 1; update seqloom"):
        newest_checkpoint(tmp_path, listener=ignore)


def test_pruning_spares_the_newest_the_best_and_what_will_be_averaged(tmp_path: Path) -> None:
    for step in (10, 20, 25, 30, 40, 45):
        write(tmp_path, step, is_best=step == 25)
    prune(tmp_path, up_to=45, keep=2, average=3, save_every=10, disk=DISK)
    assert checkpoint_steps(tmp_path) == [25, 30, 40, 45]
    prune(tmp_path, up_to=45, keep=2, average=0, save_every=10, disk=DISK)
    assert checkpoint_steps(tmp_path) == [25, 40, 45]


def test_pruning_does_not_count_steps_that_a_resume_has_left_behind(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        write(tmp_path, step)
    write(tmp_path, 25)
    prune(tmp_path, up_to=25, keep=2, average=0, save_every=10, disk=DISK)
    assert checkpoint_steps(tmp_path) == [20, 25, 30, 40]


def test_pointers_follow_a_run_that_went_back(tmp_path: Path) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20, is_best=True)
    repair_pointers(tmp_path, latest=10, best=7, disk=DISK)
    assert (pointed_step(tmp_path, "latest"), pointed_step(tmp_path, "best")) == (10, None)
    point(tmp_path, "best", 10, disk=DISK)
    repair_pointers(tmp_path, latest=20, best=None, disk=DISK)
    assert (pointed_step(tmp_path, "latest"), pointed_step(tmp_path, "best")) == (20, 10)


def test_a_damaged_best_is_replaced_by_the_newest_with_a_notice(tmp_path: Path) -> None:
    (write(tmp_path, 10, is_best=True) / "model.safetensors").write_bytes(b"")
    write(tmp_path, 20)
    said: list[Event] = []
    chosen = final_folders(tmp_path, average=0, save_every=10, listener=said.append)
    assert chosen == [checkpoint_folder(tmp_path, 20)]
    assert "left out a damaged checkpoint" in said[0]["message"]


class FullAt(Disk):
    """A disk that is full when these steps are saved."""

    def __init__(self, *steps: int) -> None:
        self.steps = steps

    def make_folder(self, folder: Path) -> None:
        if any(folder.name.startswith(f"step-{step}.") for step in self.steps):
            raise OSError(28, "No space left on device")
        super().make_folder(folder)


def test_a_full_disk_does_not_end_a_run_until_its_last_step(tmp_path: Path) -> None:
    def train(name: str, disk: Disk) -> list[Event]:
        trainer, events = make_trainer(tmp_path / name, steps=4, validate_every=0)
        object.__setattr__(trainer.checkpointer, "disk", disk)
        trainer.train()
        return events

    events = train("middle", FullAt(2))
    failed = next(event for event in events if event.kind == "save_failed")
    assert failed["step"] == 2
    assert "No space left on device" in failed["message"]
    assert checkpoint_steps(tmp_path / "middle") == [4]
    with pytest.raises(TrainingError, match=r"step-4 could not be written.*Last checkpoint: step 2. Resume with"):
        train("end", FullAt(4))


def test_a_run_ends_when_three_saves_in_a_row_have_failed(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path / "never", steps=12, save_every=1, validate_every=0)
    object.__setattr__(trainer.checkpointer, "disk", FullAt(*range(1, 13)))
    with pytest.raises(TrainingError, match=r"step-3 could not.*No space left on device.*3 saves in a row have failed"):
        trainer.train()
    assert [event["step"] for event in events if event.kind == "save_failed"] == [1, 2]
    assert trainer.progress.step == 3
    trainer, events = make_trainer(tmp_path / "now and then", steps=7, save_every=1, validate_every=0)
    object.__setattr__(trainer.checkpointer, "disk", FullAt(2, 3, 5, 6))
    trainer.train()
    assert [event["step"] for event in events if event.kind == "save_failed"] == [2, 3, 5, 6]


def test_a_run_goes_back_over_a_damaged_checkpoint_to_the_same_bits(tmp_path: Path) -> None:
    whole, _ = make_trainer(tmp_path / "whole", steps=9)
    whole.train()
    make_trainer(tmp_path / "parts", steps=6)[0].train()
    model = checkpoint_folder(tmp_path / "parts", 6) / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    trainer, events = make_trainer(tmp_path / "parts", steps=9)
    trainer.train(resume=True)
    assert events[0]["message"].startswith("DAMAGED CHECKPOINT: falling back to step 4")
    assert same_bits(weights(trainer), weights(whole))
    assert newest_checkpoint(tmp_path / "parts", listener=pytest.fail) is not None
