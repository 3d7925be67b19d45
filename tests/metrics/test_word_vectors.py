"""Analogy questions and what is left out of them; rank correlation with ties, and files of judgements."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.metrics.word_vectors import (
    JudgedPair,
    QuestionSection,
    rank_correlation,
    ranks,
    read_judgements,
    read_questions,
    score_analogies,
    score_similarity,
)

WORDS = ("man", "King", "woman", "queen", "paris", "france", "king")


def always_queen(triples: np.ndarray) -> np.ndarray:
    return np.full(len(triples), 3, np.int64)


def test_counts_right_answers_by_section_and_leaves_unknown_words_out() -> None:
    sections = [
        QuestionSection("family", (("Man", "king", "woman", "Queen"), ("man", "king", "woman", "paris"))),
        QuestionSection("capitals", (("paris", "france", "rome", "italy"),)),
    ]
    found = score_analogies(sections, WORDS, always_queen)
    assert [(each.right, each.asked, each.left_out) for each in found.sections] == [(1, 2, 0), (0, 0, 1)]
    assert str(found) == "50.00% right (1 of 2; 1 of 3 left out for unknown words)"


def test_only_the_most_frequent_words_count() -> None:
    sections = [QuestionSection("family", (("man", "king", "woman", "queen"),))]
    assert score_analogies(sections, WORDS, always_queen, vocabulary=4).total.asked == 1
    assert score_analogies(sections, WORDS, always_queen, vocabulary=3).total.asked == 0


def test_words_that_differ_in_case_are_one_word_the_more_frequent_one() -> None:
    asked: list[np.ndarray] = []

    def solve(triples: np.ndarray) -> np.ndarray:
        asked.append(triples)
        return np.full(len(triples), 6, np.int64)  # "king", where "King" is expected

    found = score_analogies([QuestionSection("x", (("man", "woman", "queen", "KING"),))], WORDS, solve)
    assert asked[0].tolist() == [[0, 2, 3]]
    assert found.total.right == 1


def test_reads_sections(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(": one\na b c d\n: two\ne f g h\n", encoding="utf-8")
    assert read_questions(file) == [
        QuestionSection("one", (("a", "b", "c", "d"),)),
        QuestionSection("two", (("e", "f", "g", "h"),)),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a b c d\n", "questions.txt:1: a question before the first section"),
        (": one\na b c\n", "questions.txt:2: 3 words where a question has 4"),
        (": one\n", "has no questions"),
    ],
)
def test_what_is_no_question_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=sentence):
        read_questions(file)


# --- similarity ----------------------------------------------------------------------------------------------------

values = st.lists(st.integers(0, 6), min_size=2, max_size=12)


def plain_ranks(numbers: list[int]) -> list[float]:
    """By counting: how many are smaller, and half of those that are equal."""
    return [sum(b < a for b in numbers) + (1 + sum(b == a for b in numbers)) / 2 for a in numbers]


@given(values)
def test_ranks_share_the_mean_of_ties(numbers: list[int]) -> None:
    assert ranks(np.array(numbers, np.float64)).tolist() == plain_ranks(numbers)


def test_correlation_without_ties_is_the_textbook_formula() -> None:
    """ρ = 1 − 6 Σ d² / n (n² − 1)."""
    ours, theirs = np.array([0.1, 0.4, 0.2, 0.9, 0.5]), np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    d = [1 - 3, 3 - 1, 2 - 2, 5 - 5, 4 - 4]
    assert rank_correlation(ours, theirs) == pytest.approx(1 - 6 * sum(x * x for x in d) / (5 * 24))
    assert rank_correlation(ours, theirs) != pytest.approx(np.corrcoef(ours, theirs)[0, 1], abs=1e-3)


@given(values)
def test_any_rising_curve_leaves_the_ranks_as_they_are(numbers: list[int]) -> None:
    plain = np.array(numbers, np.float64)
    found = rank_correlation(plain, np.exp(plain / 3))
    assert math.isnan(found) if len(set(numbers)) == 1 else found == pytest.approx(1.0)


def test_pairs_with_unknown_words_are_left_out_and_counted() -> None:
    pairs = [JudgedPair("a", "b", 9.0), JudgedPair("a", "c", 5.0), JudgedPair("a", "x", 1.0), JudgedPair("b", "c", 2.0)]
    known = {("a", "b"): 0.9, ("a", "c"): 0.3, ("b", "c"): 0.1}
    found = score_similarity(pairs, lambda one, other: known.get((one, other)))
    assert (found.spearman, found.pairs, found.left_out) == (1.0, 3, 1)
    assert str(found).startswith("Spearman 1.0000")
    assert str(found).endswith("(3 of 4 pairs)")


def test_too_few_pairs_are_no_correlation() -> None:
    with pytest.raises(DataError, match="0 of 1 pairs have vectors for both words"):
        score_similarity([JudgedPair("a", "b", 1.0)], lambda *_: None)


def test_reads_judgements_and_passes_comments(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("# a comment\nlove\tsex\t6.77\n\ntiger\tcat\t7.35\n", encoding="utf-8")
    assert read_judgements(file) == [JudgedPair("love", "sex", 6.77), JudgedPair("tiger", "cat", 7.35)]


def test_a_line_without_a_number_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("love\tsex\t6.77\ntiger\tcat\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs.tsv:2: 'tiger\\tcat' is not a word, a word and a number"):
        read_judgements(file)


@pytest.mark.parametrize("judgement", ["nan", "inf", "-inf"])
def test_a_judgement_that_is_no_number_is_named(tmp_path: Path, judgement: str) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text(f"love\tsex\t6.77\ntiger\tcat\t{judgement}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs\.tsv:2: .* is not a word, a word and a number"):
        read_judgements(file)


def test_values_that_are_all_the_same_have_no_correlation() -> None:
    pairs = [JudgedPair("a", "b", 9.0), JudgedPair("a", "c", 5.0)]
    with pytest.raises(DataError, match=r"the cosines of all 2 pairs are 0\.5"):
        score_similarity(pairs, lambda *_: 0.5)
    alike = [JudgedPair("a", "b", 7.0), JudgedPair("a", "c", 7.0)]
    with pytest.raises(DataError, match="the judgements of all 2 pairs are 7"):
        score_similarity(alike, lambda _, other: {"b": 0.1, "c": 0.2}[other])
