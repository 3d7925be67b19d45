"""The hand-derived passes equal the plain loop, and each truncation leaves out what it says and nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.nn.bptt.truncation import Truncation, run_cell, step_jacobian, trace_back
from seqloom.nn.cells.cell import Cell, CellState, unroll
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell

WIDTH, BATCH, TIME = 5, 5, 7
RAGGED = torch.tensor([7, 2, 5, 1, 5])
WITH_EMPTY = torch.tensor([3, 0, 5, 0, 3])
FORMS: dict[str, Callable[[bool], Cell]] = {
    "rnn tanh": lambda norm: ElmanCell(WIDTH, WIDTH, norm=norm),
    "rnn relu": lambda norm: ElmanCell(WIDTH, WIDTH, activation="relu", norm=norm),
    "rnn identity": lambda norm: ElmanCell(WIDTH, WIDTH, activation="identity", norm=norm),
    "lstm": lambda norm: LSTMCell(WIDTH, WIDTH, norm=norm),
    "peephole diagonal": lambda norm: PeepholeCell(WIDTH, WIDTH, norm=norm),
    "peephole full": lambda norm: PeepholeCell(WIDTH, WIDTH, peephole="full", norm=norm),
    "coupled": lambda norm: CoupledCell(WIDTH, WIDTH, norm=norm),
    "gru after keep": lambda norm: GRUCell(WIDTH, WIDTH, norm=norm),
    "gru after new": lambda norm: GRUCell(WIDTH, WIDTH, update="new", norm=norm),
    "gru before keep": lambda norm: GRUCell(WIDTH, WIDTH, reset="before", norm=norm),
    "gru before new": lambda norm: GRUCell(WIDTH, WIDTH, reset="before", update="new", norm=norm),
    "gru input keep": lambda norm: GRUCell(WIDTH, WIDTH, reset="input", norm=norm),
    "gru input new": lambda norm: GRUCell(WIDTH, WIDTH, reset="input", update="new", norm=norm),
}
every_form = pytest.mark.parametrize("form", FORMS)
with_and_without_norm = pytest.mark.parametrize("norm", [False, True])


def shaken(cell: Cell) -> Cell:
    """Weights that are all different, biases too, in float64."""
    cell = cell.double()
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.5)
    return cell


class Case:
    """Random inputs and a loss that sees every real output and every part of the last state."""

    def __init__(self, cell: Cell, lengths: Tensor | None = None, *, rows: int = BATCH, time: int = TIME) -> None:
        self.cell, self.lengths = cell, lengths
        self.inputs = torch.randn(rows, time, WIDTH, dtype=torch.float64, requires_grad=True)
        self.state = tuple(torch.randn(rows, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(cell.parts))
        self.counts = [time] * rows if lengths is None else lengths.tolist()
        self.real = (torch.arange(time) < torch.tensor(self.counts)[:, None])[:, :, None]
        self.weights = torch.randn(rows, time, WIDTH, dtype=torch.float64) * self.real
        self.last_weights = [torch.randn_like(part) for part in self.state]

    def results(self, outputs: Tensor, final: CellState) -> list[Tensor]:
        """Outputs, last state, and the gradients of everything that has one."""
        loss = (outputs * self.weights).sum()
        loss = loss + sum((part * weight).sum() for part, weight in zip(final, self.last_weights, strict=True))
        return [outputs * self.real, *final, *self.gradients(loss)]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        leaves = [self.inputs, *self.state, *self.cell.parameters()]
        found = torch.autograd.grad(loss, leaves, allow_unused=True, retain_graph=True)
        return [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves, found, strict=True)]

    def manual(self, truncation: Truncation | None = None, *, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return self.results(
            *run_cell(
                self.cell,
                self.inputs,
                self.state,
                lengths=self.lengths,
                truncation=truncation or Truncation(),
                generator=generator,
            )
        )

    def plain(self) -> list[Tensor]:
        return self.results(*unroll(self.cell, self.inputs, self.state, lengths=self.lengths))

    def first_gradient(self) -> int:
        """Where the gradients begin among the results."""
        return 1 + self.cell.parts


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-10)


def differ(left: list[Tensor], right: list[Tensor]) -> bool:
    return any(float((a - b).detach().abs().max()) > 1e-3 for a, b in zip(left, right, strict=True))


@every_form
@with_and_without_norm
@pytest.mark.parametrize("lengths", [None, RAGGED, WITH_EMPTY, torch.zeros(BATCH, dtype=torch.long)])
def test_manual_backward_equals_the_plain_loop_with_all_gradients(
    form: str, norm: bool, lengths: Tensor | None
) -> None:
    case = Case(shaken(FORMS[form](norm)), lengths)
    assert_equal(case.manual(), case.plain())


@every_form
def test_gradients_are_those_of_finite_differences(form: str) -> None:
    case = Case(shaken(FORMS[form](norm=True)), torch.tensor([3, 0, 2]), rows=3, time=3)

    def run(inputs: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        outputs, final = run_cell(case.cell, inputs, state, lengths=case.lengths)
        return outputs, *final

    # Padding included: outputs are constant there.
    assert torch.autograd.gradcheck(run, (case.inputs, *case.state), fast_mode=True)


@every_form
def test_manual_backward_is_close_in_single_precision(form: str) -> None:
    case = Case(shaken(FORMS[form](norm=False)), RAGGED)
    exact = case.manual()
    single = case.cell.float()
    inputs = case.inputs.detach().float().requires_grad_()
    state = tuple(part.detach().float() for part in case.state)
    outputs, final = run_cell(single, inputs, state, lengths=RAGGED)
    torch.testing.assert_close(outputs.double(), exact[0], rtol=1e-4, atol=1e-4)
    loss = (outputs * case.weights.float()).sum()
    loss = loss + sum((part * w.float()).sum() for part, w in zip(final, case.last_weights, strict=True))
    (found,) = torch.autograd.grad(loss, [inputs])
    torch.testing.assert_close(found.double(), exact[case.first_gradient()], rtol=1e-3, atol=1e-3)


def test_outputs_are_zero_in_the_padding() -> None:
    case = Case(shaken(LSTMCell(WIDTH, WIDTH)), WITH_EMPTY)
    outputs, _ = run_cell(case.cell, case.inputs, case.state, lengths=WITH_EMPTY)
    assert not (outputs * ~case.real).any()


@every_form
def test_what_is_in_the_padding_changes_nothing(form: str) -> None:
    case = Case(shaken(FORMS[form](norm=False)), RAGGED)
    expected = case.manual()
    with torch.no_grad():
        case.inputs[~case.real.expand_as(case.inputs)] = float("nan")
    found = case.manual()
    assert_equal(found, expected)


@every_form
@with_and_without_norm
def test_empty_batches_and_sequences_have_gradients_of_zero(form: str, norm: bool) -> None:
    for rows, time in ((0, TIME), (BATCH, 0), (0, 0), (BATCH, 1)):
        case = Case(shaken(FORMS[form](norm)), rows=rows, time=time)
        found = case.manual()
        assert found[0].shape == (rows, time, WIDTH)
        if rows and time:
            assert_equal(found, case.plain())
        else:
            assert not any(gradient.any() for gradient in found[case.first_gradient() + 1 + case.cell.parts :])
            torch.testing.assert_close(found[1 : 1 + case.cell.parts], list(case.state))


def test_an_unused_output_costs_no_gradient() -> None:
    case = Case(shaken(LSTMCell(WIDTH, WIDTH)), RAGGED)
    mine = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    plain = unroll(case.cell, case.inputs, case.state, lengths=RAGGED)
    assert_equal(case.gradients(mine[0][:, 0].sum()), case.gradients(plain[0][:, 0].sum()))
    for part in range(2):
        assert_equal(case.gradients(mine[1][part].sum()), case.gradients(plain[1][part].sum()))


@every_form
def test_a_retained_graph_allows_a_second_backward_pass(form: str) -> None:
    case = Case(shaken(FORMS[form](norm=True)), RAGGED)
    outputs, final = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    assert_equal(case.results(outputs, final), case.results(outputs, final))


def test_without_gradients_nothing_is_kept() -> None:
    case = Case(shaken(PeepholeCell(WIDTH, WIDTH)), RAGGED)
    with torch.no_grad():
        outputs, final = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    assert outputs.grad_fn is None
    torch.testing.assert_close(outputs, case.manual()[0])
    torch.testing.assert_close(list(final), case.manual()[1:3])


@every_form
@with_and_without_norm
def test_a_second_derivative_is_an_error(form: str, norm: bool) -> None:
    case = Case(shaken(FORMS[form](norm)), rows=2, time=2)
    leaves = [case.inputs, *case.state, *case.cell.parameters()]
    outputs, _ = run_cell(case.cell, case.inputs, case.state)
    for loss in (outputs.sum(), outputs.square().sum()):  # the gradient of the first comes from nowhere
        gradients = torch.autograd.grad(loss, leaves, create_graph=True)
        for gradient in gradients:
            with pytest.raises(UsageError, match=r"no second derivative; .*unroll has"):
                gradient.square().sum().backward(retain_graph=True)
        for leaf in leaves:  # each of them alone, with another way to it
            again = gradients[0].square().sum() + leaf.sum()
            with pytest.raises(UsageError, match="unroll"):
                torch.autograd.grad(again, leaf, retain_graph=True, allow_unused=True)


def test_a_gradient_with_a_graph_is_the_same_gradient() -> None:
    case = Case(shaken(CoupledCell(WIDTH, WIDTH)), RAGGED)
    outputs, _ = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    leaves = [case.inputs, *case.state, *case.cell.parameters()]
    found, expected = (
        torch.autograd.grad(outputs.square().sum(), leaves, create_graph=create, retain_graph=True)
        for create in (True, False)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_second_derivative_that_does_not_pass_through_the_cell_is_computed() -> None:
    case = Case(shaken(CoupledCell(WIDTH, WIDTH)))
    scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    outputs, _ = run_cell(case.cell, case.inputs.detach(), case.state)
    (first,) = torch.autograd.grad(outputs.detach().sum() * scale**3, scale, create_graph=True)
    (second,) = torch.autograd.grad(first, scale)
    torch.testing.assert_close(second, outputs.detach().sum() * 12)


@every_form
def test_weights_that_do_not_learn_get_no_gradient_and_change_no_other(form: str) -> None:
    case = Case(shaken(FORMS[form](norm=True)), RAGGED)
    outputs, _ = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    expected = torch.autograd.grad(outputs.square().sum(), [case.inputs, *case.state])
    case.cell.requires_grad_(False)
    outputs, _ = run_cell(case.cell, case.inputs, case.state, lengths=RAGGED)
    outputs.square().sum().backward()
    assert all(parameter.grad is None for parameter in case.cell.parameters())
    torch.testing.assert_close([each.grad for each in (case.inputs, *case.state)], list(expected))


def row_by_row(case: Case, learn: Callable[[Case, int], Tensor]) -> list[Tensor]:
    """Gradients of a loss that is built for each row by itself; `learn` gives that of one row."""
    rows = range(len(case.counts))
    return case.gradients(torch.stack([learn(case, row) for row in rows]).sum())


def row_state(case: Case, row: int) -> CellState:
    return tuple(part[row : row + 1] for part in case.state)


def loss_at(case: Case, row: int, *, time: int, state: CellState) -> Tensor:
    """What the loss adds for the state after this step."""
    loss = (state[0] * case.weights[row, time]).sum()
    if time == case.counts[row] - 1:
        loss = loss + sum((part * weight[row]).sum() for part, weight in zip(state, case.last_weights, strict=True))
    return loss


def detached(state: CellState) -> CellState:
    return tuple(part.detach() for part in state)


def chunk_and_detach(window: int, burn_in: int) -> Callable[[Case, int], Tensor]:
    def learn(case: Case, row: int) -> Tensor:
        state, loss = row_state(case, row), case.inputs.new_zeros(())
        if not case.counts[row]:
            if not burn_in:
                loss = loss + sum((p * w[row]).sum() for p, w in zip(state, case.last_weights, strict=True))
            return loss
        for time in range(case.counts[row]):
            if time and (time == burn_in or time % window == 0):
                state = detached(state)
            state = case.cell.advance(case.cell.project(case.inputs[row : row + 1, time]), state)
            if time < burn_in:
                state = detached(state)
            loss = loss + loss_at(case, row, time=time, state=state)
        return loss

    return learn


def partial_sums(window: int) -> Callable[[Case, int], Tensor]:
    """The last `window` steps before each output, gone through once more from a state that is a constant."""

    def learn(case: Case, row: int) -> Tensor:
        state, loss = row_state(case, row), case.inputs.new_zeros(())
        if not case.counts[row]:
            return loss + sum((p * w[row]).sum() for p, w in zip(state, case.last_weights, strict=True))
        projected = [case.cell.project(case.inputs[row : row + 1, time]) for time in range(case.counts[row])]
        states = [state]
        for step in projected:
            states.append(detached(case.cell.advance(step, states[-1])))
        for time in range(case.counts[row]):
            begin = max(0, time + 1 - window)
            state = states[begin]
            for step in projected[begin : time + 1]:
                state = case.cell.advance(step, state)
            loss = loss + loss_at(case, row, time=time, state=state)
        return loss

    return learn


@every_form
@with_and_without_norm
@pytest.mark.parametrize("lengths", [None, WITH_EMPTY])
def test_chunks_are_what_detaching_gives(form: str, norm: bool, lengths: Tensor | None) -> None:
    case = Case(shaken(FORMS[form](norm)), lengths)
    found = case.manual(Truncation("chunked", window=3))
    full, first = case.manual(), case.first_gradient()
    assert_equal(found[:first], full[:first])
    assert_equal(found[first:], row_by_row(case, chunk_and_detach(3, 0)))
    assert differ(found, full)


@every_form
@with_and_without_norm
@pytest.mark.parametrize("lengths", [None, WITH_EMPTY])
@pytest.mark.parametrize("window", [1, 3])
def test_a_sliding_window_is_the_sum_of_its_terms(form: str, norm: bool, lengths: Tensor | None, window: int) -> None:
    case = Case(shaken(FORMS[form](norm)), lengths)
    found, full, first = case.manual(Truncation("sliding", window=window)), case.manual(), case.first_gradient()
    assert_equal(found[:first], full[:first])
    assert_equal(found[first:], row_by_row(case, partial_sums(window)))
    assert differ(found, full)
    assert_equal(case.manual(Truncation("sliding", window=TIME)), full)


@every_form
@pytest.mark.parametrize("lengths", [None, WITH_EMPTY])
@pytest.mark.parametrize("kind", ["full", "chunked", "sliding", "random"])
def test_steps_of_the_burn_in_get_no_gradient_and_change_no_state(form: str, lengths: Tensor | None, kind: str) -> None:
    case, burn_in = Case(shaken(FORMS[form](norm=True)), lengths), 2
    window = TIME if kind in ("chunked", "sliding") else 0
    truncation = Truncation(kind, window=window, burn_in=burn_in)  # type: ignore[arg-type]
    found, full, first = case.manual(truncation), case.manual(), case.first_gradient()
    assert_equal(found[:first], full[:first])
    assert not found[first][:, :burn_in].any()
    assert found[first][:, burn_in:].any()
    assert not any(part.any() for part in found[first + 1 : first + 1 + case.cell.parts])
    assert_equal(found[first:], row_by_row(case, chunk_and_detach(TIME, burn_in)))


def test_a_burn_in_longer_than_the_sequence_learns_nothing() -> None:
    case = Case(shaken(LSTMCell(WIDTH, WIDTH)), RAGGED)
    for kind in ("full", "random"):
        found = case.manual(Truncation(kind, burn_in=TIME + 3))  # type: ignore[arg-type]
        assert not any(gradient.any() for gradient in found[case.first_gradient() :])


@every_form
@pytest.mark.parametrize("lengths", [None, WITH_EMPTY])
def test_random_truncation_that_keeps_all_is_full(form: str, lengths: Tensor | None) -> None:
    case = Case(shaken(FORMS[form](norm=True)), lengths)
    assert_equal(case.manual(Truncation("random", keep_rate=1.0)), case.manual())
    half = Truncation("random", keep_rate=0.5)
    assert_equal(case.manual(half, seed=1), case.manual(half, seed=1))
    assert differ(case.manual(half, seed=1), case.manual(half, seed=2))


def gradients_of_rows(cell: Cell, rows: int, truncation: Truncation) -> Tensor:
    """For rows that are all the same, Wᵀ times the gradient of b, of each row by itself: Σ_t of that of the input."""
    torch.manual_seed(3)
    inputs = torch.randn(1, 8, WIDTH, dtype=torch.float64).expand(rows, -1, -1).clone().requires_grad_()
    state = tuple(torch.zeros(rows, WIDTH, dtype=torch.float64) for _ in range(cell.parts))
    weights = torch.randn(8, WIDTH, dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    outputs, _ = run_cell(cell, inputs, state, truncation=truncation, generator=generator)
    (found,) = torch.autograd.grad((outputs * weights).sum(), inputs)
    return found.sum(1)


@pytest.mark.parametrize("form", ["rnn tanh", "lstm", "gru before keep"])
def test_random_truncation_is_unbiased_and_a_window_is_not(form: str) -> None:
    cell, rows = shaken(FORMS[form](norm=False)), 20000
    exact = gradients_of_rows(cell, 1, Truncation())[0]
    drawn = gradients_of_rows(cell, rows, Truncation("random", keep_rate=0.6))
    error = drawn.std(0) / rows**0.5
    assert error.min() > 0
    assert ((drawn.mean(0) - exact).abs() < 4 * error).all()
    window = gradients_of_rows(cell, 1, Truncation("sliding", window=3))[0]
    assert ((window - exact).abs() > 4 * error).any()


def test_weights_too_are_estimated_without_bias() -> None:
    rows, draws = 500, 16
    case = Case(shaken(ElmanCell(WIDTH, WIDTH)), rows=1)
    exact = case.manual()[-2]  # of U, before d the last parameter
    case.inputs = case.inputs.detach().expand(rows, -1, -1).clone().requires_grad_()
    case.state = tuple(part.detach().expand(rows, -1).clone().requires_grad_() for part in case.state)
    half = Truncation("random", keep_rate=0.5)
    drawn = torch.stack([case.manual(half, seed=seed)[-2] / rows for seed in range(draws)])
    along = (drawn * exact).flatten(1).sum(1) / exact.square().sum()  # of mean 1
    error = float(along.std()) / draws**0.5
    assert 0 < error < 0.05
    assert abs(float(along.mean()) - 1) < 4 * error


@every_form
@with_and_without_norm
def test_trace_back_equals_automatic_gradients_at_every_lag(form: str, norm: bool) -> None:
    case = Case(shaken(FORMS[form](norm)))
    gradient = torch.randn(BATCH, WIDTH, dtype=torch.float64)
    found = trace_back(case.cell, case.inputs, case.state, gradient=gradient)
    projected, states = case.cell.project(case.inputs), [case.state]
    for time in range(TIME):
        states.append(case.cell.advance(projected[:, time], states[-1]))
    assert len(found) == case.cell.parts
    assert torch.equal(found[0][0], gradient)
    assert not any(part[0].any() for part in found[1:])
    for lag in range(1, TIME + 1):
        leaves = tuple(part.requires_grad_() for part in detached(states[TIME - lag]))
        state = leaves
        for time in range(TIME - lag, TIME):
            state = case.cell.advance(projected[:, time], state)
        expected = torch.autograd.grad(state[0], leaves, gradient, retain_graph=True)
        torch.testing.assert_close([part[lag] for part in found], list(expected), rtol=0, atol=1e-12)
    assert not found[0].requires_grad


@every_form
@with_and_without_norm
def test_step_jacobian_equals_automatic_differentiation(form: str, norm: bool) -> None:
    cell = shaken(FORMS[form](norm))
    case = Case(cell, rows=1, time=1)
    projected, state = cell.project(case.inputs)[0, 0].detach(), detached(case.state)
    before = projected.clone()

    def step(joint: Tensor) -> Tensor:
        return torch.cat(cell.advance(projected[None], joint.view(cell.parts, 1, WIDTH).unbind()), 1)[0]

    expected = torch.func.jacrev(step)(torch.cat(state, 1)[0])
    torch.testing.assert_close(step_jacobian(cell, projected, state), expected, rtol=0, atol=1e-12)
    assert torch.equal(projected, before)


def test_invalid_truncations_are_refused_with_a_remedy() -> None:
    for settings, message in [
        ({"kind": "chunked"}, "chunked truncation with window=0: give the steps"),
        ({"kind": "sliding", "window": -1}, "sliding truncation with window=-1"),
        ({"window": 5}, "full truncation has no window, but window=5; set kind to chunked or sliding"),
        ({"kind": "random", "keep_rate": 0.0}, "keep_rate=0.0: give more than 0 and at most 1"),
        ({"kind": "chunked", "window": 2, "keep_rate": 0.5}, "keep_rate=0.5; set kind to random"),
        ({"burn_in": -1}, "burn_in=-1 steps is not possible"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Truncation(**settings)
    case = Case(shaken(ElmanCell(WIDTH, WIDTH)))
    with pytest.raises(UsageError, match="pass a generator"):
        run_cell(case.cell, case.inputs, case.state, truncation=Truncation("random", keep_rate=0.5))
    with pytest.raises(DataError, match="a row cannot have 9 positions in a batch of 7"):
        run_cell(case.cell, case.inputs, case.state, lengths=torch.tensor([9, 1, 1, 1, 1]))


TRUNCATIONS = {
    "full": Truncation(),
    "burn-in": Truncation(burn_in=2),
    "chunked": Truncation("chunked", window=3),
    "chunked with burn-in": Truncation("chunked", window=3, burn_in=2),
    "sliding by 1": Truncation("sliding", window=1),
    "sliding by 3": Truncation("sliding", window=3),
    "sliding with burn-in": Truncation("sliding", window=3, burn_in=2),
    "sliding over everything": Truncation("sliding", window=20),
    "random": Truncation("random", keep_rate=0.6),
    "random with burn-in": Truncation("random", keep_rate=0.6, burn_in=2),
}


def without_manual_backward(cell: Cell) -> Cell:
    """The same cell as one that only computes a step."""
    vars(cell)["manual_backward"] = lambda: None
    return cell


@pytest.mark.parametrize("form", ["lstm", "peephole diagonal", "gru after keep", "gru before new", "rnn tanh"])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("lengths", [None, RAGGED, WITH_EMPTY])
def test_autograd_equals_the_hand_derived_passes(form: str, truncation: str, lengths: Tensor | None) -> None:
    case = Case(shaken(FORMS[form](False)), lengths)
    expected = case.manual(TRUNCATIONS[truncation])
    other = case.manual(Truncation("chunked", window=2, burn_in=1))
    without_manual_backward(case.cell)
    found = case.manual(TRUNCATIONS[truncation])
    assert_equal(found, expected)
    assert differ(found, other)  # another truncation would be seen


@pytest.mark.parametrize("form", ["lstm", "gru before keep", "rnn relu"])
def test_jacobians_by_torch_func_equal_the_hand_derived_ones(form: str) -> None:
    case = Case(shaken(FORMS[form](True)))
    projected, state = case.cell.project(case.inputs[0, 0]).detach(), tuple(part[:1].detach() for part in case.state)
    gradient = torch.randn(BATCH, WIDTH, dtype=torch.float64)

    def measured() -> list[Tensor]:
        lags = trace_back(case.cell, case.inputs, case.state, gradient=gradient)
        return [step_jacobian(case.cell, projected, state), *lags]

    expected = measured()
    without_manual_backward(case.cell)
    assert_equal(measured(), expected)
    with torch.no_grad():  # one other weight must be seen
        next(case.cell.parameters())[0, 0] += 1
    assert differ(measured(), expected)


def test_a_cell_without_a_manual_pass_runs_in_the_precision_of_its_weights_under_autocast() -> None:
    cell = without_manual_backward(GRUCell(WIDTH, WIDTH))
    inputs, state = torch.randn(BATCH, TIME, WIDTH), cell.begin(torch.randn(BATCH, WIDTH))
    expected = unroll(cell, inputs, state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(unroll(cell, inputs, state), expected)
