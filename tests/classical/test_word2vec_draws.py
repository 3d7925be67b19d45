"""Draws of negatives and codes of words."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.word2vec_text import ONE, alias_table, draw_many, huffman_codes, noise_distribution

counts_of_words = st.lists(st.integers(1, 50), min_size=2, max_size=20).map(lambda counts: np.array(counts, np.int64))


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_noise_follows_the_counts_to_the_power(power: float) -> None:
    counts = np.array([1000, 300, 100, 30, 10, 3, 1], np.int64)
    wanted = counts**power / (counts**power).sum()
    drawn = np.empty(200_000, np.int64)
    draw_many(12345, alias_table(noise_distribution(counts, power)), drawn)
    found = np.bincount(drawn, minlength=len(counts))
    expected = wanted * len(drawn)
    # 6 degrees of freedom: χ² is above 22.5 once in a thousand seeds.
    assert ((found - expected) ** 2 / expected).sum() < 22.5
    other = np.roll(wanted, 1) * len(drawn) if power else (np.arange(7) + 1) / 28 * len(drawn)
    assert ((found - other) ** 2 / other).sum() > 1000  # a wrong distribution is detected


@given(counts_of_words)
def test_columns_of_the_alias_table_hold_the_distribution(counts: np.ndarray) -> None:
    wanted = noise_distribution(counts, 0.75)
    table = alias_table(wanted)
    found = np.zeros(len(counts))
    for entry, (threshold, other) in enumerate(zip(table.thresholds, table.aliases, strict=True)):
        found[entry] += threshold / ONE / len(counts)
        found[other] += (1 - threshold / ONE) / len(counts)
    np.testing.assert_allclose(found, wanted, atol=1e-8)


def cheapest(counts: np.ndarray) -> int:
    """The sum of all joined counts is the cost of the best code."""
    heap, cost = [int(count) for count in counts], 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, joined)
        cost += joined
    return cost


@given(counts_of_words)
def test_codes_are_optimal_and_prefix_free(counts: np.ndarray) -> None:
    codes = huffman_codes(counts)
    lengths = np.diff(codes.starts)
    assert int((lengths * counts).sum()) == cheapest(counts)
    written = ["".join(map(str, codes.codes[a:b])) for a, b in zip(codes.starts[:-1], codes.starts[1:], strict=True)]
    assert not any(one != other and other.startswith(one) for one in written for other in written)
    assert math.fsum(2.0**-length for length in lengths) == 1.0


@given(counts_of_words, st.integers(0, 1000))
def test_probabilities_of_a_tree_add_up_to_one(counts: np.ndarray, seed: int) -> None:
    codes = huffman_codes(counts)
    scores = np.random.default_rng(seed).normal(size=len(counts) - 1)
    total = 0.0
    for a, b in zip(codes.starts[:-1], codes.starts[1:], strict=True):
        signs = np.where(codes.codes[a:b] == 0, 1.0, -1.0)
        total += float(np.prod(1 / (1 + np.exp(-signs * scores[codes.members[a:b]]))))
    assert total == pytest.approx(1.0)
    assert set(codes.members.tolist()) == set(range(len(counts) - 1))
