"""Products on the way between two positions: counted by hand, and as recurrence and attention have them."""

from itertools import pairwise

import pytest
import torch

from seqloom.core.errors import UsageError
from seqloom.lab.speed import (
    OPERATIONS,
    PathLength,
    lengths_to_last,
    path_lengths,
    read_by_attention,
    read_by_both,
    read_by_cell,
)
from seqloom.models.cell_options import CELLS
from seqloom.nn.attention import Attention, BilinearScore
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.multihead import SelfAttention

POSITIONS, WIDTH = 9, 4


def test_path_lengths_of_a_small_graph() -> None:
    x, y = (torch.randn(2, 2).requires_grad_() for _ in range(2))
    weight = torch.randn(2, 2)
    inner = (x @ weight).tanh() @ weight
    output = inner + x + y @ weight
    assert path_lengths(output, [x, y]) == [PathLength(0, 2), PathLength(1, 1)]
    assert path_lengths(output, [x, y], counted=OPERATIONS) == [PathLength(2, 5), PathLength(2, 2)]


def distances() -> list[int]:
    return [POSITIONS - 1 - place for place in range(POSITIONS)]


def test_the_path_through_an_rnn_passes_a_product_at_every_step() -> None:
    read = read_by_cell(ElmanCell(WIDTH, WIDTH))
    found = lengths_to_last(read, positions=POSITIONS, width=WIDTH)
    assert found == [PathLength(1 + distance, 1 + distance) for distance in distances()]


@pytest.mark.parametrize("kind", ["lstm", "peephole", "coupled", "gru"])
def test_the_memory_of_a_gated_cell_passes_no_product_but_operations_at_every_step(kind: str) -> None:
    read = read_by_cell(CELLS[kind](WIDTH, WIDTH))
    products = lengths_to_last(read, positions=POSITIONS, width=WIDTH)
    assert {way.shortest for way in products[:-1]} == {1}
    assert [way.longest for way in products] == [1 + distance for distance in distances()]
    fewest = [way.shortest for way in lengths_to_last(read, positions=POSITIONS, width=WIDTH, counted=OPERATIONS)]
    assert all(farther > nearer for farther, nearer in pairwise(fewest[:-1]))


def test_a_path_through_attention_has_the_same_length_at_any_distance() -> None:
    read = read_by_attention(SelfAttention(WIDTH, 2))
    found = lengths_to_last(read, positions=POSITIONS, width=WIDTH)
    assert found == [PathLength(3, 4)] * POSITIONS  # values, mix, output; or keys, scores, mix, output
    assert len(set(lengths_to_last(read, positions=POSITIONS, width=WIDTH, counted=OPERATIONS))) == 1


def test_attention_over_a_recurrent_layer_shortens_the_path_and_stays_serial() -> None:
    cell, look = ElmanCell(WIDTH, WIDTH), Attention(BilinearScore(WIDTH, WIDTH))
    found = lengths_to_last(read_by_both(cell, look), positions=POSITIONS, width=WIDTH)
    assert {way.shortest for way in found} == {2}
    assert [way.longest - found[-1].longest for way in found] == distances()


def test_every_position_with_a_path_has_a_gradient() -> None:
    inputs = [torch.randn(1, WIDTH).requires_grad_() for _ in range(5)]
    for read in (read_by_attention(SelfAttention(WIDTH, 1)), read_by_cell(GRUCell(WIDTH, WIDTH))):
        gradients = torch.autograd.grad(read(inputs).sum(), inputs)
        assert all(float(gradient.norm()) > 0 for gradient in gradients)


def test_an_input_without_a_path_is_refused() -> None:
    x, y = (torch.randn(2, 2).requires_grad_() for _ in range(2))
    with pytest.raises(UsageError, match="does not depend on input 1"):
        path_lengths(x.tanh(), [x, y])
    with pytest.raises(UsageError, match="has no autograd graph"):
        path_lengths(x.detach(), [x])
