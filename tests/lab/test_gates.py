"""The four gate terms of an LSTM: exact for one step, not for more; and the joint Jacobian, exact for all."""

import pytest
import torch
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.lab.gates import gate_terms, memory_jacobians
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.jacobians import ordered_products, relative_errors


@pytest.fixture
def cell() -> LSTMCell:
    return LSTMCell(3, 6).double()


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(9, 3, dtype=torch.float64)


@pytest.fixture
def state() -> tuple[Tensor, Tensor]:
    return torch.randn(1, 6, dtype=torch.float64), torch.randn(1, 6, dtype=torch.float64)


def by_autograd(cell: LSTMCell, inputs: Tensor, state: tuple[Tensor, Tensor], lag: int) -> Tensor:
    """∂c_T/∂c_{T−ℓ} where h_{T−ℓ} = o ⊙ tanh(c_{T−ℓ}) and the o of that step is a constant."""
    projected = cell.project(inputs)
    for row in projected[: len(inputs) - lag]:
        before, state = state, cell.advance(row[None], state)
    o = (row + cell.from_state(before[0][0])).chunk(4)[3].sigmoid().detach()

    def later(memory: Tensor) -> Tensor:
        moved = ((o * memory.tanh())[None], memory[None])
        for row in projected[len(inputs) - lag :]:
            moved = cell.advance(row[None], moved)
        return moved[1][0]

    found: Tensor = torch.autograd.functional.jacobian(later, state[1][0].detach())
    return found


def test_the_four_terms_sum_to_the_derivative_of_one_step(
    cell: LSTMCell, inputs: Tensor, state: tuple[Tensor, Tensor]
) -> None:
    terms = gate_terms(cell, inputs, state)
    exact = by_autograd(cell, inputs, state, lag=1)
    torch.testing.assert_close(terms.total[-1], exact, rtol=0, atol=1e-12)
    for missing in (terms.forget, terms.kept, terms.input, terms.candidate):
        assert float((terms.total - missing)[-1].sub(exact).norm() / exact.norm()) > 0.01


def test_tanh_in_place_of_its_derivative_is_wrong(cell: LSTMCell, inputs: Tensor, state: tuple[Tensor, Tensor]) -> None:
    printed = gate_terms(cell, inputs, state, is_as_printed=True)
    exact = by_autograd(cell, inputs, state, lag=1)
    assert float((printed.total[-1] - exact).norm() / exact.norm()) > 0.05


def test_the_joint_jacobian_gives_the_memory_gradient_at_every_lag(
    cell: LSTMCell, inputs: Tensor, state: tuple[Tensor, Tensor]
) -> None:
    exact = torch.stack([by_autograd(cell, inputs, state, lag=lag) for lag in range(9)])
    torch.testing.assert_close(memory_jacobians(cell, inputs, state), exact, rtol=0, atol=1e-12)


def test_products_of_the_four_terms_miss_the_output_gate_from_two_steps_on(
    cell: LSTMCell, inputs: Tensor, state: tuple[Tensor, Tensor]
) -> None:
    claimed = ordered_products(gate_terms(cell, inputs, state).total)
    errors = relative_errors(claimed, memory_jacobians(cell, inputs, state))
    assert errors[:2].max() < 1e-12
    assert errors[2:].min() > 0.001


def test_without_the_output_gate_the_products_are_exact(inputs: Tensor, state: tuple[Tensor, Tensor]) -> None:
    """With U_o = 0 the output gate sees the inputs alone, and nothing is left out."""
    cell = LSTMCell(3, 6).double()
    with torch.no_grad():
        cell.from_state.weight[18:].zero_()
    claimed = ordered_products(gate_terms(cell, inputs, state).total)
    torch.testing.assert_close(claimed, memory_jacobians(cell, inputs, state), rtol=0, atol=1e-12)


def test_a_cell_with_layer_norm_is_refused(inputs: Tensor, state: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(UsageError, match="without layer norm"):
        gate_terms(LSTMCell(3, 6, norm=True).double(), inputs, state)
