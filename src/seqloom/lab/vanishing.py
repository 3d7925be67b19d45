"""Why gradients vanish: the norm of a gradient by the steps it has gone back, for simple and for gated cells.

A linear network multiplies the gradient by U at every step, so its norm follows ρ(U)^ℓ. A tanh network multiplies by
diag(tanh'(z)) U and loses more. Gates let a part of the memory, and of its gradient, pass untouched.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIFTH, FIRST, FOURTH, INK, QUIET, SECOND, SIXTH, THIRD, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, name_lags, note_left, plot_by_lag, rounded, silent
from seqloom.lab.horizon import CELLS as HORIZON_CELLS
from seqloom.lab.horizon import MeasuredHorizon, RecallBudget, horizon_finding, horizon_growing
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell
from seqloom.nn.cells.rnn import Activation, ElmanCell
from seqloom.nn.jacobians import fit_slope
from seqloom.nn.recurrent import MakeCell

RADII = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
DRAWN = {0.7: SECOND, 0.9: THIRD, 1.0: FIRST, 1.1: FIFTH}
"""The radii of the first picture and their colours."""

GATED: dict[str, tuple[MakeCell, str]] = {
    "tanh RNN, ρ = 1": (ElmanCell, INK),
    "GRU": (GRUCell, FOURTH),
    "coupled LSTM, forget bias 1": (partial(CoupledCell, forget_bias=1.0), SIXTH),
    "LSTM, forget bias 1": (partial(LSTMCell, forget_bias=1.0), FIRST),
    "LSTM, forget bias 4": (partial(LSTMCell, forget_bias=4.0), SECOND),
}
TAUGHT = (("RNN", 16), ("RNN", 8), ("LSTM", 16))
"""Whose memory is measured: the cell of the experiment `horizon`, and the number of symbols it has to distinguish.

Sixteen were chosen after a look at three settings, because they separate the cells most clearly: with 8 symbols the
horizons of RNNs go from a tenth of the largest lag to all of it. So both the easier and the harder task are shown.
"""

NAMES: dict[Activation, str] = {"identity": "linear RNN", "tanh": "tanh RNN"}

Simple = dict[Activation, dict[float, list[list[float]]]]
"""Norms by lag of each network of each radius and activation."""


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Gradient norms by lag, measured and predicted slopes, and memory horizons found by training."""
    bench = Bench(width=32, sequences=8, steps=60, burn_in=40) if quick else Bench()
    radii = (0.7, 0.9, 1.0, 1.1) if quick else RADII
    networks = 1 if quick else 3
    countdown = Countdown(say, 2 * len(radii) * networks + len(GATED) + len(TAUGHT) * networks)
    simple: Simple = {"identity": {}, "tanh": {}}
    for activation, by_radius in simple.items():
        for radius in radii:
            make: MakeCell = partial(ElmanCell, activation=activation, start="spectral", spectral_radius=radius)
            by_radius[radius] = []
            for number in range(networks):
                drawn = seed_for(seed, "network", number)
                by_radius[radius].append(bench.gradient_by_lag(bench.cell(make, seed=drawn), seed=drawn))
                countdown.done(f"{NAMES[activation]} of radius {radius}")
    gated = {}
    for name, (make, _) in GATED.items():
        gated[name] = bench.gradient_by_lag(bench.cell(make, seed=seed), seed=seed)
        countdown.done(name)
    linear = {radius: norms[0] for radius, norms in simple["identity"].items()}
    horizons = _horizons(seed, quick, networks, countdown)
    return [_curves(bench, seed, linear, gated), _slopes(bench, seed, simple), horizons]


def _curves(bench: Bench, seed: int, linear: dict[float, list[float]], gated: dict[str, list[float]]) -> Finding:
    last = bench.steps // 2
    keeps = {name: norms[last] for name, norms in gated.items()}
    rnn, lstm = keeps["tanh RNN, ρ = 1"], keeps["LSTM, forget bias 1"]
    sentence = (
        f"After {last} steps back, {_amount(rnn)} of the gradient is left in a tanh RNN, {_amount(keeps['GRU'])} in a "
        f"GRU, {_amount(lstm)} in an LSTM with forget bias 1 ({lstm / rnn:,.0f} times as much as in the RNN) and "
        f"{_amount(keeps['LSTM, forget bias 4'])} with forget bias 4."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "linear": [{"radius": radius, "norms": rounded(norms)} for radius, norms in linear.items()],
        "cells": [
            {"name": name, "norms": rounded(norms), "slope": fit_slope(norms, first=last)}
            for name, norms in gated.items()
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2, shares_y=True)
        for radius, norms in linear.items():
            if radius in DRAWN:
                plot_by_lag(left, norms, colour=DRAWN[radius], label=f"ρ(U) = {radius:g}")
                predicted = [radius**lag for lag in range(len(norms))]
                plot_by_lag(left, predicted, colour=QUIET, dashed=True)
        left.plot([], [], color=QUIET, linestyle=(0, (4, 3)), linewidth=1, label=r"predicted, $\rho(U)^\ell$")
        for name, norms in gated.items():
            plot_by_lag(right, norms, colour=GATED[name][1], label=name)
        left.set_title("linear RNN", fontsize=11, color=INK)
        right.set_title("tanh RNN and gated cells", fontsize=11, color=INK)
        name_lags(left)
        name_lags(right, None)
        for axes in (left, right):
            axes.legend(frameon=False, fontsize=8.5, loc="lower left")
        return figure

    return Finding("gradient-by-lag", "The norm of a gradient by the steps it has gone back", sentence, data, draw)


def _slopes(bench: Bench, seed: int, simple: Simple) -> Finding:
    first = bench.steps // 2
    measured = {
        name: {radius: [fit_slope(each, first=first) for each in norms] for radius, norms in by_radius.items()}
        for name, by_radius in simple.items()
    }
    linear, tanh = measured["identity"], measured["tanh"]
    predicted = {radius: math.log(radius) for radius in linear}
    off = max(abs(slope - predicted[radius]) for radius, slopes in linear.items() for slope in slopes)
    losses = [predicted[radius] - slope for radius, slopes in tanh.items() for slope in slopes]
    networks = sum(map(len, linear.values()))
    sentence = (
        f"In a linear RNN the log of the gradient changes by log ρ(U) per step: the slopes of {networks} networks "
        f"with radii from {min(linear):g} to {max(linear):g} are within {off:.4f} of the prediction (lags {first} to "
        f"{bench.steps}). A tanh RNN loses {min(losses):.2f} to {max(losses):.2f} more per step, since tanh' is below "
        "1; ρ(U) = 1 does not save it."
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "fitted_lags": [first, bench.steps],
        "slopes": [
            {"radius": radius, "predicted": slope, "linear": linear[radius], "tanh": tanh[radius]}
            for radius, slope in predicted.items()
        ],
        "largest_difference": off,
    }

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.4, height=4.4)
        ends = [min(predicted.values()), max(predicted.values())]
        axes.plot(ends, ends, color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label="measured = predicted")
        for slopes, colour, marker, label in ((linear, FIRST, "o", "linear RNN"), (tanh, SECOND, "s", "tanh RNN")):
            points = [(predicted[radius], slope) for radius, some in slopes.items() for slope in some]
            axes.plot(*zip(*points, strict=True), marker, color=colour, ms=5, alpha=0.8, label=label)
        for radius, slope in predicted.items():
            note_left(axes, f"ρ = {radius:g}", (slope, linear[radius][0]), colour=INK)
        axes.margins(x=0.13)
        axes.axhline(0, color=QUIET, linewidth=0.8)
        axes.set(xlabel="predicted slope, log ρ(U) (nats per step)", ylabel="measured slope (nats per step)")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        return figure

    return Finding("slopes", "Measured and predicted slopes of the gradient", sentence, data, draw)


def _horizons(seed: int, quick: bool, networks: int, countdown: Countdown) -> Finding:
    """What the gradients mean for learning, in short: how far back an RNN and an LSTM can be taught to remember."""
    budget = RecallBudget(updates=60, longest=24) if quick else RecallBudget(updates=200, longest=150)
    measured = []
    for cell, symbols in TAUGHT:
        found = []
        for number in range(networks):
            task = replace(budget, symbols=symbols)
            found.append(horizon_growing(HORIZON_CELLS[cell], task, seed=seed_for(seed, "horizon", number)))
            countdown.done(f"{cell}, taught to remember one of {symbols} symbols for {found[-1].lag} steps")
        measured.append(MeasuredHorizon(cell, "growing", tuple(found), symbols=symbols))
    finding = horizon_finding(measured, replace(budget, symbols=TAUGHT[0][1]), seed=seed)
    easier = measured[1].lags[-1]
    reached = f"at least {easier}" if easier >= budget.longest else f"{easier}"
    sentence = (
        f"One of {TAUGHT[0][1]} symbols, or one of {TAUGHT[1][1]}, is to be remembered. {finding.sentence} These lags "
        f"belong to the task: with {TAUGHT[1][1]} symbols the best RNN reaches {reached}, and other tasks and budgets "
        "give other horizons."
    )
    return replace(finding, sentence=sentence)


def _amount(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else f"{share:.0e}"
