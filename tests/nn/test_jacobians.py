"""Products of Jacobians: against automatic differentiation, against closed forms, and against the usual slips."""

import pytest
import torch
from torch import Tensor

from seqloom.models.cell_options import CELLS
from seqloom.nn.cells.cell import Cell, CellState
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.init import spectral_radius
from seqloom.nn.jacobians import (
    closed_form_states,
    jacobians_along,
    largest_gain,
    ordered_products,
    pulled_out_products,
    relative_errors,
    states_along,
)

EXACT = {"rtol": 0, "atol": 1e-12}


def random_state(cell: Cell, rows: int = 1) -> CellState:
    return tuple(torch.randn(rows, cell.width, dtype=torch.float64) for _ in range(cell.parts))


def after(cell: Cell, inputs: Tensor, joint: Tensor) -> Tensor:
    """The joint state after all inputs, from a joint state: what is differentiated."""
    state: CellState = joint.view(-1, 1, cell.width).unbind()
    for projected in cell.project(inputs):
        state = cell.advance(projected[None], state)
    return torch.cat(state, 1)[0]


@pytest.mark.parametrize("kind", CELLS)
def test_ordered_products_are_the_derivative_of_many_steps(kind: str) -> None:
    cell = CELLS[kind](3, 4).double()
    inputs, state = torch.randn(6, 3, dtype=torch.float64), random_state(cell)
    products = ordered_products(jacobians_along(cell, inputs, state))
    states = states_along(cell, inputs[None], state)
    for lag in range(7):
        start = torch.cat([part[6 - lag] for part in states], 1)[0]
        exact = torch.autograd.functional.jacobian(lambda s, lag=lag: after(cell, inputs[6 - lag :], s), start)
        torch.testing.assert_close(products[lag], exact, **EXACT)


def test_products_in_the_wrong_order_differ() -> None:
    cell = LSTMCell(3, 4).double()
    jacobians = jacobians_along(cell, torch.randn(6, 3, dtype=torch.float64), random_state(cell))
    right, wrong = (ordered_products(each)[-1] for each in (jacobians, jacobians.flip(0)))
    assert float((right - wrong).norm() / right.norm()) > 0.05


def tanh_network(width: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, slopes 1 − h² and Jacobians diag(1 − h²) W of a tanh network along random inputs."""
    weight = torch.randn(width, width, dtype=torch.float64) / width**0.5
    hidden, slopes = torch.zeros(width, dtype=torch.float64), []
    for driven in torch.randn(steps, width, dtype=torch.float64):
        hidden = torch.tanh(weight @ hidden + driven)
        slopes.append(1 - hidden**2)
    stacked = torch.stack(slopes)
    return weight, stacked, stacked[:, :, None] * weight


def test_the_shortcut_is_exact_for_one_step_and_far_off_from_two_steps_on() -> None:
    weight, slopes, jacobians = tanh_network(4, 8)
    errors = relative_errors(pulled_out_products(slopes, weight), ordered_products(jacobians))
    assert errors[:2].max() < 1e-12
    assert errors[2:].min() > 0.05


def test_the_shortcut_is_exact_for_a_linear_network() -> None:
    weight, _, _ = tanh_network(4, 1)
    slopes = torch.ones(8, 4, dtype=torch.float64)
    torch.testing.assert_close(pulled_out_products(slopes, weight), ordered_products(weight.expand(8, 4, 4)), **EXACT)


def test_radius_is_a_modulus() -> None:
    """A rotation by 90° has the eigenvalues ±i, a reflection has −1; none of them is above 1, all have modulus 1."""
    quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    assert spectral_radius(quarter_turn) == pytest.approx(1)
    assert spectral_radius(-1.1 * torch.eye(2, dtype=torch.float64)) == pytest.approx(1.1)


def test_radius_and_gain_bound_the_norm_of_every_power() -> None:
    weight = torch.tensor([[0.5, 4.0], [0.0, 0.5]], dtype=torch.float64)
    radius, gain = spectral_radius(weight), largest_gain(weight)
    assert radius == pytest.approx(0.5, abs=1e-6)
    assert gain > 4
    for lag, power in enumerate(ordered_products(weight.expand(12, 2, 2))):
        assert radius**lag - 1e-9 <= largest_gain(power) <= gain**lag + 1e-9


def test_closed_form_of_a_linear_network_equals_its_loop() -> None:
    weight = torch.randn(5, 5, dtype=torch.float64) / 5**0.5
    driven, begin = torch.randn(20, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    hidden, looped = begin, []
    for each in driven:
        hidden = weight @ hidden + each
        looped.append(hidden)
    torch.testing.assert_close(closed_form_states(weight, driven, begin), torch.stack(looped), **EXACT)
