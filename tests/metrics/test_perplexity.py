"""Perplexity by its definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError, UsageError
from seqloom.metrics.perplexity import measure_text, perplexities, perplexity


@given(st.integers(1, 100_000), st.integers(1, 10_000))
def test_a_uniform_model_has_the_size_of_its_vocabulary(symbols: int, count: int) -> None:
    found = perplexity(count * math.log(symbols), count)
    assert found.value == pytest.approx(symbols, rel=1e-12)
    assert found.bits == pytest.approx(math.log2(symbols), abs=1e-9)


def test_a_worked_case() -> None:
    """Probabilities ½, ¼ and ⅛: the geometric mean is ¼."""
    nats = -sum(math.log(p) for p in (0.5, 0.25, 0.125))
    assert perplexity(nats, 3).value == pytest.approx(4)
    assert perplexity(0.0, 3).value == 1


def test_the_unit_is_part_of_the_result() -> None:
    """Six subwords that are three words: the same nats, another number."""
    by_token, by_word = perplexity(12.0, 6), perplexity(12.0, 3, unit="word", unknown="counted")
    assert by_word.value == pytest.approx(by_token.value**2)
    assert by_word.signature == "unit:word|count:3|end:yes|unknown:counted"
    assert by_token.signature == "unit:token|count:6|end:yes|unknown:absent"
    bound = perplexity(12.0, 6, is_bound=True)
    assert bound.signature == "unit:token|count:6|end:yes|unknown:absent|bound:upper"


def test_what_cannot_be_a_perplexity_is_refused() -> None:
    with pytest.raises(DataError, match="there are 0 words to share 0 nats among"):
        perplexity(0.0, 0, unit="word")
    for wrong in (math.nan, -1.0):
        with pytest.raises(UsageError, match=f"a cross-entropy of {wrong} nats over 5 tokens"):
            perplexity(wrong, 5)
    assert perplexity(math.inf, 5).value == math.inf
    assert perplexity(1e6, 5).value == math.inf


LINES = ["the cat sat", "", "on a mät"]


def test_a_text_is_counted_in_every_unit() -> None:
    size = measure_text(LINES, tokens=9)
    assert (size.tokens, size.words, size.characters) == (12, 9, 22)


def test_a_character_model_and_a_word_model_compare_by_words() -> None:
    # Both give the text the same probability, so they are equally good, though one cuts it into many more tokens.
    nats = 9 * math.log(50)
    words = perplexities(nats, measure_text(LINES, tokens=6), unknown=2)
    characters = perplexities(nats, measure_text(LINES, tokens=19))
    assert words.word.value == pytest.approx(50)
    assert words.word.value == characters.word.value
    assert words.character.value == characters.character.value
    assert words.token.value != characters.token.value  # which is why tokens do not compare
    assert characters.word.value == math.exp(nats / 9)
    assert [found.signature for found in characters.all] == [
        "unit:token|count:22|end:yes|unknown:absent",
        "unit:word|count:9|end:yes|unknown:absent",
        "unit:character|count:22|end:yes|unknown:absent",
    ]
    assert {found.unknown for found in words.all} == {"counted"}
