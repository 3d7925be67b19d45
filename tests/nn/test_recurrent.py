"""Stacks and both directions, with lengths, against torch; padding is never seen."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.core.errors import ConfigError
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.dropout import reseed
from seqloom.nn.recurrent import (
    Bidirectional,
    MakeCell,
    Stack,
    Summary,
    cells_of,
    reorder,
    require_causal,
    summarise,
    turning,
)

INPUT, WIDTH, LAYERS, TIME = 5, 6, 3, 7
LENGTHS = torch.tensor([4, 7, 1, 5])
MAKE: dict[str, MakeCell] = {"lstm": LSTMCell, "gru": GRUCell}
TORCH = {"lstm": nn.LSTM, "gru": nn.GRU}


def stack(kind: str, *, dropout_rate: float = 0.0) -> Stack:
    return Stack(cells_of(MAKE[kind], INPUT, width=WIDTH, layers=LAYERS), dropout_rate=dropout_rate).double()


def both_ways(kind: str, *, dropout_rate: float = 0.0) -> Bidirectional:
    cells = partial(cells_of, MAKE[kind], INPUT, width=WIDTH, layers=LAYERS, directions=2)
    return Bidirectional(cells(), cells(), dropout_rate=dropout_rate).double()


def load(theirs: nn.Module, cells: list[Cell], suffix: str = "") -> None:
    with torch.no_grad():
        for layer, cell in enumerate(cells):
            for parameter in cell.parameters():
                nn.init.normal_(parameter, std=0.4)
            for side, mine in (("ih", cell.from_input), ("hh", cell.from_state)):
                assert isinstance(mine, nn.Linear)
                getattr(theirs, f"weight_{side}_l{layer}{suffix}").copy_(mine.weight)
                getattr(theirs, f"bias_{side}_l{layer}{suffix}").copy_(mine.bias)


def run_torch(theirs: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs with zeros in the padding, and the last hidden states [layers · directions, batch, width]."""
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, final = theirs(packed)
    return pad_packed_sequence(outputs, batch_first=True)[0], final[0] if isinstance(final, tuple) else final


def masked(outputs: Tensor) -> Tensor:
    return outputs * (torch.arange(TIME) < LENGTHS[:, None])[:, :, None]


@pytest.mark.parametrize("kind", MAKE)
def test_a_stack_equals_torch(kind: str) -> None:
    ours = stack(kind)
    theirs = TORCH[kind](INPUT, WIDTH, LAYERS, batch_first=True, dtype=torch.float64)
    load(theirs, list(ours.cells))
    inputs = torch.randn(len(LENGTHS), TIME, INPUT, dtype=torch.float64)
    outputs, final = ours(inputs, lengths=LENGTHS)
    expected, last = run_torch(theirs, inputs)
    torch.testing.assert_close(masked(outputs), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.stack([layer[0] for layer in final]), last, rtol=0, atol=1e-12)
    torch.testing.assert_close(summarise(outputs, LENGTHS, summary="last", directions=1), last[-1], rtol=0, atol=1e-12)
    ours.cells[0], ours.cells[1] = ours.cells[0], ours.cells[2]  # type: ignore[index]
    assert not torch.allclose(masked(ours(inputs)[0]), expected, atol=1e-3)


@pytest.mark.parametrize("kind", MAKE)
def test_both_directions_equal_torch(kind: str) -> None:
    ours = both_ways(kind)
    theirs = TORCH[kind](INPUT, WIDTH, LAYERS, batch_first=True, bidirectional=True, dtype=torch.float64)
    load(theirs, list(ours.rightward))
    load(theirs, list(ours.leftward), "_reverse")
    inputs = torch.randn(len(LENGTHS), TIME, INPUT, dtype=torch.float64)
    outputs = ours(inputs, LENGTHS)
    expected, last = run_torch(theirs, inputs)
    torch.testing.assert_close(masked(outputs), expected, rtol=0, atol=1e-12)
    joined = torch.cat([last[-2], last[-1]], 1)
    torch.testing.assert_close(summarise(outputs, LENGTHS, summary="last", directions=2), joined, rtol=0, atol=1e-12)
    # Turning over the padded width instead of each length is the usual mistake, and must be seen.
    wrong = ours(inputs, torch.full_like(LENGTHS, TIME))
    assert not torch.allclose(masked(wrong), expected, atol=1e-3)


@pytest.mark.parametrize("kind", MAKE)
def test_step_by_step_equals_all_at_once(kind: str) -> None:
    layers = stack(kind)
    inputs = torch.randn(3, TIME, INPUT, dtype=torch.float64)
    state = layers.begin(torch.randn(3, LAYERS, WIDTH, dtype=torch.float64))
    at_once, final = layers(inputs, state)
    outputs = []
    for each in inputs.unbind(1):
        hidden, state = layers.step(each, state)
        outputs.append(hidden)
    torch.testing.assert_close(torch.stack(outputs, 1), at_once, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, final, rtol=0, atol=1e-12)


def test_reversed_input_swaps_the_halves() -> None:
    one_way = cells_of(LSTMCell, INPUT, width=WIDTH, layers=1)
    other_way = cells_of(LSTMCell, INPUT, width=WIDTH, layers=1)
    inputs = torch.randn(len(LENGTHS), TIME, INPUT, dtype=torch.float64)
    turn = turning(LENGTHS, TIME)
    outputs = Bidirectional(one_way, other_way, dropout_rate=0.0).double()(inputs, LENGTHS)
    mirrored = Bidirectional(other_way, one_way, dropout_rate=0.0).double()(reorder(inputs, turn), LENGTHS)
    swapped = reorder(mirrored, turn).roll(WIDTH, 2)
    torch.testing.assert_close(masked(outputs), masked(swapped), rtol=0, atol=1e-12)
    assert not torch.allclose(masked(outputs), masked(mirrored), atol=1e-3)


@pytest.mark.parametrize("kind", MAKE)
def test_padding_changes_no_real_output_and_gets_no_gradient(kind: str) -> None:
    layers = both_ways(kind)
    inputs = torch.randn(len(LENGTHS), TIME, INPUT, dtype=torch.float64, requires_grad=True)
    padding = (torch.arange(TIME) >= LENGTHS[:, None])[:, :, None]
    outputs = masked(layers(inputs, LENGTHS))
    other = masked(layers(inputs.masked_fill(padding, 1000.0), LENGTHS))
    torch.testing.assert_close(outputs, other, rtol=0, atol=0)
    (gradient,) = torch.autograd.grad(outputs.square().sum(), inputs)
    assert not gradient.masked_select(padding).any()
    assert gradient.masked_select(~padding).all()


@given(lengths=some.lists(some.integers(0, 6), min_size=1, max_size=5))
def test_turning_twice_is_not_turning(lengths: list[int]) -> None:
    counted = torch.tensor(lengths)
    turn = turning(counted, 6)
    values = torch.arange(len(lengths) * 6.0).view(len(lengths), 6, 1)
    turned = reorder(values, turn)
    assert torch.equal(reorder(turned, turn), values)
    for row, length in enumerate(lengths):
        assert turned[row, :length].tolist() == values[row, :length].flip(0).tolist()
        assert turned[row, length:].tolist() == values[row, length:].tolist()


def test_reordering_sends_the_gradient_back() -> None:
    values = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    turn = turning(torch.tensor([4, 1, 3]), 4)
    assert torch.autograd.gradcheck(lambda each: reorder(each, turn), (values,))


@pytest.mark.parametrize("summary", ["last", "join", "mean", "max"])
@given(lengths=some.lists(some.integers(1, 6), min_size=1, max_size=4))
def test_padding_never_leaks_into_a_summary(summary: Summary, lengths: list[int]) -> None:
    counted = torch.tensor(lengths)
    states = torch.randn(len(lengths), 6, 4, dtype=torch.float64)
    padding = (torch.arange(6) >= counted[:, None])[:, :, None]
    together = summarise(states.masked_fill(padding, 1e6), counted, summary=summary, directions=2)
    for row, length in enumerate(lengths):
        real = states[row, :length]
        halves = torch.cat([real[-1, :2], real[0, 2:]])
        alone = {"last": halves, "join": halves, "mean": real.mean(0), "max": real.max(0).values}[summary]
        torch.testing.assert_close(together[row], alone, rtol=0, atol=1e-12)


def test_the_last_state_of_one_direction_is_that_of_the_last_position() -> None:
    states = torch.randn(4, TIME, 4)
    last = summarise(states, LENGTHS, summary="last", directions=1)
    assert torch.equal(last, states[torch.arange(4), LENGTHS - 1])


def test_a_causal_model_refuses_bidirectional_layers() -> None:
    one_way = stack("lstm")
    assert require_causal(one_way, model="a language model") is one_way
    with pytest.raises(
        ConfigError, match=r"a language model predicts each symbol from the ones before it, but bidirectional"
    ):
        require_causal(both_ways("lstm"), model="a language model")


def test_dropout_is_between_the_layers_only() -> None:
    one = Stack(cells_of(LSTMCell, INPUT, width=WIDTH, layers=1), dropout_rate=0.5)
    many = stack("lstm", dropout_rate=0.5).float()
    inputs = torch.randn(4, TIME, INPUT)
    assert torch.equal(one.train()(inputs)[0], one.eval()(inputs)[0])
    reseed(many, 3)
    trained = many.train()(inputs)[0]
    assert not torch.equal(trained, many.eval()(inputs)[0])
    reseed(many, 3)
    assert torch.equal(trained, many.train()(inputs)[0])


@pytest.mark.parametrize(("kind", "gates"), [("lstm", 4), ("gru", 3)])
def test_parameter_counts(kind: str, gates: int) -> None:
    def cell(inputs: int) -> int:
        return gates * WIDTH * (inputs + WIDTH + 2)

    count = sum(parameter.numel() for parameter in stack(kind).parameters())
    assert count == cell(INPUT) + 2 * cell(WIDTH)
    count = sum(parameter.numel() for parameter in both_ways(kind).parameters())
    assert count == 2 * (cell(INPUT) + 2 * cell(2 * WIDTH))
