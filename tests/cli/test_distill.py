"""`seqloom distill`: what the student learns from, what the run records, and that nothing is done twice."""

import json
import time
from pathlib import Path

import pytest
import torch

from cli.calling import call, start
from seqloom.apps.distillation import distill, student_settings
from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.errors import SeqloomError
from seqloom.core.events import Event
from seqloom.core.files import sha256_of
from seqloom.metrics.translation import closest
from seqloom.runs import back_translation
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import read_card, read_settings, read_weights
from seqloom.runs.train import Trained, train
from tiny_runs import TINY, write_corpus

Corpus = tuple[list[str], list[str]]

SMALL = [each for each in TINY if not each.startswith(("model.decoder_layers", "search."))]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("texts"), count=90)


@pytest.fixture(scope="module")
def teacher(texts: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phrases: they translate well after a second."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    settings = ["model.kind=phrases", "model.tuning.rounds=2", "model.tuning.nbest=5", "evaluation.resamples=40"]
    assert train(None, settings, out=out, train=texts[0], dev=texts[1]) is not None
    return out


def words(teacher: Path, texts: Corpus, out: Path, *more: str) -> list[str]:
    files = ["--train", ",".join(texts[0]), "--dev", ",".join(texts[1]), "--out", str(out)]
    return ["distill", str(teacher), *files, *SMALL, *more]


@pytest.fixture(scope="module")
def student(teacher: Path, texts: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("student") / "run"
    called = call(*words(teacher, texts, out), "--json")
    assert called.code == 0, called.err
    assert called.records[0]["model"] == str(out / "model")
    notices = [event["message"] for event in called.messages if event["event"] == "notice"]
    assert "a student, for quick translation: model.decoder_layers=1, search.beam=1" in notices
    assert any("90 translations (the closest to the reference of each line)" in message for message in notices)
    return out


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_student_learns_the_translation_of_the_beam_that_is_closest_to_the_reference(
    student: Path, teacher: Path, texts: Corpus
) -> None:
    sources, references = (lines(Path(name)) for name in texts[0])
    found = Translator.load(teacher).search(sources, nbest=8)
    expected = [
        closest([each.text for each in some], reference, language="de")
        for some, reference in zip(found, references, strict=True)
    ]
    assert lines(student / "teacher" / "train.source") == sources
    assert lines(student / "teacher" / "train.target") == expected
    assert expected != [some[0].text for some in found]
    assert lines(student / "teacher" / "dev.target") == lines(Path(texts[1][1]))
    config = read_settings(student / "model")
    assert (config.model.kind, config.search.beam) == ("transformer", 1)
    assert getattr(config.model, "decoder_layers", None) == 1
    assert (config.data.source, config.data.target) == ("en", "de")


def test_a_run_records_its_teacher_by_path_and_hash_with_its_search(student: Path, teacher: Path) -> None:
    record = json.loads((student / "teacher" / "teacher.json").read_text())
    digest = sha256_of(teacher / "model" / "manifest.json")
    assert record["teachers"] == [{"path": str(teacher), "sha256": digest}]
    assert (record["targets"], record["keep_gold"], record["search"]["nbest"]) == ("closest", False, 8)
    assert read_card(student / "model").trained_on["distilled"] == record
    assert call("translate", student, stdin=b"Good morning.\n").code == 0


def test_an_interrupted_teacher_translates_nothing_twice(
    student: Path, teacher: Path, texts: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(back_translation, "LINES_PER_PART", 40)
    run = tmp_path / "run"
    events: list[Event] = []

    def interrupt(event: Event) -> None:
        events.append(event)
        if event.kind == "progress" and event["what"] == "the teacher translates" and event["done"] > 40:
            raise KeyboardInterrupt

    def begin(listener: object = interrupt) -> Trained | None:
        return distill([teacher], texts[0], out=run, dev=texts[1], overrides=SMALL, listener=listener)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert "continue with the same command" in events[-1]["message"]
    assert sorted(path.name for path in run.rglob("*.*")) == ["00000.txt", "teacher.json"]
    first = (run / "teacher" / "00000.txt").stat().st_mtime_ns
    with pytest.raises(
        SeqloomError, match=r"was begun with targets \"closest\", but now it is \"best\"; give the same"
    ):
        distill([teacher], texts[0], out=run, dev=texts[1], overrides=SMALL, targets="best")
    # What fails after the translation does not remove it, and leaves nothing else.
    with pytest.raises(SeqloomError, match="no pairs left to train on"):
        distill([teacher], texts[0], out=run, dev=texts[1], overrides=[*SMALL, "data.longest=2"])
    assert {path.name for path in run.iterdir()} == {"teacher"}
    events.clear()
    assert begin(events.append) is not None
    assert not any(event.kind == "progress" and event["what"] == "the teacher translates" for event in events)
    assert (run / "teacher" / "00000.txt").stat().st_mtime_ns == first
    whole, parts = (read_weights(each / "model" / "model.safetensors") for each in (student, run))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.slow
def test_a_killed_student_is_resumed_by_the_same_command(
    student: Path, teacher: Path, texts: Corpus, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    process = start(*words(teacher, texts, run))
    deadline = time.monotonic() + 240
    while not (run / "checkpoints" / "step-2").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    called = call(*words(teacher, texts, run))
    assert called.code == 0, called.err
    assert f"Model  {run / 'model'}" in called.lines
    whole, parts = (read_weights(each / "model" / "model.safetensors") for each in (student, run))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.slow
def test_sources_alone_are_enough_and_several_teachers_decide_together(tmp_path: Path) -> None:
    files, dev = write_corpus(tmp_path, count=40)  # few enough to learn where sentences end
    longer = [
        "training.steps=100",
        "training.validate_every=50",
        "training.save_every=50",
        "training.learning_rate=0.02",
    ]
    taught = train(None, [*TINY, *longer], out=tmp_path / "teacher", train=files, dev=dev)
    assert taught is not None
    made = []
    for name, teachers in (("one", [taught.run]), ("twice", [taught.run] * 2)):
        given = {"overrides": SMALL, "teacher_settings": ["search.beam=3"]}
        found = distill(teachers, files[:1], out=tmp_path / name, dev=dev, **given)  # type: ignore[arg-type]
        assert found is not None
        made.append((found.run / "teacher" / "train.target").read_text())
        record = json.loads((found.run / "teacher" / "teacher.json").read_text())
        assert (record["search"]["beam"], len(record["teachers"])) == (3, len(teachers))
    assert made[0] == made[1]
    with pytest.raises(SeqloomError, match="has another vocabulary than"):
        distill([taught.run, found.run], files[:1], out=tmp_path / "two", dev=dev)
    assert not (tmp_path / "two").exists()


def test_gold_pairs_are_kept_if_requested(teacher: Path, texts: Corpus, tmp_path: Path) -> None:
    """And dev pairs are held out of the genuine ones."""
    tuple_of = {"targets": "best", "keep_gold": True}
    found = distill([teacher], texts[0], out=tmp_path / "run", overrides=SMALL, **tuple_of)  # type: ignore[arg-type]
    assert found is not None
    sources, targets = (lines(found.run / "teacher" / f"train.{side}") for side in ("source", "target"))
    pairs = list(zip(*(lines(Path(name)) for name in texts[0]), strict=True))
    held = list(zip(*(lines(found.run / "teacher" / f"dev.{side}") for side in ("source", "target")), strict=True))
    assert 0 < len(held) <= 9
    assert set(held) <= set(pairs)
    rest = [pair for pair in pairs if pair not in held]
    assert list(zip(sources, targets, strict=True))[len(rest) :] == rest
    assert sources[: len(rest)] == [pair[0] for pair in rest]
    assert targets[: len(rest)] == Translator.load(teacher).translate([pair[0] for pair in rest])


def test_settings_that_were_given_are_not_those_of_a_student(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {kind: transformer, decoder_layers: 2}\n")
    given = ["search.beam=3"]
    config = resolve(RunConfig, file=file, overrides=given)
    assert student_settings(config, file, given) == []
    assert student_settings(config, None, []) == ["model.decoder_layers=1", "search.beam=1"]
    assert student_settings(resolve(RunConfig, overrides=["model.kind=phrases"]), None, []) == []


def test_the_closest_translation_is_that_of_the_highest_sentence_bleu() -> None:
    candidates = ["the dog sleeps here", "a dog is sleeping", "the dog is sleeping"]
    assert closest(candidates, "the dog is sleeping", language="en") == candidates[2]
    assert closest(["x y", "y x"], "z", language="en") == "x y"
    assert closest(["Hund", "Hunde"], "Hunde", language="de") == "Hunde"  # too short for four words in a row


def test_what_cannot_be_distilled_is_refused_and_leaves_nothing(teacher: Path, texts: Corpus, tmp_path: Path) -> None:
    source, out = texts[0][0], tmp_path / "run"
    dev = ["--dev", ",".join(texts[1])]
    cases = [
        ([teacher, "--train", source], 2, "holds sources alone: --dev pairs measure the student; give --dev"),
        ([teacher, "--train", source, *dev, "--keep-gold"], 2, "--targets closest and --keep-gold need references"),
        ([teacher, "--train", *texts[0][:1], *dev, "model.kind=rnn_lm"], 2, "a student is a translator"),
        ([teacher, "--train", source, *dev, "data.monolingual=[x]"], 2, "cannot be combined with distillation"),
        ([tmp_path / "missing", "--train", source, *dev], 2, "model directory not found"),
        ([tmp_path, "--train", source, *dev], 4, "is not a model directory"),
        (["--train", source, *dev], 2, "Missing argument"),
        ([teacher, *dev], 2, "no text to translate"),
        ([teacher, "--train", ",".join(texts[0]), "--targets", "closest", "--beam", "1"], 2, "add --beam 4"),
        ([teacher, "--train", ",".join(texts[0]), *dev, "model.widht=3"], 2, "widht"),
    ]
    for given, code, message in cases:
        called = call("distill", *given, "--out", out)
        assert (called.code, message in called.err) == (code, True), (given, called.code, called.err)
        assert not out.exists()
    refused = call(*words(teacher, texts, teacher))
    assert (refused.code, "exists already and has no teacher/teacher.json" in refused.err) == (2, True), refused.err
