"""Products of Jacobians: the right order, the invalid shortcut, and what eigenvalues show.

See `seqloom.nn.jacobians` for the formulas.
"""

from dataclasses import dataclass
from functools import partial
from statistics import mean, median
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIRST, FOURTH, INK, QUIET, SECOND, THIRD, Finding
from seqloom.lab.bench import Bench, Countdown, Say, frames, generator_for, name_lags, plot_by_lag, rounded, silent
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import spectral_radius
from seqloom.nn.jacobians import (
    closed_form_states,
    fit_slope,
    largest_gain,
    ordered_products,
    pulled_out_products,
    relative_errors,
    states_along,
    weight_gradient_by_step,
)

WIDTHS = (4, 32)
"""Of the networks in which the shortcut is tried: one that fits on a page, and one of a useful size."""


@dataclass(frozen=True)
class _Tried:
    """One tanh network: sizes of the exact product and of the shortcut, and the error, by lag."""

    exact: list[float]
    shortcut: list[float]
    errors: list[float]
    radius: float
    gain: float


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """The shortcut and its error, eigenvalues against singular values, and the weights' gradient step by step."""
    steps, networks = (12, 3) if quick else (30, 10)
    countdown = Countdown(say, len(WIDTHS) * networks + 2)
    tried: dict[int, list[_Tried]] = {width: [] for width in WIDTHS}
    for width in WIDTHS:
        for number in range(networks):
            tried[width].append(_try(width, steps, seed=seed_for(seed, "network", width, number)))
            countdown.done(f"network {number + 1} of width {width}")
    moduli = _moduli(seed, quick)
    countdown.done("eigenvalues and singular values")
    by_step = _by_step(seed, quick)
    countdown.done("the weights' gradient step by step")
    return [_shortcut(tried, steps, seed), moduli, by_step]


def _try(width: int, steps: int, *, seed: int) -> _Tried:
    """A tanh network of radius 1 that has settled, its Jacobians diag(1 − h²) U, and both products of them."""
    bench = Bench(width=width, input_width=width, sequences=1, burn_in=50, steps=steps, loudness=0.5)
    cell = bench.cell(partial(ElmanCell, start="spectral"), seed=seed)
    weight = cell.from_state.weight.detach()
    (hidden,) = states_along(cell, bench.inputs(seed), bench.settled(cell, seed=seed))
    slopes = 1 - hidden[1:, 0] ** 2
    exact, shortcut = ordered_products(slopes[:, :, None] * weight), pulled_out_products(slopes, weight)
    return _Tried(
        exact=_norms(exact),
        shortcut=_norms(shortcut),
        errors=relative_errors(shortcut, exact).tolist(),
        radius=spectral_radius(weight),
        gain=largest_gain(weight),
    )


def _shortcut(tried: dict[int, list[_Tried]], steps: int, seed: int) -> Finding:
    errors = {width: _by_lag([each.errors for each in some]) for width, some in tried.items()}
    small, large = (errors[width] for width in WIDTHS)
    wide = tried[WIDTHS[1]]
    sizes = {name: _by_lag([getattr(each, name) for each in wide]) for name in ("exact", "shortcut")}
    sentence = (
        f"To gather all slopes in front of U^ℓ is wrong from two steps on: by {small[2]:.0%} after two steps and "
        f"{small[5]:.0%} after five in tanh networks of width {WIDTHS[0]}, by {large[2]:.0%} and {large[5]:.0%} at "
        f"width {WIDTHS[1]} (medians over {len(wide)} networks); after one step both are the same. Its size may be "
        f"about right ({sizes['shortcut'][5] / sizes['exact'][5]:.2f} times the exact one after five steps, at width "
        f"{WIDTHS[1]}), its direction is not."
    )
    gain = mean(each.gain for each in wide)
    data: dict[str, Any] = {
        "seed": seed,
        "networks": len(wide),
        "errors": [{"width": width, "by_lag": rounded(values)} for width, values in errors.items()],
        "norms": {name: rounded(values) for name, values in sizes.items()},
        "radius": mean(each.radius for each in wide),
        "gain": gain,
    }

    def draw() -> Figure:
        figure, (left, right) = frames(2)
        plot_by_lag(left, sizes["exact"], colour=FIRST, label="ordered product, exact")
        plot_by_lag(left, sizes["shortcut"], colour=SECOND, label=r"shortcut, all slopes in front of $U^\ell$")
        plot_by_lag(left, [1.0] * (steps + 1), colour=INK, label=r"eigenvalues, $\rho(U)^\ell$", dashed=True)
        bound = [gain**lag for lag in range(steps + 1)]
        plot_by_lag(left, bound[:10], colour=QUIET, label=r"singular values, $\sigma_{max}(U)^\ell$", dashed=True)
        name_lags(left, "largest singular value of the product")
        left.set_title(f"width {WIDTHS[1]}, ρ(U) = 1", fontsize=11, color=INK)
        left.legend(frameon=False, fontsize=8.5, loc="upper right")
        for (width, values), colour in zip(errors.items(), (THIRD, FOURTH), strict=True):
            shares = [100 * value for value in values[1:13]]  # later, the exact product is too small to be a measure
            right.plot(range(1, 1 + len(shares)), shares, "o-", color=colour, ms=3.5, label=f"width {width}")
        right.set(ylim=(0, None), xlabel="lag ℓ (steps back)", ylabel="error of the shortcut (% of the exact norm)")
        right.legend(frameon=False, fontsize=9, loc="lower right")
        return figure

    return Finding("shortcut", "Ordered products of Jacobians and the shortcut", sentence, data, draw)


def _moduli(seed: int, quick: bool) -> Finding:
    """Linear networks whose matrices are normal, not normal, or have a negative eigenvalue: P_ℓ = U^ℓ."""
    width, steps = (12, 60) if quick else (32, 120)
    drawn = torch.randn(width, width, dtype=torch.float64, generator=generator_for(seed, "matrices"))
    rotation, _ = torch.linalg.qr(drawn)
    # Strictly above the diagonal a matrix moves no eigenvalue, and makes the map shear.
    shear = 0.9 * torch.eye(width, dtype=torch.float64) + drawn.triu(1) * (1.2 / width**0.5)
    shear.diagonal()[:-1].mul_(torch.linspace(0.2, 0.8, width - 1, dtype=torch.float64))
    matrices = {
        "normal, ρ = 0.9": 0.9 * rotation,
        "not normal, ρ = 0.9": shear,
        "all λ = −1.05": -1.05 * torch.eye(width, dtype=torch.float64),
    }
    norms = {name: _norms(ordered_products(each.expand(steps, *each.shape))) for name, each in matrices.items()}
    slopes = {name: fit_slope(values, first=steps // 2) for name, values in norms.items()}
    facts: list[dict[str, Any]] = [
        {
            "name": name,
            "radius": spectral_radius(each),
            "gain": largest_gain(each),
            "norms": rounded(norms[name]),
            "slope": slopes[name],
            "predicted_slope": float(torch.tensor(spectral_radius(each)).log()),
        }
        for name, each in matrices.items()
    ]
    sheared, turned = facts[1], facts[2]
    peak = max(norms["not normal, ρ = 0.9"])
    # The largest difference between the loop h ← U h + v of a linear network and its closed form.
    bench = Bench(width=width, input_width=width, sequences=1, burn_in=0, steps=50)
    cell = bench.cell(partial(ElmanCell, activation="identity"), seed=seed)
    with torch.no_grad():
        weight = cell.from_state.weight.copy_(matrices["normal, ρ = 0.9"])
        driven = cell.project(bench.inputs(seed))[0]
    begin = torch.ones(1, width, dtype=torch.float64)
    (looped,) = states_along(cell, bench.inputs(seed), (begin,))
    error = float((closed_form_states(weight.detach(), driven, begin[0]) - looped[1:, 0]).abs().max())
    sentence = (
        f"A matrix with ρ = 0.9 that is not normal (σ_max = {sheared['gain']:.1f}) first lets the gradient grow to "
        f"{peak:.1f} times its size and then fade by {-slopes['not normal, ρ = 0.9']:.3f} per step (log ρ predicts "
        f"{-sheared['predicted_slope']:.3f}). The modulus counts: all λ = −1.05 are below 1, yet the gradient grows by "
        f"{slopes['all λ = −1.05']:.3f} per step (log |λ| = {turned['predicted_slope']:.3f}). The closed form of a "
        f"linear network equals its loop within {error:.0e}."
    )
    data = {"seed": seed, "width": width, "matrices": facts, "closed_form_error": error}

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.8, height=4.2)
        for fact, colour in zip(facts, (FIRST, SECOND, THIRD), strict=True):
            plot_by_lag(axes, norms[fact["name"]], colour=colour, label=f"{fact['name']} (σ_max = {fact['gain']:.2f})")
        for radius, label in ((0.9, r"$|\lambda|^\ell$"), (1.05, None)):
            predicted = [radius**lag for lag in range(steps + 1)]
            plot_by_lag(axes, predicted, colour=INK, label=label, dashed=True)
        name_lags(axes, r"largest singular value of $U^\ell$")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        return figure

    return Finding("moduli", "What eigenvalues and singular values predict", sentence, data, draw)


def _by_step(seed: int, quick: bool) -> Finding:
    """∂J/∂U = Σ_t of what each step contributes, for a loss at the last step and for one at every step."""
    bench = Bench(width=12, sequences=4, steps=15, burn_in=20) if quick else Bench(width=32, sequences=16, steps=30)
    cell = bench.cell(ElmanCell, seed=seed)
    inputs, state = bench.inputs(seed), bench.settled(cell, seed=seed)
    shape = (bench.sequences, bench.steps, bench.width)
    everywhere = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    everywhere = everywhere / (bench.sequences * bench.steps)
    at_end = torch.cat([torch.zeros_like(everywhere[:, 1:]), bench.steps * everywhere[:, -1:]], 1)
    shares, errors = {}, []
    for name, gradients in (("loss at the last step", at_end), ("loss at every step, the mean", everywhere)):
        weight = cell.from_state.weight
        terms = weight_gradient_by_step(cell, inputs, state, gradients=gradients, weight=weight)
        outputs, _ = cell.run(inputs, state)
        (whole,) = torch.autograd.grad((outputs * gradients).sum(), [weight])
        errors.append(float((terms.sum(0) - whole).norm() / whole.norm()))
        norms = torch.linalg.matrix_norm(terms).flip(0)
        shares[name] = (norms / norms.max()).tolist()
    last, every = shares.values()
    sentence = (
        f"The gradient of the weights is a sum over the steps (it equals autograd's within {max(errors):.0e}). With "
        f"one loss at the end, the step 5 before it contributes {last[5]:.1%} of the largest term and the step 10 "
        f"before it {last[10]:.2%}; with a loss at every step they contribute {every[5]:.0%} and {every[10]:.0%}, but "
        "each of them mostly from its own loss."
    )
    data = {**bench.as_data(seed), "by_lag": {name: rounded(each) for name, each in shares.items()}}

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.4, height=3.8)
        for (name, each), colour in zip(shares.items(), (SECOND, FIRST), strict=True):
            plot_by_lag(axes, each, colour=colour, label=name)
        axes.set(yscale="log", xlabel="steps before the end", ylabel="norm of the step's term (largest = 1)")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        return figure

    return Finding("weight-gradient-by-step", "The weights' gradient as a sum over the steps", sentence, data, draw)


def _norms(products: Float[Tensor, "lags rows columns"]) -> list[float]:
    norms: list[float] = torch.linalg.matrix_norm(products, ord=2).tolist()
    return norms


def _by_lag(rows: list[list[float]]) -> list[float]:
    """The median at each lag: where an exact product happens to be tiny, a relative error has no bound."""
    return [median(values) for values in zip(*rows, strict=True)]
