"""Word vectors put to use: opened from anywhere, measured as gensim measures, drawn."""

import json
from pathlib import Path

import numpy as np
import pytest

from seqloom.apps.vectors import as_record, evaluate_vectors, open_vectors
from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import DataError, UsageError
from seqloom.interop.word2vec_format import write_vectors
from seqloom.look.embedding_map import draw_words

WORDS = ("the", "man", "woman", "king", "queen", "Paris", "france", "rome", "italy", ",", "apple", "pear")


@pytest.fixture
def vectors() -> WordVectors:
    numbers = np.random.default_rng(3).normal(size=(len(WORDS), 5)).astype(np.float32)
    return WordVectors(WORDS, numbers, np.arange(len(WORDS), 0, -1, dtype=np.int64))


@pytest.fixture
def judgements(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    rows = ["man\twoman\t8", "king\tqueen\t9", "paris\tROME\t7", "apple\tking\t1", "pear\tapple\t9", "man\tdragon\t2"]
    file.write_text("# words\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    file = tmp_path / "questions.txt"
    asked = [
        f"{a} {b} {c} {d}" for a, b in (("man", "woman"), ("king", "queen")) for c, d in (("paris", "france"),
                                                                                         ("apple", "pear"))
    ]  # fmt: skip
    file.write_text("\n".join([": family", *asked, ": places", "Paris France Rome Italy", "a b c d", ""]), "utf-8")
    return file


def test_measures_what_has_vectors_whatever_the_case(vectors: WordVectors, judgements: Path, questions: Path) -> None:
    found = evaluate_vectors(vectors, similarity=judgements, analogies=questions)
    assert found.similarity is not None
    assert found.analogies is not None
    assert (found.similarity.pairs, found.similarity.left_out) == (5, 1)
    assert [(each.name, each.asked, each.left_out) for each in found.analogies.sections] == [
        ("family", 4, 0),
        ("places", 1, 1),
    ]
    assert json.loads(json.dumps(as_record(found)))["analogies"][-1]["name"] == "all"


@pytest.mark.parity
def test_gensim_measures_the_same(vectors: WordVectors, judgements: Path, questions: Path, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed; it is one of the parity group")
    write_vectors(vectors, tmp_path / "v.bin")
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "v.bin"), binary=True)
    pearson, spearman, _ = theirs.evaluate_word_pairs(str(judgements))
    _, sections = theirs.evaluate_word_analogies(str(questions))
    answers = {each["section"]: (len(each["correct"]), len(each["incorrect"])) for each in sections}
    found = evaluate_vectors(vectors, similarity=judgements, analogies=questions)
    assert found.similarity is not None
    assert found.analogies is not None
    assert found.similarity.spearman == pytest.approx(spearman[0], abs=1e-6)
    assert found.similarity.pearson == pytest.approx(pearson[0], abs=1e-5)
    for section in found.analogies.sections:
        assert answers[section.name] == (section.right, section.asked - section.right)
    mixed = WordVectors(vectors.words, vectors.vectors[::-1].copy(), vectors.counts)
    other = evaluate_vectors(mixed, similarity=judgements, analogies=questions)
    assert other.similarity is not None
    assert abs(other.similarity.pearson - pearson[0]) > 0.01


def test_questions_of_which_none_can_be_asked_are_refused(vectors: WordVectors, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(": x\na b c d\n", encoding="utf-8")
    with pytest.raises(DataError, match="none of 1 questions has four words with vectors"):
        evaluate_vectors(vectors, analogies=file)


@pytest.mark.parametrize("name", ["map.html", "map.png", "map.svg"])
def test_maps_are_drawn_by_their_ending(vectors: WordVectors, tmp_path: Path, name: str) -> None:
    found = draw_words(vectors, tmp_path / "new" / name)
    assert found.words == tuple(word for word in WORDS if word != ",")  # a comma tells little
    assert (tmp_path / "new" / name).stat().st_size > 1000


def test_other_endings_and_unknown_words_are_refused(vectors: WordVectors, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in none of \.html, \.png, \.svg"):
        draw_words(vectors, tmp_path / "map.gif")
    with pytest.raises(UsageError, match="'kin' has no vector; did you mean 'king'"):
        draw_words(vectors, tmp_path / "map.png", words=["man", "woman", "kin"])


def test_opens_files(vectors: WordVectors, tmp_path: Path) -> None:
    write_vectors(vectors, tmp_path / "v.bin")
    assert open_vectors(tmp_path / "v.bin").words == WORDS
    with pytest.raises(UsageError, match="no such file; did you mean"):
        open_vectors(tmp_path / "w.bin")
