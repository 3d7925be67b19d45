"""From scenes to captions: trained, resumed, used and refused, by the commands."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from cli.calling import call
from seqloom import Captioner
from seqloom.core.errors import DataError, UsageError
from seqloom.data.captioned import CaptionedStore, read_captioned
from seqloom.runs.model_dir import read_card, read_settings
from seqloom.runs.train import resume, train
from seqloom.search.ensemble import Ensemble

TINY = (
    *("model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.heads=2", "model.feed_forward=16"),
    *("model.dropout_rate=0.0", "training.learning_rate=0.01", "training.warmup=5", "training.average=0"),
    *("training.validate_every=40", "training.save_every=40", "evaluation.resamples=40", "data.images.shift=0"),
)
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (40, 60, 220)}


def write_flags(folder: Path, name: str, count: int, *, seed: int) -> Path:
    """Flags of two stripes with their captions: the upper one first, or the lower one."""
    random, rows = np.random.default_rng(seed), list[str]()
    (folder / "flags").mkdir(exist_ok=True)
    for number in range(count):
        upper, lower = random.permutation(list(COLOURS))[:2]
        image = np.concatenate([np.full((4, 8, 3), COLOURS[colour]) for colour in (upper, lower)])
        noisy = np.clip(image + random.normal(0, 10, image.shape), 0, 255).astype(np.uint8)
        path = folder / "flags" / f"{name}-{number}.png"
        Image.fromarray(noisy).save(path)
        captions = [f"{upper} above {lower}", f"{lower} below {upper}"]
        rows.append(json.dumps({"image": f"flags/{path.name}", "captions": captions}))
    table = folder / f"{name}.jsonl"
    table.write_text("".join(f"{row}\n" for row in rows))
    return table


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with flags to train on and to test, and a model that was trained by the command."""
    place = tmp_path_factory.mktemp("flags")
    given, dev = write_flags(place, "train", 60, seed=1), write_flags(place, "dev", 12, seed=2)
    write_flags(place, "test", 12, seed=3)
    found = call("train", *TINY, "training.steps=280", "--train", given, "--dev", dev, "--out", place / "run")
    assert found.code == 0, found.err
    assert f"seqloom caption {place / 'run' / 'model'} IMAGE" in found.out
    assert "task.kind=captioning, because of" in found.err
    assert "60 images of 8 x 8 pixels with 120 captions" in found.err
    assert "most frequent caption" in found.err
    return place


def test_unseen_images_are_described_and_scored_by_the_best_answer(place: Path) -> None:
    config, card = read_settings(place / "run"), read_card(place / "run" / "model")
    assert (config.purpose, config.model.kind, card.trained_on["captions"]) == ("captioner", "captioner", 120)
    assert {"exact match of nearest image", "BLEU of most frequent caption"} <= {each.name for each in card.measured}
    (record,) = call("caption", place / "run", "--reference", place / "test.jsonl", "--json").records
    assert [score["name"] for score in record["scores"]] == ["exact match", "BLEU", "chrF2"]
    assert record["scores"][0]["value"] == 100
    assert "nrefs:best" in record["scores"][0]["signature"]
    table = call("caption", place / "run", place / "test.jsonl").lines
    assert [line.split("\t")[1] for line in table] == record["captions"]
    image = place / "flags" / "test-0.png"
    (best,) = call("caption", place / "run", image, "--beam", "4", "--nbest", "2", "--json").records
    right = json.loads((place / "test.jsonl").read_text().splitlines()[0])["captions"]
    assert {best["caption"], best["others"][0]["caption"]} == set(right)
    assert sum(best["terms"].values()) == pytest.approx(best["score"], abs=1e-4)


def test_batches_change_nothing_and_every_promise_holds(place: Path, tmp_path: Path) -> None:
    captioner = Captioner.load(place / "run")
    paths = sorted((place / "flags").glob("test-*.png"))
    arrays = [np.asarray(Image.open(path)) for path in paths]
    together = captioner.caption(paths)
    for one, other in zip(together, captioner.caption(arrays[::-1], images_per_batch=1)[::-1], strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-5)
    pair = Captioner(captioner.loaded, [captioner.loaded])
    assert isinstance(pair.stepper(), Ensemble)
    assert [each.text for each in pair.caption(paths)] == [each.text for each in together]
    checked = call("selfcheck", place / "run", "--count", "8")
    assert checked.code == 0, checked.out + checked.err
    packed = call("pack", place / "run", tmp_path / "flags.zip")
    assert packed.code == 0, packed.err
    assert Captioner.load(tmp_path / "flags.zip").caption(paths[:2]) == captioner.caption(paths[:2])
    shown = call("info", place / "run")
    assert "captioner of images" in shown.out
    assert "60 images with 120 captions" in shown.out


def test_a_resumed_run_has_the_same_bits(place: Path, tmp_path: Path) -> None:
    table = [str(place / "train.jsonl")]
    settings = [*TINY, "model.dropout_rate=0.2", "training.validate_every=2", "training.save_every=2"]
    settings += ["training.schedule=constant", "data.images.shift=1", "task.images_per_batch=16"]
    train(None, [*settings, "training.steps=6"], out=tmp_path / "whole", train=table)
    train(None, [*settings, "training.steps=4"], out=tmp_path / "cut", train=table)
    resume(tmp_path / "cut", ["training.steps=6"], exact=True)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    store = CaptionedStore.open(tmp_path / "cut" / "data" / "dev", channels=3, size=(8, 8))
    assert (len(store), store.captions.tolist()) == (6, [2] * 6)  # held out with all of their captions


def test_a_recurrent_decoder_starts_from_another_run(place: Path, tmp_path: Path) -> None:
    table = ["--train", place / "train.jsonl", "--dev", place / "dev.jsonl"]
    given = [*TINY, "model.decoder=recurrent", "training.steps=40"]
    assert call("train", *given, *table, "--out", tmp_path / "first").code == 0
    started = call(
        *("train", "training.steps=2", "training.validate_every=2", "training.save_every=2", "evaluation.resamples=40"),
        *(f"training.start_from={tmp_path / 'first'}", *table, "--out", tmp_path / "second"),
    )
    assert started.code == 0, started.err
    losses = [read_card(tmp_path / name / "model").trained_on["dev_loss"] for name in ("first", "second")]
    assert losses[1] == pytest.approx(losses[0], abs=0.2)
    refused = call(
        "train", "model.kind=vit", f"training.start_from={tmp_path / 'first'}", *table, "--out", tmp_path / "no"
    )
    assert refused.code == 4
    assert "cannot be the start of one of kind vit" in refused.err


def test_bad_input_is_named_with_its_line_before_anything_slow(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(place / "flags" / "test-0.png", tmp_path / f"{name}.png")
    (tmp_path / "text.png").write_text("no image")
    Image.new("RGB", (8, 6)).save(tmp_path / "small.png")
    (tmp_path / "a.wav").write_bytes(b"RIFF")

    def refused(rows: list[str], expected: str, code: int = 3) -> None:
        table = tmp_path / "bad.tsv"
        table.write_text("".join(f"{row}\n" for row in rows))
        found = call("train", *TINY, "task.kind=captioning", "--train", table, "--out", tmp_path / "bad")
        assert found.code == code, found.err
        assert expected in found.err
        assert not (tmp_path / "bad").exists()

    good = ["a.png\tred above blue", "b.png\tblue below red"]
    refused([*good, "text.png\ta text"], "bad.tsv:3: ")
    refused([*good, "small.png\ta flag"], "bad.tsv:3: " + str(tmp_path / "small.png") + " has 6 x 8 pixels, but")
    refused(
        [*good, "a.png\t "], "bad.tsv:3: the caption of " + str(tmp_path / "a.png") + " is empty; write what it shows"
    )
    refused([*good, "none.png\ta flag"], "none.png")
    refused(["a.wav\ta sound", "a.wav\tanother"], "bad.tsv:1: " + str(tmp_path / "a.wav") + " is not an image")
    refused(good, "2 images are too few to hold some out")
    with pytest.raises(DataError, match="6 x 8 pixels, but the model reads 8 x 8"):
        Captioner.load(place / "run").caption([tmp_path / "small.png"])
    with pytest.raises(UsageError, match="images takes a list"):
        Captioner.load(place / "run").caption("a.png")
    with pytest.raises(UsageError, match="model directory not found"):
        Captioner.load(tmp_path / "none")
    (both,) = read_captioned([_table(tmp_path, ["a.png\tone", "a.png\ttwo", "a.png\tone"])])
    assert both.captions == ("one", "two")


def _table(folder: Path, rows: list[str]) -> Path:
    path = folder / "table.tsv"
    path.write_text("".join(f"{row}\n" for row in rows))
    return path
