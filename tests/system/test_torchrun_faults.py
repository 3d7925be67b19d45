"""Two ranks that torchrun has started: one of them dies or fails, both end, and a restart goes on to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.core.events import ignore
from seqloom.training.checkpoint import Checkpoint, checkpoint_folder, newest_checkpoint, read_checkpoint
from training.processes import run_toy, start
from training.toy import same_bits

# 6 batches an epoch, 4 a step: the second step of an epoch has two, and rank 1 takes every odd one.
OPTIONS = {"steps": 5, "batches_per_step": 4, "dropout": 0.3, "torch_dropout": 0.2, "save_every": 2}

LIMIT = 240
"""Seconds after which a rank that is still there is said to hang, on a crowded machine."""


def torchrun(run: Path, *, restarts: int = 0, **options: object) -> subprocess.CompletedProcess[str]:
    words = ["--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}", "-m", "training.toy"]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words, str(run), json.dumps({**OPTIONS, **options})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The end of a run of two ranks that nothing disturbed."""
    run = tmp_path_factory.mktemp("whole")
    run_toy(run, ranks=2, **OPTIONS)
    return read_checkpoint(checkpoint_folder(run, 5))


@pytest.mark.parametrize("parallel", ["replicated", "sharded"])
def test_a_rank_that_raises_ends_both_with_its_message(tmp_path: Path, parallel: str) -> None:
    running = start(tmp_path, ranks=2, raise_at=[1, 1], parallel=parallel, **OPTIONS)
    codes = running.codes()
    assert codes[1] == 1
    assert codes[0] not in (0, None)
    assert "batch 1 of epoch 1 cannot be had" in running.messages(1)
    found = newest_checkpoint(tmp_path, listener=ignore, strict=True)
    assert found is not None
    assert found.step == 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["die_at", "raise_at"])
@pytest.mark.parametrize("index", [0, 1])
def test_under_torchrun_both_ranks_end_and_leave_a_run_to_resume(
    tmp_path: Path, whole: Checkpoint, fault: str, index: int
) -> None:
    # The batch is dealt to the rank of its number.
    result = torchrun(tmp_path / "run", **{fault: [1, index]})
    assert result.returncode == 1, result.stderr
    assert torchrun(tmp_path / "run", resume=True).returncode == 0
    end = read_checkpoint(checkpoint_folder(tmp_path / "run", 5))
    assert same_bits(end.weights, whole.weights)
    assert same_bits(end.optimiser, whole.optimiser)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["die_at", "raise_at"])
def test_an_elastic_restart_reaches_the_same_bits(tmp_path: Path, whole: Checkpoint, fault: str) -> None:
    result = torchrun(tmp_path / "run", restarts=1, **{fault: [1, 1]})
    assert result.returncode == 0, result.stderr
    assert '"event": "resumed", "step": 2' in result.stdout
    end = read_checkpoint(checkpoint_folder(tmp_path / "run", 5))
    assert same_bits(end.weights, whole.weights)
    assert same_bits(end.generators, whole.generators)
    assert not list((tmp_path / "run").rglob("*partial*"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["die_at", "raise_at"])
def test_an_elastic_restart_of_sharded_ranks_reaches_the_same_bits(tmp_path: Path, fault: str) -> None:
    run_toy(tmp_path / "whole", ranks=2, parallel="sharded", **OPTIONS)
    result = torchrun(tmp_path / "run", restarts=1, parallel="sharded", **{fault: [1, 1]})
    assert result.returncode == 0, result.stderr
    assert '"event": "resumed", "step": 2' in result.stdout
    ends = [read_checkpoint(checkpoint_folder(tmp_path / name, 5)) for name in ("run", "whole")]
    assert same_bits(ends[0].weights, ends[1].weights)
    assert same_bits(ends[0].optimiser, ends[1].optimiser)
    assert not list((tmp_path / "run").rglob("*partial*"))
