"""Signals to the program itself, as a scheduler or a person at the keyboard sends them."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.calling import call, start
from cli.conftest import train_words, write_pairs
from seqloom.apps.export import pack
from seqloom.cli.failures import raise_on_termination
from seqloom.core.arrays import ArrayFolderWriter
from seqloom.core.events import ignore, read_events
from seqloom.training.checkpoint import newest_checkpoint
from system.small_models import write_small_model


@pytest.fixture
def program_handlers() -> Iterator[None]:
    """The signal handlers of the program, for the duration of a test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    raise_on_termination()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("program_handlers")
def test_a_run_that_is_terminated_while_it_prepares_leaves_no_lock_and_no_partial_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, train, dev = tmp_path / "run", write_pairs(tmp_path, "train", 60), write_pairs(tmp_path, "dev", 6)

    def terminated(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(ArrayFolderWriter, "append", terminated)
        called = call(*train_words(train, dev, run))
    assert (called.code, called.err.strip().split("\n")[-1]) == (143, "stopped by SIGTERM")
    assert not (run / "lock").exists()
    assert not list(run.rglob("*partial*"))


def test_a_terminated_program_takes_the_unpacked_archive_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, room = tmp_path / "small.zip", tmp_path / "room"
    pack(write_small_model(tmp_path / "model"), archive)
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    process, end = start("translate", archive), time.monotonic() + 100
    while not list(room.glob("seqloom-*/*/manifest.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=100)
    assert (process.returncode, words.decode().strip().split("\n")[-1]) == (143, "stopped by SIGTERM")
    assert list(room.iterdir()) == []


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
    assert f"Last checkpoint: step {found.step}. Resume with: seqloom train --resume {run}" in words.decode()
    assert not (run / "lock").exists()
