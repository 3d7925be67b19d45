"""The butterfly effect: how far two nearly equal states diverge.

What grows here is a difference of states. The states themselves stay bounded in a tanh network, whatever its matrix: a
state that explodes and a gradient that explodes are two things.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from seqloom.drawing.figures import FIRST, FOURTH, INK, QUIET, SECOND, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, generator_for, note_left, rounded, shades, silent
from seqloom.nn.cells.cell import Cell, CellState
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.jacobians import fit_slope, states_along
from seqloom.nn.recurrent import MakeCell

# Two sequences of states from starts that hardly differ: do they converge, or diverge?
#
#     d(t) = ‖s_t − s̃_t‖        s̃_0 = s_0 + ε·(a direction of length 1), the same inputs for both
#
# While d is small it grows or shrinks by the Jacobians of the steps, on average by e^κ per step; κ is the largest
# Lyapunov exponent, and κ > 0 is the butterfly effect. How far d can grow in the end is set by how large states are.

NOISE = 1e-13
"""Below this a distance of double-precision states is mostly rounding."""


def divergence(
    cell: Cell,
    inputs: Float[Tensor, "batch time inputs"],
    state: CellState,
    *,
    size: float,
    generator: torch.Generator,
) -> Float[Tensor, "steps batch"]:
    """d(0) … d(T) of each row, perturbed by `size` in a random direction."""
    joint = torch.cat(state, 1)
    drawn = torch.randn(joint.shape, dtype=torch.float64, generator=generator).to(joint)
    moved = joint + size * nn.functional.normalize(drawn, dim=1)
    elsewhere = tuple(part.contiguous() for part in moved.chunk(len(state), dim=1))
    both = (states_along(cell, inputs, start) for start in (state, elsewhere))
    here, there = (torch.cat(parts, 2) for parts in both)
    distances: Tensor = torch.linalg.vector_norm(here - there, dim=2)
    return distances


def typical(distances: Float[Tensor, "steps batch"]) -> list[float]:
    """The geometric mean over the rows at each step; differences that rounding has swallowed count as 1e-13."""
    means: list[float] = distances.clamp(min=NOISE).log().mean(1).exp().tolist()
    return means


def growth_rate(distances: Sequence[float], *, ceiling: float = 1e-3) -> float:
    """κ in nats per step: the slope of log d(t) from the start on, while d lies between rounding and `ceiling`.

    Above it the size of the states limits the distance.
    """
    is_inside = [10 * NOISE < distance < ceiling for distance in distances]
    end = is_inside.index(False) if False in is_inside else len(distances)
    return fit_slope(distances, last=max(1, end - 1))


SIZE = 1e-8
"""Distance between the initial states."""
RADII = (0.8, 1.0, 1.5, 2.0, 3.0)
CELLS: dict[str, tuple[MakeCell, str]] = {
    "LSTM, forget bias 1": (LSTMCell, FIRST),
    "LSTM, forget bias 4": (partial(LSTMCell, forget_bias=4.0), SECOND),
    "GRU": (GRUCell, FOURTH),
}


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Distances by step for tanh networks of several radii, and for gated cells."""
    width, sequences, burn_in, steps = (32, 8, 40, 80) if quick else (128, 16, 200, 150)
    bench = Bench(width=width, sequences=sequences, burn_in=burn_in, steps=steps, loudness=0.3)
    makes: dict[str, MakeCell] = {
        f"tanh RNN, ρ = {radius:g}": partial(ElmanCell, start="spectral", spectral_radius=radius) for radius in RADII
    }
    makes |= {name: make for name, (make, _) in CELLS.items()}
    countdown = Countdown(say, len(makes))
    distances, sizes = {}, {}
    for name, make in makes.items():
        cell = bench.cell(make, seed=seed)
        state, inputs = bench.settled(cell, seed=seed), bench.inputs(seed)
        generator = generator_for(seed, "perturbation")
        distances[name] = typical(divergence(cell, inputs, state, size=SIZE, generator=generator))
        sizes[name] = float(states_along(cell, inputs, state)[0][-1].norm(dim=1).mean())
        countdown.done(name)
    rates = {name: growth_rate(each) for name, each in distances.items()}
    factors = {name: math.exp(rate) for name, rate in rates.items()}
    wild, calm = f"tanh RNN, ρ = {RADII[-1]:g}", f"tanh RNN, ρ = {RADII[0]:g}"
    met = next((step for step, each in enumerate(distances[wild]) if each > 0.1), None)
    when = f"is above 0.1 after {met} steps" if met is not None else f"is {distances[wild][-1]:.0e} in the end"
    sentence = (
        f"Two states start {SIZE:.0e} apart. In a tanh RNN with ρ = {RADII[-1]:g} their distance changes by a factor "
        f"of {factors[wild]:.2f} per step and {when}, while the state itself keeps a norm of {sizes[wild]:.1f}. With "
        f"ρ = {RADII[0]:g} the factor is {factors[calm]:.2f}, and the start is forgotten. In an LSTM it is "
        f"{factors['LSTM, forget bias 1']:.2f} with forget bias 1 and {factors['LSTM, forget bias 4']:.2f} with forget "
        "bias 4."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "size": SIZE,
        "cells": [
            {"name": name, "distances": rounded(each), "rate": rates[name], "factor": factors[name],
             "state_norm": sizes[name]}
            for name, each in distances.items()
        ],
    }  # fmt: skip

    def draw() -> Figure:
        figure, (left, right) = frames(2, shares_y=True)
        colours = zip(RADII, shades(len(RADII)), strict=True)
        lines = [(left, f"tanh RNN, ρ = {radius:g}", f"ρ(U) = {radius:g}", colour) for radius, colour in colours]
        lines += [(right, name, name, colour) for name, (_, colour) in CELLS.items()]
        for axes, name, label, colour in lines:
            each = distances[name]  # drawn down to where rounding takes over
            end = next((step for step, distance in enumerate(each) if distance <= 1.01 * NOISE), len(each))
            axes.plot(each[: end + 1], color=colour, linewidth=1.8, label=label)
        for axes, title in ((left, "tanh RNN"), (right, "gated cells")):
            axes.axhline(SIZE, color=QUIET, linewidth=0.8)
            axes.set(yscale="log", xlabel="steps after the perturbation")
            axes.set_title(title, fontsize=11, color=INK)
            axes.axhline(NOISE, color=QUIET, linewidth=0.8, linestyle=":")
        left.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
        right.legend(frameon=False, fontsize=9, loc="upper left")
        note_left(right, "rounding", (float(bench.steps), NOISE), colour=QUIET)
        left.set_ylabel("distance of the two states")
        return figure

    return [Finding("butterfly", "How far two nearly equal states diverge", sentence, data, draw)]
