"""Positions: the code by its formula, tables that grow, and relative biases that only know distances."""

import math

import pytest
import torch
from torch import Tensor

from seqloom.nn.blocks import LearnedPositions, NoPositions, RelativeBias, SinusoidalPositions, sinusoids


@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_sinusoids_match_the_formula_for_odd_widths_too(width: int) -> None:
    code = sinusoids(50, width)
    for position in (0, 1, 13, 49):
        for column in range(width):
            angle = position / 10000 ** ((column - column % 2) / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(float(code[position, column]) - expected) < 1e-6


def test_added_positions_are_a_sum() -> None:
    vectors, positions = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    added = SinusoidalPositions(6)(vectors, positions, longest=3)
    torch.testing.assert_close(added, vectors + sinusoids(3, 6)[positions])
    assert not list(SinusoidalPositions(6).parameters())


def test_concatenated_positions_are_a_product_with_both_side_by_side() -> None:
    layer = SinusoidalPositions(6, combine="concat")
    assert layer.joined is not None
    vectors, positions = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    content, place = layer.joined.weight[:, :6], layer.joined.weight[:, 6:]
    expected = vectors @ content.t() + sinusoids(3, 6)[positions] @ place.t()
    torch.testing.assert_close(layer(vectors, positions, longest=3), expected)


def test_the_table_grows_with_what_is_seen_and_keeps_its_values() -> None:
    layer = SinusoidalPositions(5, prepared=4).double()
    vectors = torch.zeros(3, 5, dtype=torch.float64)
    before = layer(vectors, torch.arange(3), longest=3)
    far = layer(vectors, torch.tensor([0, 17, 2]), longest=18)
    assert len(layer.table) == 18
    assert torch.equal(far[[0, 2]], before[[0, 2]])
    torch.testing.assert_close(far[1], sinusoids(18, 5)[17].double())
    assert layer.table.dtype == torch.float64
    assert not layer.state_dict()  # nothing of it is saved


@pytest.mark.parametrize("combine", ["add", "concat"])
def test_a_table_that_grew_while_decoding_can_be_trained_with(combine: str) -> None:
    layer = SinusoidalPositions(4, combine="add" if combine == "add" else "concat", prepared=2)
    with torch.inference_mode():
        layer(torch.zeros(1, 4), torch.tensor([5]), longest=6)
    assert not layer.table.is_inference()
    layer.table.mul_(1)  # in place, as a broadcast between processes does
    vectors = torch.zeros(6, 4, requires_grad=True)
    layer(vectors, torch.arange(6), longest=6).sum().backward()
    assert vectors.grad is not None


def test_learned_positions_are_rows_and_late_ones_share_the_last() -> None:
    layer = LearnedPositions(3, positions=4)
    vectors = torch.randn(3, 3)
    out = layer(vectors, torch.tensor([1, 3, 9]), longest=10)
    torch.testing.assert_close(out - vectors, layer.weight[[1, 3, 3]])
    out.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad[:, 0].tolist() == [0, 1, 0, 2]


def test_no_positions_change_nothing() -> None:
    vectors = torch.randn(3, 3)
    assert NoPositions()(vectors, torch.arange(3), longest=3) is vectors


def t5_bucket(distance: int, *, is_causal: bool, buckets: int = 32, farthest: int = 128) -> int:
    """The bucket of key − query in whole numbers: no logarithm, hence no rounding.

    exact + ⌊wide · log(a / exact) / log(farthest / exact)⌋ is exact + the number of n ≥ 1, below `wide`, with
    (a / exact)^wide ≥ (farthest / exact)^n.
    """
    first = 0
    if is_causal:
        away = max(-distance, 0)
    else:
        buckets //= 2
        first, away = (buckets if distance > 0 else 0), abs(distance)
    exact = buckets // 2
    if away < exact:
        return first + away
    wide = buckets - exact
    steps = sum(away**wide * exact**n >= farthest**n * exact**wide for n in range(1, wide))
    return first + exact + steps


@pytest.mark.parametrize("is_causal", [False, True])
def test_buckets_equal_those_of_t5(is_causal: bool) -> None:
    bias = RelativeBias(2, is_causal=is_causal)
    distances = torch.arange(-200, 201)
    expected = [t5_bucket(distance, is_causal=is_causal) for distance in distances.tolist()]
    assert bias.bucket(distances[None])[0].tolist() == expected
    assert set(expected) == set(range(32)) - (set() if is_causal else {16})  # a key after the query is not at 0


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_shifted_sequence_gets_the_same_bias(is_causal: bool) -> None:
    bias = RelativeBias(2, is_causal=is_causal)
    whole = bias(range(40), 40)
    assert whole.shape == (2, 40, 40)
    for shift in (1, 7):
        assert torch.equal(whole[:, shift:, shift:], whole[:, :-shift, :-shift])
    row: Tensor = bias(range(9, 10), 10)
    assert torch.equal(row[:, 0], whole[:, 9, :10])
    assert not torch.equal(whole[:, 1:, :-1], whole[:, :-1, :-1])  # another distance, another bias
