"""From a text to a language model: what is stored, held out, chosen, kept and resumed."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seqloom.apps.language_model import LanguageModel
from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.events import Event, read_events
from seqloom.data.plain_text import Stream
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.model_dir import read_card
from seqloom.runs.prepare import choose_config
from seqloom.runs.train import Trained, resume, train
from seqloom.tasks.settings import LanguageModellingConfig
from seqloom.text.tokenizer import Tokenizer
from tiny_runs import TINY_LM, write_text

KIND = "model.kind=rnn_lm"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train.txt")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Trained:
    trained = train(None, [KIND, *TINY_LM], out=tmp_path_factory.mktemp("runs") / "run", train=[str(text)])
    assert trained is not None
    return trained


def test_a_run_leaves_what_every_run_leaves(tiny: Trained) -> None:
    for name in ("config.yaml", "run.json", "events.jsonl", "text", "checkpoints", "learning-curve.png", "model"):
        assert (tiny.run / name).exists(), name
    kinds = {event.kind for event in read_events(tiny.run / "events.jsonl")}
    assert kinds >= {"model", "step", "validation", "finished", "scores", "model_saved"}
    card = read_card(tiny.model)
    assert card.trained_on["steps"] == 6
    assert [score["name"] for score in card.scores] == [f"perplexity/{unit}" for unit in ("token", "word", "character")]
    assert all("end:yes" in score["signature"] for score in card.scores)


def test_the_end_of_the_text_is_held_out(tiny: Trained, text: Path) -> None:
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    held = (tiny.run / "data" / "dev.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert held == lines[-6:]
    train_stream, dev = (Stream.open(tiny.run / "data" / name) for name in ("train", "dev"))
    assert (len(train_stream), len(dev)) == (len(lines) - 6, 6)
    tokenizer = Tokenizer.load(tiny.run / "text" / "shared")
    assert tokenizer.decode(dev.line(0)[:-1].tolist()) == held[0]
    assert json.loads((tiny.run / "run.json").read_text())["lines"] == len(lines) - 6


def test_several_texts_plain_and_compressed_make_one(tmp_path: Path, text: Path) -> None:
    packed = tmp_path / "more.txt.gz"
    packed.write_bytes(gzip.compress(b"One more line.\nAnd another.\n"))
    events: list[Event] = []
    settings = [KIND, *TINY_LM, "training.steps=1"]
    train(None, settings, out=tmp_path / "run", train=[str(text), str(packed)], dev=[str(text)], listener=events.append)
    lines = {event["name"]: event["lines"] for event in events if event.kind == "encoded"}
    assert lines == {"train": 68, "dev": 66}
    assert not any("held out" in str(event.values.get("message")) for event in events)


def test_a_text_may_be_one_side_of_a_memory_with_a_notice_of_what_was_left_out(tmp_path: Path, text: Path) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{line}</seg></tuv><tuv xml:lang="de"><seg>x</seg></tuv></tu>'
        for line in text.read_text().splitlines()
        if line
    )
    count = units.count("<tu>")
    lone = '<tu><tuv xml:lang="de"><seg>y</seg></tuv></tu>'
    (tmp_path / "a.tmx").write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}{lone}</body></tmx>')
    settings = ["model.kind=ngram", "model.order=2", "data.target=en"]
    events: list[Event] = []
    names = [str(tmp_path / "*.tmx")]
    trained = train(None, settings, out=tmp_path / "run", train=names, dev=[str(text)], listener=events.append)
    assert trained is not None
    notices = [event["message"] for event in events if event.kind == "notice"]
    assert any(f"{count} texts in en are read" in said for said in notices)
    assert any("1 segments without a text, or with a fuzzy one, left out" in said for said in notices)
    with pytest.raises(DataError, match=r"a\.tmx holds texts in en and de; choose one of them"):
        train(None, settings[:2], out=tmp_path / "other", train=names)


def test_resuming_in_one_go_or_in_two_gives_the_same_weights(tiny: Trained, tmp_path: Path, text: Path) -> None:
    shutil.copytree(tiny.run, tmp_path / "two")
    resume(tmp_path / "two", ["training.steps=9"])
    train(None, [KIND, *TINY_LM, "training.steps=9"], out=tmp_path / "one", train=[str(text)])
    one, two = (load_file(tmp_path / name / "checkpoints/step-9/model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    start = load_file(tiny.run / "checkpoints/step-6/model.safetensors")
    assert not all(torch.equal(one[name], start[name]) for name in one)


def test_start_from_takes_the_kind_of_model_its_text_and_its_weights(tiny: Trained, tmp_path: Path, text: Path) -> None:
    words = [f"training.start_from={tiny.model}", "training.steps=1", "training.learning_rate=1e-9"]
    tuned = train(None, words, out=tmp_path / "run", train=[str(text)])
    assert tuned is not None
    before, after = (load_file(each.model / "model.safetensors") for each in (tiny, tuned))
    for name in before:
        torch.testing.assert_close(before[name], after[name], atol=1e-6, rtol=0)
    assert load(tuned.model).tokenizers == load(tiny.model).tokenizers


def test_what_a_carried_state_depends_on_cannot_change_at_a_resume(tiny: Trained) -> None:
    with pytest.raises(UsageError, match=r"task\.rows is 4 .* cannot become 8"):
        resume(tiny.run, ["task.rows=8"])


def test_damaged_ids_are_made_again_from_unchanged_text(tiny: Trained, tmp_path: Path) -> None:
    run = shutil.copytree(tiny.run, tmp_path / "run")
    (run / "data" / "dev" / "ids").write_bytes(b"")
    (run / "data" / "dev.txt").unlink()
    events: list[Event] = []
    resume(run, listener=events.append)
    assert any("encoding the text again" in str(event.values.get("message")) for event in events)
    for name in ("dev/ids", "train/ids", "dev.txt"):
        assert (run / "data" / name).read_bytes() == (tiny.run / "data" / name).read_bytes()


def test_a_language_model_refuses_to_translate_and_reports_its_purpose(tiny: Trained) -> None:
    with pytest.raises(
        UsageError, match=r"does not translate: it is a language model of kind rnn_lm; use seqloom perp"
    ):
        Translator.load(tiny.model)
    assert load(tiny.model).config.task.kind == "language_modelling"


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_task_follows_from_the_model_unless_it_is_named() -> None:
    assert RunConfig().task.kind == "translation"
    config = resolve(RunConfig, overrides=[KIND, "task.rows=3"])
    assert isinstance(config.task, LanguageModellingConfig)
    assert (config.task.rows, config.task.kind) == (3, "language_modelling")
    assert resolve(RunConfig, overrides=["model.kind=seq2seq", "task.label_smoothing=0"]).task.kind == "translation"
    with pytest.raises(
        ConfigError, match=r"task\.kind is translation, but a model of kind rnn_lm is made for language"
    ):
        resolve(RunConfig, overrides=[KIND, "task.kind=translation"])


@pytest.mark.parametrize("kind", ["bpe", "char", "word"])
def test_sizes_are_chosen_for_the_text_and_reasons_name_them(kind: str, text: Path) -> None:
    events: list[Event] = []
    overrides = [KIND, f"text.kind={kind}"]
    config = choose_config(None, overrides, train=[str(text)], dev=[], listener=events.append)
    assert isinstance(config.task, LanguageModellingConfig)
    assert (config.text.kind, config.search.method, config.training.schedule) == (kind, "sample", "cosine")
    (sizing,) = [event for event in events if event.kind == "sizing"]
    said = " ".join(sizing["reasons"])
    assert "66 lines" in said
    assert f"width {config.model.width}" in said  # type: ignore[union-attr]
    assert f"{config.task.rows} rows" in said
    assert f"{config.training.steps} steps" in said


def test_a_config_file_wins_over_what_would_be_chosen(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {kind: rnn_lm, width: 24}\ntask: {length: 7}\n")
    config = choose_config(file, [], train=[str(text)], dev=[], listener=lambda _: None)
    assert isinstance(config.task, LanguageModellingConfig)
    assert (config.model.width, config.task.length, config.task.rows) == (24, 7, 2)  # type: ignore[union-attr]


# --- bad input --------------------------------------------------------------------------------------------------------


def test_text_that_cannot_be_learned_from_is_a_sentence(tmp_path: Path, text: Path) -> None:
    def refused(content: str, *settings: str) -> str:
        path = tmp_path / "bad.txt"
        path.write_text(content)
        with pytest.raises(DataError) as caught:
            train(None, [KIND, *TINY_LM, *settings], out=tmp_path / "run", train=[str(path)], dev=[str(text)])
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    assert "empty; expected at least one line of text" in refused("")
    assert "blank" in refused("\n\n\n")
    assert "too few for a window of 8 tokens in 400 rows" in refused("A line.\n", "task.rows=400")


def test_too_little_to_hold_out_is_a_sentence_that_asks_for_dev_text(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("One line.\nTwo lines.\n")
    with pytest.raises(DataError, match="2 lines are too few to hold some out for validation; give a --dev file"):
        train(None, [KIND], out=tmp_path / "run", train=[str(tmp_path / "short.txt")])


def test_no_text_and_tables_of_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no training files: give --train TEXT"):
        train(None, [KIND], out=tmp_path / "run")
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    with pytest.raises(UsageError, match=r"pairs\.tsv is a table of pairs"):
        train(None, [KIND], out=tmp_path / "run", train=[str(tmp_path / "pairs.tsv")])


def test_one_word_type_is_learned_like_any_text(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("word word word\n" * 40)
    settings = [KIND, *TINY_LM, "text.kind=word", "text.minimum_count=1"]
    trained = train(None, settings, out=tmp_path / "run", train=[str(tmp_path / "one.txt")])
    assert trained is not None
    found = LanguageModel.load(trained.model).perplexity(["word word word"])
    assert 1 < found.token.value < 5.0
