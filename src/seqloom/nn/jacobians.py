"""Jacobians and spectra of a recurrent state, and how much of a gradient is left after so many steps back.

    n(ℓ) = √ mean ‖∂(g·h_T)/∂s_{T−ℓ}‖²       over sequences, each with its own direction g of length 1; n(0) = 1

Where a network decays at a steady rate, log n(ℓ) falls along a line: its slope is given in nats per step. For a linear
network that slope is log ρ(U), U being the matrix from state to state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from seqloom.core.errors import UsageError
from seqloom.nn.bptt.truncation import step_jacobian, trace_back
from seqloom.nn.cells.cell import Cell, CellState

# Jacobians of a recurrent state: what a step does to a small change, and what many steps do to it.
#
#     J_t = ∂s_t/∂s_{t−1}                             s is all that a cell remembers: h, or h and c one above the other
#     P_ℓ = ∂s_T/∂s_{T−ℓ} = J_T J_{T−1} … J_{T−ℓ+1}   in this order, for matrices do not commute
#     J_t = diag(φ'(z_t)) U                           for a simple network, z the sum that goes into φ
#
# A gradient is multiplied by P_ℓ on its way back over ℓ steps. For a linear network P_ℓ = U^ℓ, whose size follows
# the spectral radius ρ(U) = max |λ| in the long run and the largest singular value σ_max(U) from step to step:
#
#     ρ(U)^ℓ ≤ ‖U^ℓ‖ ≤ σ_max(U)^ℓ                     equal if U is normal (U Uᵀ = Uᵀ U)
#
# The modulus counts: an eigenvalue of −1.1 lets a gradient grow, though −1.1 < 1.


def states_along(
    cell: Cell, inputs: Float[Tensor, "batch time inputs"], state: CellState
) -> tuple[Float[Tensor, "steps batch width"], ...]:
    """Each part of the state before the first step and after every step."""
    with torch.no_grad():
        states = [state]
        for projected in cell.project(inputs).unbind(1):
            states.append(cell.advance(projected, states[-1]))
    return tuple(torch.stack(list(part)) for part in zip(*states, strict=True))


def jacobians_along(
    cell: Cell, inputs: Float[Tensor, "time inputs"], state: CellState
) -> Float[Tensor, "time joint joint"]:
    """J_1 … J_T of one sequence that begins in this state of one row."""
    states = states_along(cell, inputs[None], state)
    with torch.no_grad():
        projected = cell.project(inputs)
    jacobians = [step_jacobian(cell, row, tuple(part[time] for part in states)) for time, row in enumerate(projected)]
    return torch.stack(jacobians)


def ordered_products(jacobians: Float[Tensor, "time joint joint"]) -> Float[Tensor, "lags joint joint"]:
    """P_0 … P_T: what a change ℓ steps before the end has become at the end. P_0 changes nothing."""
    product = torch.eye(jacobians.shape[1], dtype=jacobians.dtype, device=jacobians.device)
    products = [product]
    for jacobian in reversed(jacobians.unbind()):
        product = product @ jacobian
        products.append(product)
    return torch.stack(products)


def pulled_out_products(
    derivatives: Float[Tensor, "time width"], weight: Float[Tensor, "width width"]
) -> Float[Tensor, "lags width width"]:
    """The shortcut of some lecture notes: all derivatives in front of all matrices, ∏ diag(φ'(z_t)) · U^ℓ.

    It equals the ordered product only where the derivatives are the same for all units, as in a linear network.
    """
    power = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
    factors = torch.ones_like(derivatives[0])
    products = [power]
    for derivative in reversed(derivatives.unbind()):
        power, factors = power @ weight, factors * derivative
        products.append(factors[:, None] * power)
    return torch.stack(products)


def relative_errors(
    claimed: Float[Tensor, "lags rows columns"], exact: Float[Tensor, "lags rows columns"]
) -> Float[Tensor, " lags"]:
    """‖claimed − exact‖ / ‖exact‖ at each lag, all entries counted."""
    errors: Tensor = torch.linalg.matrix_norm(claimed - exact) / torch.linalg.matrix_norm(exact)
    return errors


def largest_gain(weight: Float[Tensor, "rows columns"]) -> float:
    """σ_max: by how much the longest image of a unit vector has grown."""
    return float(torch.linalg.matrix_norm(weight, ord=2))


def closed_form_states(
    weight: Float[Tensor, "width width"], driven: Float[Tensor, "time width"], begin: Float[Tensor, " width"]
) -> Float[Tensor, "time width"]:
    """The states of a linear network without its loop, h_t = U^t h_0 + Σ_{i ≤ t} U^{t−i} v_i, v_i what input i adds."""
    powers = [torch.eye(len(weight), dtype=weight.dtype, device=weight.device)]
    for _ in driven:
        powers.append(weight @ powers[-1])
    states = []
    for time in range(1, len(driven) + 1):
        terms = [powers[time - read] @ driven[read - 1] for read in range(1, time + 1)]
        states.append(powers[time] @ begin + torch.stack(terms).sum(0))
    return torch.stack(states)


# Spectra of the matrices through which a recurrent state passes.
#
# The eigenvalues λ of a matrix say what many steps do (|λ| inside the unit circle fades, outside grows); its singular
# values say what one step can do. Where the two differ much, a gradient can grow for a while before it fades.


@dataclass(frozen=True)
class Spectrum:
    """A square matrix seen through its eigenvalues and singular values."""

    name: str
    eigenvalues: Complex[np.ndarray, " width"]
    """Largest modulus first."""
    singular_values: Float[np.ndarray, " width"]
    """Largest first."""

    @property
    def radius(self) -> float:
        """ρ = max |λ|"""
        return float(np.abs(self.eigenvalues[0]))

    @property
    def gain(self) -> float:
        """σ_max, the largest singular value."""
        return float(self.singular_values[0])

    def as_data(self) -> dict[str, object]:
        """All of it as a JSON record."""
        return {
            "name": self.name,
            "radius": self.radius,
            "gain": self.gain,
            "eigenvalues": [[float(each.real), float(each.imag)] for each in self.eigenvalues],
            "singular_values": [float(each) for each in self.singular_values],
        }


def spectrum_of(name: str, matrix: Float[Tensor, "width width"]) -> Spectrum:
    """Eigenvalues and singular values, in double precision."""
    exact = matrix.detach().cpu().double()
    eigenvalues = torch.linalg.eigvals(exact).numpy()
    order = np.argsort(-np.abs(eigenvalues), kind="stable")
    return Spectrum(name, eigenvalues[order], torch.linalg.svdvals(exact).numpy())


def state_spectra(model: nn.Module) -> dict[str, list[Spectrum]]:
    """The spectra of every gate of every recurrent cell in a model, by the cell's name; empty if it has none."""
    cells = {name: module for name, module in model.named_modules() if isinstance(module, Cell)}
    return {
        name: [spectrum_of(gate, matrix) for gate, matrix in matrices.items()]
        for name, cell in cells.items()
        if (matrices := cell.gate_matrices())
    }


def directions(rows: int, width: int, *, generator: torch.Generator) -> Float[Tensor, "rows width"]:
    """Vectors of length 1 that point anywhere, in double precision."""
    return nn.functional.normalize(torch.randn(rows, width, dtype=torch.float64, generator=generator), dim=1)


def gradient_by_lag(
    cell: Cell, inputs: Float[Tensor, "batch time inputs"], state: CellState, *, gradient: Float[Tensor, "batch width"]
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
    states = states_along(cell, inputs, state)
    upstream = tuple(torch.zeros_like(part) for part in state)
    terms: list[Tensor] = []
    for time in reversed(range(inputs.shape[1])):
        upstream = (upstream[0] + gradients[:, time], *upstream[1:])
        leaves = tuple(part.detach().requires_grad_() for part in (part[time] for part in states))
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
