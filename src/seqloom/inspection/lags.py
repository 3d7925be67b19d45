"""How much of a gradient is left after so many steps back, and what that makes of the weights' gradient.

    n(ℓ) = √ mean ‖∂(g·h_T)/∂s_{T−ℓ}‖²       over sequences, each with its own direction g of length 1; n(0) = 1

Where a network decays at a steady rate, log n(ℓ) falls along a line: its slope is given in nats per step. For a linear
network that slope is log ρ(U), U being the matrix from state to state.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.errors import UsageError
from seqloom.nn.bptt import trace_back
from seqloom.nn.cells import Cell, CellState


def directions(rows: int, width: int, *, generator: torch.Generator) -> Float[Tensor, "rows width"]:
    """Vectors of length 1 that point anywhere, in double precision."""
    return nn.functional.normalize(torch.randn(rows, width, dtype=torch.float64, generator=generator), dim=1)


def gradient_by_lag(
    cell: Cell,
    inputs: Float[Tensor, "batch time inputs"],
    state: CellState,
    *,
    gradient: Float[Tensor, "batch width"],
) -> list[float]:
    """n(0) … n(T): norms of the gradient of g·h_T with respect to the state ℓ steps before the end, h and c joined."""
    parts = trace_back(cell, inputs, state, gradient=gradient)
    squares = torch.stack([part.double().square().sum(2) for part in parts]).sum(0)  # [lags, batch]
    norms: list[float] = squares.mean(1).sqrt().tolist()
    return norms


def weight_gradient_by_step(
    cell: Cell,
    inputs: Float[Tensor, "batch time inputs"],
    state: CellState,
    *,
    gradients: Float[Tensor, "batch time width"],
    weight: Float[Tensor, "gates columns"],
) -> Float[Tensor, "time gates columns"]:
    """The terms of ∂J/∂W = Σ_t (∂J/∂s_t) (∂s_t/∂W), the second factor with s_{t−1} held fixed: one for each step.

    `gradients` are ∂J/∂h_t as the loss itself gives them: at the last step alone, or at every step.
    """
    states = [state]
    with torch.no_grad():
        for row in cell.project(inputs).unbind(1):
            states.append(cell.advance(row, states[-1]))
    upstream = tuple(torch.zeros_like(part) for part in state)
    terms: list[Tensor] = []
    for time in reversed(range(inputs.shape[1])):
        upstream = (upstream[0] + gradients[:, time], *upstream[1:])
        leaves = tuple(part.detach().requires_grad_() for part in states[time])
        with torch.enable_grad():
            after = cell.advance(cell.project(inputs[:, time]), leaves)
            term, *below = torch.autograd.grad(after, [weight, *leaves], upstream)
        upstream = tuple(below)
        terms.append(term)
    return torch.stack(terms[::-1])


def fit_slope(norms: Sequence[float], *, first: int = 0, last: int | None = None) -> float:
    """The slope of log n(ℓ) over the lags first … last, in nats per step, by least squares. Norms of 0 are left out."""
    end = len(norms) if last is None else last + 1
    points = [(lag, math.log(norms[lag])) for lag in range(first, min(end, len(norms))) if norms[lag] > 0]
    if len(points) < 2:
        raise UsageError(f"a slope needs two norms above 0, but the lags {first} … {end - 1} have {len(points)}")
    mean_lag = sum(lag for lag, _ in points) / len(points)
    mean_log = sum(value for _, value in points) / len(points)
    above = sum((lag - mean_lag) * (value - mean_log) for lag, value in points)
    return above / sum((lag - mean_lag) ** 2 for lag, _ in points)


def lag_below(norms: Sequence[float], share: float) -> float | None:
    """The first lag at which no more than a share of n(0) is left, to fractions of a step; None if that never comes.

    Between two lags the norm is taken to fall by a constant factor, as gradients do.
    """
    limit = share * norms[0]
    for lag, norm in enumerate(norms):
        if norm <= limit:
            if lag == 0:  # there was nothing to begin with
                return 0.0
            before = norms[lag - 1]
            return lag - 1 + math.log(before / limit) / math.log(before / norm) if norm > 0 else float(lag)
    return None
