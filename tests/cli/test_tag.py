"""Taggers on the command line: files come back byte for byte, raw text becomes CoNLL-U, references are scored."""

import gzip
from pathlib import Path

import pytest

from cli.calling import call
from tagged_text import write_conllu

SETTINGS = (
    *("model.kind=tagger", "model.width=16", "model.word_width=12", "model.filters=8", "model.layers=1"),
    *("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.learning_rate=0.01"),
    *("training.average=0", "training.warmup=5", "task.tokens_per_batch=256", "evaluation.resamples=40"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tag")
    train, dev = write_conllu(folder / "train.conllu", count=120), write_conllu(folder / "dev.conllu", count=30, seed=2)
    dev.write_text(dev.read_text().replace("\tVERB\t", "\tAUX\t", 1))
    found = call("train", *SETTINGS, "--train", train, "--dev", dev, "--out", folder / "run")
    assert found.code == 0, found.err
    assert f"seqloom tag {folder / 'run' / 'model'} FILE" in found.out
    assert "dev scores by counting: upos accuracy: most frequent tag " in found.err
    assert "dev: 1 of 202 words (0.50%) have tags in column upos that are not among those of the model" in found.err
    return folder / "run"


def test_a_file_comes_back_with_its_columns_filled(run: Path, tmp_path: Path) -> None:
    right = write_conllu(tmp_path / "right.conllu", count=15, seed=7).read_bytes().replace(b"\n", b"\r\n")
    given = right
    for tag in (b"NOUN", b"VERB", b"DET", b"PUNCT"):
        given = given.replace(b"\t" + tag + b"\t", b"\t_\t")
    assert given != right
    (tmp_path / "given.conllu.gz").write_bytes(gzip.compress(given))
    found = call("tag", run, tmp_path / "given.conllu.gz")
    assert found.code == 0, found.err
    assert found.out.encode() == right
    assert call("tag", run / "model", stdin=given).out.encode() == right  # recognised by its word ids
    assert call("tag", run, tmp_path / "given.conllu.gz", "--out", tmp_path / "out.conllu").out == ""
    assert (tmp_path / "out.conllu").read_bytes() == right
    assert call("tag", run, tmp_path / "given.conllu.gz", "--columns", "lemma").out.encode() == given


def test_raw_text_and_json(run: Path) -> None:
    found = call("tag", run, stdin=b"ha kaltoro sentoro.\n\nha miptoro\n")
    rows = [line.split("\t") for line in found.lines if line[:1].isdecimal()]
    assert [(row[1], row[3]) for row in rows[:4]] == [
        ("ha", "DET"),
        ("kaltoro", "NOUN"),
        ("sentoro", "VERB"),
        (".", "PUNCT"),
    ]
    first, second = call("tag", run, "--json", "--columns", "upos", stdin=b"ha kaltoro .\nha miptoro\n").records
    assert first == {"sentence": 1, "words": ["ha", "kaltoro", "."], "upos": ["DET", "NOUN", "PUNCT"]}
    assert second["sentence"] == 2
    words = b"ha\t_\nkaltoro\t_\n"
    assert call("tag", run, stdin=words).code == 3  # two columns, and the model fills those of CoNLL-U
    assert call("tag", run, "--as", "text", stdin=words).code == 0


def test_a_reference_is_scored(run: Path, tmp_path: Path) -> None:
    path = write_conllu(tmp_path / "test.conllu", count=15, seed=8)
    found = call("tag", run, "--reference", path)
    assert found.code == 0, found.err
    assert found.lines[0].startswith("upos accuracy")
    record = call("tag", run, "--reference", path, "--json").records[0]
    assert record["sentences"] == 15
    assert {each["name"]: each["value"] > 95 for each in record["scores"]} == {
        "upos accuracy": True,
        "feats accuracy": True,
        "lemma accuracy": True,
    }


def test_what_is_known_of_a_tagger(run: Path, tmp_path: Path) -> None:
    assert "tagger" in call("info", run).out
    assert call("pack", run, tmp_path / "model.zip").code == 0
    assert call("tag", tmp_path / "model.zip", stdin=b"ha kaltoro\n").code == 0
    assert "it is a tagger of kind tagger; use seqloom tag" in call("classify", run, stdin=b"x\n").err
    checked = call("selfcheck", run)
    assert checked.code == 0, checked.err + checked.out


def test_bad_files_are_refused_by_name(run: Path, tmp_path: Path) -> None:
    (tmp_path / "nine.conllu").write_text("1\ta\ta\tX\t_\t_\t_\t_\t_\n")
    found = call("tag", run, tmp_path / "nine.conllu")
    assert (found.code, found.out) == (3, "")
    assert f"{tmp_path / 'nine.conllu'}:1: 9 columns, but CoNLL-U has 10" in found.err
    assert call("tag", run, "--reference", tmp_path / "nine.conllu", "--columns", "upos").code == 2
    one = call("train", "model.kind=tagger", "--train", tmp_path / "nine.conllu", "--out", tmp_path / "run")
    assert one.code == 3
    assert "nine.conllu:1: 9 columns" in one.err
