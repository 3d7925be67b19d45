"""How much one step can change a loss, and why that is a reason to clip gradients.

A function with |f(x) − f(y)| ≤ L ‖x − y‖ changes in a step x − η g by at most L η ‖g‖, whatever g is. With the norm of
g clipped at θ, that is L η θ: a wrong gradient, or one that has exploded, can do no more harm than that.

Here f(x) = −log softmax(A x)_k, whose gradient Aᵀ(p − e_k) is never longer than √2 σ_max(A): so L = √2 σ_max(A) is
known. The g of a step is not bound by that: what comes out of a deep network may have any length. So here directions
are scaled arbitrarily.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from seqloom.drawing.figures import FIRST, INK, QUIET, SECOND, Finding
from seqloom.lab.bench import Say, frames, generator_for, rounded, silent
from seqloom.nn.jacobians import largest_gain

RATE, THRESHOLD = 0.1, 1.0
"""η and θ"""


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Changes of a loss by random steps of all sizes, with and without clipping, and their bounds."""
    generator = generator_for(seed, "steps")
    count, width, symbols = (200 if quick else 1000), 16, 10
    matrix = torch.randn(symbols, width, dtype=torch.float64, generator=generator)
    bound = math.sqrt(2) * largest_gain(matrix)
    points = torch.randn(count, width, dtype=torch.float64, generator=generator)
    sizes = 10 ** torch.linspace(-2, 3, count, dtype=torch.float64)
    directions = torch.randn(count, width, dtype=torch.float64, generator=generator)
    # Half of the steps follow the gradient itself, the direction that changes the loss fastest.
    errors = (points @ matrix.T).softmax(1)  # [count, symbols], from here on p − e_0
    errors[:, 0] -= 1
    directions[::2] = (errors @ matrix)[::2]
    steps = sizes[:, None] * directions / directions.norm(dim=1, keepdim=True)
    clipped = steps * (THRESHOLD / sizes).clamp(max=1)[:, None]

    def losses(at: Float[Tensor, "count width"]) -> Float[Tensor, " count"]:
        """f with k = 0"""
        return -(at @ matrix.T).log_softmax(1)[:, 0]

    changes = {
        name: (losses(points) - losses(points - RATE * each)).abs()
        for name, each in (("plain", steps), ("clipped", clipped))
    }
    say(f"{count} steps measured")
    ratios = changes["plain"] / (bound * RATE * sizes)
    worst, kept = float(changes["plain"].max()), float(changes["clipped"].max())
    limit = bound * RATE * THRESHOLD
    sentence = (
        f"Of {len(sizes)} steps η g none changes the loss by more than L η ‖g‖ (the nearest reaches "
        f"{ratios.max():.0%} of it). Their directions g were scaled arbitrarily, to lengths up to {sizes.max():.0f}: "
        f"such steps change the loss by up to {worst:.1f}, and with g clipped at θ = {THRESHOLD:g} by {kept:.2f} "
        f"at most, below L η θ = {limit:.2f}."
    )
    data: dict[str, Any] = {
        "seed": seed,
        "lipschitz_constant": bound,
        "rate": RATE,
        "threshold": THRESHOLD,
        "lengths": rounded(sizes.tolist()),
        "changes": {name: rounded(each.tolist()) for name, each in changes.items()},
    }

    def draw() -> Figure:
        figure, (axes,) = frames(1, width=6.8, height=4.2)
        axes.plot(sizes, bound * RATE * sizes, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="bound, L η ‖g‖")
        axes.axhline(limit, color=QUIET, linewidth=1, linestyle=(0, (4, 3)), label="bound when clipped, L η θ")
        axes.scatter(sizes, changes["plain"], s=8, color=FIRST, lw=0, alpha=0.7, label="change of the loss")
        axes.scatter(sizes, changes["clipped"], s=8, color=SECOND, lw=0, alpha=0.7, label="the same, clipped")
        axes.set(xscale="log", yscale="log", xlabel="length of g", ylabel="|f(x) − f(x − η g)| (nats)")
        axes.set_ylim(bottom=1e-6)
        axes.legend(frameon=False, fontsize=9, loc="upper left")
        return figure

    return [Finding("step-bound", "How much a step can change a loss", sentence, data, draw)]
