"""Compiled steps equal the plain pass in single precision, and hide no number that is not one."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.bptt import lstm as passes_fused
from seqloom.nn.bptt.lstm import FusedLSTMPass, LSTMPass
from seqloom.nn.bptt.truncation import Truncation, run_cell, step_jacobian, trace_back
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell

pytest.importorskip("numba")

INPUT, WIDTH, BATCH, TIME = 5, 13, 4, 6  # a width that is no multiple of a register's
LENGTHS = torch.tensor([6, 0, 3, 5])
MAKE: dict[str, Callable[[], Cell]] = {
    "lstm": partial(LSTMCell, INPUT, WIDTH),
    "peephole diagonal": partial(PeepholeCell, INPUT, WIDTH),
    "peephole full": partial(PeepholeCell, INPUT, WIDTH, peephole="full"),
    "coupled": partial(CoupledCell, INPUT, WIDTH),
}


def shaken(cell: Cell) -> Cell:
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.4)
    return cell


def results(cell: Cell, lengths: Tensor | None, truncation: Truncation) -> list[Tensor]:
    """Outputs, last state and all gradients, of inputs that are always the same."""
    torch.manual_seed(7)
    inputs = torch.randn(BATCH, TIME, INPUT, requires_grad=True)
    state = tuple(torch.randn(BATCH, WIDTH, requires_grad=True) for _ in range(cell.parts))
    weights = torch.randn(BATCH, TIME, WIDTH)
    generator = torch.Generator().manual_seed(8)
    outputs, final = run_cell(cell, inputs, state, lengths=lengths, truncation=truncation, generator=generator)
    loss = (outputs * weights).sum() + sum((part.t() * torch.randn(WIDTH, BATCH)).sum() for part in final)
    return [outputs, *final, *torch.autograd.grad(loss, [inputs, *state, *cell.parameters()])]


@pytest.mark.parametrize("form", MAKE)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize(
    "truncation",
    [
        Truncation(),
        Truncation("chunked", window=2, burn_in=1),
        Truncation("sliding", window=2),
        Truncation("random", keep_rate=0.5),
    ],
    ids=lambda truncation: truncation.kind,
)
def test_compiled_steps_equal_the_plain_pass(
    form: str, lengths: Tensor | None, truncation: Truncation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = shaken(MAKE[form]())
    manual = cell.manual_backward()
    assert isinstance(manual.make(manual.parameters), FusedLSTMPass)
    found = results(cell, lengths, truncation)
    monkeypatch.setattr(passes_fused, "has_numba", lambda: False)
    assert type(manual.make(manual.parameters)) is LSTMPass
    torch.testing.assert_close(found, results(cell, lengths, truncation), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("form", MAKE)
def test_traces_and_jacobians_are_the_same_with_compiled_steps(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = shaken(MAKE[form]())
    inputs, gradient = torch.randn(BATCH, TIME, INPUT), torch.randn(BATCH, WIDTH)
    state = cell.begin(torch.randn(BATCH, WIDTH))
    one = tuple(part[:1] for part in state)

    def look() -> list[Tensor]:
        jacobian = step_jacobian(cell, cell.project(inputs[0, 0]).detach(), one)
        return [*trace_back(cell, inputs, state, gradient=gradient), jacobian]

    found = look()
    monkeypatch.setattr(passes_fused, "has_numba", lambda: False)
    torch.testing.assert_close(found, look(), rtol=2e-5, atol=2e-5)


def test_other_precisions_and_norms_use_the_plain_pass() -> None:
    for cell in (LSTMCell(INPUT, WIDTH).double(), LSTMCell(INPUT, WIDTH, norm=True)):
        manual = cell.manual_backward()
        assert type(manual.make(manual.parameters)) is LSTMPass


def test_gates_are_right_to_single_precision_and_never_leave_their_range() -> None:
    from seqloom.nn.bptt import lstm as kernels

    values = np.concatenate([np.linspace(-30, 30, 200_001), [0.0, 1e-30, -1e-30, np.inf, -np.inf]]).astype(np.float32)
    exact = values.astype(np.float64)
    result = np.empty_like(values)
    kernels.tanh_into(values, result)
    assert np.abs(result - np.tanh(exact)).max() < 5e-7
    small = np.abs(values) < 1e-2
    assert np.abs(result[small] - np.tanh(exact[small])).max() < 1e-8  # relative, where it matters
    assert np.abs(result).max() == 1
    gate = values.copy()
    kernels.sigmoid(gate)
    assert np.abs(gate - 1 / (1 + np.exp(-exact))).max() < 5e-7
    assert gate.min() >= 0
    assert gate.max() <= 1


@pytest.mark.parametrize("form", MAKE)
def test_nan_is_propagated(form: str) -> None:
    cell = shaken(MAKE[form]())
    inputs, state = torch.randn(BATCH, TIME, INPUT), cell.begin(torch.zeros(BATCH, WIDTH))
    inputs[1, 2, 0] = float("nan")
    outputs, final = run_cell(cell, inputs, state)
    assert outputs[1, 2:].isnan().all()
    assert all(part[1].isnan().all() for part in final)
    assert not outputs[[0, 2, 3]].isnan().any()
