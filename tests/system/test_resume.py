"""A run that is killed or stopped at any moment goes on to the same bits."""

import os
import signal
from pathlib import Path

import pytest

from seqloom.core.errors import UsageError
from seqloom.core.events import ignore
from seqloom.training.checkpoint import Checkpoint, checkpoint_folder, newest_checkpoint, read_checkpoint
from training.processes import run_toy, start
from training.toy import make_trainer, same_bits

OPTIONS = {"steps": 14, "dropout": 0.3, "torch_dropout": 0.2, "schedule": "cosine", "warmup": 2, "clip_norm": 0.7}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The end of a run that nothing disturbed. Its 14 steps end in the third epoch."""
    run = tmp_path_factory.mktemp("whole")
    run_toy(run, **OPTIONS)
    return read_checkpoint(checkpoint_folder(run, 14))


def assert_same_end(run: Path, whole: Checkpoint) -> None:
    found = newest_checkpoint(run, listener=ignore)
    assert found is not None
    assert found.step == whole.step
    assert same_bits(found.weights, whole.weights)
    assert same_bits(found.optimiser, whole.optimiser)
    assert not list(run.rglob("*partial*"))
    assert not (run / "lock").exists()


@pytest.mark.parametrize("step", [1, 5, 9])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path, whole: Checkpoint, step: int) -> None:
    # Before the first checkpoint, in the first epoch, and in the second.
    killed = start(tmp_path, kill_at=step, **OPTIONS)
    assert killed.codes() == [-signal.SIGKILL]
    assert (tmp_path / "lock").exists()
    events = run_toy(tmp_path, resume=True, **OPTIONS)
    assert events[0]["event"] == ("notice" if step == 1 else "resumed")
    assert_same_end(tmp_path, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_after_the_step_and_the_run_resumes_to_the_same_bits(
    tmp_path: Path, whole: Checkpoint, number: signal.Signals, code: int
) -> None:
    # The eighth step takes the second batch of the second epoch; the signal comes while it is at that.
    running = start(tmp_path, hold_at=[1, 1], **OPTIONS)
    running.wait_for("step", step=7)
    os.kill(running.ranks[0].pid or 0, number)
    (tmp_path / "go").touch()
    assert running.codes() == [code]
    stopped = running.events()[-1]
    assert (stopped["event"], stopped["step"], stopped["signal"]) == ("stopped", 8, number.name)
    assert running.messages().startswith(
        f"Stopped: stopped by {number.name} after step 8. Last checkpoint: step 8. Resume with"
    )
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-8\n"
    run_toy(tmp_path, resume=True, **OPTIONS)
    assert_same_end(tmp_path, whole)


def test_a_second_interrupt_stops_at_once_and_leaves_no_part(tmp_path: Path, whole: Checkpoint) -> None:
    running = start(tmp_path, hold_at=[0, 4], **OPTIONS)
    running.wait_for("step", step=4)
    pid = running.ranks[0].pid or 0
    os.kill(pid, signal.SIGINT)
    running.ranks[0].join(0.5)
    assert running.ranks[0].is_alive()  # one of them waits for the step
    os.kill(pid, signal.SIGINT)
    assert running.codes() == [130]
    assert "stopped immediately by a second SIGINT. Last checkpoint: step 4" in running.messages()
    assert not list(tmp_path.rglob("*partial*"))
    (tmp_path / "go").touch()
    run_toy(tmp_path, resume=True, **OPTIONS)
    assert_same_end(tmp_path, whole)


def test_two_trainers_in_one_folder_are_refused(tmp_path: Path) -> None:
    first = start(tmp_path, hold_at=[0, 1], **OPTIONS)
    first.wait_for("step", step=1)
    with pytest.raises(UsageError, match=f"in use by process {first.ranks[0].pid} on"):
        make_trainer(tmp_path)[0].train(resume=True)
    (tmp_path / "go").touch()
    assert first.codes() == [0]
