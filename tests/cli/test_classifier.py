"""The classifier of n-grams and network on the command line: found for a file, resumed, scored, drawn, embedded."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli.calling import call

SETTINGS = (
    *("model.width=16", "model.word_width=16", "model.buckets=4096", "training.steps=40", "training.warmup=5"),
    *("training.validate_every=20", "training.save_every=20", "evaluation.resamples=40"),
)
COLOURS = ("red", "green")
LINES = [f"{COLOURS[n % 2]} The {COLOURS[n % 2]}ish house number {n % 7}" for n in range(400)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    found = call("train", *SETTINGS, "--train", folder / "train.txt", "--out", folder / "run")
    assert found.code == 0, found.err
    assert "task.kind=classification, because of" in found.err
    assert "confidence: temperature" in found.err
    return folder / "run"


def test_labels_confidence_and_the_picture_of_confusions(run: Path, tmp_path: Path) -> None:
    assert json.loads((run / "model" / "model.json").read_text())["trained_on"]["temperature"] < 1
    assert call("classify", run, stdin=b"the REDISH house\n\na greenish one\n").lines == ["red", "", "green"]
    reference, picture = tmp_path / "test.txt", tmp_path / "new" / "confusion.svg"
    reference.write_text("\n".join(LINES[:40]), encoding="utf-8")
    found = call("classify", run, "--reference", reference, "--picture", picture)
    assert found.code == 0, found.err
    assert "expected calibration error 0.0" in found.out
    assert "calibration error 0.0" in picture.read_text(encoding="utf-8")
    (record,) = call("classify", run, "--reference", reference, "--json").records
    assert record["confusion"] == [[20, 0], [0, 20]]
    assert record["calibration_error"] < 0.05
    refused = call("classify", run, "--picture", picture, stdin=b"a\n")
    assert (refused.code, "give the right labels with --reference" in refused.err) == (2, True)


def test_vectors_selfcheck_info_and_pack(run: Path, tmp_path: Path) -> None:
    out, archive = tmp_path / "vectors.npy", tmp_path / "model.zip"
    assert call("embed", run, "--out", out, stdin=b"the redish house\nthe greenish house\nthe redish house\n").code == 0
    vectors = np.load(out)
    assert vectors.shape == (3, 32)
    assert np.abs(vectors[0] - vectors[2]).max() < 1e-6 < np.abs(vectors[0] - vectors[1]).max()
    checked = call("selfcheck", run, "--count", 5, "--json")
    assert checked.code == 0, checked.out
    assert "Classes  2, of texts: green, red" in call("info", run).out
    assert call("pack", run, archive).code == 0
    assert call("classify", archive, stdin=b"the redish house\n").lines == ["red"]


def test_a_resumed_run_has_the_same_bits(run: Path, tmp_path: Path) -> None:
    settings = [*SETTINGS[:3], "training.schedule=constant", "training.warmup=2", "evaluation.resamples=40"]
    settings += ["training.validate_every=4", "training.save_every=4", "--train", str(run.parent / "train.txt")]
    for name, steps in (("whole", 8), ("parts", 4)):
        found = call("train", *settings, f"training.steps={steps}", "--out", tmp_path / name)
        assert found.code == 0, found.err
    assert call("train", "--resume", tmp_path / "parts", "training.steps=8").code == 0
    whole, parts, other = (
        load_file(each / "model" / "model.safetensors") for each in (tmp_path / "whole", tmp_path / "parts", run)
    )
    assert {"wide.ratios", "wide.moves", "networks.0.words.weight"} <= whole.keys() == parts.keys()
    for name, weights in whole.items():
        np.testing.assert_array_equal(weights, parts[name])
    assert not np.array_equal(whole["wide.moves"], other["wide.moves"])  # the comparison can fail


def test_a_label_with_one_example_is_refused_by_its_line(tmp_path: Path) -> None:
    text = tmp_path / "train.txt"
    text.write_text("".join(f"{line}\n" for line in [*LINES[:30], "blue a bluish house"]), encoding="utf-8")
    found = call("train", "task.kind=classification", "--train", text, "--out", tmp_path / "run")
    assert found.code == 3
    assert f"{text}:31: the only example of the label 'blue'" in found.err
    assert not (tmp_path / "run").exists()
    named = call(
        *("train", "task.kind=classification", "task.labels=[blue, green, red]", "training.steps=2", *SETTINGS[:3]),
        *("evaluation.resamples=40", "--train", text, "--out", tmp_path / "run"),
    )
    assert named.code == 0, named.err
