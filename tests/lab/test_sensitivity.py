"""Trajectories that part and trajectories that meet again."""

import math

import pytest
import torch

from seqloom.lab.butterfly import NOISE, divergence, growth_rate, typical
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell


@pytest.mark.parametrize("parts", [1, 2])
def test_the_first_distance_is_the_requested_one(parts: int) -> None:
    cell = (LSTMCell(2, 4) if parts == 2 else GRUCell(2, 4)).double()
    inputs, state = torch.randn(3, 5, 2, dtype=torch.float64), cell.begin(torch.zeros(3, 4, dtype=torch.float64))
    found = divergence(cell, inputs, state, size=1e-6, generator=torch.Generator().manual_seed(1))
    assert found.shape == (6, 3)
    torch.testing.assert_close(found[0], torch.full((3,), 1e-6, dtype=torch.float64), rtol=1e-6, atol=0)


def test_an_lstm_that_forgets_everything_forgets_where_it_began() -> None:
    cell = LSTMCell(2, 4, forget_bias=-30.0).double()
    inputs, state = torch.randn(3, 40, 2, dtype=torch.float64), cell.begin(torch.zeros(3, 4, dtype=torch.float64))
    with torch.no_grad():
        cell.from_state.weight.mul_(0.1)
    found = typical(divergence(cell, inputs, state, size=1e-6, generator=torch.Generator().manual_seed(1)))
    assert found[-1] == pytest.approx(NOISE)
    assert growth_rate(found) < -1


def test_the_rate_is_read_where_growth_is_not_yet_bounded() -> None:
    grows = [min(1e-8 * math.exp(0.5 * time), 1.0) for time in range(100)]
    assert growth_rate(grows) == pytest.approx(0.5)
    falls = [max(1e-8 * math.exp(-0.5 * time), NOISE) for time in range(100)]
    assert growth_rate(falls) == pytest.approx(-0.5)
