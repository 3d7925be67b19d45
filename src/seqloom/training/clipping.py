"""Gradient clipping: by the norm of the whole gradient, or element by element (Pascanu et al., 2013)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.training.sparse import gradient_values


def gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """The gradients that the last backward passes left behind; of a sparse one, the sums for the rows it touches."""
    values = (gradient_values(parameter) for parameter in parameters)
    return [value for value in values if value is not None]


def global_norm(gradients: list[Tensor]) -> Float[Tensor, ""]:
    """‖g‖ = √Σ gᵢ² over all elements of all gradients; it stays on the device, so nothing waits for it."""
    return nn.utils.get_total_norm(gradients)


@torch.no_grad()
def clip_by_norm(gradients: list[Tensor], limit: float, *, norm: float) -> None:
    """g ← min(1, θ / ‖g‖) g: shortened to θ where longer, never turned. A zero gradient is left as it is."""
    if norm > limit:
        torch._foreach_mul_(gradients, limit / norm)


@torch.no_grad()
def clip_by_value(gradients: list[Tensor], limit: float) -> None:
    """gᵢ ← max(−θ, min(θ, gᵢ)) for each element; unlike clipping by norm this turns the gradient."""
    torch._foreach_clamp_max_(gradients, limit)
    torch._foreach_clamp_min_(gradients, -limit)
