"""What the gates of an LSTM do to the gradient of its memory.

The memory c_{t−1} reaches c_t on four paths, three of them through h_{t−1} = o_{t−1} ⊙ tanh(c_{t−1}):

    ∂c_t/∂c_{t−1} = A + B + C + D
    A = diag(c_{t−1} ⊙ f(1 − f)) · U_f · S     through the forget gate
    B = diag(f)                                kept unchanged
    C = diag(g ⊙ i(1 − i)) · U_i · S           through the input gate
    D = diag(i ⊙ (1 − g²)) · U_g · S           through the candidate
    S = diag(o_{t−1} ⊙ tanh'(c_{t−1}))         how h_{t−1} moves with c_{t−1}

with i, f, g, o as in `LSTMCell`, all of step t but o_{t−1}. That is exact for one step. Over several steps the product
of such sums is not ∂c_T/∂c_{T−ℓ}: in between, the memory also moves the next output gate (c_t → h_t → o_{t+1} →
h_{t+1}), and terms that hold every o fixed omit that path. The Jacobian of h and c together is complete.
"""

from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.drawing.figures import FIRST, INK, SECOND, SERIES, THIRD, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, rounded, signed, silent
from seqloom.nn.cells.cell import CellState
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.jacobians import jacobians_along, ordered_products, relative_errors, states_along


@dataclass(frozen=True)
class GateTerms:
    """The four terms of each step but the first, which has no o_{t−1}."""

    forget: Float[Tensor, "steps width width"]
    """A"""
    kept: Float[Tensor, "steps width width"]
    """B"""
    input: Float[Tensor, "steps width width"]
    """C"""
    candidate: Float[Tensor, "steps width width"]
    """D"""

    @property
    def total(self) -> Float[Tensor, "steps width width"]:
        """A + B + C + D"""
        return self.forget + self.kept + self.input + self.candidate


def gate_terms(
    cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState, *, is_as_printed: bool = False
) -> GateTerms:
    """A, B, C and D at the steps 2 … T of one sequence.

    `is_as_printed` takes tanh(c) for tanh'(c) in S, a slip that some lecture notes have.
    """
    i, f, g, o, memory = _gates_along(cell, inputs, state)
    weight_i, weight_f, weight_g, _ = cell.from_state.weight.detach().chunk(4)
    before = memory[1:-1]  # c_1 … c_{T−1}
    shown = before.tanh() if is_as_printed else 1 - before.tanh() ** 2
    moves = (o[:-1] * shown)[:, None, :]
    i, f, g = i[1:], f[1:], g[1:]
    return GateTerms(
        forget=(before * f * (1 - f))[:, :, None] * weight_f * moves,
        kept=torch.diag_embed(f),
        input=(g * i * (1 - i))[:, :, None] * weight_i * moves,
        candidate=(i * (1 - g**2))[:, :, None] * weight_g * moves,
    )


def memory_jacobians(
    cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState
) -> Float[Tensor, "lags width width"]:
    """∂c_T/∂c_{T−ℓ} for ℓ = 0 … T − 1, nothing left out: from the products of the joint Jacobians.

    The memory is moved at T − ℓ and h moves with it as the output gate of that step shows it:
    ∂c_T/∂c_{T−ℓ} = (P_ℓ)_ch · S + (P_ℓ)_cc
    """
    width = cell.width
    *_, o, memory = _gates_along(cell, inputs, state)
    products = ordered_products(jacobians_along(cell, inputs, state)[1:])
    from_hidden, from_memory = products[:, width:, :width], products[:, width:, width:]
    moves = o * (1 - memory[1:].tanh() ** 2)  # of the steps 1 … T
    return from_hidden * moves.flip(0)[:, None, :] + from_memory


def _gates_along(cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState) -> tuple[Tensor, ...]:
    """i, f, g and o of each step [time, width], and the memory around them [time + 1, width]."""
    if cell.norm:
        raise UsageError("the four gate terms are those of an LSTM without layer norm; make the cell with norm=False")
    hidden, memory = (part[:, 0] for part in states_along(cell, inputs[None], state))
    with torch.no_grad():
        i, f, g, o = (cell.project(inputs) + cell.from_state(hidden[:-1])).chunk(4, dim=1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(), memory


BIASES = (-2.0, 1.0, 4.0)
COLOURS = (FIRST, SECOND, THIRD)
TERMS = {"forget": "A\nforget gate", "kept": "B\nkept", "input": "C\ninput gate", "candidate": "D\ncandidate"}


@dataclass(frozen=True)
class _Measured:
    """Of one forget bias: the mean norm of each term, and relative errors by lag, a row per sequence."""

    norms: dict[str, float]
    errors: Float[Tensor, "sequences lags"]
    printed_error: float
    """Of one step of the terms with tanh in the place of tanh'."""


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """The sizes of the four terms, and how far their products are from the whole gradient."""
    width, sequences, steps, burn_in = (12, 3, 10, 20) if quick else (32, 8, 20, 100)
    bench = Bench(width=width, sequences=sequences, steps=steps, burn_in=burn_in)
    countdown = Countdown(say, len(BIASES) * bench.sequences)
    measured = {bias: _measure(bench, bias, seed=seed, countdown=countdown) for bias in BIASES}
    return [_sizes(bench, seed, measured), _residual(bench, seed, measured)]


def _measure(bench: Bench, bias: float, *, seed: int, countdown: Countdown) -> _Measured:
    cell = bench.cell(lambda inputs, width: LSTMCell(inputs, width, forget_bias=bias), seed=seed)
    settled, sizes, errors, printed = bench.settled(cell, seed=seed), [], [], []
    for row, inputs in enumerate(bench.inputs(seed, steps=bench.steps + 1)):
        state = tuple(part[row : row + 1] for part in settled)
        terms, exact = gate_terms(cell, inputs, state), memory_jacobians(cell, inputs, state)
        sizes.append({name: float(torch.linalg.matrix_norm(getattr(terms, name), ord=2).mean()) for name in TERMS})
        errors.append(relative_errors(ordered_products(terms.total), exact))
        slip = gate_terms(cell, inputs, state, is_as_printed=True)
        printed.append(float(relative_errors(slip.total, terms.total).mean()))
        countdown.done(f"forget bias {bias:g}, sequence {row + 1}")
    norms = {name: mean(each[name] for each in sizes) for name in TERMS}
    return _Measured(norms, torch.stack(errors), mean(printed))


def _sizes(bench: Bench, seed: int, measured: dict[float, _Measured]) -> Finding:
    plain, open_ = measured[1.0], measured[4.0]
    others = max(plain.norms[name] for name in TERMS if name != "kept")
    sentence = (
        f"With forget bias 1 a step lets at most {plain.norms['kept']:.2f} of the memory's gradient pass by keeping it "
        f"(B) and {others:.2f} through any other gate; with bias 4, {open_.norms['kept']:.2f} by keeping it. Writing "
        f"tanh for tanh' in the terms, a known slip, makes a step wrong by {plain.printed_error:.0%}."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "biases": [
            {"bias": bias, "norms": each.norms, "printed_error": each.printed_error} for bias, each in measured.items()
        ],
    }

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.6, height=3.9)
        for number, (bias, each) in enumerate(measured.items()):
            places = [place + 0.27 * (number - 1) for place in range(len(TERMS))]
            heights = [each.norms[name] for name in TERMS]
            axes.bar(places, heights, width=0.25, color=COLOURS[number], label=signed(bias))
        axes.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_xticks(range(len(TERMS)), list(TERMS.values()))
        axes.tick_params(axis="x", length=0)
        axes.set(xlabel="term: path of the memory into the next step", ylabel="largest singular value, mean over steps")
        axes.legend(title="forget bias", title_fontsize=9, frameon=False, fontsize=9, bbox_to_anchor=(1, 0.95))
        return figure

    return Finding("gate-terms", "The paths of the gradient through one step of an LSTM", sentence, data, draw)


def _residual(bench: Bench, seed: int, measured: dict[float, _Measured]) -> Finding:
    plain = measured[1.0].errors.mean(0).tolist()
    far = bench.steps // 2
    exact = max(float(each.errors[:, 1].max()) for each in measured.values())
    sentence = (
        f"For one step A + B + C + D is the whole of ∂c/∂c (error {exact:.0e}); multiplied over steps the sums leave "
        f"out the paths through the output gate: with forget bias 1 they are {plain[2]:.1%} off after two steps, "
        f"{plain[3]:.1%} after three and {plain[far]:.1%} after {far}. The joint Jacobian of h and c is exact."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "biases": [
            {"bias": bias, "mean": rounded(each.errors.mean(0).tolist()),
             "lowest": rounded(each.errors.amin(0).tolist()), "highest": rounded(each.errors.amax(0).tolist())}
            for bias, each in measured.items()
        ],
    }  # fmt: skip

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.6, height=4.0)
        for (bias, each), colour in zip(measured.items(), SERIES, strict=False):
            lags, shares = range(1, each.errors.shape[1]), 100 * each.errors[:, 1:]
            axes.fill_between(lags, shares.amin(0), shares.amax(0), color=colour, alpha=0.15, linewidth=0)
            axes.plot(lags, shares.mean(0), "o-", color=colour, ms=3.5, label=signed(bias))
        axes.set(ylim=(0, None), xlabel="lag ℓ (steps back)", ylabel="error of the product (% of the exact norm)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(title="forget bias", title_fontsize=9, frameon=False, fontsize=9)
        return figure

    return Finding("gate-residual", "What products of the four gate terms leave out", sentence, data, draw)
