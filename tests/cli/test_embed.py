"""Vectors on the command line: train on pairs, embed, retrieve, mine, describe, check, pack, serve, and refusals."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cli.calling import call
from published_folders import write_sentence_folder
from seqloom import Encoder, load, resume, train
from seqloom.data.phrasebook import sample_pairs
from seqloom.serve.embedding import open_encoder_actions
from seqloom.serve.groups import GroupCancellation
from seqloom.training.weights import weights_of

SETTINGS = (
    *("task.kind=contrastive", "model.width=32", "model.layers=1", "model.heads=2", "model.feed_forward=32"),
    *("model.longest=32", "model.dropout_rate=0.0", "task.pairs_per_batch=64", "text.kind=word"),
    *("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.learning_rate=5e-3"),
    *("training.warmup=5", "evaluation.resamples=40"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text of the phrasebook, for training and test."""
    folder = tmp_path_factory.mktemp("embed")
    for name, count, split in (("train", 400, "train"), ("test", 40, "test")):
        pairs = sample_pairs("de", "en", count=count, seed=1, split=split)  # type: ignore[arg-type]
        for language, side in (("de", "source"), ("en", "target")):
            lines = [getattr(pair, side) for pair in pairs]
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """An encoder that has learned the phrasebook a little."""
    files = ("--train", folder / "train.de", "--train", folder / "train.en")
    found = call("train", *SETTINGS, *files, "--out", folder / "run")
    assert found.code == 0, found.err
    assert "pairs/s" in found.err
    assert "targets found first (%)" in found.err
    assert f"seqloom embed {folder / 'run' / 'model'} FILE --out vectors.npy" in found.out
    assert "found first, de→en" in found.out
    return folder / "run"


def test_n_lines_in_n_vectors_out_in_every_format(run: Path, folder: Path, tmp_path: Path) -> None:
    text = folder / "test.de"
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    expected = Encoder.load(run).encode(lines)
    array, table = tmp_path / "vectors.npy", tmp_path / "vectors.tsv"
    assert call("embed", run, text, "--out", array).code == 0
    np.testing.assert_array_equal(np.load(array), expected)
    assert (expected.shape, expected.dtype) == ((40, 32), np.float32)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6)
    assert call("embed", run / "model", text, "--out", table).code == 0
    np.testing.assert_array_equal(np.loadtxt(table, dtype=np.float32), expected)
    piped = call("embed", run, "--json", stdin=text.read_bytes())
    assert [record["line"] for record in piped.records] == list(range(1, 41))
    np.testing.assert_array_equal(np.array([each["vector"] for each in piped.records], np.float32), expected)
    largest = call("embed", run, text, "--pooling", "max").lines
    assert largest != table.read_text().split("\n")[:-1]


def test_blank_and_long_lines_are_counted(run: Path) -> None:
    long = " ".join(["Haus"] * 60)
    found = call("embed", run, stdin=f"Guten Morgen.\n\n{long}\n".encode())
    assert (found.code, len(found.lines)) == (0, 3)
    assert "1 blank line of 3: the vector is that of an empty text" in found.err
    assert "1 of 3 lines are longer than the 30 tokens that this model reads" in found.err


def test_translations_are_found_and_mined(run: Path, folder: Path) -> None:
    source, target = folder / "test.de", folder / "test.en"
    scored = call("retrieve", run, source, target, "--parallel", "--json").records[0]
    assert scored["lines"] == 40
    assert [each["name"] for each in scored["scores"]] == ["found first, de→en", "found first, en→de"]
    assert min(each["value"] for each in scored["scores"]) >= 60
    assert "%|candidates:40|bs:40|seed:1" in call("retrieve", run, source, target, "--parallel").out

    english = target.read_text(encoding="utf-8").split("\n")
    rows = [line.split("\t") for line in call("retrieve", run, source, target, "--best", 2).lines]
    assert [(row[0], row[1]) for row in rows] == [(str(n), str(rank)) for n in range(1, 41) for rank in (1, 2)]
    assert all(english[int(row[3]) - 1] == row[4] for row in rows)
    assert all(float(one[2]) >= float(two[2]) for one, two in zip(rows[::2], rows[1::2], strict=True))
    (first, *_) = call("retrieve", run, source, target, "--json").records
    assert (first["query"], str(first["nearest"][0]["line"])) == (1, rows[0][3])

    # The same lines in another order, some of them twice, and blank ones.
    shuffled = [*reversed(english[:-1]), "", english[0]]
    (folder / "shuffled.en").write_text("\n".join(shuffled), encoding="utf-8")
    mined = call("retrieve", run, source, folder / "shuffled.en", "--mine", "--threshold", 1.0, "--json")
    assert mined.code == 0, mined.err
    right = sum(record["target"] == english[record["lines"][0] - 1] for record in mined.records)
    assert right >= 0.6 * 40
    assert [r["score"] for r in mined.records] == sorted((r["score"] for r in mined.records), reverse=True)
    assert all(shuffled[record["lines"][1] - 1] == record["target"] for record in mined.records)
    plain = call("retrieve", run, source, folder / "shuffled.en", "--mine", "--threshold", 1.0)
    score, one, other = plain.lines[0].split("\t")
    assert (one, other) == (mined.records[0]["source"], mined.records[0]["target"])
    assert float(score) == pytest.approx(mined.records[0]["score"], abs=1e-4)
    assert "1 blank line of" in plain.err
    assert "1 line left out that repeat" in plain.err


def test_info_selfcheck_pack_and_serve_take_it(run: Path, tmp_path: Path) -> None:
    described = call("info", run).out
    assert "encoder of de → en" in described
    assert " pairs in " in described
    assert "found first, de→en" in described
    checked = call("selfcheck", run, "--count", 5, "--json")
    assert checked.code == 0, checked.out
    archive = tmp_path / "model.zip"
    assert call("pack", run, archive).code == 0
    vectors = Encoder.load(archive).encode(["Guten Morgen."])
    actions = open_encoder_actions(run)
    ((answer,),) = actions.embed([[json.dumps("Guten Morgen.")]], {}, GroupCancellation(), lambda *_: None)
    served = np.frombuffer(base64.b64decode(answer["vector"]), "<f4")
    np.testing.assert_allclose(served, vectors[0], atol=1e-6)


def test_training_starts_from_an_encoder_of_the_same_task_or_another(run: Path, folder: Path, tmp_path: Path) -> None:
    files = ("--train", folder / "test.de", "--train", folder / "test.en", "training.steps=1")
    again = call("train", f"training.start_from={run}", *files, "--out", tmp_path / "again")
    assert again.code == 0, again.err
    masked = ("model.kind=bert", "model.width=16", "model.layers=1", "model.heads=2", "text.size=300", "task.length=64")
    trunk = call("train", *masked, "--train", folder / "train.en", "training.steps=1", "--out", tmp_path / "trunk")
    assert trunk.code == 0, trunk.err
    started = ("task.kind=contrastive", f"training.start_from={tmp_path / 'trunk'}")
    found = call("train", *started, *files, "--out", tmp_path / "started")
    assert found.code == 0, found.err
    assert "not used: masked.dense.bias" in found.err
    assert Encoder.load(tmp_path / "started").max_tokens == 62


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_published_encoder_trained_on_pairs_is_exported_with_its_vectors(
    is_plain: bool, folder: Path, tmp_path: Path
) -> None:
    hub = write_sentence_folder(tmp_path / "hub")
    if is_plain:
        (hub / "modules.json").unlink()
    files = ("--train", folder / "test.de", "--train", folder / "test.en")
    words = [f"training.start_from={hub}", "training.lora.rank=2", "training.steps=3", "training.learning_rate=0.1"]
    called = call("train", "task.kind=contrastive", *words, *files, "--out", tmp_path / "run")
    assert called.code == 0, called.err
    exported = call("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "out")
    assert exported.code == 0, exported.err
    lines = ["the old man reads .", "a dog , the man ."]
    ours, theirs, before = (Encoder.load(each).encode(lines) for each in (tmp_path / "run", tmp_path / "out", hub))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert before.shape != ours.shape or abs(before - ours).max() > 1e-3
    pooler = "pooler.dense.weight"  # which has no part in the vectors, and is not lost
    first, last = (load_file(each / "model.safetensors") for each in (hub, tmp_path / "out"))
    assert torch.equal(first[pooler], last[pooler])
    assert first.keys() == last.keys()
    merged = call("merge", tmp_path / "run" / "adapter", "--out", tmp_path / "merged")
    assert merged.code == 0, merged.err
    for each in (tmp_path / "run" / "model").rglob("*.*"):
        assert (tmp_path / "merged" / each.relative_to(tmp_path / "run" / "model")).read_bytes() == each.read_bytes()


def test_a_run_resumed_in_its_second_epoch_has_the_same_bits(folder: Path, tmp_path: Path) -> None:
    files = [str(folder / name) for name in ("test.de", "test.en")]
    same = ["training.warmup=1", "training.schedule=constant", "model.dropout_rate=0.2", "task.pairs_per_batch=16"]
    settings = [*SETTINGS, *same, "training.save_every=2", "training.validate_every=2"]
    whole = train(None, [*settings, "training.steps=8"], out=tmp_path / "whole", train=files)
    train(None, [*settings, "training.steps=4"], out=tmp_path / "parts", train=files)
    parts = resume(tmp_path / "parts", ["training.steps=8"], exact=True)
    assert whole is not None
    assert parts is not None
    first, second = (weights_of(load(each.model).model) for each in (whole, parts))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert [score.value for score in whole.scores] == [score.value for score in parts.scores]


def test_bad_input_is_refused_with_its_values(run: Path, folder: Path, tmp_path: Path) -> None:
    text, empty = folder / "test.de", tmp_path / "empty.txt"
    empty.write_text("", encoding="utf-8")
    short = tmp_path / "short.en"
    short.write_text("Good morning.\n", encoding="utf-8")
    for words, code, message in (
        (["embed", run, text, "--out", tmp_path / "x.txt"], 2, "vectors are written as .npy or .tsv"),
        (["embed", run, text, "--out", tmp_path / "x.npy", "--json"], 2, "--json prints records on standard output"),
        (["embed", run, empty], 3, "empty.txt is empty; expected at least one line of text"),
        (["embed", run, tmp_path / "none.txt"], 2, "none.txt: no such file"),
        (["retrieve", run, text, short, "--parallel"], 3, "short.en"),
        (["retrieve", run, text, text, "--mine", "--best", 2], 2, "--mine cannot be combined with --best"),
        (["retrieve", run, text, text, "--threshold", 1.1], 2, "--threshold 1.1 requires --mine"),
        (["retrieve", run, "-", "-"], 2, "standard input (-) can be QUERIES or TEXTS, not both"),
        (["translate", run, text], 2, "it is an encoder of kind bert; use seqloom embed"),
    ):
        found = call(*words)
        assert (found.code, found.out) == (code, ""), (words, found.err)
        assert message in found.err
    assert not list(tmp_path.glob("x.*"))
    files = ("--train", folder / "train.de", "--train", folder / "train.en", "--out", tmp_path / "new")
    found = call("train", *SETTINGS, "text.shared=false", *files)
    assert (found.code, (tmp_path / "new").exists()) == (2, False)
    assert "task.kind=contrastive has one encoder for both sides, but text.shared is false" in found.err
