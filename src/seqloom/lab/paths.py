"""What attention does to gradients: it shortens the path, but the recurrence remains.

Four readers make one vector y of a sequence x_1 … x_T, all at their first weights; q is a random query:

    last       y = h_T                              an RNN or an LSTM: T − k steps lie between x_k and y
    attention  y = Σ_j softmax_j(score(q, h_j)) h_j     over the same RNN's states: x_k is one attention step from y
    no loop    y = Σ_j softmax_j(score(q, x_j)) x_j     no state: one attention step, all positions at once

The score is the additive one, v · tanh(W q + U h).
"""

from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIRST, FOURTH, INK, SECOND, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, generator_for, name_lags, plot_by_lag, rounded, silent
from seqloom.nn.attention import AdditiveScore, Attention
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import seeded
from seqloom.nn.jacobians import directions

COLOURS = {
    "RNN, last state": INK,
    "LSTM, last state": FIRST,
    "RNN with attention": SECOND,
    "attention, no loop": FOURTH,
}


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """The gradient of y with respect to each input, by lag, with and without attention."""
    bench = Bench(width=24, input_width=24, sequences=8, steps=40) if quick else Bench(input_width=64, sequences=32)
    rnn, lstm = (bench.cell(make, seed=seed) for make in (ElmanCell, LSTMCell))
    with seeded(seed_for(seed, "attention")):
        attention = Attention(AdditiveScore(bench.width, bench.width)).double()
        queries = torch.randn(bench.sequences, 1, bench.width, dtype=torch.float64)

    def states(cell: Cell, inputs: Tensor) -> Tensor:
        return cell.run(inputs, cell.begin(inputs.new_zeros(len(inputs), bench.width)))[0]

    def look(values: Tensor) -> Tensor:
        lengths = torch.full((len(values),), values.shape[1])
        contexts: Tensor = attention(queries, attention.remember(values, lengths))[0]
        return contexts[:, 0]

    readers: dict[str, Callable[[Tensor], Tensor]] = {
        "RNN, last state": lambda inputs: states(rnn, inputs)[:, -1],
        "LSTM, last state": lambda inputs: states(lstm, inputs)[:, -1],
        "RNN with attention": lambda inputs: look(states(rnn, inputs)),
        "attention, no loop": look,
    }
    countdown = Countdown(say, len(readers))
    norms: dict[str, list[float]] = {}  # √ mean ‖∂(g·y)/∂x_{T−ℓ}‖² over the sequences, for ℓ = 0 … T − 1
    for name, read in readers.items():
        inputs = bench.inputs(seed).requires_grad_()
        gradient = directions(bench.sequences, bench.width, generator=generator_for(seed, "directions"))
        with torch.enable_grad():
            (found,) = torch.autograd.grad((read(inputs) * gradient).sum(), [inputs])  # [sequences, time, inputs]
        norms[name] = found.square().sum(2).mean(0).sqrt().flip(0).tolist()
        countdown.done(name)
    far = bench.steps // 2
    without, with_, free = (norms[name] for name in ("RNN, last state", "RNN with attention", "attention, no loop"))
    sentence = (
        f"The last state of an RNN passes {without[0]:.2f} of a gradient to its last input and {without[far]:.0e} to "
        f"the one {far} steps back; attention over the same states passes {with_[0]:.3f} and {with_[far]:.3f}, since "
        f"each is one attention step away (without a loop {free[0]:.3f} and {free[far]:.3f}). The problem remains: "
        f"{bench.steps} positions share the gradient by their weights, and the RNN below still takes its "
        f"{bench.steps} steps one after another."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "readers": [
            {
                "name": name,
                "norms": rounded(each),
                "steps_between_at_half": far if "last" in name else 0,
                "steps_one_after_another": 1 if "no loop" in name else bench.steps,
            }
            for name, each in norms.items()
        ],
    }

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.8, height=4.2)
        for name, each in norms.items():
            plot_by_lag(axes, each, colour=COLOURS[name], label=name)
        name_lags(axes, "gradient norm at the input ℓ steps back")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        return figure

    return [Finding("paths", "The path of the gradient with and without attention", sentence, data, draw)]
