"""Classifiers on the command line: train, classify, score, describe, check, pack, and refusals by name."""

import json
from pathlib import Path

import pytest

from cli.calling import call

SETTINGS = (
    *("model.kind=bert", "task.kind=classification", "text.kind=word", "model.width=16", "model.heads=2"),
    *("model.feed_forward=16", "model.dropout_rate=0.0", "task.tokens_per_batch=128", "task.label_smoothing=0.0"),
    *("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.learning_rate=5e-3"),
    *("training.warmup=5", "evaluation.resamples=40"),
)
COLOURS = ("red", "green")
LINES = [f"{COLOURS[n % 2]} the {COLOURS[n % 2]}ish house number {n}" for n in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that has learned that the label follows from a word."""
    folder = tmp_path_factory.mktemp("classify")
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    found = call("train", *SETTINGS, "--train", folder / "train.txt", "--out", folder / "run")
    assert found.code == 0, found.err
    assert f"seqloom classify {folder / 'run' / 'model'} FILE" in found.out
    assert "60 examples of 2 classes: green 30, red 30" in found.err
    assert "texts/s" in found.err
    assert "accuracy" in found.err
    return folder / "run"


def test_n_lines_in_n_labels_out_from_files_and_pipes(run: Path, tmp_path: Path) -> None:
    text = "the reddish house\n\n  \na greenish\u2028house\nthe greenish house number 3"
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    wanted = ["red", "", "", "green", "green"]
    assert call("classify", run, path).lines == wanted
    assert call("classify", run / "model", stdin=text.encode()).lines == wanted
    rows = [line.split("\t") for line in call("classify", run, path, "--probabilities").lines]
    assert [row[0] for row in rows] == wanted
    best, second = (field.split("=") for field in rows[0][1:])
    assert (best[0], second[0], float(best[1]) + float(second[1])) == ("red", "green", pytest.approx(1, abs=2e-4))
    records = call("classify", run, path, "--json").records
    assert [record["label"] for record in records] == ["red", None, None, "green", "green"]
    assert records[0]["probabilities"]["red"] == records[0]["probability"] > 0.5
    assert [record["line"] for record in records] == [1, 2, 3, 4, 5]


def test_a_reference_is_scored_with_interval_and_confusions(run: Path, tmp_path: Path) -> None:
    rows = ["the reddish house\tred", "the greenish house\tgreen", "a greenish house\tred"]
    path = tmp_path / "test.tsv"
    path.write_text("\n".join(rows), encoding="utf-8")
    found = call("classify", run, "--reference", path)
    assert found.code == 0, found.err
    accuracy, macro_f1, trust, blank, *table = found.lines
    assert trust.startswith("expected calibration error 0.")
    assert accuracy.startswith("accuracy  66.67  [")
    assert "nrefs:1|labels:2|bs:40|seed:1" in accuracy
    assert macro_f1.startswith("macro-F1  66.67  [")
    assert [line.split() for line in [blank, *table]] == [
        *([], ["right", "\\", "predicted", "green", "red", "recall"]),
        *(["green", "1", "0", "100.0%"], ["red", "1", "1", "50.0%"]),
    ]
    (record,) = call("classify", run, "--reference", path, "--json").records
    assert (record["lines"], record["confusion"]) == (3, [[1, 0], [1, 1]])
    assert [score["name"] for score in record["scores"]] == ["accuracy", "macro-F1"]


def test_bad_input_is_refused_with_its_values(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("a house\tred\na house\tblue\na reddish one\tred\n", encoding="utf-8")
    text = tmp_path / "text.txt"
    text.write_text("x\n", encoding="utf-8")
    for words, code, message in (
        (["--reference", path], 3, "test.tsv:2: the label 'blue' is not among the 2 labels of the training text"),
        (["--reference", path, "--probabilities"], 2, "--probabilities cannot be combined with --reference"),
        ([text, "--reference", path], 2, f"--reference {path} holds texts and labels; leave out {text}"),
        ([tmp_path / "none.txt"], 2, "none.txt: no such file"),
    ):
        found = call("classify", run, *words)
        assert (found.code, found.out) == (code, "")
        assert message in found.err
    bad = tmp_path / "bad.txt"
    bad.write_text("red one\nred\n" + "green two\n" * 10, encoding="utf-8")
    found = call("train", *SETTINGS, "--train", bad, "--out", tmp_path / "new")
    assert (found.code, (tmp_path / "new").exists()) == (3, False)
    assert "bad.txt:2: text is empty; the label is 'red'" in found.err


def test_other_commands_refuse_a_classifier_by_name(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.en"
    text.write_text("the reddish house\n", encoding="utf-8")
    for words in (
        ["translate", run, text],
        ["perplexity", run, text],
        ["generate", run],
        ["score", run, text, text],
        ["serve", run],
        ["evaluate", run, "--source", text, "--reference", text],
        ["vectors", "nearest", run, "house"],
        ["align", "--model", run, "--text", f"{text},{text}"],
        ["export", run, "--to", "onnx", "--out", tmp_path / "onnx"],
        ["export", run, "--to", "huggingface", "--out", tmp_path / "folder"],
        ["shortlist", run, "--train", f"{text},{text}"],
        ["look", "gradients", run, "the house"],
    ):
        found = call(*words)
        assert found.code == 2, (words, found.err)
        assert "it is a classifier of kind bert; use seqloom classify" in found.err, (words, found.err)


def test_info_selfcheck_average_and_pack_work(run: Path, tmp_path: Path) -> None:
    described = call("info", run).out
    assert "Classes  2, of texts: green, red" in described
    assert "parameters, classifier" in described
    assert " texts in " in described
    checked = call("selfcheck", run, "--count", 5, "--json")
    assert checked.code == 0, checked.out
    held = {record["name"] for record in checked.records if record.get("outcome") == "holds"}
    assert held == {"files", "saved", "lines", "blank", "batch"}
    archive = tmp_path / "model.zip"
    assert call("pack", run, archive).code == 0
    assert call("classify", archive, stdin=b"the reddish house\n").lines == ["red"]
    assert call("average", run, run, "--out", tmp_path / "mean").code == 0
    assert call("classify", tmp_path / "mean", stdin=b"the reddish house\n").lines == ["red"]


def test_a_model_of_pairs_reads_two_columns(tmp_path: Path) -> None:
    rows = [f"{'ab'[n % 2]}\tthe house {n}\tthe {'house' if n % 2 else 'dog'} {n}" for n in range(30)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    trained = call("train", *SETTINGS, "training.steps=2", "--train", path, "--out", tmp_path / "run", "--json")
    assert trained.code == 0, trained.err
    config = json.loads(call("info", tmp_path / "run", "--json").out)["config"]
    assert (config["task"]["labels"], config["task"]["is_paired"]) == (["a", "b"], True)
    found = call("classify", tmp_path / "run", stdin=b"the house\tthe dog\n\nthe house 1\tthe house 1\n")
    assert (len(found.lines), found.lines[1]) == (3, "")
    found = call("classify", tmp_path / "run", stdin=b"the house\n")
    assert found.code == 3
    assert "standard input:1: 1 column; the model reads pairs: a text, a tab and a text" in found.err
