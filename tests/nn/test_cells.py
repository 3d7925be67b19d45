"""Cells equal torch's, and the three ways over a sequence (fused, loop, torch) are one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.cells import Cell, CellState, GRUCell, LSTMCell, unroll

INPUT, WIDTH, BATCH, TIME = 5, 7, 4, 6
LENGTHS = torch.tensor([6, 2, 5, 1])
MAKE: dict[str, Callable[[], Cell]] = {
    "lstm": lambda: LSTMCell(INPUT, WIDTH),
    "gru": lambda: GRUCell(INPUT, WIDTH),
}


def shaken(cell: Cell) -> Cell:
    """Weights that are all different, biases too, in float64."""
    cell = cell.double()
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.5)
    return cell


def state_for(cell: Cell, rows: int) -> CellState:
    parts = len(cell.begin(torch.zeros(1, WIDTH)))
    return tuple(torch.randn(rows, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(parts))


def load(theirs: nn.Module, ours: Cell, suffix: str = "") -> None:
    """Our weights in torch's layer."""
    with torch.no_grad():
        for side, mine in (("ih", ours.from_input), ("hh", ours.from_state)):
            assert isinstance(mine, nn.Linear)
            getattr(theirs, f"weight_{side}{suffix}").copy_(mine.weight)
            getattr(theirs, f"bias_{side}{suffix}").copy_(mine.bias)


def differ(left: Tensor, right: Tensor) -> bool:
    return float((left - right).detach().abs().max()) > 1e-3


def test_lstm_cell_equals_torch() -> None:
    ours = shaken(LSTMCell(INPUT, WIDTH))
    theirs = nn.LSTMCell(INPUT, WIDTH, dtype=torch.float64)
    load(theirs, ours)
    x, state = torch.randn(BATCH, INPUT, dtype=torch.float64), state_for(ours, BATCH)
    expected = theirs(x, state)
    torch.testing.assert_close(ours(x, state), expected, rtol=0, atol=1e-12)
    with torch.no_grad():  # a swap of the input and forget gates must be seen
        ours.from_input.bias.copy_(ours.from_input.bias.roll(WIDTH))
    assert differ(ours(x, state)[0], expected[0])


def test_gru_cell_equals_torch() -> None:
    ours = shaken(GRUCell(INPUT, WIDTH))
    theirs = nn.GRUCell(INPUT, WIDTH, dtype=torch.float64)
    load(theirs, ours)
    x, (h,) = torch.randn(BATCH, INPUT, dtype=torch.float64), state_for(ours, BATCH)
    torch.testing.assert_close(ours(x, h), theirs(x, h), rtol=0, atol=1e-12)
    with torch.no_grad():  # the candidate's second bias stands inside the reset gate: moving it outside must be seen
        ours.from_input.bias[2 * WIDTH :] += ours.from_state.bias[2 * WIDTH :]
        ours.from_state.bias[2 * WIDTH :] = 0
    assert differ(ours(x, h), theirs(x, h))


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("lengths", [None, LENGTHS, torch.tensor([6, 0, 3, 6])])
def test_fast_run_equals_the_plain_loop_with_its_gradients(kind: str, lengths: Tensor | None) -> None:
    cell = shaken(MAKE[kind]())
    inputs = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64, requires_grad=True)
    state = state_for(cell, BATCH)
    real = torch.ones(BATCH, TIME, 1) if lengths is None else (torch.arange(TIME) < lengths[:, None])[:, :, None]
    weights = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64) * real
    results = []
    for outputs, final in (
        cell.run(inputs, state, lengths=lengths),
        unroll(cell, inputs, state=state, lengths=lengths),
    ):
        loss = (outputs * weights).sum() + sum((part**2).sum() for part in final)
        gradients = torch.autograd.grad(loss, [inputs, *state, *cell.parameters()])
        results.append([outputs * real, *final, *gradients])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", MAKE)
def test_fast_run_equals_the_plain_loop_in_single_precision(kind: str) -> None:
    # In float32 torch takes another kernel than in float64; evaluation mode must not lose the gradient either.
    cell = shaken(MAKE[kind]()).float().eval()
    inputs = torch.randn(BATCH, TIME, INPUT, requires_grad=True)
    state = tuple(part.detach().float() for part in state_for(cell, BATCH))
    results = []
    for outputs, final in (cell.run(inputs, state), unroll(cell, inputs, state=state)):
        loss = outputs.square().sum() + final[-1].sum()
        results.append([outputs, *final, *torch.autograd.grad(loss, [inputs, *cell.parameters()])])
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "reference"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_run_equals_torch_over_a_sequence(kind: str, reference: type[nn.LSTM] | type[nn.GRU]) -> None:
    cell = shaken(MAKE[kind]())
    theirs = reference(INPUT, WIDTH, batch_first=True, dtype=torch.float64)
    load(theirs, cell, "_l0")
    inputs = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64)
    expected, _ = theirs(inputs)
    outputs, _ = unroll(cell, inputs, state=cell.begin(torch.zeros(BATCH, WIDTH, dtype=torch.float64)))
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    late, _ = unroll(cell, inputs.roll(1, 1), state=cell.begin(torch.zeros(BATCH, WIDTH, dtype=torch.float64)))
    assert differ(late, expected)


@pytest.mark.parametrize("kind", MAKE)
def test_the_last_state_is_that_of_the_row_alone(kind: str) -> None:
    cell = shaken(MAKE[kind]())
    inputs, state = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64), state_for(cell, BATCH)
    _, together = cell.run(inputs, state, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        _, alone = cell.run(inputs[row : row + 1, :length], tuple(part[row : row + 1] for part in state))
        torch.testing.assert_close([part[row : row + 1] for part in together], list(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3)])
def test_parameter_count(kind: str, gates: int) -> None:
    count = sum(parameter.numel() for parameter in MAKE[kind]().parameters())
    assert count == gates * (WIDTH * INPUT + WIDTH * WIDTH + 2 * WIDTH)


@pytest.mark.parametrize("kind", MAKE)
def test_a_state_begins_at_the_hint(kind: str) -> None:
    cell = MAKE[kind]()
    hint = torch.randn(BATCH, WIDTH)
    torch.testing.assert_close(cell.begin(hint)[0], hint.tanh())
    assert not any(part.any() for part in cell.begin(torch.zeros(BATCH, WIDTH)))


def test_the_forget_gate_begins_open_by_its_bias() -> None:
    cell = LSTMCell(INPUT, WIDTH, forget_bias=2.0)
    memory = torch.ones(1, WIDTH)
    _, kept = cell(torch.zeros(1, INPUT), (torch.zeros(1, WIDTH), memory))
    torch.testing.assert_close(kept, torch.full((1, WIDTH), 2.0).sigmoid())


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("lengths", [None, torch.zeros(0, dtype=torch.long)])
def test_an_empty_batch_gives_empty_outputs(kind: str, lengths: Tensor | None) -> None:
    cell = MAKE[kind]()
    outputs, final = cell.run(torch.zeros(0, TIME, INPUT), cell.begin(torch.zeros(0, WIDTH)), lengths=lengths)
    assert outputs.shape == (0, TIME, WIDTH)
    assert final[0].shape == (0, WIDTH)
