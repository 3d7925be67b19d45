"""Two ranks equal one process: the same steps, the same order, the same decisions."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from seqloom.core.events import ignore, read_events
from seqloom.runs import train as recipe
from seqloom.training.checkpoint import Checkpoint, checkpoint_folder, newest_checkpoint, read_checkpoint
from tiny_runs import TINY, train_files, write_corpus, write_text
from training.processes import run_toy, start
from training.toy import ToyModel, same_bits

# 6 batches an epoch and 4 a step: the second step of an epoch has two batches, and with 5 a step one rank gets an
# empty one.
OPTIONS = {"steps": 5, "batches_per_step": 4, "clip_norm": 0.5, "weight_decay": 0.01, "log_every": 1}


def train(run: Path, *, ranks: int, **options: object) -> Checkpoint:
    run_toy(run, ranks=ranks, **{**OPTIONS, **options})
    return read_checkpoint(checkpoint_folder(run, 5))


@pytest.mark.parametrize(
    ("dtype", "optimiser", "batches_per_step", "tolerance"),
    [("float64", "adamw", 4, 1e-10), ("float64", "adamw", 5, 1e-10), ("float32", "sgd", 3, 1e-6)],
)
def test_two_ranks_equal_one_process(
    tmp_path: Path, dtype: str, optimiser: str, batches_per_step: int, tolerance: float
) -> None:
    options = {
        "dtype": dtype,
        "optimiser": optimiser,
        "batches_per_step": batches_per_step,
        "dropout": 0.3,
        "order_file": str(tmp_path / "order"),
    }
    one = train(tmp_path / "one", ranks=1, **options)
    alone = json.loads((tmp_path / "order.0").read_text())
    two = train(tmp_path / "two", ranks=2, **options)
    for name, expected in one.weights.items():
        if expected.is_floating_point():
            torch.testing.assert_close(two.weights[name], expected, rtol=0, atol=tolerance)
    progress = [found.state["progress"] for found in (one, two)]
    assert progress[0]["best"]["loss"] == pytest.approx(progress[1]["best"]["loss"], abs=tolerance)
    assert [progress[0][name] for name in ("step", "epoch", "index", "tokens")] == [
        progress[1][name] for name in ("step", "epoch", "index", "tokens")
    ]
    # Ranks take turns, so reading their lists in turn gives the order of one process.
    shares = [json.loads((tmp_path / f"order.{rank}").read_text()) for rank in (0, 1)]
    assert sorted(map(tuple, shares[0] + shares[1])) == sorted(map(tuple, alone))
    assert all(later[0] > now[0] or later[1] > now[1] for now, later in zip(shares[0], shares[0][1:], strict=False))


# What torchrun says to a rank by its environment, the ranks of the other tests are told too; it takes long to start.
@pytest.mark.slow
def test_torchrun_starts_the_ranks(tmp_path: Path) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "training.toy"]
    options = {**OPTIONS, "dtype": "float64"}
    result = subprocess.run(
        [sys.executable, *command, str(tmp_path / "two"), json.dumps(options)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    steps = [json.loads(line) for line in result.stdout.splitlines() if '"step", "step"' in line]
    assert [step["tokens"] for step in steps] == [16, 23, 39, 46, 62]
    one = train(tmp_path / "one", ranks=1, dtype="float64")
    two = read_checkpoint(checkpoint_folder(tmp_path / "two", 5))
    torch.testing.assert_close(two.weights["first.weight"], one.weights["first.weight"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_both_and_they_resume_to_the_same_bits(tmp_path: Path, rank: int) -> None:
    options = {"dropout": 0.3, "torch_dropout": 0.2}
    whole = train(tmp_path / "whole", ranks=2, **options)
    # Batch 0 of the second epoch is dealt to rank 0, batch 1 to rank 1: step 3.
    running = start(tmp_path / "parts", ranks=2, hold_at=[1, rank], **{**OPTIONS, **options})
    running.wait_for("step", step=2)
    os.kill(running.ranks[rank].pid or 0, signal.SIGTERM)
    (tmp_path / "parts" / "go").touch()
    assert running.codes() == [143, 143]
    assert all(
        "stopped by SIGTERM after step 3. Last checkpoint: step 3" in running.messages(number) for number in (0, 1)
    )
    resumed = train(tmp_path / "parts", ranks=2, resume=True, **options)
    assert same_bits(resumed.weights, whole.weights)
    assert same_bits(resumed.optimiser, whole.optimiser)
    assert same_bits(resumed.generators, whole.generators)
    assert not torch.equal(whole.generators["torch"][0], whole.generators["torch"][1])


def test_one_process_resumes_the_run_of_two_in_the_same_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    run_toy(tmp_path / "run", ranks=2, **{**OPTIONS, "steps": 3})
    events = run_toy(tmp_path / "run", ranks=1, resume=True, order_file=str(order), **OPTIONS)
    assert events[0]["message"] == (
        "resuming with the same data order, but results will not be bit-identical: number of ranks was 2 and is 1"
    )
    assert json.loads(Path(f"{order}.0").read_text()) == [[1, 4], [1, 5], [2, 0], [2, 1], [2, 2], [2, 3]]


def test_a_parameter_that_only_some_batches_use_is_trained_equally(tmp_path: Path) -> None:
    # An empty batch is no use of it.
    options = {"dtype": "float64", "rare": True, "batches_per_step": 5}
    one = train(tmp_path / "one", ranks=1, **options)
    two = train(tmp_path / "two", ranks=2, **options)
    for name in ("rare", "never"):
        torch.testing.assert_close(two.weights[name], one.weights[name], rtol=0, atol=1e-10)
    assert two.weights["rare"].item() != 1
    # One that no batch uses is not even decayed, with one rank or two.
    assert two.weights["never"].unique().tolist() == [1]


def test_frozen_weights_stay_as_they_are_on_two_ranks(tmp_path: Path) -> None:
    options = {"dtype": "float64", "freeze": ("first.*",), "layer_decay": 0.5}
    one, two = (train(tmp_path / str(ranks), ranks=ranks, **options) for ranks in (1, 2))
    assert torch.equal(two.weights["first.weight"], ToyModel().double().first.weight)
    assert not any(name.startswith("first.") for name in two.optimiser)
    for name in ("first.bias", "second.bias", "output.weight", "output.bias"):
        torch.testing.assert_close(two.weights[name], one.weights[name], rtol=0, atol=1e-10)


def written_by(place: Path, *, ranks: int, name: str, **options: list[str]) -> dict[str, Tensor]:
    """The tensors in a file of a run of so many ranks."""
    run_toy(place, ranks=ranks, program=train_files, **options)
    return load_file(place / "run" / name)


FEW = ("training.steps=3", "training.save_every=3", "training.validate_every=3", "training.batches_per_step=3")


def test_adapters_that_two_ranks_train_equal_those_of_one_process(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path)
    base = recipe.train(None, [*TINY, "training.steps=1"], out=tmp_path / "base", train=files, dev=dev)
    assert base is not None
    lora = ["training.lora.rank=2", "training.lora.targets=[all]", "training.lora.dropout=0.2"]
    words = [f"training.start_from={base.model}", *lora, *FEW, "training.learning_rate=0.01", "training.warmup=1"]
    words += ["data.tokens_per_batch=512", "evaluation.resamples=40"]
    one, two = (
        written_by(
            tmp_path / str(ranks), ranks=ranks, name="adapter/adapter.safetensors", words=words, train=files, dev=dev
        )
        for ranks in (1, 2)
    )
    assert one.keys() == two.keys()
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=0, atol=1e-5)
    assert max(float(each.abs().max()) for name, each in one.items() if name.endswith(".B")) > 1e-3  # 0 at the start


def test_two_ranks_classify_images_as_one_process_does(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for name, count in (("train", 60), ("dev", 12)):
        images = random.integers(0, 256, (count, 8, 8), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.arange(count) % 3)
    words = ["model.kind=vit", "model.width=16", "model.heads=2", "model.feed_forward=16", "model.layers=1", *FEW]
    # Not Adam, whose steps are as large where a gradient is 0 but for rounding, as for the biases of keys.
    words += ["training.optimiser=sgd", "training.learning_rate=0.1", "training.warmup=1", "evaluation.resamples=40"]
    words += ["task.images_per_batch=8", "data.images.shift=1"]
    files = {"train": [str(tmp_path / "train.npz")], "dev": [str(tmp_path / "dev.npz")]}
    one, two = (
        written_by(tmp_path / str(ranks), ranks=ranks, name="model/model.safetensors", words=words, **files)
        for ranks in (1, 2)
    )
    assert one.keys() == two.keys()
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=0, atol=1e-5)


def test_two_ranks_hide_the_tokens_that_one_process_hides(tmp_path: Path) -> None:
    """Other noise is another gradient, so the same weights after a step of the second epoch have had the same noise."""
    text, dev = (write_text(tmp_path / f"{name}.en", count=30, seed=seed) for name, seed in (("train", 3), ("dev", 4)))
    words = ["model.kind=bert", "text.size=150", "model.width=16", "model.heads=2", "model.feed_forward=16"]
    words += ["model.layers=1", "model.longest=16", "task.length=16", "task.tokens_per_batch=128"]
    words += ["training.steps=5", "training.save_every=5", "training.validate_every=5", "training.batches_per_step=2"]
    words += ["training.optimiser=sgd", "training.learning_rate=0.5", "training.warmup=1", "training.log_every=1"]
    one, two = (
        written_by(
            tmp_path / str(ranks),
            ranks=ranks,
            name="model/model.safetensors",
            words=words,
            train=[str(text)],
            dev=[str(dev)],
        )
        for ranks in (1, 2)
    )
    epochs = [event["epoch"] for event in read_events(tmp_path / "2" / "run" / "events.jsonl") if event.kind == "step"]
    assert epochs[-1] > epochs[0]
    assert one.keys() == two.keys()
    for name, expected in one.items():
        torch.testing.assert_close(two[name], expected, rtol=0, atol=1e-5)


def test_a_bad_batch_of_one_rank_is_named_by_all_and_ends_the_run(tmp_path: Path) -> None:
    # Batches 1, 3, 5 are dealt to rank 1.
    options = {**OPTIONS, "batches_per_step": 2, "poisoned": [[0, 1], [0, 3], [0, 5]]}
    running = start(tmp_path, ranks=2, **options)
    assert running.codes() == [1, 1]
    bad = [event for event in running.events() if event["event"] == "bad_step"]
    assert [event["in_a_row"] for event in bad] == [1, 2, 3]
    assert [str(event["where"]).split(" (")[0] for event in bad] == [f"epoch 0, batch {n}" for n in (1, 3, 5)]
    assert all(running.messages(rank).startswith("TrainingError: step 3: loss nan") for rank in (0, 1))


def test_a_failure_of_the_first_rank_ends_the_other_too(tmp_path: Path) -> None:
    run_toy(tmp_path, ranks=1, **OPTIONS)
    running = start(tmp_path, ranks=2, **OPTIONS)
    assert running.codes() == [2, 1]
    assert "already holds a run" in running.messages(0)
    assert "rank 0 could not start a run in this folder; see its error message" in running.messages(1)


def test_a_rank_that_dies_does_not_leave_the_other_waiting(tmp_path: Path) -> None:
    running = start(tmp_path, ranks=2, hold_at=[1, 0], **OPTIONS)
    running.wait_for("saved", step=2)
    os.kill(running.ranks[1].pid or 0, signal.SIGKILL)
    (tmp_path / "go").touch()
    codes = running.codes()
    assert codes[0] not in (0, None)
    assert newest_checkpoint(tmp_path, listener=ignore) is not None
