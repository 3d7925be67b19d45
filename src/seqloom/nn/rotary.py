"""Rotary positions (Su et al., 2021): queries and keys are turned by angles that grow with their position.

    q'[i]         = q[i] cos(t rate_i) − q[i + d/2] sin(t rate_i)
    q'[i + d/2]   = q[i + d/2] cos(t rate_i) + q[i] sin(t rate_i)         rate_i = base^(−2i / d), i < d/2

A score q'·k' then depends on the distance of the two positions alone. For texts longer than those of the training,
published models change the rates:

    linear    rate_i / factor
    ntk       base · factor^(d / (d − 2)) in place of base
    llama3    slow pairs by 1 / factor, fast ones as they are, those between by a mixture (Llama 3.1)
    yarn      the same with another mixture, and all scores a little larger (Peng et al., 2023)
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

RotaryKind = Literal["default", "linear", "ntk", "llama3", "yarn"]
FIRST_ANGLES = 256
"""Positions whose angles are computed at first; doubled when they are used up."""


def rotary_rates(size: int, *, base: float) -> Float64[Tensor, " pairs"]:
    """base^(−2i / size) of each pair i."""
    return base ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)


def llama3_rates(
    rates: Float64[Tensor, " pairs"], *, factor: float, slow: float, fast: float, trained: int
) -> Float64[Tensor, " pairs"]:
    """Rates by the number of turns that a pair makes in a text of `trained` positions.

    turns < slow   rate / factor
    turns > fast   rate
    between        s · rate + (1 − s) · rate / factor, s = (turns − slow) / (fast − slow)
    """
    turns = trained * rates / (2 * math.pi)
    share = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return share * rates + (1 - share) * rates / factor


def yarn_rates(
    size: int, *, base: float, factor: float, slow: float, fast: float, trained: int, is_rounded: bool = True
) -> Float64[Tensor, " pairs"]:
    """Rates as those of `llama3_rates`, with a share that falls linearly with the number of the pair.

    Pair i(n) makes n turns in a text of `trained` positions. The share is 1 up to pair i(fast), 0 from i(slow) on.
    """
    rates = rotary_rates(size, base=base)

    def pair(turns: float) -> float:
        return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair(fast), pair(slow)
    if is_rounded:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    last = last if last != first else last + 0.001
    share = 1 - ((torch.arange(size // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    return share * rates + (1 - share) * rates / factor


@dataclass(frozen=True, eq=False)
class Rotary:
    """Turns queries and keys; all layers of a model share it."""

    rates: Float64[Tensor, " pairs"]
    """The angle of each pair at position 1."""
    factor: float = 1.0
    """Of the results. Scores are larger by its square."""
    _tables: dict[tuple[torch.device, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    def table(self, positions: int, *, like: Tensor) -> Float[Tensor, "two positions pairs"]:
        """Cosines and sines of at least so many positions."""
        place = (like.device, like.dtype)
        known = self._tables.get(place)
        if known is None or known.shape[1] < positions:
            count = max(positions, FIRST_ANGLES if known is None else 2 * known.shape[1])
            # A table that grows while decoding may be used in training later, which rejects inference tensors.
            with torch.inference_mode(False), torch.no_grad():
                angles = torch.arange(count, dtype=torch.float64)[:, None] * self.rates  # [positions, pairs]
                known = torch.stack([angles.cos(), angles.sin()]).mul_(self.factor).to(like.device, like.dtype)
            self._tables[place] = known
        return known

    def __call__(
        self, x: Float[Tensor, "batch heads places size"], *, first: int = 0, is_one: bool = False
    ) -> Float[Tensor, "batch heads places size"]:
        """Vectors at positions `first`, `first + 1`, …, turned; with `is_one` all of them are at position `first`."""
        last = first + (1 if is_one else x.shape[2])
        cosine, sine = self.table(last, like=x)[:, first:last].unbind(0)  # [places, pairs] each
        left, right = x.chunk(2, -1)
        return torch.cat([left * cosine - right * sine, right * cosine + left * sine], -1)
