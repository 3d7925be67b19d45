"""What does not fit a cell is refused in a sentence, before a kernel reads past its end; autocast changes no result."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqloom.core.errors import DataError, UsageError
from seqloom.nn.bptt.passes import Product
from seqloom.nn.bptt.truncation import run_cell, trace_back
from seqloom.nn.cells.cell import Cell, CellState, check_lengths, length_range, unroll
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.recurrent import Bidirectional, Stack, turning

WIDTH, ROWS, TIME = 5, 3, 4
LENGTHS = torch.tensor([4, 1, 3])
FORMS: dict[str, Callable[[], Cell]] = {
    "rnn": lambda: ElmanCell(WIDTH, WIDTH),
    "rnn norm": lambda: ElmanCell(WIDTH, WIDTH, norm=True),
    "lstm": lambda: LSTMCell(WIDTH, WIDTH),
    "lstm norm": lambda: LSTMCell(WIDTH, WIDTH, norm=True),
    "peephole": lambda: PeepholeCell(WIDTH, WIDTH),
    "peephole full": lambda: PeepholeCell(WIDTH, WIDTH, peephole="full"),
    "coupled": lambda: CoupledCell(WIDTH, WIDTH),
    "gru": lambda: GRUCell(WIDTH, WIDTH),
    "gru new": lambda: GRUCell(WIDTH, WIDTH, update="new"),
    "gru before": lambda: GRUCell(WIDTH, WIDTH, reset="before"),
    "gru input": lambda: GRUCell(WIDTH, WIDTH, reset="input"),
}
every_form = pytest.mark.parametrize("form", FORMS)
Run = Callable[[Cell, Tensor, CellState], object]
RUNS: dict[str, Run] = {
    "run": lambda cell, inputs, state: cell.run(inputs, state),
    "with lengths": lambda cell, inputs, state: cell.run(inputs, state, lengths=torch.full((len(inputs),), TIME)),
    "outputs": lambda cell, inputs, state: cell.outputs(inputs, state),
    "by hand": lambda cell, inputs, state: run_cell(cell, inputs, state),
    "unroll": lambda cell, inputs, state: unroll(cell, inputs, state),
}


@every_form
@pytest.mark.parametrize("run", RUNS)
def test_a_state_that_does_not_fit_is_refused(form: str, run: str) -> None:
    cell, inputs = FORMS[form](), torch.randn(ROWS, TIME, WIDTH)
    name = type(cell).__name__

    def state(*shape: int, parts: int = cell.parts, dtype: torch.dtype = torch.float32) -> CellState:
        return tuple(torch.zeros(*shape, dtype=dtype) for _ in range(parts))

    parts = cell.parts + 1
    with pytest.raises(UsageError, match=f"a state of {name} has {cell.parts} parts, but {parts} were given; .*begin"):
        RUNS[run](cell, inputs, state(ROWS, WIDTH, parts=parts))
    with pytest.raises(UsageError, match=r"part 1 of the state has the shape \[1, 5\].*3 rows.*give \[3, 5\]"):
        RUNS[run](cell, inputs, state(1, WIDTH))
    with pytest.raises(UsageError, match=r"part 1 of the state has the shape \[3, 4\].*give \[3, 5\]"):
        RUNS[run](cell, inputs, state(ROWS, WIDTH - 1))
    with pytest.raises(UsageError, match=r"weights of this .* are torch.float32, but a state is torch.float64"):
        RUNS[run](cell, inputs, state(ROWS, WIDTH, dtype=torch.float64))
    RUNS[run](cell, inputs, state(ROWS, WIDTH))


@pytest.mark.parametrize("run", RUNS)
def test_inputs_that_do_not_fit_are_refused(run: str) -> None:
    cell, state = LSTMCell(WIDTH, WIDTH), (torch.zeros(ROWS, WIDTH),) * 2
    with pytest.raises(UsageError, match="inputs have width 4, but this LSTMCell reads width 5"):
        RUNS[run](cell, torch.randn(ROWS, TIME, WIDTH - 1), state)
    with pytest.raises(UsageError, match=r"the inputs are torch.float64"):
        RUNS[run](cell, torch.randn(ROWS, TIME, WIDTH).double(), state)


def test_a_second_part_that_does_not_fit_is_named() -> None:
    cell, hidden = LSTMCell(WIDTH, WIDTH), torch.zeros(ROWS, WIDTH)
    with pytest.raises(UsageError, match=r"part 2 of the state has the shape \[2, 5\]"):
        cell.run(torch.randn(ROWS, TIME, WIDTH), (hidden, hidden[:2]))
    with pytest.raises(UsageError, match="has 2 parts, but 1 were given"):
        trace_back(cell, torch.randn(ROWS, TIME, WIDTH), (hidden,), gradient=hidden)


WRONG = {
    "a row cannot have 5 positions in a batch of 4": torch.tensor([4, 5, 1]),
    "a row cannot have -1 positions in a batch of 4": torch.tensor([4, -1, 1]),
}


@every_form
@pytest.mark.parametrize("message", WRONG)
def test_lengths_that_rows_cannot_have_are_refused(form: str, message: str) -> None:
    cell, inputs, lengths = FORMS[form](), torch.randn(ROWS, TIME, WIDTH), WRONG[message]
    state = cell.begin(torch.zeros(ROWS, WIDTH))
    both = Bidirectional([cell], [FORMS[form]()], dropout_rate=0.0)
    runs: list[Callable[[], object]] = [
        lambda: cell.run(inputs, state, lengths=lengths),
        lambda: cell.outputs(inputs, state, lengths=lengths),
        lambda: run_cell(cell, inputs, state, lengths=lengths),
        lambda: unroll(cell, inputs, state, lengths=lengths),
        lambda: Stack([cell], dropout_rate=0.0).outputs(inputs, lengths=lengths),
        lambda: both(inputs, lengths),
        lambda: turning(lengths, TIME),
    ]
    for run in runs:
        with pytest.raises(DataError, match=message):
            run()


def test_lengths_of_the_wrong_form_are_refused() -> None:
    # The type check of the test run stands before the cells, so the check is asked directly.
    for check in (check_lengths, length_range):
        with pytest.raises(DataError, match=r"lengths of the shape \[2\] do not fit 3 rows: give one for each"):
            check(LENGTHS[:2], rows=ROWS, time=TIME)
        with pytest.raises(DataError, match=r"lengths of the shape \[3, 1\] do not fit"):
            check(LENGTHS[:, None], rows=ROWS, time=TIME)
        for dtype in (torch.uint8, torch.float32, torch.bool):
            with pytest.raises(DataError, match=f"lengths are {dtype}, but they count positions: give torch.int64"):
                check(LENGTHS.to(dtype), rows=ROWS, time=TIME)
    assert length_range(LENGTHS, rows=ROWS, time=TIME) == (1, 4)


@every_form
def test_lengths_may_be_short_integers_of_torch(form: str) -> None:
    cell, inputs = FORMS[form](), torch.randn(ROWS, TIME, WIDTH)
    state = cell.begin(torch.randn(ROWS, WIDTH))
    found, expected = (cell.run(inputs, state, lengths=lengths) for lengths in (LENGTHS.int(), LENGTHS))
    torch.testing.assert_close(found, expected)
    both = Bidirectional([cell], [FORMS[form]()], dropout_rate=0.0)
    torch.testing.assert_close(both(inputs, LENGTHS.int()), both(inputs, LENGTHS))


@every_form
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_autocast_changes_no_result_on_the_cpu(form: str, lengths: Tensor | None) -> None:
    cell = FORMS[form]()
    inputs, hint = torch.randn(ROWS, TIME, WIDTH, requires_grad=True), torch.randn(ROWS, WIDTH)

    def gradients(outputs: Tensor, final: CellState) -> tuple[Tensor, ...]:
        loss = outputs.square().sum() + sum(part.sum() for part in final)
        return torch.autograd.grad(loss, [inputs, *cell.parameters()])

    expected = cell.run(inputs, cell.begin(hint), lengths=lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cell.run(inputs, cell.begin(hint), lengths=lengths)
        halved, _ = cell.run(inputs.bfloat16(), cell.begin(hint.bfloat16()), lengths=lengths)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradients(*found), gradients(*expected), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(halved, expected[0], rtol=0.05, atol=0.05)


@every_form
def test_single_steps_continue_under_autocast(form: str) -> None:
    cell, inputs = FORMS[form](), torch.randn(ROWS, WIDTH)
    state = cell.begin(torch.randn(ROWS, WIDTH))
    expected = cell.advance(cell.project(inputs), state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cell.advance(cell.project(inputs), state)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05, check_dtype=False)


@every_form
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_outputs_changed_in_place_are_refused_or_right(form: str, lengths: Tensor | None) -> None:
    cell, inputs = FORMS[form](), torch.randn(ROWS, TIME, WIDTH, requires_grad=True)
    state = cell.begin(torch.randn(ROWS, WIDTH))
    (expected,) = torch.autograd.grad((2 * cell.run(inputs, state, lengths=lengths)[0]).sum(), inputs)
    outputs = cell.run(inputs, state, lengths=lengths)[0]
    if lengths is None:  # they are the states that the way back reads
        with pytest.raises(RuntimeError, match="inplace"):
            torch.autograd.grad(outputs.mul_(2).sum(), inputs)
    else:
        torch.testing.assert_close(torch.autograd.grad(outputs.mul_(2).sum(), inputs)[0], expected)


def test_frozen_weights_cost_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    products = []
    plain = Product.gradients

    def counted(self: Product, gate_gradients: Tensor, states: Tensor) -> tuple[Tensor, Tensor | None]:
        products.append(gate_gradients)
        return plain(self, gate_gradients, states)

    monkeypatch.setattr(Product, "gradients", counted)
    for learns, count in ((True, 1), (False, 0)):
        cell, inputs = CoupledCell(WIDTH, WIDTH).requires_grad_(learns), torch.randn(ROWS, TIME, WIDTH)
        products.clear()
        cell.run(inputs.requires_grad_(), cell.begin(torch.zeros(ROWS, WIDTH)))[0].sum().backward()
        assert len(products) == count


PROGRAM = """
import numpy as np, torch
from seqloom.core.errors import ConfigError
from seqloom.nn.objectives import AliasSampler
from seqloom.nn.blocks import FeedForward, Residual, SinusoidalPositions
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.embeddings import Symbols, tied_tables
from seqloom.nn.objectives import Nce, NegativeSampling, SampledSoftmax
from seqloom.nn.recurrent import Stack, input_widths, summarise

noise = AliasSampler(np.full(6, 1 / 6))
cases = [
    ("correction", lambda each: SampledSoftmax(noise, 3, correction=each)),
    ("log_z", lambda each: Nce(noise, 3, log_z=each)),
    ("sharing", lambda each: Nce(noise, 3, sharing=each)),
    ("sharing", lambda each: NegativeSampling(noise, 3, sharing=each)),
    ("tying", lambda each: tied_tables(Symbols(6, 6, is_shared=True), 4, each)),
    ("activation", lambda each: FeedForward(4, 4, activation=each)),
    ("activation", lambda each: ElmanCell(4, 4, activation=each)),
    ("peephole", lambda each: PeepholeCell(4, 4, peephole=each)),
    ("norm", lambda each: Residual(4, norm=each, dropout_rate=0.0)),
    ("dropout_kind", lambda each: Stack([GRUCell(4, 4)], dropout_rate=0.0, dropout_kind=each)),
    ("skip", lambda each: Stack([GRUCell(4, 4)], dropout_rate=0.0, skip=each)),
    ("skip", lambda each: input_widths(4, 4, layers=2, skip=each)),
    ("summary", lambda each: summarise(torch.zeros(2, 3, 4), torch.tensor([3, 1]), summary=each, directions=1)),
    ("combine", lambda each: SinusoidalPositions(4, combine=each)),
    ("start", lambda each: GRUCell(4, 4, start=each)),
]
for name, make in cases:
    try:
        make("never")
        print(name, "was taken")
    except ConfigError as error:
        assert f"unknown {name}='never'; use " in str(error), error
"""


def test_an_unknown_value_of_an_option_is_refused() -> None:
    # In a process of its own: the type check of the test run would refuse the values before the constructors do.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
