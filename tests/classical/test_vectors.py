"""Word vectors: neighbours, analogies, words that are not there."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.vectors import SubwordConfig, SubwordVectors, WordVectors, hash_of, ngrams_of
from seqloom.core.errors import DataError, UsageError


def made(words: list[str], rows: object) -> WordVectors:
    vectors = np.array(rows, np.float32)
    return WordVectors(tuple(words), vectors, np.arange(len(words), 0, -1, dtype=np.int64))


def royal() -> WordVectors:
    """Two directions, royal and male, and words of several lengths."""
    words = ["man", "woman", "king", "queen", "apple"]
    return made(words, [[0, 1, 0.2], [0, -1, 0.2], [2, 1, 0], [2, -1, 0.1], [0, 0.1, -3]])


def test_king_is_to_man_as_queen_is_to_woman() -> None:
    found = royal()
    for method in ("add", "mul"):
        answers = [each.word for each in found.analogy("man", "king", "woman", method=method)]
        assert answers[0] == "queen"
        assert not {"man", "king", "woman"} & set(answers)


def test_the_score_of_an_analogy_is_a_cosine() -> None:
    found = royal()
    man, king, woman, queen = (found.units[found.row(word)] for word in ("man", "king", "woman", "queen"))
    asked = king - man + woman
    best = found.analogy("man", "king", "woman")[0]
    assert best.score == pytest.approx(float(asked @ queen) / float(np.linalg.norm(asked)), abs=1e-6)
    assert np.abs(found.analogy_scores(np.array([[0, 1, 2], [1, 0, 2]], np.int64))).max() <= 1 + 1e-6


def test_without_exclusion_the_answer_would_be_an_input() -> None:
    found = royal()
    scores = found.analogy_scores(np.array([[0, 1, 0]], np.int64))  # man : woman = man : …
    assert found.words[int(scores.argmax())] in ("man", "woman")
    assert found.analogy("man", "woman", "man")[0].word not in ("man", "woman")


def test_batched_solutions_equal_single_ones() -> None:
    generator = np.random.default_rng(2)
    found = made([f"w{n}" for n in range(30)], generator.normal(size=(30, 6)))
    triples = generator.permuted(np.tile(np.arange(30), (20, 1)), axis=1)[:, :3].astype(np.int64)
    for method in ("add", "mul"):
        best = found.solve(triples, method=method)
        single = [found.analogy(*(found.words[at] for at in triple), method=method)[0].word for triple in triples]
        assert [found.words[at] for at in best] == single
    assert found.solve(triples, vocabulary=10).max() < 10


@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 2**31))
def test_neighbours_are_those_of_plain_cosines(words: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(words, 4)).astype(np.float32)
    found = made([f"w{n}" for n in range(words)], vectors)
    for row, neighbours in enumerate(found.nearest(found.words, count=count)):
        cosines = vectors @ vectors[row] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[row])
        order = [n for n in np.argsort(-cosines) if n != row][:count]
        assert [each.word for each in neighbours] == [f"w{n}" for n in order]
        assert [each.score for each in neighbours] == pytest.approx([float(cosines[n]) for n in order], abs=1e-5)


def test_many_words_at_once_equal_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = royal()
    alone = [found.nearest([word], count=2)[0] for word in found.words]
    monkeypatch.setattr("seqloom.classical.vectors._MAX_COSINES", 10)
    together = found.nearest(found.words, count=2)
    for one, other in zip(together, alone, strict=True):  # products of other sizes may round the last bit otherwise
        assert [each.word for each in one] == [each.word for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-6)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("qeen", "'qeen' has no vector; did you mean 'queen'?"),
        ("King", "'King' has no vector; did you mean 'king'?"),
        ("zzz", "'zzz' has no vector: it is not among the 5 words that were learned"),
    ],
)
def test_unknown_words_are_told_the_nearest_spelling(word: str, sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        royal().nearest([word])
    assert str(error.value).startswith(sentence)


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match=r"the vector of 'b' \(row 2\) has numbers that are not finite"):
        made(["a", "b"], [[1, 2], [np.nan, 1]])


def test_vectors_of_zeros_have_cosine_zero() -> None:
    assert made(["a", "b"], [[0, 0], [1, 0]]).similarity("a", "b") == 0.0


# --- parts of words ---------------------------------------------------------------------------------------------------


def test_ngrams_of_where_are_those_of_the_paper() -> None:
    assert list(ngrams_of("where", SubwordConfig(shortest=3, longest=3))) == ["<wh", "whe", "her", "ere", "re>"]


def test_the_whole_word_is_none_of_its_ngrams() -> None:
    assert "<at>" not in set(ngrams_of("at", SubwordConfig(shortest=2, longest=6)))


def test_hash_is_fnv_1a() -> None:
    """Values that its authors publish."""
    assert [hash_of(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_an_unseen_word_is_the_mean_of_its_ngrams() -> None:
    config = SubwordConfig(shortest=3, longest=3, buckets=64)
    buckets = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    found = WordVectors(
        ("a",), np.ones((1, 4), np.float32), np.ones(1, np.int64), subwords=SubwordVectors(config, buckets)
    )
    rows = [hash_of(part) % 64 for part in ("<wo", "wor", "ord", "rd>")]
    np.testing.assert_allclose(found.vector("word"), buckets[rows].mean(axis=0), rtol=1e-6)
    with pytest.raises(UsageError, match="'' is unknown and has no n-grams of 3 to 3 characters"):
        found.vector("")


def test_cosines_of_very_large_and_very_small_vectors_are_those_of_ordinary_ones() -> None:
    plain = np.array([[1, 2, 0], [2, 1, 1], [0, 0, 0]], np.float32)
    scales = np.array([[1e-40], [1e38], [1]], np.float32)
    vectors = WordVectors(("a", "b", "c"), (plain * scales).astype(np.float32), np.zeros(3, np.int64))
    expected = WordVectors(("a", "b", "c"), plain, np.zeros(3, np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vectors.similarity("a", "b") == pytest.approx(expected.similarity("a", "b"), abs=1e-4)
        assert [each.word for each in vectors.nearest(["a"])[0]] == ["b", "c"]
    assert vectors.similarity("a", "c") == 0
