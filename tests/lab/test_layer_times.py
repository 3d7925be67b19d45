"""Times are taken in turns, by a clock that is handed in."""

import torch

from seqloom.lab.speed import AttentionLayer, CellLayer, Times, ratios, time_layers
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.multihead import SelfAttention

LAYERS = {"recurrent": CellLayer(GRUCell(4, 4)), "attention": AttentionLayer(SelfAttention(4, 2))}


def test_layers_give_one_vector_per_position() -> None:
    for layer in LAYERS.values():
        assert layer(torch.randn(3, 5, 4)).shape == (3, 5, 4)


def test_the_first_round_is_left_out_and_the_fastest_pass_counts() -> None:
    # Two layers, a warm-up and two rounds, two passes each: a pass takes what the list says.
    taken = iter([9, 9, 9, 9, 3, 1, 5, 7, 2, 8, 6, 4])
    now, is_running = 0.0, False

    def clock() -> float:
        nonlocal now, is_running
        now += next(taken) if is_running else 0.0
        is_running = not is_running
        return now

    listed: list[int] = []
    found = time_layers(
        LAYERS,
        width=4,
        lengths=[3],
        tokens=10,
        rounds=2,
        passes=2,
        generator=torch.Generator(),
        clock=clock,
        report=listed.append,
    )
    assert found == [Times("recurrent", 3, 9, (1.0, 2.0)), Times("attention", 3, 9, (5.0, 4.0))]
    assert ratios(found[0], found[1]) == [5.0, 2.0]
    assert found[0].rates() == [9.0, 4.5]
    assert listed == [3]
    assert all(weight.grad is None for layer in LAYERS.values() for weight in layer.parameters())
