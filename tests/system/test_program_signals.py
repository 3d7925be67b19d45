"""Signals to the program itself, as a scheduler or a person at the keyboard sends them."""

import signal
import time
from pathlib import Path

import pytest

from cli.calling import start
from cli.conftest import train_words, write_pairs
from seqloom.core.events import ignore, read_events
from seqloom.training.checkpoint import newest_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_program_finishes_its_step_saves_and_ends_with_the_code_of_the_signal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    train, dev = write_pairs(tmp_path, "train", 60), write_pairs(tmp_path, "dev", 6)
    settings = ["training.steps=100000", "training.save_every=50000", "training.validate_every=50000"]
    process = start(*train_words(train, dev, run), *settings)
    journal, end = run / "events.jsonl", time.monotonic() + 200
    while not (journal.exists() and any(event.kind == "step" for event in read_events(journal))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.1)
    process.send_signal(number)
    _, words = process.communicate(timeout=100)
    assert process.returncode == code
    last = read_events(journal)[-1]
    assert (last.kind, last["signal"]) == ("stopped", number.name)
    found = newest_checkpoint(run, listener=ignore, strict=True)
    assert found is not None
    assert found.step == last["step"]
    assert f"Saved is step {found.step}; go on with: seqloom train --resume {run}" in words.decode()
    assert not (run / "lock").exists()
