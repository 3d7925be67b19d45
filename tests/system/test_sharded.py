"""Two ranks that share a model equal one process that has it, hold half of it each, and leave the same files."""

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from seqloom.core.events import ignore
from seqloom.training.checkpoint import Checkpoint, checkpoint_folder, newest_checkpoint, read_checkpoint
from training.models_program import MODELS, main, make_data
from training.processes import run_toy, start
from training.toy import same_bits

# 6 batches an epoch and 5 a step: one rank has no batch for the last of a step, and none but one for the next.
OPTIONS: dict[str, object] = {
    "steps": 5,
    "batches_per_step": 5,
    "clip_norm": 0.5,
    "weight_decay": 0.01,
    "dtype": "float64",
    "dropout": 0.3,
    "rare": True,
}
SHARED = {**OPTIONS, "parallel": "sharded"}
ALIKE = 1e-10


def end(run: Path, step: int = 5) -> Checkpoint:
    return read_checkpoint(checkpoint_folder(run, step))


def farthest(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two sets of tensors, which must have the same names."""
    assert set(one) == set(other)
    pairs = [(one[name], other[name]) for name in one if one[name].is_floating_point()]
    assert all(left.shape == right.shape and left.dtype == right.dtype for left, right in pairs)
    return max(float((left - right).abs().max()) for left, right in pairs)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process."""
    run = tmp_path_factory.mktemp("one")
    run_toy(run, ranks=1, **OPTIONS)
    return run


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of two ranks that share the model."""
    run = tmp_path_factory.mktemp("two")
    run_toy(run, ranks=2, **SHARED)
    return run


def test_two_shards_equal_one_process(one: Path, two: Path) -> None:
    alone, shared = end(one), end(two)
    assert farthest(alone.weights, shared.weights) <= ALIKE
    assert farthest(alone.optimiser, shared.optimiser) <= ALIKE
    # A step less makes a difference, so that none means something.
    assert farthest(alone.weights, end(two, 4).weights) > ALIKE
    progress = [found.state["progress"] for found in (alone, shared)]
    assert progress[0]["best"]["loss"] == pytest.approx(progress[1]["best"]["loss"], abs=ALIKE)
    assert [progress[0][name] for name in ("step", "epoch", "index", "tokens")] == [
        progress[1][name] for name in ("step", "epoch", "index", "tokens")
    ]
    # A parameter that no batch uses is not even decayed.
    assert shared.weights["never"].unique().tolist() == [1]
    assert shared.weights["rare"].item() != 1


def test_the_files_are_those_of_one_process(one: Path, two: Path) -> None:
    for name in ("model.safetensors", "optim.safetensors"):
        files = [checkpoint_folder(run, 5) / name for run in (one, two)]
        heads = [file.read_bytes()[: 8 + int.from_bytes(file.read_bytes()[:8], "little")] for file in files]
        assert heads[0] == heads[1]
        assert {name: tensor.shape for name, tensor in load_file(files[0]).items()} == {
            name: tensor.shape for name, tensor in load_file(files[1]).items()
        }


def copy_of(run: Path, to: Path, *, step: int) -> Path:
    """A run as it was after a step."""
    shutil.copytree(run, to)
    for later in range(step + 1, 6):
        shutil.rmtree(checkpoint_folder(to, later), ignore_errors=True)
    return to


def test_a_stopped_run_resumes_to_the_same_bits(tmp_path: Path, two: Path) -> None:
    run = copy_of(two, tmp_path / "run", step=2)
    events = run_toy(run, ranks=2, resume=True, **SHARED)
    assert [event["event"] for event in events][:1] == ["resumed"]
    assert same_bits(end(run).weights, end(two).weights)
    assert same_bits(end(run).optimiser, end(two).optimiser)
    assert same_bits(end(run).generators, end(two).generators)


def test_one_process_resumes_the_run_of_two(tmp_path: Path, one: Path, two: Path) -> None:
    run = copy_of(two, tmp_path / "run", step=2)
    events = run_toy(run, ranks=1, resume=True, **SHARED)
    assert "a single process holds the whole model" in str(events[0]["message"])
    assert str(events[1]["message"]).endswith(
        "not be bit-identical: number of ranks was 2 and is 1; kind of parallelism was sharded and is replicated"
    )
    assert farthest(end(run).weights, end(one).weights) <= ALIKE
    assert farthest(end(run).optimiser, end(one).optimiser) <= ALIKE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((1, "replicated"), (2, "sharded")),
        ((2, "replicated"), (2, "sharded")),
        ((2, "sharded"), (2, "replicated")),
        ((2, "sharded"), (3, "sharded")),
        ((3, "sharded"), (2, "sharded")),
    ],
)
def test_a_run_resumes_with_other_ranks(
    tmp_path: Path, one: Path, first: tuple[int, str], then: tuple[int, str]
) -> None:
    (ranks, kind), (ranks_then, kind_then) = first, then
    run_toy(tmp_path, ranks=ranks, **{**OPTIONS, "parallel": kind, "steps": 2})
    run_toy(tmp_path, ranks=ranks_then, resume=True, **{**OPTIONS, "parallel": kind_then})
    assert farthest(end(tmp_path).weights, end(one).weights) <= ALIKE
    assert farthest(end(tmp_path).optimiser, end(one).optimiser) <= ALIKE


def test_a_checkpoint_without_room_is_skipped_and_training_continues(tmp_path: Path, two: Path) -> None:
    # The second is that after step 3, a validation; the disk is full when half of it is written.
    events = run_toy(tmp_path, ranks=2, full_at=2, **SHARED)
    kinds = [(event["event"], event["step"]) for event in events if event["event"] in ("saved", "save_failed")]
    assert kinds[:3] == [("saved", 2), ("save_failed", 3), ("saved", 4)]
    assert "No space left on device" in str(next(each["message"] for each in events if each["event"] == "save_failed"))
    assert not list(tmp_path.rglob("*partial*"))
    assert same_bits(end(tmp_path).weights, end(two).weights)


def test_a_bad_batch_of_one_rank_is_named_by_all_and_ends_the_run(tmp_path: Path) -> None:
    # Batches 1, 3, 5 are dealt to rank 1.
    options = {**SHARED, "batches_per_step": 2, "poisoned": [[0, 1], [0, 3], [0, 5]]}
    running = start(tmp_path, ranks=2, **options)
    assert running.codes() == [1, 1]
    bad = [event for event in running.events() if event["event"] == "bad_step"]
    assert [event["in_a_row"] for event in bad] == [1, 2, 3]
    assert [str(event["where"]).split(" (")[0] for event in bad] == [f"epoch 0, batch {n}" for n in (1, 3, 5)]
    assert "non-finite gradients: rare" not in str(bad[0]["where"])
    assert all("rare nan, first nan, second nan, output nan" in running.messages(rank) for rank in (0, 1))
    assert all(running.messages(rank).startswith("TrainingError: step 3: loss nan") for rank in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_does_not_leave_the_other_waiting(tmp_path: Path, rank: int) -> None:
    # Both batches are of step 3.
    running = start(tmp_path, ranks=2, hold_at=[1, 1 - rank], die_at=[1, rank], **SHARED)
    running.ranks[rank].join(120)
    (tmp_path / "go").touch()
    codes = running.codes()
    assert codes[rank] == -signal.SIGKILL
    assert codes[1 - rank] not in (0, None)
    assert newest_checkpoint(tmp_path, listener=ignore, strict=True) is not None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_both_and_they_resume_to_the_same_bits(tmp_path: Path, two: Path, rank: int) -> None:
    running = start(tmp_path, ranks=2, hold_at=[1, rank], **SHARED)
    running.wait_for("saved", step=2)
    os.kill(running.ranks[rank].pid or 0, signal.SIGTERM)
    (tmp_path / "go").touch()
    assert running.codes() == [143, 143]
    run_toy(tmp_path, ranks=2, resume=True, **SHARED)
    assert same_bits(end(tmp_path).weights, end(two).weights)


# --- models ----------------------------------------------------------------------------------------------------------

NEEDS = 0.6
"""Of the memory of one process, what each of two ranks may need between steps: half, and what cannot be cut."""
NEEDS_FROZEN = 0.75
"""The same of a model that is mostly frozen: what cannot be cut is more of the whole."""


def compare(folder: Path, *names: str) -> None:
    """Train models by one process and by two that share them, and compare what both learn and need."""
    make_data(folder)
    run_toy(folder / "one", program=main, models=list(names))
    run_toy(folder / "two", ranks=2, program=main, models=list(names), parallel="sharded")
    for name in names:
        alone = json.loads((folder / "one" / name / "found.0").read_text())
        ranks = [json.loads((folder / "two" / name / f"found.{rank}").read_text()) for rank in (0, 1)]
        # After a run every rank has the whole model, and it is the one that was written.
        assert ranks[0]["weights"] == ranks[1]["weights"]
        written = end(folder / "two" / name, 3).weights
        assert all(tensor.tolist() == ranks[0]["weights"][key] for key, tensor in written.items())
        for weight, numbers in alone["weights"].items():
            found = torch.tensor(ranks[0]["weights"][weight], dtype=torch.float64)
            torch.testing.assert_close(found, torch.tensor(numbers, dtype=torch.float64), rtol=0, atol=ALIKE)
        needs = NEEDS_FROZEN if name in ("frozen", "adapted") else NEEDS
        assert max(rank["needed"] for rank in ranks) <= needs * alone["needed"]


def test_a_transformer_of_two_shards_equals_that_of_one_process(tmp_path: Path) -> None:
    compare(tmp_path, "transformer", "frozen", "adapted")


@pytest.mark.slow
def test_every_model_of_two_shards_equals_that_of_one_process(tmp_path: Path) -> None:
    compare(tmp_path, *(name for name in MODELS if name != "transformer"))
