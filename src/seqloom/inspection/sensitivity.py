"""Two sequences of states from starts that hardly differ: do they meet again, or part for good?

    d(t) = ‖s_t − s̃_t‖        s̃_0 = s_0 + ε·(a direction of length 1), the same inputs for both

While d is small it grows or shrinks by the Jacobians of the steps, on average by e^κ per step; κ is the largest
Lyapunov exponent, and κ > 0 is the butterfly effect. How far d can grow in the end is set by how large states are.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.inspection.jacobians import states_along
from seqloom.inspection.lags import fit_slope
from seqloom.nn.cells import Cell, CellState

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
    """d(0) … d(T) of each row, moved by `size` in a direction of its own."""
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

    Beyond it the states themselves set a limit to how far they can part.
    """
    is_inside = [10 * NOISE < distance < ceiling for distance in distances]
    end = is_inside.index(False) if False in is_inside else len(distances)
    return fit_slope(distances, last=max(1, end - 1))
