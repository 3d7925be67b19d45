"""Cells equal their formula written out number by number, and torch's where torch has them."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, check_known
from seqloom.nn.cells.cell import Cell, CellState, unroll
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import spectral_radius

INPUT, WIDTH, BATCH, TIME = 7, 7, 4, 6
LENGTHS = torch.tensor([6, 2, 5, 1])
FORMS: dict[str, Callable[[bool], Cell]] = {
    "rnn tanh": lambda norm: ElmanCell(INPUT, WIDTH, norm=norm),
    "rnn relu": lambda norm: ElmanCell(INPUT, WIDTH, activation="relu", norm=norm),
    "rnn identity": lambda norm: ElmanCell(INPUT, WIDTH, activation="identity", norm=norm),
    "lstm": lambda norm: LSTMCell(INPUT, WIDTH, norm=norm),
    "peephole diagonal": lambda norm: PeepholeCell(INPUT, WIDTH, norm=norm),
    "peephole full": lambda norm: PeepholeCell(INPUT, WIDTH, peephole="full", norm=norm),
    "coupled": lambda norm: CoupledCell(INPUT, WIDTH, norm=norm),
    "gru after keep": lambda norm: GRUCell(INPUT, WIDTH, norm=norm),
    "gru after new": lambda norm: GRUCell(INPUT, WIDTH, update="new", norm=norm),
    "gru before keep": lambda norm: GRUCell(INPUT, WIDTH, reset="before", norm=norm),
    "gru before new": lambda norm: GRUCell(INPUT, WIDTH, reset="before", update="new", norm=norm),
    "gru input keep": lambda norm: GRUCell(INPUT, WIDTH, reset="input", norm=norm),
    "gru input new": lambda norm: GRUCell(INPUT, WIDTH, reset="input", update="new", norm=norm),
}
FUSED = ["rnn tanh", "rnn relu", "lstm", "gru after keep", "gru after new"]
Vector = list[float]


def shaken(cell: Cell) -> Cell:
    """Weights that are all different, biases too, in float64."""
    cell = cell.double()
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.5)
    return cell


def random_state(cell: Cell, rows: int) -> CellState:
    return tuple(torch.randn(rows, cell.width, dtype=torch.float64, requires_grad=True) for _ in range(cell.parts))


def load(theirs: nn.Module, ours: Cell, suffix: str = "") -> None:
    """Our weights in torch's layer."""
    with torch.no_grad():
        for side, mine in (("ih", ours.from_input), ("hh", ours.from_state)):
            getattr(theirs, f"weight_{side}{suffix}").copy_(mine.weight)
            getattr(theirs, f"bias_{side}{suffix}").copy_(mine.bias)


def differ(left: Tensor, right: Tensor) -> bool:
    return float((left - right).detach().abs().max()) > 1e-3


class Twin:
    """One step of any cell for one row, from the formula alone: no tensors, no fused gates, one number at a time."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.width = cell, cell.width
        self.weights = {name: value.tolist() for name, value in cell.state_dict().items()}

    def linear(self, side: str, vector: Vector, gates: Sequence[int]) -> list[Vector]:
        """U_k v, LN(U_k v) or either with its bias, for the gates k, which one norm joins."""
        width, weights = self.width, self.weights
        numbers = [gate * width + unit for gate in gates for unit in range(width)]
        sums = [sum(w * v for w, v in zip(weights[f"{side}.weight"][n], vector, strict=True)) for n in numbers]
        if f"{side}.gain" in weights:
            gain = [weights[f"{side}.gain"][n] for n in numbers]
            sums = normed(sums, gain, [0.0] * len(gain))
        if f"{side}.bias" in weights:
            sums = [total + weights[f"{side}.bias"][n] for n, total in zip(numbers, sums, strict=True)]
        return [sums[place * width : (place + 1) * width] for place in range(len(gates))]

    def shown(self, memory: Vector) -> Vector:
        if "memory_norm.weight" in self.weights:
            memory = normed(memory, self.weights["memory_norm.weight"], self.weights["memory_norm.bias"])
        return [math.tanh(m) for m in memory]

    def step(self, x: Vector, state: list[Vector]) -> list[Vector]:
        step = {ElmanCell: self.elman, GRUCell: self.gru}.get(type(self.cell), self.lstm)
        return step(x, *state)

    def elman(self, x: Vector, h: Vector) -> list[Vector]:
        assert isinstance(self.cell, ElmanCell)
        activate = {"tanh": math.tanh, "relu": lambda a: max(a, 0.0), "identity": lambda a: a}[self.cell.activation]
        (from_x,), (from_h,) = self.linear("from_input", x, [0]), self.linear("from_state", h, [0])
        return [[activate(a + b) for a, b in zip(from_x, from_h, strict=True)]]

    def lstm(self, x: Vector, h: Vector, c: Vector) -> list[Vector]:
        """All cells with a memory: `names` are the gates as their weights stand."""
        names = {LSTMCell: "ifgo", PeepholeCell: "oifg", CoupledCell: "oig"}[type(self.cell)]
        gates = range(len(names))
        both = zip(self.linear("from_input", x, gates), self.linear("from_state", h, gates), strict=True)
        a = {name: [p + q for p, q in zip(*sides, strict=True)] for name, sides in zip(names, both, strict=True)}
        peep, units = self.weights.get("from_memory"), range(self.width)
        is_full = isinstance(self.cell, PeepholeCell) and self.cell.peephole == "full"
        if peep is not None and is_full:
            for place, name in enumerate("oif"):
                for j in units:
                    a[name][j] += sum(peep[place * self.width + j][k] * c[k] for k in units)
        elif peep is not None:
            for place, name in ((1, "i"), (2, "f")):
                a[name] = [a[name][j] + peep[place][j] * c[j] for j in units]
        i, g = [logistic(v) for v in a["i"]], [math.tanh(v) for v in a["g"]]
        f = [logistic(v) for v in a["f"]] if "f" in names else [1 - v for v in i]
        new = [f[j] * c[j] + i[j] * g[j] for j in units]
        if peep is not None and not is_full:
            a["o"] = [a["o"][j] + peep[0][j] * new[j] for j in units]
        return [[logistic(v) * m for v, m in zip(a["o"], self.shown(new), strict=True)], new]

    def gru(self, x: Vector, h: Vector) -> list[Vector]:
        assert isinstance(self.cell, GRUCell)
        units = range(self.width)
        x_r, x_z = self.linear("from_input", x, [0, 1])
        h_r, h_z = self.linear("from_state", h, [0, 1])
        r, z = [logistic(x_r[j] + h_r[j]) for j in units], [logistic(x_z[j] + h_z[j]) for j in units]
        reset = self.cell.reset
        seen_x = [r[j] * x[j] for j in units] if reset == "input" else x
        seen_h = [r[j] * h[j] for j in units] if reset == "before" else h
        (x_n,), (h_n,) = self.linear("from_input", seen_x, [2]), self.linear("from_state", seen_h, [2])
        n = [math.tanh(x_n[j] + (r[j] * h_n[j] if reset == "after" else h_n[j])) for j in units]
        kept = z if self.cell.update == "keep" else [1 - v for v in z]
        return [[kept[j] * h[j] + (1 - kept[j]) * n[j] for j in units]]


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def normed(values: Vector, gain: Vector, shift: Vector) -> Vector:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    scaled = [(value - mean) / math.sqrt(variance + 1e-5) for value in values]
    return [a * s + b for a, s, b in zip(gain, scaled, shift, strict=True)]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_step_is_its_formula(form: str, norm: bool) -> None:
    cell = shaken(FORMS[form](norm))
    x, state = torch.randn(2, INPUT, dtype=torch.float64), random_state(cell, 2)
    found = cell.advance(cell.project(x), state)
    for row in range(2):
        expected = Twin(cell).step(x[row].tolist(), [part[row].tolist() for part in state])
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine[row].detach().tolist(), theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", [False, True])
def test_all_forms_are_different_cells(norm: bool) -> None:
    # The same numbers in all weights: a form that ignored its options would equal another.
    results = []
    for make in FORMS.values():
        torch.manual_seed(5)
        cell = shaken(make(norm))
        torch.manual_seed(6)
        x, state = torch.randn(2, INPUT, dtype=torch.float64), random_state(cell, 2)
        results.append(cell.advance(cell.project(x), state)[0])
    assert all(differ(a, b) for place, a in enumerate(results) for b in results[:place])


def test_lstm_cell_equals_torch() -> None:
    ours = shaken(LSTMCell(INPUT, WIDTH))
    theirs = nn.LSTMCell(INPUT, WIDTH, dtype=torch.float64)
    load(theirs, ours)
    x, state = torch.randn(BATCH, INPUT, dtype=torch.float64), random_state(ours, BATCH)
    expected = theirs(x, state)
    torch.testing.assert_close(ours(x, state), expected, rtol=0, atol=1e-12)
    with torch.no_grad():  # a swap of the input and forget gates must be seen
        ours.from_input.bias.copy_(ours.from_input.bias.roll(WIDTH))
    assert differ(ours(x, state)[0], expected[0])


def test_gru_cell_equals_torch() -> None:
    ours = shaken(GRUCell(INPUT, WIDTH))
    theirs = nn.GRUCell(INPUT, WIDTH, dtype=torch.float64)
    load(theirs, ours)
    x, (h,) = torch.randn(BATCH, INPUT, dtype=torch.float64), random_state(ours, BATCH)
    torch.testing.assert_close(ours(x, (h,))[0], theirs(x, h), rtol=0, atol=1e-12)
    with torch.no_grad():  # the candidate's second bias stands inside the reset gate: moving it outside must be seen
        ours.from_input.bias[2 * WIDTH :] += ours.from_state.bias[2 * WIDTH :]
        ours.from_state.bias[2 * WIDTH :] = 0
    assert differ(ours(x, (h,))[0], theirs(x, h))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_elman_cell_equals_torch(activation: str) -> None:
    ours = shaken(ElmanCell(INPUT, WIDTH, activation=activation))  # type: ignore[arg-type]
    theirs = nn.RNNCell(INPUT, WIDTH, nonlinearity=activation, dtype=torch.float64)
    load(theirs, ours)
    x, (h,) = torch.randn(BATCH, INPUT, dtype=torch.float64), random_state(ours, BATCH)
    torch.testing.assert_close(ours(x, (h,))[0], theirs(x, h), rtol=0, atol=1e-12)
    with torch.no_grad():  # the second bias must be there
        ours.from_state.bias.zero_()
    assert differ(ours(x, (h,))[0], theirs(x, h))


@pytest.mark.parametrize("form", ["rnn tanh", "rnn relu", "lstm", "gru after keep"])
def test_run_equals_torch_over_a_sequence(form: str) -> None:
    cell = shaken(FORMS[form](False))
    kinds: dict[str, nn.RNNBase] = {
        "rnn tanh": nn.RNN(INPUT, WIDTH, batch_first=True, dtype=torch.float64),
        "rnn relu": nn.RNN(INPUT, WIDTH, nonlinearity="relu", batch_first=True, dtype=torch.float64),
        "lstm": nn.LSTM(INPUT, WIDTH, batch_first=True, dtype=torch.float64),
        "gru after keep": nn.GRU(INPUT, WIDTH, batch_first=True, dtype=torch.float64),
    }
    load(kinds[form], cell, "_l0")
    inputs = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64)
    expected, _ = kinds[form](inputs)
    nothing = cell.begin(torch.zeros(BATCH, WIDTH, dtype=torch.float64))
    for outputs, _ in (unroll(cell, inputs, nothing), cell.run(inputs, nothing)):
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
    late, _ = unroll(cell, inputs.roll(1, 1), nothing)
    assert differ(late, expected)


@pytest.mark.parametrize("form", FUSED)
@pytest.mark.parametrize("lengths", [None, LENGTHS, torch.tensor([6, 0, 3, 6])])
def test_fused_run_equals_the_plain_loop_with_its_gradients(form: str, lengths: Tensor | None) -> None:
    cell = shaken(FORMS[form](False))
    inputs = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64, requires_grad=True)
    state = random_state(cell, BATCH)
    real = torch.ones(BATCH, TIME, 1) if lengths is None else (torch.arange(TIME) < lengths[:, None])[:, :, None]
    weights = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64) * real
    results = []
    for outputs, final in (
        cell.run(inputs, state, lengths=lengths),
        unroll(cell, inputs, state, lengths=lengths),
    ):
        loss = (outputs * weights).sum() + sum((part**2).sum() for part in final)
        gradients = torch.autograd.grad(loss, [inputs, *state, *cell.parameters()])
        results.append([outputs * real, *final, *gradients])
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("form", FORMS)
def test_run_equals_the_plain_loop_in_single_precision(form: str) -> None:
    # In float32 torch takes another kernel than in float64; evaluation mode must not lose the gradient either.
    cell = shaken(FORMS[form](False)).float().eval()
    inputs = torch.randn(BATCH, TIME, INPUT, requires_grad=True)
    state = tuple(part.detach().float() for part in random_state(cell, BATCH))
    results = []
    for outputs, final in (cell.run(inputs, state), unroll(cell, inputs, state)):
        loss = outputs.square().mean() + final[-1].mean()
        results.append([outputs, *final, *torch.autograd.grad(loss, [inputs, *cell.parameters()])])
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_last_state_is_that_of_the_row_alone(form: str, norm: bool) -> None:
    cell = shaken(FORMS[form](norm))
    inputs, state = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64), random_state(cell, BATCH)
    together, ends = cell.run(inputs, state, lengths=LENGTHS)
    alone_too = cell.outputs(inputs, state, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        outputs, alone = cell.run(inputs[row : row + 1, :length], tuple(part[row : row + 1] for part in state))
        torch.testing.assert_close([part[row : row + 1] for part in ends], list(alone), rtol=0, atol=1e-12)
        for found in (together, alone_too):
            torch.testing.assert_close(found[row, :length], outputs[0], rtol=0, atol=1e-12)


def count(cell: nn.Module) -> int:
    return sum(parameter.numel() for parameter in cell.parameters())


@pytest.mark.parametrize(
    ("make", "gates", "biases", "more"),
    [
        (ElmanCell(5, WIDTH), 1, 2, 0),
        (LSTMCell(5, WIDTH), 4, 2, 0),
        (GRUCell(5, WIDTH), 3, 2, 0),
        (GRUCell(5, WIDTH, update="new"), 3, 2, 0),
        (GRUCell(5, WIDTH, reset="before"), 3, 1, 0),
        (PeepholeCell(5, WIDTH), 4, 1, 3 * WIDTH),
        (PeepholeCell(5, WIDTH, peephole="full"), 4, 1, 3 * WIDTH * WIDTH),
        (CoupledCell(5, WIDTH), 3, 1, 0),
        # Layer norm: a gain for each number of either product and one bias; gain and bias for the memory.
        (ElmanCell(5, WIDTH, norm=True), 1, 3, 0),
        (GRUCell(5, WIDTH, norm=True), 3, 3, 0),
        (LSTMCell(5, WIDTH, norm=True), 4, 3, 2 * WIDTH),
    ],
)
def test_parameter_count(make: Cell, gates: int, biases: int, more: int) -> None:
    assert count(make) == gates * (5 * WIDTH + WIDTH * WIDTH + biases * WIDTH) + more


def test_peepholes_cost_a_third_or_next_to_nothing_and_coupling_saves_a_quarter() -> None:
    width = 256
    lstm = 4 * (2 * width * width + width)  # with one bias, as these cells have
    assert count(PeepholeCell(width, width, peephole="full")) - lstm == 3 * width * width
    assert f"{count(PeepholeCell(width, width, peephole='full')) / lstm - 1:.0%}" == "37%"
    assert count(PeepholeCell(width, width)) - lstm == 3 * width
    assert f"{count(PeepholeCell(width, width)) / lstm - 1:.1%}" == "0.1%"
    assert count(CoupledCell(width, width)) / lstm == 0.75
    assert count(LSTMCell(width, width)) == lstm + 4 * width  # torch's second bias


@pytest.mark.parametrize("peephole", ["diagonal", "full"])
def test_without_peepholes_the_peephole_cell_is_an_lstm(peephole: str) -> None:
    cell = shaken(PeepholeCell(INPUT, WIDTH, peephole=peephole))  # type: ignore[arg-type]
    plain = LSTMCell(INPUT, WIDTH).double()
    order = torch.arange(4 * WIDTH).view(4, WIDTH)[[1, 2, 3, 0]].flatten()  # o i f g to i f g o
    with torch.no_grad():
        plain.from_input.weight.copy_(cell.from_input.weight[order])
        plain.from_input.bias.copy_(cell.from_input.bias[order])
        plain.from_state.weight.copy_(cell.from_state.weight[order])
    inputs, state = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64), random_state(cell, BATCH)
    expected, _ = plain.run(inputs, state)
    assert differ(cell.run(inputs, state)[0], expected)
    nn.init.zeros_(cell.get_parameter("from_memory"))
    torch.testing.assert_close(cell.run(inputs, state)[0], expected, rtol=0, atol=1e-12)
    assert not PeepholeCell(INPUT, WIDTH, peephole=peephole).from_memory.any()  # type: ignore[arg-type]


@pytest.mark.parametrize("reset", ["after", "before", "input"])
def test_the_two_updates_differ_by_a_sign(reset: str) -> None:
    keep, new = (shaken(GRUCell(INPUT, WIDTH, reset=reset, update=update)) for update in ("keep", "new"))  # type: ignore[arg-type]
    new.load_state_dict(keep.state_dict())
    inputs, state = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64), random_state(keep, BATCH)
    expected, _ = keep.run(inputs, state)
    assert differ(new.run(inputs, state)[0], expected)
    with torch.no_grad():
        for name, parameter in new.named_parameters():
            if name != "from_memory":
                parameter[WIDTH : 2 * WIDTH] *= -1
    torch.testing.assert_close(new.run(inputs, state)[0], expected, rtol=0, atol=1e-12)


def test_reset_before_the_product_is_the_textbook_form() -> None:
    cell = shaken(GRUCell(INPUT, WIDTH, reset="before"))
    X, (H,) = torch.randn(BATCH, INPUT, dtype=torch.float64), random_state(cell, BATCH)
    W_xr, W_xz, W_xh = cell.from_input.weight.t().chunk(3, 1)
    W_hr, W_hz, W_hh = cell.from_state.weight.t().chunk(3, 1)
    b_r, b_z, b_h = cell.from_input.bias.chunk(3)
    R = torch.sigmoid(X @ W_xr + H @ W_hr + b_r)
    Z = torch.sigmoid(X @ W_xz + H @ W_hz + b_z)
    candidate = torch.tanh(X @ W_xh + (R * H) @ W_hh + b_h)
    expected = Z * H + (1 - Z) * candidate
    torch.testing.assert_close(cell.advance(cell.project(X), (H,))[0], expected, rtol=0, atol=1e-12)
    after = torch.tanh(X @ W_xh + R * (H @ W_hh) + b_h)
    assert differ(Z * H + (1 - Z) * after, expected)


def test_a_coupled_memory_stays_a_mean() -> None:
    coupled, free = (shaken(make(INPUT, WIDTH)) for make in (CoupledCell, LSTMCell))
    inputs = 5 * torch.randn(BATCH, 50, INPUT, dtype=torch.float64)
    memory = torch.rand(BATCH, WIDTH, dtype=torch.float64) * 2 - 1
    largest = [float(cell.run(inputs, (memory, memory))[1][1].detach().abs().max()) for cell in (coupled, free)]
    assert largest[0] <= 1
    assert largest[1] > 1


def test_the_linear_network_is_a_sum_over_its_inputs() -> None:
    cell = shaken(ElmanCell(INPUT, WIDTH, activation="identity"))
    inputs, (h,) = torch.randn(BATCH, TIME, INPUT, dtype=torch.float64), random_state(cell, BATCH)
    U = cell.from_state.weight
    total = h @ torch.linalg.matrix_power(U, TIME).t()
    for time in range(TIME):
        total = total + cell.project(inputs[:, time]) @ torch.linalg.matrix_power(U, TIME - 1 - time).t()
    torch.testing.assert_close(cell.run(inputs, (h,))[1][0], total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_state_begins_at_the_hint(form: str) -> None:
    cell = FORMS[form](False)
    hint = torch.randn(BATCH, WIDTH)
    assert len(cell.begin(hint)) == cell.parts
    torch.testing.assert_close(cell.begin(hint)[0], hint.tanh())
    assert not any(part.any() for part in cell.begin(torch.zeros(BATCH, WIDTH)))


@pytest.mark.parametrize("make", [LSTMCell, PeepholeCell, CoupledCell])
@pytest.mark.parametrize("norm", [False, True])
def test_the_forget_gate_begins_open_by_its_bias(make: Callable[..., Cell], norm: bool) -> None:
    cell = make(INPUT, WIDTH, forget_bias=2.0, norm=norm)
    memory = torch.ones(1, WIDTH)
    _, kept = cell(torch.zeros(1, INPUT), (torch.zeros(1, WIDTH), memory))
    torch.testing.assert_close(kept, torch.full((1, WIDTH), 2.0).sigmoid())


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_nothing_to_read_gives_empty_outputs_and_the_state_as_it_was(form: str, norm: bool) -> None:
    cell = FORMS[form](norm)
    for lengths in (None, torch.zeros(0, dtype=torch.long)):
        outputs, final = cell.run(torch.zeros(0, TIME, INPUT), cell.begin(torch.zeros(0, WIDTH)), lengths=lengths)
        assert outputs.shape == (0, TIME, WIDTH)
        assert final[0].shape == (0, WIDTH)
    state = cell.begin(torch.randn(BATCH, WIDTH))
    for lengths in (None, torch.zeros(BATCH, dtype=torch.long)):
        outputs, final = cell.run(torch.zeros(BATCH, 0, INPUT), state, lengths=lengths)
        assert outputs.shape == (BATCH, 0, WIDTH)
        torch.testing.assert_close(final, state)


def test_invalid_options_are_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"width 7 cannot act on an input of width 5.*reset='input'"):
        GRUCell(5, WIDTH, reset="input")
    # The type check of the test run stands before the constructors, so their own is asked directly.
    with pytest.raises(ConfigError, match="unknown activation='sigmoid'; use tanh, relu or identity"):
        check_known("activation", "sigmoid", ("tanh", "relu", "identity"))
    with pytest.raises(ConfigError, match=r"spectral_radius=0.9 cannot be combined with start='xavier'"):
        LSTMCell(INPUT, WIDTH, start="xavier", spectral_radius=0.9)


@pytest.mark.parametrize("make", [ElmanCell, LSTMCell, PeepholeCell, CoupledCell, GRUCell])
def test_every_gate_is_initialised_as_requested(make: Callable[..., Cell]) -> None:
    cell = make(INPUT, WIDTH, start="spectral", spectral_radius=0.8)
    gates = cell.from_state.weight.chunk(len(cell.gates))
    assert len(gates) * WIDTH == len(cell.from_state.weight)
    assert all(abs(spectral_radius(gate) - 0.8) < 1e-6 for gate in gates)
