"""Drawing symbols from a fixed distribution in constant time: the alias method (Walker, 1977; Vose, 1991).

The distribution over V symbols is cut into V slots of equal weight, each shared by at most two symbols:

    slot i keeps its own symbol i with probability t_i, and else gives a_i, its alias
    P(w) = 1/V · (t_w + Σ_{i: a_i = w} (1 − t_i))

A draw is then a uniform slot and one comparison, however many symbols there are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from seqloom.core.errors import ConfigError, DataError

Counts = np.ndarray[tuple[int], np.dtype[Any]]


def noise_distribution(counts: Counts, *, power: float, smoothing: float = 1.0) -> Float64[np.ndarray, " symbols"]:
    """q(w) ∝ (c(w) + s)^α, the noise that words are told apart from.

        α = 0      uniform
        α = 0.75   word2vec's choice: between both
        α = 1      unigram

    With s > 0 no symbol is impossible. That is needed: whatever is never drawn is never pushed down, and a
    correction by log q would be infinite.
    """
    if counts.ndim != 1 or not len(counts):
        raise DataError(f"noise needs one count per symbol, not an array of shape {counts.shape}")
    values = counts.astype(np.float64)
    if not bool(np.isfinite(values).all()) or bool((values < 0).any()):
        raise DataError(f"counts of symbols must be finite and not negative; the least is {values.min():g}")
    if not 0 <= power <= 1 or not smoothing > 0:
        raise ConfigError(
            f"noise has power {power:g} and smoothing {smoothing:g}; give a power from 0 to 1 and a smoothing above 0"
        )
    weights = (values + smoothing) ** power
    normalised: Float64[np.ndarray, " symbols"] = weights / weights.sum()
    return normalised


class AliasSampler:
    """Draws symbols with given probabilities: `draw` costs the same for ten symbols and for ten million."""

    def __init__(self, probabilities: Float64[np.ndarray, " symbols"]) -> None:
        if not len(probabilities) or not bool((probabilities > 0).all()) or abs(probabilities.sum() - 1) > 1e-9:
            raise DataError(
                f"{len(probabilities)} probabilities that sum to {probabilities.sum():g}, the least of them "
                f"{probabilities.min(initial=1.0):g}: a sampler needs probabilities above 0 that sum to 1"
            )
        thresholds, aliases = alias_tables(probabilities.tolist())
        self.symbols = len(probabilities)
        self._tables = (
            torch.tensor(thresholds, dtype=torch.float32),
            torch.tensor(aliases, dtype=torch.int64),
            torch.from_numpy(np.log(probabilities)),
        )
        self._placed: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    def draw(self, shape: Sequence[int], *, generator: torch.Generator) -> Int64[Tensor, "..."]:
        """Independent draws, with replacement, on the device of the generator."""
        thresholds, aliases, _ = self._on(generator.device)
        slots = torch.randint(self.symbols, tuple(shape), generator=generator, device=generator.device)
        chance = torch.rand(tuple(shape), generator=generator, device=generator.device)
        return torch.where(chance < thresholds[slots], slots, aliases[slots])

    def log_probs(self, symbols: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """log q of some symbols, in float64, on their device."""
        return self._on(symbols.device)[2][symbols]

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if device not in self._placed:
            thresholds, aliases, log_probs = (table.to(device) for table in self._tables)
            self._placed[device] = (thresholds, aliases, log_probs)
        return self._placed[device]


def alias_tables(probabilities: Sequence[float]) -> tuple[list[float], list[int]]:
    """Thresholds t and aliases a of the slots: one that is not full is filled up by a symbol with too much."""
    symbols = len(probabilities)
    left = [symbols * probability for probability in probabilities]
    thresholds, aliases = [1.0] * symbols, list(range(symbols))
    poor = [symbol for symbol in range(symbols) if left[symbol] < 1]
    rich = [symbol for symbol in range(symbols) if left[symbol] >= 1]
    while poor and rich:
        slot, giver = poor.pop(), rich[-1]
        thresholds[slot], aliases[slot] = left[slot], giver
        left[giver] -= 1 - left[slot]
        if left[giver] < 1:
            poor.append(rich.pop())
    # What remains on either side is 1 but for rounding: such slots keep their own symbol.
    return thresholds, aliases
