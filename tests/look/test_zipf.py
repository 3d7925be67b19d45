"""Zipf's law: planted exponents come back, and what the fit says is true of the counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.look.zipf import MIN_RANKS, fit_line, fit_zipf, frequent


def sample(exponent: float, *, shift: float = 0.0, words: int, tokens: int, seed: int = 7) -> np.ndarray:
    """How often each of so many words is drawn when the i-th has the chance 1 / (i + shift)^exponent."""
    chances = (np.arange(1, words + 1) + shift) ** -exponent
    drawn = np.random.default_rng(seed).choice(words, size=tokens, p=chances / chances.sum())
    return np.bincount(drawn)


@pytest.mark.parametrize("exponent", [0.7, 0.9, 1.0, 1.1, 1.4, 2.0])
@pytest.mark.parametrize(("words", "tokens"), [(500, 20_000), (5_000, 50_000), (20_000, 200_000)])
def test_a_planted_exponent_comes_back(exponent: float, words: int, tokens: int) -> None:
    counts = frequent(sample(exponent, words=words, tokens=tokens), 10)
    assert fit_zipf(counts).exponent == pytest.approx(exponent, abs=0.05)


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
@pytest.mark.parametrize("shift", [2.7, 6.0])
def test_a_planted_exponent_comes_back_with_a_shift(exponent: float, shift: float) -> None:
    counts = frequent(sample(exponent, shift=shift, words=5_000, tokens=200_000), 10)
    found = fit_zipf(counts, has_shift=True)
    assert found.exponent == pytest.approx(exponent, abs=0.05)
    assert found.shift == pytest.approx(shift, rel=0.35)
    # Negative control: without a shift the same counts give an exponent that is off.
    assert abs(fit_zipf(counts).exponent - exponent) > 0.05


def test_without_a_least_count_rare_words_bend_the_exponent() -> None:
    counts = sample(1.0, words=20_000, tokens=10_000)
    assert abs(fit_zipf(frequent(counts, 10)).exponent - 1) < 0.05 < abs(fit_zipf(frequent(counts, 1)).exponent - 1)
    assert abs(fit_line(frequent(counts, 1)).exponent - 1) > 0.2


def test_ranks_end_where_counts_fall_below_the_least_one() -> None:
    counts = np.array([3, 40, 10, 9, 10, 25, 1, 11])
    assert frequent(counts, 10).tolist() == [40, 25, 11, 10, 10]
    assert fit_zipf(frequent(counts, 10)).ranks == 5
    with pytest.raises(DataError, match="needs 5 ranks at least, but there are 3"):
        fit_zipf(frequent(counts, 11))


def test_exact_counts_give_the_exponent_itself_by_both_fits() -> None:
    ranks = np.arange(1, 401)
    counts = np.round(1e12 / ranks**1.25).astype(np.int64)
    for found in (fit_zipf(counts), fit_zipf(counts, has_shift=True), fit_line(counts)):
        assert found.exponent == pytest.approx(1.25, abs=1e-6)
        assert found.shift == pytest.approx(0, abs=1e-4)
        assert found.gap < 1e-6
        np.testing.assert_allclose(found.counts(ranks), counts, rtol=1e-5)


counts_by_rank = st.lists(st.integers(1, 5000), min_size=MIN_RANKS, max_size=60).map(
    lambda counts: np.array(sorted(counts, reverse=True))
)


@settings(max_examples=60, deadline=None)
@given(counts_by_rank)
def test_no_other_exponent_or_shift_nearby_is_more_likely(counts: np.ndarray) -> None:
    def likelihood(exponent: float, shift: float) -> float:
        logs = -exponent * np.log(np.arange(1, len(counts) + 1) + shift)
        return float(counts @ (logs - np.logaddexp.reduce(logs)) / counts.sum())

    plain, shifted = fit_zipf(counts), fit_zipf(counts, has_shift=True)
    best, best_shifted = likelihood(plain.exponent, 0), likelihood(shifted.exponent, shifted.shift)
    assert best_shifted >= best - 1e-12
    for away in (-0.01, 0.01):
        assert likelihood(plain.exponent + away, 0) < best
        assert likelihood(shifted.exponent + away, shifted.shift) < best_shifted
    assert plain.counts(np.arange(1, len(counts) + 1)).sum() == pytest.approx(counts.sum())


def test_equal_counts_do_not_fall() -> None:
    assert fit_zipf(np.full(30, 12)).exponent == pytest.approx(0, abs=1e-8)


def test_counts_that_make_no_ranks_are_refused() -> None:
    with pytest.raises(DataError, match="needs 5 ranks at least, but there are 4"):
        fit_zipf(np.array([9, 5, 3, 2]))
    for counts in ([1, 2, 3, 4, 5], [5, 4, 3, 2, 0]):
        with pytest.raises(DataError, match="sort them in falling order and leave out zeros"):
            fit_line(np.array(counts))
