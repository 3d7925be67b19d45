"""Words that look alike, against the definition of the distance, and whether spelling says anything."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.smt.look_alikes import are_related, look_alikes, similarity

WORDS = st.text("abc", min_size=1, max_size=7)


@given(WORDS, WORDS)
def test_similarity_is_that_of_the_recursive_definition(one: str, other: str) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = distance(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(changed, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    expected = 1 - distance(len(one), len(other)) / max(len(one), len(other))
    assert similarity(one, other) == pytest.approx(expected)
    assert similarity(one, other) == similarity(other, one)


def test_words_that_look_alike_are_found_whatever_their_accents() -> None:
    found = look_alikes(["Jacke", "Helme", "Café", "Tür", "Brett"], ["jacket", "jackets", "helmet", "cafe", "tour"])
    assert {word: list(others) for word, others in found.items()} == {
        "Jacke": ["jacket", "jackets"],
        "Helme": ["helmet"],
        "Café": ["cafe"],
    }
    assert found["Café"]["cafe"] == 1.0


def test_spelling_counts_for_related_languages_only() -> None:
    words = ["water", "winter", "garden", "house", "summer", "finger", "butter", "hammer", "wolf", "wind"]
    german = ["wasser", "winter", "garten", "haus", "sommer", "finger", "butter", "hammer", "wolf", "wind"]
    unlike = ["mizu", "fuyu", "niwa", "ieya", "natsu", "yubi", "bataa", "kanazuchi", "ookami", "kaze"]
    assert are_related(list(zip(words, german, strict=True)), seed=1)
    assert not are_related(list(zip(words, unlike, strict=True)), seed=1)
    assert not are_related([], seed=1)
