"""Case by frequency: first words as they are usually written, and capitals restored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import ModelError
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.smt.casing import Casing

VOCABULARY = (*RESERVED, "The", "the", "dog", "Dog", "Paris", "￭.", '"￭', "2", "sees", "Sees")
LINES = ["The dog sees the dog ￭. The dog sees Paris", "Paris sees the dog ￭.", '"￭ The dog', "2 dog"]


def encoded(lines: list[str]) -> Bitext:
    rows = [[VOCABULARY.index(word) if word in VOCABULARY else UNKNOWN for word in line.split()] for line in lines]
    return Bitext.from_sentences(rows, rows)


def learned(lines: list[str]) -> Casing:
    text = encoded(lines)
    return Casing.learn(text.sources, text.source_starts, VOCABULARY)


def test_the_first_words_of_sentences_are_folded_and_restored() -> None:
    text, casing = encoded(LINES), learned(LINES)
    folded = [VOCABULARY[number] for number in casing.fold(text.sources, text.source_starts)]
    assert " ".join(folded) == 'the dog sees the dog ￭. the dog sees Paris Paris sees the dog ￭. "￭ the dog 2 dog'
    ids = encoded(['"￭ the dog sees Paris ￭. sees the']).sources.tolist()
    assert " ".join(VOCABULARY[number] for number in casing.unfold(ids)) == '"￭ The dog sees Paris ￭. Sees the'


def test_lower_case_text_stays_lower_case() -> None:
    casing = learned(["the dog sees the dog", "dog sees the"])
    ids = tuple(encoded(["the dog"]).sources.tolist())
    assert casing.unfold(ids) == ids


@given(st.lists(st.integers(4, len(VOCABULARY) - 1), max_size=8))
def test_folding_twice_is_folding_once(ids: list[int]) -> None:
    casing, starts = learned(LINES), np.array([0, len(ids)], np.int64)
    once = casing.fold(np.array(ids, np.int32), starts)
    np.testing.assert_array_equal(casing.fold(once, starts), once)
    np.testing.assert_array_equal(casing.fold(np.array(casing.unfold(once.tolist()), np.int32), starts), once)


def test_unknown_words_are_found_in_another_case() -> None:
    casing = learned(LINES)
    assert VOCABULARY[casing.find("SEES")] == "sees"
    assert VOCABULARY[casing.find("PARIS")] == "Paris"
    assert casing.find("London") == UNKNOWN


def test_a_casing_of_another_vocabulary_is_refused() -> None:
    usual = learned(LINES).usual
    with pytest.raises(ModelError, match="the casing of 13 words does not fit a vocabulary of 14"):
        Casing.restore(usual[:-1], np.ones(1, np.int32), VOCABULARY)
    with pytest.raises(ModelError, match="does not fit"):
        Casing.restore(usual + np.int32(5), np.ones(1, np.int32), VOCABULARY)
