"""Analogy questions: who is asked what, and who is left out."""

from pathlib import Path

import numpy as np
import pytest

from seqloom.core.errors import DataError
from seqloom.metrics.analogy import QuestionSection, read_questions, score_analogies

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
