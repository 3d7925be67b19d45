"""Damaged, swapped and foreign files: rejected with their names and the reason, never loaded."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.core.errors import ModelError
from seqloom.core.events import Event
from seqloom.training.checkpoint import checkpoint_folder, newest_checkpoint, read_checkpoint
from training.toy import ToyModel, ToyTask, make_trainer, same_bits, weights

FILES = ("model.safetensors", "optim.safetensors", "rng.safetensors", "state.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of steps 2 and 4."""
    run = tmp_path_factory.mktemp("damage") / "run"
    make_trainer(run, steps=4, validate_every=0)[0].train()
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def flip(at: float) -> Callable[[bytes], bytes]:
    """Turn one bit, at a share of the length."""

    def change(content: bytes) -> bytes:
        place = min(len(content) - 1, int(at * len(content)))
        return content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]

    return change


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "cut in half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "extended": lambda content: content + b"\0",
    **{f"a bit flipped at {at:.0%}": flip(at) for at in (0.0, 0.02, 0.2, 0.5, 0.9, 1.0)},
}


@pytest.mark.parametrize("name", FILES)
def test_a_change_anywhere_in_a_file_is_rejected_with_its_name_and_the_reason(run: Path, name: str) -> None:
    path = checkpoint_folder(run, 4) / name
    content = path.read_bytes()
    for change in CHANGES.values():
        path.write_bytes(change(content))
        with pytest.raises(ModelError, match=rf"step-4: {name}: (SHA-256 is|[\d,]+ bytes, but)"):
            read_checkpoint(path.parent)
    path.write_bytes(content)
    assert read_checkpoint(path.parent).step == 4


def test_files_that_changed_places_are_both_named(run: Path) -> None:
    folder = checkpoint_folder(run, 4)
    one, other = folder / "model.safetensors", folder / "optim.safetensors"
    one.rename(folder / "aside")
    other.rename(one)
    (folder / "aside").rename(other)
    with pytest.raises(ModelError, match=r"step-4: model\.safetensors: .*; optim\.safetensors: "):
        read_checkpoint(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_step_is_rejected(run: Path, name: str) -> None:
    shutil.copy(checkpoint_folder(run, 2) / name, checkpoint_folder(run, 4) / name)
    with pytest.raises(ModelError, match=f"step-4: {name}: "):
        read_checkpoint(checkpoint_folder(run, 4))


def test_the_manifest_of_another_run_and_a_folder_of_another_step_are_rejected(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_trainer(other, steps=4, validate_every=0, seed=8, task=ToyTask(data_seed=3))[0].train()
    folder = checkpoint_folder(run, 4)
    shutil.copy(checkpoint_folder(other, 4) / "manifest.json", folder)
    with pytest.raises(ModelError, match=r"step-4: model\.safetensors: SHA-256"):
        read_checkpoint(folder)
    shutil.rmtree(folder)
    shutil.copytree(checkpoint_folder(run, 2), folder)
    with pytest.raises(ModelError, match="step-4 holds the manifest of step 2"):
        read_checkpoint(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ModelError, match=r"step-4 has no readable manifest\.json \(.*No such file"):
        read_checkpoint(folder)


NASTY: tuple[Any, ...] = (None, True, -1, 1e400, "", "x", "\0", [], {}, [1], {"size": "9"}, {"size": 1, "sha256": 3})


def test_no_manifest_breaks_its_reader(run: Path) -> None:
    path = checkpoint_folder(run, 4) / "manifest.json"
    good = json.loads(path.read_text())

    def refused(manifest: Any) -> None:
        path.write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
        with pytest.raises(ModelError, match="step-4"):
            read_checkpoint(path.parent)

    for value in NASTY:
        for key in ("format", "step", "files"):
            if (key, value) not in (("format", True), ("format", -1)):
                refused({**good, key: value})
        for name in ("model.safetensors", "\0", "../../../lock", "x" * 300):
            refused({**good, "files": {**good["files"], name: value}})
        refused(value)
    refused("[" * 100_000)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ModelError, match="step-4"):
        read_checkpoint(path.parent)


def test_a_file_that_is_not_in_the_manifest_is_not_loaded(run: Path) -> None:
    folder = checkpoint_folder(run, 4)
    shutil.copy(folder / "model.safetensors", folder / "memory.safetensors")
    with pytest.raises(ModelError, match=r"memory\.safetensors: not in the manifest"):
        read_checkpoint(folder)


def test_a_fallback_is_reported_once_or_refused_if_strict(run: Path, trained: Path) -> None:
    (checkpoint_folder(run, 4) / "rng.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"DAMAGED CHECKPOINT: .*rng\.safetensors: 0 bytes.*leave out --strict"):
        make_trainer(run, steps=5)[0].train(resume=True, strict=True)
    whole, _ = make_trainer(trained.parent / "whole", steps=5, validate_every=0)
    whole.train()
    trainer, events = make_trainer(run, steps=5, validate_every=0)
    trainer.train(resume=True)
    loud = [event["message"] for event in events if event.kind == "notice"]
    assert len(loud) == 1
    assert loud[0].startswith("DAMAGED CHECKPOINT: falling back to step 2 (")
    assert "step-4: rng.safetensors: 0 bytes" in loud[0]
    assert same_bits(weights(trainer), weights(whole))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(run: Path) -> None:
    (checkpoint_folder(run, 4) / "model.safetensors").chmod(0)
    with pytest.raises(ModelError, match=r"model\.safetensors: Permission denied"):
        read_checkpoint(checkpoint_folder(run, 4))


# --- F6 --------------------------------------------------------------------------------------------------------------


class Other(ToyModel):
    """Another architecture: a layer more, a layer less, and an output of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.third = torch.nn.Linear(2, 2)
        self.output = torch.nn.Linear(6, 9)
        del self.first


def test_another_architecture_is_refused_with_the_first_names_of_each_sort(run: Path) -> None:
    with pytest.raises(ModelError) as caught:
        make_trainer(run, model=Other())[0].train(resume=True)
    message = str(caught.value)
    folder = checkpoint_folder(run, 4)
    assert message.startswith(f"the weights in {folder} do not fit this model: 3 missing (second.weight, third.weight")
    assert "2 unknown (first.bias, first.weight)" in message
    assert "2 of another shape (output.weight is 5 × 6 in place of 9 × 6" in message
    assert "resume that one: seqloom train --resume RUN" in message
    assert f"Remove {folder} to resume from the checkpoint before it" in message


@pytest.mark.parametrize("part", ["progress", "circumstances"])
def test_an_incomplete_checkpoint_is_an_error_message(run: Path, part: str) -> None:
    folder = checkpoint_folder(run, 4)
    state = json.loads((folder / "state.json").read_text())
    state[part] = {}
    content = json.dumps(state).encode()
    (folder / "state.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    said: list[Event] = []
    assert newest_checkpoint(run, listener=said.append) is not None
    with pytest.raises(ModelError, match=r"(lacks part of the state|lacks the circumstances)"):
        make_trainer(run)[0].train(resume=True)
