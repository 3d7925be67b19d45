"""Gradient norms by lag, the slope of their logarithm, and the weights' gradient as a sum over steps."""

import math

import pytest
import torch

from seqloom.core.errors import UsageError
from seqloom.models.cell_options import CELLS
from seqloom.nn.cells.cell import unroll
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.jacobians import directions, fit_slope, gradient_by_lag, lag_below, weight_gradient_by_step


@pytest.mark.parametrize("kind", CELLS)
def test_norms_are_those_of_the_gradient_that_autograd_finds(kind: str) -> None:
    cell = CELLS[kind](3, 5).double()
    inputs = torch.randn(4, 7, 3, dtype=torch.float64)
    gradient = directions(4, 5, generator=torch.Generator().manual_seed(3))
    state = cell.begin(torch.randn(4, 5, dtype=torch.float64))
    norms = gradient_by_lag(cell, inputs, state, gradient=gradient)
    assert norms[0] == pytest.approx(1)
    leaves = tuple(part.detach().clone().requires_grad_() for part in state)
    _, final = unroll(cell, inputs, leaves)
    found = torch.autograd.grad((final[0] * gradient).sum(), leaves)
    total = sum(float(each.square().sum()) for each in found) / 4
    assert norms[7] == pytest.approx(math.sqrt(total), rel=1e-10)


@pytest.mark.parametrize("is_last_only", [True, False], ids=["loss at the end", "loss at every step"])
def test_terms_of_the_weight_gradient_sum_to_what_autograd_finds(is_last_only: bool) -> None:
    cell = LSTMCell(3, 5).double()
    inputs = torch.randn(4, 7, 3, dtype=torch.float64)
    state = cell.begin(torch.zeros(4, 5, dtype=torch.float64))
    gradients = torch.randn(4, 7, 5, dtype=torch.float64)
    if is_last_only:
        gradients[:, :-1] = 0
    weight = cell.from_state.weight
    terms = weight_gradient_by_step(cell, inputs, state, gradients=gradients, weight=weight)
    outputs, _ = unroll(cell, inputs, state)
    (exact,) = torch.autograd.grad((outputs * gradients).sum(), [weight])
    torch.testing.assert_close(terms.sum(0), exact, rtol=0, atol=1e-12)
    assert float((terms[:-1].sum(0) - exact).norm() / exact.norm()) > 0.05


def test_a_steady_decay_has_its_rate_as_slope() -> None:
    norms = [3 * 0.8**lag for lag in range(30)]
    assert fit_slope(norms) == pytest.approx(math.log(0.8))
    assert fit_slope([9.0, *norms], first=1) == pytest.approx(math.log(0.8))
    assert fit_slope([*norms, 0.0, 0.0]) == pytest.approx(math.log(0.8))


def test_a_slope_of_fewer_than_two_norms_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the lags 0 … 2 have 1"):
        fit_slope([1.0, 0.0, 0.0])


def test_the_lag_below_a_share_lies_between_the_steps() -> None:
    assert lag_below([0.8**lag for lag in range(30)], 0.5) == pytest.approx(math.log(0.5) / math.log(0.8))
    assert lag_below([0.8**lag for lag in range(30)], 0.01) == pytest.approx(math.log(0.01) / math.log(0.8))
    assert lag_below([1.0, 0.9, 0.8], 0.5) is None
    assert lag_below([1.0, 0.6, 0.0], 0.5) == 2


def test_directions_have_length_one_and_come_from_the_seed() -> None:
    drawn = [directions(5, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    torch.testing.assert_close(drawn[0].norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
