"""What the bias of an LSTM's forget gate does to the gradient: from memories of a step to memories of hundreds.

If the gates were their biases alone, the memory would pass each step times σ(bias), and its gradient with it. The rest
comes through h: the other three gate terms, which add to that or take from it.
"""

import math
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from seqloom.drawing.figures import FIRST, INK, QUIET, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, name_lags, plot_by_lag, rounded, shades, signed, silent
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.jacobians import fit_slope

BIASES = (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Gradient norms by lag for forget biases from −2 to 4."""
    bench = Bench(width=32, sequences=8, steps=60, burn_in=60) if quick else Bench(burn_in=200)
    countdown = Countdown(say, len(BIASES))
    curves = {}
    for bias in BIASES:
        cell = bench.cell(partial(LSTMCell, forget_bias=bias), seed=seed)
        curves[bias] = bench.gradient_by_lag(cell, seed=seed)
        countdown.done(f"forget bias {signed(bias)}")
    first, last = min(10, bench.steps // 2), bench.steps
    slopes = {bias: fit_slope(norms, first=first) for bias, norms in curves.items()}
    predicted = {bias: -math.log1p(math.exp(-bias)) for bias in curves}
    highest = max(slopes, key=lambda bias: slopes[bias])
    listed = sorted({-2.0, 0.0, 1.0, 4.0, highest})
    measured, alone = (
        ", ".join(f"{math.exp(values[bias]):.2f} at {signed(bias)}" for bias in listed)
        for values in (slopes, predicted)
    )
    warning = f"even at {signed(highest)} the gradient fades, to half in {-math.log(2) / slopes[highest]:.0f} steps."
    if slopes[highest] > 0:
        warning = f"at {signed(highest)} the gradient even grows, by {math.expm1(slopes[highest]):.1%} per step."
    sentence = (
        f"The factor by which the gradient of an LSTM changes per step, by forget bias: {measured}. A gate of σ(bias) "
        f"alone would give {alone}. An open gate is not a guarantee: {warning}"
    )
    data: dict[str, Any] = {
        **bench.as_data(seed),
        "fitted_lags": [first, last],
        "biases": [
            {"bias": bias, "norms": rounded(norms), "slope": slopes[bias], "log_gate": predicted[bias]}
            for bias, norms in curves.items()
        ],
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        for (bias, norms), colour in zip(curves.items(), shades(len(curves)), strict=True):
            plot_by_lag(left, norms, colour=colour, label=signed(bias))
        name_lags(left)
        left.legend(title="forget bias", title_fontsize=9, frameon=False, fontsize=9, loc="center left",
                    bbox_to_anchor=(1.0, 0.5))  # fmt: skip
        right.axhline(0, color=QUIET, linewidth=0.8)
        right.plot(list(slopes), list(slopes.values()), "o-", color=FIRST, ms=5, label="measured")
        right.plot(list(predicted), list(predicted.values()), color=INK, linestyle=(0, (4, 3)), linewidth=1,
                   label="log σ(bias): the gate by itself")  # fmt: skip
        right.set(xlabel="forget bias", ylabel="slope of the log gradient (nats per step)")
        right.legend(frameon=False, fontsize=9, loc="lower right")
        return figure

    return [Finding("forget-bias", "The gradient of an LSTM by its forget bias", sentence, data, draw)]
