"""`seqloom vectors`: the commands on a small file of vectors."""

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from seqloom.classical.vectors import WordVectors
from seqloom.cli.vectors import app
from seqloom.core.errors import UsageError
from seqloom.interop.word2vec_format import read_vectors, write_vectors

WORDS = ("man", "woman", "king", "queen", "apple")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = np.array([[0, 1, 0.2], [0, -1, 0.2], [2, 1, 0], [2, -1, 0.1], [0, 0.1, -3]], np.float32)
    write_vectors(WordVectors(WORDS, rows, np.zeros(5, np.int64)), tmp_path / "v.txt")
    return tmp_path / "v.txt"


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_nearest_lists_words_with_their_cosines(file: Path) -> None:
    lines = run("nearest", file, "king", "man", "--count", 1).splitlines()
    assert [line.split()[0] for line in lines] == ["king", "queen", "man", "king"]
    records = [json.loads(line) for line in run("nearest", file, "king", "--count", 2, "--json").splitlines()]
    assert records[0]["word"] == "king"
    assert records[0]["nearest"][0] == {"word": "queen", "score": pytest.approx(3 / 5 * (5 / 5.01) ** 0.5, abs=1e-3)}


def test_known_words_are_answered_beside_unknown_ones(file: Path) -> None:
    result = CliRunner().invoke(app, ["nearest", str(file), "king", "xqzzy", "man", "--count", "1"])
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["king", "queen", "man", "king"]
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "'xqzzy' has no vector: it is not among the 5 words that were learned"


def test_analogy_answers(file: Path) -> None:
    assert run("analogy", file, "man", "king", "woman").split()[0] == "queen"
    record = json.loads(run("analogy", file, "man", "king", "woman", "--method", "mul", "--json"))
    assert record["answers"][0]["word"] == "queen"
    result = CliRunner().invoke(app, ["analogy", str(file), "man", "king", "woman", "--method", "sum"])
    assert result.exit_code == 2
    assert "'sum' is not one of 'add', 'mul'" in result.output


def test_evaluate_prints_sections(file: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(": family\nman king woman queen\n", encoding="utf-8")
    (tmp_path / "s.tsv").write_text("man\tking\t5\nking\tqueen\t9\nman\tapple\t1\n", encoding="utf-8")
    lines = run("evaluate", file, "--similarity", tmp_path / "s.tsv", "--analogies", tmp_path / "q.txt").splitlines()
    assert lines[0].startswith("similarity: Spearman ")
    assert lines[1] == "analogies: 100.00% right (1 of 1; 0 of 1 left out for unknown words)"
    assert lines[2].split() == ["family", "100.00%", "1", "of", "1"]
    with pytest.raises(UsageError, match="nothing to evaluate"):
        run("evaluate", file)


@pytest.mark.parametrize(("pairs", "is_told"), [(29, True), (30, False)])
def test_few_pairs_are_reported_as_unreliable(file: Path, tmp_path: Path, pairs: int, is_told: bool) -> None:
    chosen = [("man", "king"), ("king", "queen"), ("man", "apple")]
    lines = [f"{one}\t{other}\t{at % 10}" for at, (one, other) in zip(range(pairs), cycle(chosen), strict=False)]
    (tmp_path / "s.tsv").write_text("\n".join([*lines, "man\tunheard\t3"]) + "\n", encoding="utf-8")
    said = run("evaluate", file, "--similarity", tmp_path / "s.tsv").strip()
    assert said.startswith("similarity: Spearman ")
    assert said.endswith(f"; {pairs} pairs are too few to be reliable") == is_told
    assert ("too few to be reliable" in said) == is_told


def test_map_and_export_write_files(file: Path, tmp_path: Path) -> None:
    assert run("map", file, "--out", tmp_path / "m.html").splitlines()[-1] == f"drawn in {tmp_path / 'm.html'}"
    assert "queen" in (tmp_path / "m.html").read_text(encoding="utf-8")
    assert run("export", file, tmp_path / "v.bin") == f"5 words of width 3 written to {tmp_path / 'v.bin'}\n"
    assert read_vectors(tmp_path / "v.bin").words == WORDS


def test_unknown_words_get_the_nearest_spelling(file: Path) -> None:
    with pytest.raises(UsageError, match="'quen' has no vector; did you mean 'queen'"):
        run("nearest", file, "quen")
