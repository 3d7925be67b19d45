"""Faults of a whole run: its journal, its tokenisers, the model at its end, and torchrun's second try."""

import shutil
import signal
from pathlib import Path

import pytest

from seqloom.core.errors import ModelError
from seqloom.core.events import Event, ignore, read_events
from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.loading import load
from seqloom.runs.model_dir import read_card, save_model
from seqloom.runs.train import Journal, Trained, resume, train
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.run_guard import remove_leftovers
from seqloom.training.weights import weights_of
from tiny_runs import TINY
from training.faults import at_each_call, dies_at, in_child

Corpus = tuple[list[str], list[str]]


@pytest.fixture
def run(tiny: Trained, tmp_path: Path) -> Path:
    """A finished run of its own for a test that damages it."""
    return Path(shutil.copytree(tiny.run, tmp_path / "run"))


def notices(events: list[Event]) -> list[str]:
    return [str(event["message"]) for event in events if event.kind == "notice"]


# --- F17: the journal ------------------------------------------------------------------------------------------------


def test_a_journal_that_cannot_be_written_gives_one_warning_and_training_continues(run: Path) -> None:
    (run / "events.jsonl").unlink()
    (run / "events.jsonl").mkdir()
    events: list[Event] = []
    trained = resume(run, ["training.steps=8"], listener=events.append)
    assert trained is not None
    assert trained.outcome.step == 8
    told = [message for message in notices(events) if message.startswith("the journal")]
    sentence = "cannot be written (Is a directory); the run continues without it"
    assert told == [f"the journal {run / 'events.jsonl'} {sentence}"]
    assert read_card(run / "model").trained_on["steps"] == 8


def test_a_full_disk_ends_a_journal_with_one_warning() -> None:
    told: list[Event] = []
    journal = Journal(Path("/dev/full"), warn=told.append)
    for step in (1, 2, 3):
        journal(Event("step", {"step": step}))
    assert notices(told) == [
        "the journal /dev/full cannot be written (No space left on device); the run continues without it"
    ]


def test_half_a_line_of_a_journal_swallows_no_other(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    Journal(path)(Event("step", {"step": 1}))
    with path.open("a") as file:
        file.write('{"event": "step", "st')
    journal = Journal(path, warn=pytest.fail)
    for step in (2, 3):
        journal(Event("step", {"step": step}))
    assert [event["step"] for event in read_events(path)] == [1, 2, 3]
    with path.open("a") as file:
        file.write('[1]\n{"step": 4}\nnull\n"event"\n')
    assert len(read_events(path)) == 3


# --- F6: another vocabulary or architecture --------------------------------------------------------------------------


def test_tokenisers_of_another_run_are_refused_with_both_hashes(run: Path, tiny: Trained, tmp_path: Path) -> None:
    mine = Tokenizers.load(run / "text").source
    pairs = sample_pairs("en", "fr", count=200, seed=5, split="train")
    other = train_tokenizer([side for pair in pairs for side in (pair.source, pair.target)], mine.config)
    shutil.rmtree(run / "text")
    Tokenizers(other, other).save(run / "text")
    assert other.size == mine.size  # so that no shape of a weight would tell
    with pytest.raises(ModelError) as caught:
        resume(run, ["training.steps=8"])
    message = str(caught.value)
    assert f"{run / 'text'} holds other tokenisers ({other.fingerprint[:12]}" in message
    assert f"than this run began with ({mine.fingerprint[:12]}" in message


def test_a_start_from_a_model_of_another_shape_names_the_command_that_fits(
    tiny: Trained, tmp_path: Path, corpus: Corpus
) -> None:
    words = [f"training.start_from={tiny.model}", "training.steps=1", "model.width=32"]
    with pytest.raises(ModelError) as caught:
        train(None, words, out=tmp_path / "run", train=corpus[0], dev=corpus[1])
    assert "of another shape" in str(caught.value)
    assert f"seqloom train --train … --out … training.start_from={tiny.model}" in str(caught.value)


# --- F5 --------------------------------------------------------------------------------------------------------------


def test_strict_refuses_to_go_back_and_leaves_the_run_as_it_was(run: Path) -> None:
    newest = run / "checkpoints" / "step-6" / "optim.safetensors"
    newest.write_bytes(b"")
    with pytest.raises(ModelError, match=r"DAMAGED CHECKPOINT: .*optim\.safetensors: 0 bytes"):
        resume(run, ["training.steps=8"], strict=True)
    assert newest.read_bytes() == b""
    events: list[Event] = []
    assert resume(run, ["training.steps=8"], listener=events.append) is not None
    assert sum(message.startswith("DAMAGED CHECKPOINT") for message in notices(events)) == 1


# --- the model at the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_kill_at_any_call_while_a_model_is_written_leaves_no_half_made_one(
    tiny: Trained, tmp_path: Path, is_replaced: bool
) -> None:
    loaded = load(tiny.model)
    weights = weights_of(loaded.model)

    def save(folder: Path) -> str:
        save_model(folder, loaded.config, tokenizers=loaded.tokenizers, weights=weights, card=loaded.card)
        return "saved"

    codes, states = [], set()
    while not codes or codes[-1]:
        run = tmp_path / f"run-{len(codes)}"
        run.mkdir()
        if is_replaced:
            shutil.copytree(tiny.model, run / "model")

        def action(folder: Path = run / "model", at: int = len(codes) + 1) -> str:
            with at_each_call(dies_at(at)):
                return save(folder)

        code, words = in_child(action)
        assert code in (0, -signal.SIGKILL), words
        codes.append(code)
        remove_leftovers(run, listener=ignore)
        states.add((run / "model").exists())
        if (run / "model").exists():
            read_card(run / "model")  # which checks every file of it
            assert {path.name for path in run.iterdir()} == {"model"}
        else:
            assert list(run.iterdir()) == []
    assert len(codes) > 10
    # One that was there before is there in the end, whole; a first one is there after some call, and not before.
    assert states == ({True} if is_replaced else {True, False})


# --- F12: torchrun's second try --------------------------------------------------------------------------------------


def test_a_run_that_torchrun_restarts_is_resumed(run: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(run / "checkpoints" / "step-6")
    shutil.rmtree(run / "model")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    events: list[Event] = []
    trained = train(None, TINY, out=run, train=corpus[0], dev=corpus[1], listener=events.append)
    assert trained is not None
    assert trained.outcome.step == 6
    assert next(event for event in events if event.kind == "resumed")["step"] == 4
    # A first try that came to nothing begins anew.
    assert train(None, TINY, out=run.parent / "new", train=corpus[0], dev=corpus[1]) is not None
