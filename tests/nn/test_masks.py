"""Masks: True where a token is, 0 and −∞ for scores; and why not 0 and 1 for scores."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.nn.packing import additive, future, length_mask


def test_length_mask_is_true_on_tokens_alone() -> None:
    mask = length_mask(torch.tensor([2, 0, 3]), 3)
    assert mask.tolist() == [[True, True, False], [False, False, False], [True, True, True]]


@given(st.lists(st.integers(0, 6), max_size=5), st.integers(6, 9))
def test_length_mask_counts_the_tokens(lengths: list[int], longest: int) -> None:
    mask = length_mask(torch.tensor(lengths, dtype=torch.long), longest)
    assert mask.shape == (len(lengths), longest)
    assert mask.sum(1).tolist() == lengths
    assert (mask[:, :-1].int() >= mask[:, 1:].int()).all()  # tokens first, padding after


def test_additive_is_zero_where_allowed_and_minus_infinity_elsewhere() -> None:
    added = additive(torch.tensor([[True, False]]), torch.float64)
    assert added.tolist() == [[0.0, -math.inf]]
    assert added.dtype == torch.float64


def test_future_forbids_what_comes_after_the_query() -> None:
    forbidden = future(3, 3, like=torch.zeros(1))
    for query in range(3):
        for key in range(3):
            assert forbidden[query, key] == (-math.inf if key > query else 0.0)


def test_multiplying_scores_by_zero_leaks_while_adding_minus_infinity_does_not() -> None:
    """A score multiplied by 0 still gets e⁰: with scores (1, 2, ·) the hidden item keeps 9% of the softmax."""
    scores, mask = torch.tensor([1.0, 2.0, 5.0]), torch.tensor([True, True, False])
    multiplied = (scores * mask).softmax(0)
    assert abs(float(multiplied[2]) - 1 / (math.e + math.e**2 + 1)) < 1e-6
    assert float(multiplied[2]) > 0.09
    added = (scores + additive(mask, torch.float32)).softmax(0)
    assert float(added[2]) == 0.0
    torch.testing.assert_close(added[:2], scores[:2].softmax(0))
