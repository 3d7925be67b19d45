"""Jacobians of a recurrent state: what a step does to a small change, and what many steps do to it.

    J_t = ∂s_t/∂s_{t−1}                             s is all that a cell remembers: h, or h and c one above the other
    P_ℓ = ∂s_T/∂s_{T−ℓ} = J_T J_{T−1} … J_{T−ℓ+1}   in this order, for matrices do not commute
    J_t = diag(φ'(z_t)) U                           for a simple network, z the sum that goes into φ

A gradient that goes back ℓ steps is multiplied by P_ℓ. For a linear network P_ℓ = U^ℓ, whose size is ruled by the
spectral radius ρ(U) = max |λ| in the long run and by the largest singular value σ_max(U) from one step to the next:

    ρ(U)^ℓ ≤ ‖U^ℓ‖ ≤ σ_max(U)^ℓ                     equal if U is normal (U Uᵀ = Uᵀ U)

The modulus counts: an eigenvalue of −1.1 lets a gradient grow, though −1.1 < 1.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.nn.bptt import step_jacobian
from seqloom.nn.cells import Cell, CellState


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
    """J_1 … J_T of one sequence that begins in this state of one row, from the hand-derived steps."""
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
    slopes: Float[Tensor, "time width"], weight: Float[Tensor, "width width"]
) -> Float[Tensor, "lags width width"]:
    """The shortcut of some lecture notes: all slopes in front of all matrices, ∏ diag(φ'(z_t)) · U^ℓ.

    It equals the ordered product only where the slopes are the same for all units, as in a linear network.
    """
    power = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
    factors = torch.ones_like(slopes[0])
    products = [power]
    for slope in reversed(slopes.unbind()):
        power, factors = power @ weight, factors * slope
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
