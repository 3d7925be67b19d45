"""What a text is made of, against counting with a Counter."""

from collections import Counter
from io import BytesIO
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.look.zipf import TextStatistics, count_ngrams, describe_text, draw_zipf

Lines = list[list[int]]


def arrays(lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array(list(chain.from_iterable(lines)), dtype=np.int64)
    return ids, np.array([len(line) for line in lines], dtype=np.int64)


def describe(lines: Lines, *, minimum_count: int = 1) -> TextStatistics:
    ids, lengths = arrays(lines)
    return describe_text(ids, lengths, name=lambda numbers: " ".join(map(str, numbers)), minimum_count=minimum_count)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=9), st.integers(1, 4))
def test_ngrams_are_counted_as_a_counter_counts_them(lines: Lines, order: int) -> None:
    ids, lengths = arrays(lines)
    counts, places = count_ngrams(ids, lengths, order)
    expected = Counter(tuple(line[start : start + order]) for line in lines for start in range(len(line) - order + 1))
    # `most_common` keeps the order of first occurrence among equals, as is promised here.
    ngrams = [tuple(ids[place : place + order].tolist()) for place in places]
    assert list(zip(ngrams, counts.tolist(), strict=True)) == expected.most_common()


def test_a_small_text_by_hand() -> None:
    found = describe([[1, 2, 1, 3], [], [1, 2]])
    one, two, three = found.orders
    assert (one.tokens, one.types, one.singletons) == (6, 3, 1)
    assert [(ngram.text, ngram.count) for ngram in one.top] == [("1", 3), ("2", 2), ("3", 1)]
    assert one.coverage == ((1, 0.5),)
    assert (two.tokens, two.types, two.singletons) == (4, 3, 2)
    assert two.top[0].text == "1 2"
    assert (three.tokens, three.types) == (2, 2)
    assert one.ranks == ((1, 3), (2, 2), (3, 1))
    assert found.growth.points == ((1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 3))
    lengths = found.lengths
    assert (lengths.lines, lengths.blank, lengths.shortest, lengths.longest) == (2, 1, 2, 4)
    assert (lengths.mean, lengths.median) == (3, 3)
    assert one.fits is None  # three ranks are too few


def test_a_planted_law_is_found_in_a_text_of_lines() -> None:
    chances = np.arange(1, 1001) ** -1.1
    drawn = np.random.default_rng(3).choice(1000, size=60_000, p=chances / chances.sum())
    found = describe(drawn.reshape(-1, 20).tolist(), minimum_count=10)
    assert found.orders[0].fits is not None
    assert found.orders[0].fits.zipf.exponent == pytest.approx(1.1, abs=0.05)
    assert found.orders[0].fits.zipf.ranks < found.orders[0].types


def test_a_text_in_which_every_word_is_new_grows_with_exponent_one() -> None:
    assert describe([list(range(500))]).growth.exponent == pytest.approx(1)


def test_pictures_are_drawn_with_and_without_fits() -> None:
    for minimum_count in (1, 50):
        picture = BytesIO()
        draw_zipf(describe([[1, 2, 1, 3, 4, 5], [1]], minimum_count=minimum_count), unit="word").savefig(picture)
        assert picture.getvalue().startswith(b"\x89PNG")


def test_texts_without_words_or_with_one_are_refused() -> None:
    refused: list[tuple[Lines, str]] = [
        ([], "has no words"),
        ([[], []], "has no words"),
        ([[7, 7], [7]], "a single word, '7', 3 times"),
    ]
    for lines, part in refused:
        with pytest.raises(DataError, match=part):
            describe(lines)
    with pytest.raises(DataError, match="3 tokens long together, but 2 tokens were given"):
        describe_text(np.array([1, 2]), np.array([3]), name=str)
