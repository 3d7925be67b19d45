"""Why gradients vanish: the norm of a gradient by the steps it has gone back, for simple and for gated cells.

A linear network multiplies the gradient by W at every step, so its norm follows ρ(W)^ℓ. A tanh network multiplies by
diag(tanh'(z)) W and loses more. Gates let a part of the memory, and of its gradient, pass untouched.
"""

import math
from typing import Any

from matplotlib.figure import Figure

from seqloom.inspection.drawing import FIFTH, FIRST, FOURTH, INK, QUIET, SECOND, SIXTH, THIRD
from seqloom.inspection.findings import Finding
from seqloom.inspection.lags import fit_slope
from seqloom.nn.cell_kinds import cell_maker
from seqloom.nn.cells import Activation
from seqloom.nn.recurrent import MakeCell
from seqloom.recipes.lab.bench import Bench, rounded
from seqloom.recipes.lab.pictures import frames, name_lags, note_left, plot_by_lag
from seqloom.recipes.lab.progress import Countdown, Say, silent

RADII = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
DRAWN = {0.7: SECOND, 0.9: THIRD, 1.0: FIRST, 1.1: FIFTH}
"""The radii of the first picture and their colours."""

GATED: dict[str, tuple[MakeCell, str]] = {
    "tanh RNN, ρ = 1": (cell_maker("rnn"), INK),
    "GRU": (cell_maker("gru"), FOURTH),
    "coupled LSTM, forget bias 1": (cell_maker("coupled", forget_bias=1.0), SIXTH),
    "LSTM, forget bias 1": (cell_maker("lstm", forget_bias=1.0), FIRST),
    "LSTM, forget bias 4": (cell_maker("lstm", forget_bias=4.0), SECOND),
}


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Gradient norms by lag, measured slopes beside predicted ones, and the memory horizons that follow."""
    bench = Bench(width=32, sequences=8, steps=60, burn_in=40) if quick else Bench()
    radii = (0.7, 0.9, 1.0, 1.1) if quick else RADII
    countdown = Countdown(say, 2 * len(radii) + len(GATED))
    simple: dict[Activation, dict[float, list[float]]] = {"identity": {}, "tanh": {}}
    for activation, curves in simple.items():
        for radius in radii:
            make = cell_maker("rnn", activation=activation, start="spectral", spectral_radius=radius)
            curves[radius] = bench.gradient_by_lag(bench.cell(make, seed=seed), seed=seed)
            countdown.done(f"{activation} network of radius {radius}")
    gated = {}
    for name, (make, _) in GATED.items():
        gated[name] = bench.gradient_by_lag(bench.cell(make, seed=seed), seed=seed)
        countdown.done(name)
    return [_curves(bench, seed, simple["identity"], gated), _slopes(bench, seed, simple)]


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
        "seed": seed,
        "bench": bench.as_data(),
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
                plot_by_lag(left, norms, colour=DRAWN[radius], label=f"ρ(W) = {radius:g}")
                predicted = [radius**lag for lag in range(len(norms))]
                plot_by_lag(left, predicted, colour=QUIET, dashed=True)
        left.plot([], [], color=QUIET, linestyle=(0, (4, 3)), linewidth=1, label=r"predicted, $\rho(W)^\ell$")
        for name, norms in gated.items():
            plot_by_lag(right, norms, colour=GATED[name][1], label=name)
        left.set_title("linear RNN", fontsize=11, color=INK)
        right.set_title("tanh RNN and gated cells", fontsize=11, color=INK)
        name_lags(left)
        name_lags(right, has_norms=False)
        for axes in (left, right):
            axes.legend(frameon=False, fontsize=8.5, loc="lower left")
        return figure

    return Finding("gradient-by-lag", "The norm of a gradient by the steps it has gone back", sentence, data, draw)


def _slopes(bench: Bench, seed: int, simple: dict[Activation, dict[float, list[float]]]) -> Finding:
    first = bench.steps // 2
    measured = {
        name: {radius: fit_slope(norms, first=first) for radius, norms in curves.items()}
        for name, curves in simple.items()
    }
    predicted = {radius: math.log(radius) for radius in measured["identity"]}
    off = max(abs(slope - predicted[radius]) for radius, slope in measured["identity"].items())
    losses = [predicted[radius] - slope for radius, slope in measured["tanh"].items()]
    sentence = (
        f"In a linear RNN the logarithm of the gradient falls by log ρ(W) per step: over {len(predicted)} radii the "
        f"measured slopes are within {off:.4f} of the prediction (lags {first} to {bench.steps}). A tanh RNN loses "
        f"{min(losses):.2f} to {max(losses):.2f} more per step, since tanh' is below 1; ρ(W) = 1 does not save it."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "bench": bench.as_data(),
        "fitted_lags": [first, bench.steps],
        "slopes": [
            {"radius": radius, "predicted": slope, "linear": measured["identity"][radius], "tanh": found}
            for (radius, slope), found in zip(predicted.items(), measured["tanh"].values(), strict=True)
        ],
        "largest_difference": off,
    }

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.4, height=4.4)
        ends = [min(predicted.values()), max(predicted.values())]
        axes.plot(ends, ends, color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label="measured = predicted")
        across = list(predicted.values())
        axes.plot(across, list(measured["identity"].values()), "o", color=FIRST, ms=6, label="linear RNN")
        axes.plot(across, list(measured["tanh"].values()), "s", color=SECOND, ms=6, label="tanh RNN")
        for radius, slope in predicted.items():
            note_left(axes, f"ρ = {radius:g}", (slope, measured["identity"][radius]), colour=INK)
        axes.margins(x=0.13)
        axes.axhline(0, color=QUIET, linewidth=0.8)
        axes.set_xlabel("predicted slope, log ρ(W) (nats per step)")
        axes.set_ylabel("measured slope (nats per step)")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        return figure

    return Finding("slopes", "Measured and predicted slopes of the gradient", sentence, data, draw)


def _amount(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 else f"{share:.0e}"
