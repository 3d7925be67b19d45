"""Initial weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, check_known

Start = Literal["orthogonal", "spectral", "xavier"]
"""The initial square matrices from state to state: see `state_matrices`."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's own random numbers come from `seed`; outside, nothing has changed.

    torch's layers draw their first weights from its global generator, which is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def xavier_uniform(weight: Tensor, *, gain: float = 1.0, parts: int = 1) -> Tensor:
    """Uniform in ±gain·√(6 / (in + out)), which keeps the variance of signals and gradients (Glorot & Bengio, 2010).

    A fused matrix holds `parts` matrices one above the other (queries, keys, values); each gets its own fan-out.
    """
    out, inner = weight.shape[0] // parts, weight.shape[1]
    bound = gain * math.sqrt(6 / (inner + out))
    return nn.init.uniform_(weight, -bound, bound)


def reset_linear(layer: nn.Linear) -> None:
    """W from `xavier_uniform`, and b = 0 if there is one."""
    xavier_uniform(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def linear(input_width: int, width: int) -> nn.Linear:
    """W x + b with W from `xavier_uniform` and b = 0."""
    layer = nn.Linear(input_width, width)
    reset_linear(layer)
    return layer


def spectral_radius(matrix: Float[Tensor, "width width"]) -> float:
    """ρ = max |λ| over the eigenvalues, in double precision."""
    moduli = torch.linalg.eigvals(matrix.detach().double()).abs()
    return float(moduli.max()) if len(matrix) else 0.0


def spectral_normal(weight: Float[Tensor, "width width"], *, radius: float = 1.0) -> Float[Tensor, "width width"]:
    """Normal numbers, scaled until the largest eigenvalue has modulus `radius`.

    Of the steps of a linear network, h' = W h, the slowest component then neither fades nor grows at a radius of 1. The
    matrix is not normal: its largest singular value is about twice its radius, so single steps can still stretch.
    """
    drawn = torch.randn_like(weight, dtype=torch.float64)
    with torch.no_grad():
        return weight.copy_(drawn * (radius / max(spectral_radius(drawn), torch.finfo(torch.float64).tiny)))


def state_matrices(
    weight: Float[Tensor, "gates width"], *, gates: int, start: Start = "orthogonal", radius: float = 1.0
) -> Float[Tensor, "gates width"]:
    """Initialise the `gates` square matrices, one above the other, each separately.

    orthogonal    radius times a rotation: every eigenvalue has modulus `radius`, and so has every singular value
    spectral      normal numbers, the largest eigenvalue of modulus `radius`
    xavier        Glorot's uniform bounds, whatever radius they give
    """
    check_known("start", start, get_args(Start))
    if not (math.isfinite(radius) and radius >= 0):
        raise ConfigError(f"spectral_radius={radius} is not possible; it is a size, 0 or more (1 keeps the gradient)")
    if start == "xavier":
        if radius != 1:
            raise ConfigError(
                f"spectral_radius={radius} cannot be combined with start='xavier', whose bounds determine the radius; "
                "set start to orthogonal or spectral, or leave spectral_radius at 1"
            )
        return xavier_uniform(weight.detach(), parts=gates)
    for gate in weight.detach().chunk(gates):
        if start == "orthogonal":
            nn.init.orthogonal_(gate, gain=radius)
        else:
            spectral_normal(gate, radius=radius)
    return weight
