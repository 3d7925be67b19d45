"""Ways past a layer, against their formulas written out; and dropout that is the same at every step of a sequence."""

from functools import partial
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.dropout import reseed
from seqloom.nn.recurrent import (
    Bidirectional,
    DropoutKind,
    Highway,
    MakeCell,
    SequenceDropout,
    Skip,
    Stack,
    cells_of,
    reorder,
    turning,
)

INPUT, WIDTH, LAYERS, TIME = 5, 6, 3, 7
LENGTHS = torch.tensor([4, 7, 1, 5])
SKIPS: tuple[Skip, ...] = get_args(Skip)
MAKE: dict[str, MakeCell] = {
    "rnn": ElmanCell,
    "lstm": LSTMCell,
    "peephole": PeepholeCell,
    "coupled": CoupledCell,
    "gru": GRUCell,
}


def stack(
    skip: Skip,
    *,
    cell: str = "lstm",
    input_width: int = INPUT,
    dropout_rate: float = 0.0,
    dropout_kind: DropoutKind = "between",
) -> Stack:
    cells = cells_of(MAKE[cell], input_width, width=WIDTH, layers=LAYERS, skip=skip)
    layers = Stack(cells, dropout_rate=dropout_rate, skip=skip, dropout_kind=dropout_kind).double()
    shake(layers)
    return layers


def both_ways(skip: Skip, *, cell: str = "lstm", input_width: int = INPUT) -> Bidirectional:
    cells = partial(cells_of, MAKE[cell], input_width, width=WIDTH // 2, layers=LAYERS, directions=2, skip=skip)
    layers = Bidirectional(cells(), cells(), dropout_rate=0.0, skip=skip).double()
    shake(layers)
    return layers


def shake(module: nn.Module) -> None:
    """Weights large enough, and unlike enough, that a mistake shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def read_by_steps(cell: Cell, inputs: Tensor) -> Tensor:
    state, hidden = cell.begin(torch.zeros(len(inputs), cell.width, dtype=inputs.dtype)), []
    for each in inputs.unbind(1):
        state = cell.advance(cell.project(each), state)
        hidden.append(state[0])
    return torch.stack(hidden, 1)


def by_formula(layers: Stack | Bidirectional, skip: Skip, inputs: Tensor, lengths: Tensor) -> Tensor:
    """y of the top layer, formula by formula, for full rows or for those of a batch one by one."""
    left, all_left = inputs, [inputs]
    for number in range(LAYERS):
        read = torch.cat(all_left, 2) if skip == "dense" else left
        if isinstance(layers, Stack):
            hidden = read_by_steps(layers.cells[number], read)
        else:
            turn = turning(lengths, inputs.shape[1])
            backwards = reorder(read_by_steps(layers.leftward[number], reorder(read, turn)), turn)
            hidden = torch.cat([read_by_steps(layers.rightward[number], read), backwards], 2)
        if skip == "residual" and left.shape == hidden.shape:
            hidden = hidden + left
        if skip == "highway" and left.shape == hidden.shape:
            bypass = layers.climb.bypasses[number]
            assert isinstance(bypass, Highway)
            transform = torch.sigmoid(left @ bypass.gate.weight.T + bypass.gate.bias)
            hidden = transform * hidden + (1 - transform) * left
        left = hidden
        all_left.append(hidden)
    return left


@pytest.mark.parametrize("input_width", [INPUT, WIDTH])
@pytest.mark.parametrize("cell", MAKE)
@pytest.mark.parametrize("skip", SKIPS)
def test_a_stack_is_its_formula(skip: Skip, cell: str, input_width: int) -> None:
    layers = stack(skip, cell=cell, input_width=input_width)
    inputs = torch.randn(4, TIME, input_width, dtype=torch.float64)
    expected = by_formula(layers, skip, inputs, torch.full((4,), TIME))
    torch.testing.assert_close(layers(inputs)[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(layers.outputs(inputs), expected, rtol=0, atol=1e-12)
    if skip in ("residual", "highway"):
        assert not torch.allclose(by_formula(layers, "none", inputs, LENGTHS), expected, atol=1e-3)


@pytest.mark.parametrize("input_width", [INPUT, WIDTH])
@pytest.mark.parametrize("cell", MAKE)
@pytest.mark.parametrize("skip", SKIPS)
def test_both_directions_are_their_formula(skip: Skip, cell: str, input_width: int) -> None:
    layers = both_ways(skip, cell=cell, input_width=input_width)
    inputs = torch.randn(4, TIME, input_width, dtype=torch.float64)
    real = (torch.arange(TIME) < LENGTHS[:, None])[:, :, None]
    expected = by_formula(layers, skip, inputs, LENGTHS)
    torch.testing.assert_close(layers(inputs, LENGTHS) * real, expected * real, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", MAKE)
@pytest.mark.parametrize("skip", SKIPS)
def test_step_by_step_equals_all_at_once(skip: Skip, cell: str) -> None:
    layers = stack(skip, cell=cell)
    inputs = torch.randn(3, TIME, INPUT, dtype=torch.float64)
    state = layers.begin(torch.randn(3, LAYERS, WIDTH, dtype=torch.float64))
    at_once, final = layers(inputs, state)
    outputs = []
    for each in inputs.unbind(1):
        output, state = layers.step(each, state)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), at_once, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, final, rtol=0, atol=1e-12)


@pytest.mark.parametrize("skip", SKIPS)
def test_padding_changes_no_real_output_and_gets_no_gradient(skip: Skip) -> None:
    layers = both_ways(skip)
    inputs = torch.randn(len(LENGTHS), TIME, INPUT, dtype=torch.float64, requires_grad=True)
    padding = (torch.arange(TIME) >= LENGTHS[:, None])[:, :, None]
    outputs = layers(inputs, LENGTHS).masked_fill(padding, 0)
    other = layers(inputs.masked_fill(padding, 1000.0), LENGTHS).masked_fill(padding, 0)
    torch.testing.assert_close(outputs, other, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(outputs.square().sum(), inputs)
    assert not gradient.masked_select(padding).any()
    assert gradient.masked_select(~padding).all()


def test_a_highway_whose_carry_gate_is_one_is_the_identity() -> None:
    highway = Highway(WIDTH)
    below, hidden = torch.randn(4, TIME, WIDTH), torch.randn(4, TIME, WIDTH)
    nn.init.constant_(highway.gate.bias, float("-inf"))
    assert torch.equal(highway(below, hidden), below)
    nn.init.constant_(highway.gate.bias, float("inf"))
    assert torch.equal(highway(below, hidden), hidden)


def test_a_stack_of_closed_highways_is_the_identity() -> None:
    layers = stack("highway", input_width=WIDTH)
    for bypass in layers.climb.bypasses:
        assert isinstance(bypass, Highway)
        nn.init.constant_(bypass.gate.bias, float("-inf"))
    inputs = torch.randn(4, TIME, WIDTH, dtype=torch.float64)
    assert torch.equal(layers.outputs(inputs), inputs)


def test_a_highway_begins_by_carrying() -> None:
    highway = Highway(64)
    transform = highway.gate(0.1 * torch.randn(100, 64)).sigmoid().detach()
    assert float(transform.mean()) == pytest.approx(0.269, abs=0.01)  # σ(−1)


@pytest.mark.parametrize(("skip", "extra"), [("none", 0), ("residual", 0), ("highway", 2 * WIDTH * (WIDTH + 1))])
def test_parameters_of_skip_connections(skip: Skip, extra: int) -> None:
    def gates(inputs: int) -> int:
        return 3 * WIDTH * (inputs + WIDTH + 2)

    count = sum(parameter.numel() for parameter in stack(skip, cell="gru").parameters())
    assert count == gates(INPUT) + 2 * gates(WIDTH) + extra


def test_parameters_of_a_dense_stack() -> None:
    count = sum(parameter.numel() for parameter in stack("dense", cell="gru").parameters())
    assert count == sum(3 * WIDTH * (INPUT + layer * WIDTH + WIDTH + 2) for layer in range(LAYERS))


def test_variational_dropout_drops_the_same_numbers_at_every_position() -> None:
    dropout = SequenceDropout(0.5, kind="variational")
    values = torch.randn(20, TIME, 30)
    dropped = dropout(values)
    is_kept = dropped != 0
    assert torch.equal(is_kept, is_kept[:, :1].expand_as(is_kept))
    torch.testing.assert_close(dropped[is_kept], 2 * values[is_kept])
    assert not torch.equal(is_kept[0], is_kept[1])
    assert float(is_kept.float().mean()) == pytest.approx(0.5, abs=0.1)
    assert torch.equal(dropout.eval()(values), values)


def test_dropout_between_layers_drops_each_number_independently() -> None:
    is_kept = SequenceDropout(0.5, kind="between")(torch.ones(20, TIME, 30)) != 0
    assert not torch.equal(is_kept, is_kept[:, :1].expand_as(is_kept))


@pytest.mark.parametrize("skip", SKIPS)
def test_steps_under_the_masks_of_a_sequence_equal_all_at_once(skip: Skip) -> None:
    layers = stack(skip, dropout_rate=0.5, dropout_kind="variational")
    inputs = torch.randn(3, TIME, INPUT, dtype=torch.float64)
    begin = layers.begin(torch.zeros(3, LAYERS, WIDTH, dtype=torch.float64))
    reseed(layers, 4)
    at_once = layers(inputs, begin)[0]
    reseed(layers, 4)
    masks = layers.climb.draw(3, like=inputs)
    assert len(masks) == LAYERS - 1
    assert torch.equal(layers.outputs(inputs, begin, masks=masks), at_once)
    state, outputs = begin, []
    for each in inputs.unbind(1):
        output, state = layers.step(each, state, masks=masks)
        outputs.append(output)
    torch.testing.assert_close(torch.stack(outputs, 1), at_once, rtol=0, atol=1e-12)
    assert not torch.allclose(at_once, layers.eval()(inputs, begin)[0], atol=1e-3)
    assert layers.climb.draw(3, like=inputs) == ()


def test_dropout_leaves_the_skip_connection_unchanged() -> None:
    """With cells that say nothing, a residual stack hands its inputs up whatever is dropped."""
    layers = stack("residual", cell="gru", input_width=WIDTH, dropout_rate=0.5)
    for parameter in layers.parameters():
        nn.init.zeros_(parameter)
    inputs = torch.randn(3, TIME, WIDTH, dtype=torch.float64)
    assert torch.equal(layers.train().outputs(inputs), inputs)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("skip", "learns"),
    [
        ("none", False),
        ("residual", True),
        pytest.param("dense", True, marks=pytest.mark.slow),
        pytest.param("highway", True, marks=pytest.mark.slow),
    ],
)
def test_eight_layers_learn_with_skip_connections_and_stall_without(skip: Skip, learns: bool, seed: int) -> None:
    """To name the symbol before the last one read, out of eight, in a hundred steps."""
    torch.manual_seed(seed)
    layers = Stack(cells_of(LSTMCell, 32, width=32, layers=8, skip=skip), dropout_rate=0.0, skip=skip)
    embedding, output = nn.Embedding(8, 32), nn.Linear(32, 8)
    parameters = [parameter for part in (layers, embedding, output) for parameter in part.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=5e-3)
    for _ in range(100):
        symbols = torch.randint(8, (32, 8))
        scores = output(layers.outputs(embedding(symbols))[:, 1:])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), symbols[:, :-1].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    # log 8 = 2.08 is what knowing nothing gives.
    assert float(loss.detach()) < 0.1 if learns else float(loss.detach()) > 2.0
