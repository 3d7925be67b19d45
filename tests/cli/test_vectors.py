"""`seqloom vectors`: the commands on a small file of vectors."""

import json
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from seqloom.classical.vectors import WordVectors
from seqloom.cli.vectors import app
from seqloom.core.errors import SeqloomError, UsageError
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


def rotated(folder: Path, *, noise: float = 0.2) -> tuple[Path, Path]:
    """Two files: vectors in clusters, and the same ones rotated under other names."""
    generator = np.random.default_rng(5)
    vectors = generator.normal(size=(12, 12))[generator.integers(12, size=120)] + generator.normal(size=(120, 12))
    rotation, _ = np.linalg.qr(generator.normal(size=(12, 12)))
    other = vectors @ rotation + noise * generator.normal(size=vectors.shape)
    for name, rows in (("a", vectors), ("b", other)):
        words = tuple(f"{name}{row}" for row in range(120))
        write_vectors(WordVectors(words, rows.astype(np.float32), np.zeros(120, np.int64)), folder / f"{name}.txt")
    return folder / "a.txt", folder / "b.txt"


def test_align_writes_a_dictionary_and_scores_it(tmp_path: Path) -> None:
    a, b = rotated(tmp_path)
    (tmp_path / "gold.tsv").write_text("".join(f"a{row}\tb{row}\n" for row in range(125)), encoding="utf-8")
    mapped = tmp_path / "a.mapped.txt", tmp_path / "b.mapped.txt"
    out = tmp_path / "d.tsv"
    printed = run(
        *("align", a, b, "--out", out, "--gold", tmp_path / "gold.tsv", "--trials", 5, "--attempts", 2),
        *("--mapped-source", mapped[0], "--mapped-target", mapped[1]),
    )
    lines = [line.split("\t") for line in out.read_text(encoding="utf-8").splitlines()]
    assert [line[0] for line in lines] == [f"a{row}" for row in range(120)]
    assert all(len(line) == 4 and line[2] == "" and 0 < float(line[3]) <= 1 for line in lines)
    right = sum(line[0][1:] == line[1][1:] for line in lines)
    assert right > 100
    assert printed.splitlines()[0] == f"120 lines written to {out}, learned from nothing"
    assert f"precision {right / 120:.2%} ({right} of 120 gold words; 5 are not in the dictionary)" in printed
    one, other = (read_vectors(path) for path in mapped)
    cosine = float((one.units * other.units).sum(axis=1).mean())
    assert cosine > 0.8
    (tmp_path / "seeds.tsv").write_text("".join(f"a{row}\tb{row}\tnoun\n" for row in range(30)), encoding="utf-8")
    record = json.loads(
        run("align", a, b, "--out", out, "--seeds", tmp_path / "seeds.tsv", "--trials", 0, "--json").splitlines()[-1]
    )
    assert (record["start"], record["lines"], record["chance"]) == ("seeds", 120, None)


def test_dictionaries_of_several_models_are_averaged(tmp_path: Path) -> None:
    """Each pair of files has noise of its own: together they find more than each of them."""
    generator = np.random.default_rng(3)
    clean = generator.normal(size=(150, 12))
    names: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(4):
        for name, of_side in names.items():
            words = tuple(f"{name}{row}" for row in range(150))
            rows = clean @ np.linalg.qr(generator.normal(size=(12, 12)))[0] + 0.6 * generator.normal(size=clean.shape)
            path = tmp_path / f"{name}-{number}.txt"
            write_vectors(WordVectors(words, rows.astype(np.float32), np.zeros(150, np.int64)), path)
            of_side.append(str(path))
    (tmp_path / "seeds.tsv").write_text("".join(f"a{row}\tb{row}\n" for row in range(40)), encoding="utf-8")
    (tmp_path / "gold.tsv").write_text("".join(f"a{row}\tb{row}\n" for row in range(40, 150)), encoding="utf-8")

    def precision(one: str, other: str) -> float:
        files = ("--seeds", tmp_path / "seeds.tsv", "--gold", tmp_path / "gold.tsv", "--out", tmp_path / "d.tsv")
        record = json.loads(run("align", one, other, *files, "--trials", 0, "--json").splitlines()[-1])
        assert record["lines"] == 150
        assert len(record["mappings"]) == 1 + one.count(",")
        return float(record["precision"]["value"])

    single = [precision(*pair) for pair in zip(*names.values(), strict=True)]
    assert precision(*map(",".join, names.values())) > max(single) + 0.05
    with pytest.raises(UsageError, match="got 4 models of the first language and 1 of the second; give pairs"):
        run("align", ",".join(names["a"]), names["b"][0], "--out", tmp_path / "d.tsv")


def test_align_refuses_what_cannot_work_in_a_sentence(tmp_path: Path, file: Path) -> None:
    a, b = rotated(tmp_path, noise=50)
    out = tmp_path / "d.tsv"

    def refused(*words: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["align", *map(str, words), "--out", str(out)])
        assert isinstance(result.exception, SeqloomError), result.output
        return result.exception.exit_code, str(result.exception)

    code, message = refused(a, b, "--trials", 6, "--attempts", 2)
    assert code == 3
    assert message.startswith("the dictionary is no better than chance: mean cosine 0.")
    assert message.endswith("or some pairs with --seeds; --trials 0 leaves the test out")
    assert not out.exists()
    assert refused(a, tmp_path / "c.txt")[0] == 2
    code, message = refused(a, file)
    assert (code, message.split(" (")[0]) == (3, "the second vectors have 5 words to learn from")
    code, message = refused(a, b, "--start", "equal")
    assert (code, message.split(",")[0]) == (3, "0 frequent words are spelled alike on both sides")
    (tmp_path / "seeds.tsv").write_text("a1\tb1\na2 b2\n", encoding="utf-8")
    code, message = refused(a, b, "--seeds", tmp_path / "seeds.tsv")
    assert code == 3
    assert message.startswith(f"{tmp_path / 'seeds.tsv'}:2: no tab in 'a2 b2'")
    assert refused(a, b, "--seeds", a, "--start", "equal")[0] == 2
    assert refused(a, b, "--trials", 1)[0] == 2
