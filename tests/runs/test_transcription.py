"""From handwriting and recordings to transcripts: trained, resumed, used and refused, by the commands."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from cli.calling import call
from seqloom import Transcriber
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event
from seqloom.data.frames import Strokes
from seqloom.data.handwriting import handwriting
from seqloom.runs.model_dir import read_card, read_settings
from seqloom.runs.train import resume, train

TINY = (
    *("model.kind=ctc", "model.width=24", "model.layers=1", "model.stride=2", "model.dropout_rate=0.0"),
    *("data.frames.spacing=0.2", "task.frames_per_batch=2000", "training.learning_rate=0.02", "training.warmup=5"),
    *("training.validate_every=30", "training.save_every=30", "training.average=0", "evaluation.resamples=40"),
    *("data.frames.vary.time_masks=0", "data.frames.vary.speed=0.05", "data.frames.vary.slant=0.1"),
)


def write_lines(path: Path, count: int, *, styles: range, seed: int) -> Path:
    """Handwritten words of three letters."""
    random = np.random.default_rng(seed)
    texts = ["".join(random.choice(list("lox"), 3)) for _ in range(count)]
    records = handwriting(texts, styles=list(styles), seed=seed)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_tone(path: Path, frequencies: list[int], *, rate: int = 8000) -> Path:
    at = np.arange(rate // 5) / rate
    parts = [8000 * np.sin(2 * np.pi * frequency * at) for frequency in frequencies]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.concatenate(parts).astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training and test handwriting, and a model that was trained by the command."""
    place = tmp_path_factory.mktemp("handwriting")
    train = write_lines(place / "train.jsonl", 120, styles=range(20), seed=1)
    dev = write_lines(place / "dev.jsonl", 20, styles=range(30, 40), seed=2)
    write_lines(place / "test.jsonl", 40, styles=range(100, 120), seed=3)
    found = call("train", *TINY, "training.steps=90", "--train", train, "--dev", dev, "--out", place / "run")
    assert found.code == 0, found.err
    assert f"seqloom transcribe {place / 'run' / 'model'} FILE" in found.out
    assert "120 samples, about" in found.err
    assert "WER" in found.err
    return place


def test_unseen_styles_are_read_and_scored(place: Path) -> None:
    config, card = read_settings(place / "run" / "model"), read_card(place / "run" / "model")
    assert (config.purpose, config.data.frames.kind, card.trained_on["samples"]) == ("transcriber", "strokes", 120)
    shown = call("transcribe", place / "run", "--reference", place / "test.jsonl")
    assert [line.split()[0] for line in shown.lines] == ["WER", "CER"]
    (record,) = call("transcribe", place / "run", "--reference", place / "test.jsonl", "--json").records
    assert record["scores"][1]["value"] < 15
    printed = [line.split("\t") for line in call("transcribe", place / "run", place / "test.jsonl").lines]
    assert [text for _, text in printed] == record["transcripts"]
    assert printed[4][0] == f"{place / 'test.jsonl'}:5"
    beam = call("transcribe", place / "run", place / "test.jsonl", "--beam", "8", "--json").records
    greedy = call("transcribe", place / "run", place / "test.jsonl", "--json").records
    assert all(one["score"] >= other["score"] - 1e-5 for one, other in zip(beam, greedy, strict=True))
    assert [each["text"] for each in greedy] == record["transcripts"]


def test_a_language_model_of_other_numbers_decides_what_is_unclear(place: Path, tmp_path: Path) -> None:
    text = tmp_path / "lox.txt"
    text.write_text("xol\nlox\noxl\n" * 20)  # its letters come in another order, so that their numbers differ
    lm = tmp_path / "lm"
    assert call("train", "model.kind=ngram", "text.kind=char", "--train", text, "--out", lm).code == 0
    (tmp_path / "some.jsonl").write_text("".join((place / "test.jsonl").read_text().splitlines(True)[:12]))
    files = (place / "run", tmp_path / "some.jsonl", "--beam", "12", "--json")
    free = call("transcribe", *files).records
    none = call("transcribe", *files, "--language-model", lm, "--weight", "0").records
    bound = call("transcribe", *files, "--language-model", lm, "--weight", "30").records
    assert [each["text"] for each in free] == [each["text"] for each in none]
    known = [sum(each["text"] in ("xol", "lox", "oxl") for each in found) for found in (free, bound)]
    assert known[1] >= 9 > known[0]
    for each in bound:
        assert sum(each["terms"].values()) == pytest.approx(each["score"], abs=1e-4)
    with pytest.raises(UsageError, match="is not a language model"):
        Transcriber.load(place / "run").fused(place / "run", 0.3)


def test_batches_change_nothing_and_every_promise_holds(place: Path) -> None:
    transcriber = Transcriber.load(place / "run")
    records = [json.loads(line) for line in (place / "test.jsonl").read_text().splitlines()]
    samples = [Strokes.of(record["strokes"]) for record in records]
    together = transcriber.transcribe(samples)
    for one, other in zip(together, transcriber.transcribe(samples[::-1], frames_per_batch=1)[::-1], strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)
    with pytest.raises(UsageError, match="samples takes a list"):
        transcriber.transcribe("a.wav")
    with pytest.raises(DataError, match="the model reads samples of kind strokes, and this is sound"):
        transcriber.transcribe(["a.wav"])
    checked = call("selfcheck", place / "run", "--count", "12")
    assert checked.code == 0, checked.out + checked.err


def test_a_resumed_run_has_the_same_bits(place: Path, tmp_path: Path) -> None:
    table = [str(place / "dev.jsonl")]
    settings = [*TINY, "model.dropout_rate=0.2", "training.validate_every=2", "training.save_every=2"]
    settings += ["training.schedule=constant"]  # a cosine depends on the last step
    train(None, [*settings, "training.steps=6"], out=tmp_path / "whole", train=table, dev=table)
    train(None, [*settings, "training.steps=4"], out=tmp_path / "parts", train=table, dev=table)
    resume(tmp_path / "parts", ["training.steps=6"], exact=True)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_recordings_of_any_rate_and_images_are_learned_from(tmp_path: Path) -> None:
    """Two steps each: what was found in the data, what was left out, and that it is written down."""
    rows = []
    for number in range(12):
        high = [400, 900] if number % 2 else [900, 400]
        write_tone(tmp_path / f"{number}.wav", high, rate=8000 if number else 11_025)
        rows.append(f"{number}.wav\t{'ab' if number % 2 else 'ba'}\n")
    (tmp_path / "dev.tsv").write_text("".join(rows))
    (tmp_path / "tones.tsv").write_text("".join([*rows, f"3.wav\t{'abba' * 40}\n"]))
    settings, events = [*TINY, "training.steps=2", "training.validate_every=2", "training.save_every=2"], list[Event]()
    tables = {"train": [str(tmp_path / "tones.tsv")], "dev": [str(tmp_path / "dev.tsv")]}
    trained = train(None, settings, out=tmp_path / "tones", **tables, listener=events.append)
    assert trained is not None
    config = read_settings(trained.model)
    assert (config.data.frames.kind, config.data.frames.mel.rate, config.model.features) == ("sound", 8000, 40)  # type: ignore[union-attr]
    vary = config.data.frames.vary
    assert (config.data.frames.mel.dynamic_range, vary.warp, vary.speed, vary.time_masks) == (10.0, 0.25, 0.05, 0)
    said = [str(event["message"]) for event in events if event.kind == "notice"]
    assert any("1 of 13" in each and "too short for their transcripts and are left out" in each for each in said)
    assert len(Transcriber.load(trained.model).transcribe([tmp_path / "0.wav"])) == 1
    random = np.random.default_rng(1)
    for number in range(10):
        Image.fromarray(random.integers(0, 255, (20, 60), np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "lines.tsv").write_text("".join(f"{number}.png\tab\n" for number in range(10)))
    found = train(None, settings, out=tmp_path / "lines", train=[str(tmp_path / "lines.tsv")])
    assert found is not None
    assert read_settings(found.model).model.features == 32  # type: ignore[union-attr]
    assert "Frames" in call("info", found.model).out


@pytest.mark.parametrize(
    "content", ["a.wav\tone\ncut.wav\ttwo\n", "a.wav\tone\na.wav\t\n", "a.wav\tone\nno.wav\ttwo\n"]
)
def test_bad_samples_are_named_with_their_line_before_a_run_begins(tmp_path: Path, content: str) -> None:
    whole = write_tone(tmp_path / "a.wav", [400]).read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[:500])
    (tmp_path / "table.tsv").write_text(content)
    found = call("train", "model.kind=ctc", "--train", tmp_path / "table.tsv", "--out", tmp_path / "run")
    assert found.code == 3
    assert f"{tmp_path / 'table.tsv'}:2: " in found.err
    assert not (tmp_path / "run").exists()


def test_a_resume_notices_recordings_that_changed_behind_their_table(tmp_path: Path) -> None:
    rows = []
    for number in range(12):
        write_tone(tmp_path / f"{number}.wav", [400, 900] if number % 2 else [900, 400])
        rows.append(f"{number}.wav\t{'ab' if number % 2 else 'ba'}\n")
    table = tmp_path / "tones.tsv"
    table.write_text("".join(rows))
    settings, run = [*TINY, "training.steps=2", "training.validate_every=2", "training.save_every=2"], tmp_path / "run"
    train(None, settings, out=run, train=[str(table)], dev=[str(table)])
    resume(run, ["training.steps=3"])
    (tmp_path / "5.wav").touch()  # the same content at another time
    resume(run, ["training.steps=4"])
    write_tone(tmp_path / "5.wav", [900, 700])  # of the same length, behind the same table
    with pytest.raises(DataError, match="has changed since it began"):
        resume(run, ["training.steps=5"])
    events = list[Event]()
    resume(run, ["training.steps=5"], allow_data_change=True, listener=events.append)
    assert any("encoding it again" in str(event["message"]) for event in events if event.kind == "notice")
    (tmp_path / "5.wav").unlink()
    resume(run, ["training.steps=6"], listener=events.append)
    assert any("5.wav not found" in str(event["message"]) for event in events if event.kind == "notice")


def test_an_attention_decoder_learns_is_resumed_searched_and_checked(place: Path, tmp_path: Path) -> None:
    train_table, dev_table = [str(place / "train.jsonl")], [str(place / "dev.jsonl")]
    settings = [*TINY[1:], "model.kind=listener", "model.stride=3", "training.schedule=constant"]
    short = [*settings, "model.dropout_rate=0.2", "training.validate_every=2", "training.save_every=2"]
    train(None, [*short, "training.steps=4"], out=tmp_path / "full", train=train_table, dev=dev_table)
    train(None, [*short, "training.steps=2"], out=tmp_path / "parts", train=train_table, dev=dev_table)
    resume(tmp_path / "parts", ["training.steps=4"], exact=True)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("full", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    whole = train(None, [*settings, "training.steps=90"], out=tmp_path / "whole", train=train_table, dev=dev_table)
    assert whole is not None
    (record,) = call("transcribe", whole.model, "--reference", place / "test.jsonl", "--json").records
    assert record["scores"][1]["value"] < 15
    found = call("transcribe", whole.model, place / "test.jsonl", "--nbest", "3", "--beam", "6", "--json").records
    for each in found:
        scores = [one["score"] for one in each["nbest"]]
        assert len(scores) == len({one["text"] for one in each["nbest"]}) == 3
        assert scores == sorted(scores, reverse=True)
        assert each["text"] == each["nbest"][0]["text"]
    checked = call("selfcheck", whole.model, "--count", "8")
    assert checked.code == 0, checked.out + checked.err
    assert "listener" in call("info", whole.model).out
    assert call("pack", whole.model, tmp_path / "listener.zip").code == 0
