"""Ratios between ours and a peer, and the lines that claim them.

    ratio 1.27 [1.19, 1.34] goal 1.15 transformer-256 training vs transformers

The first number is the median over pairs measured side by side, the brackets hold its 95% bootstrap interval.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_PAIRS = 7
"""Pairs below which a median says too little to claim anything."""

RESAMPLES = 10_000

_LINE = re.compile(r"ratio (\S+) \[(\S+), (\S+)\] goal (\S+) (.+)")


@dataclass(frozen=True)
class Claim:
    """A ratio with its interval, the goal it is to reach, and what it is about."""

    ratio: float
    low: float
    high: float
    goal: float
    about: str

    @property
    def is_reached(self) -> bool:
        """The median reaches the goal, and the interval lies above 1: no luck of these pairs."""
        return self.ratio >= self.goal and self.low > 1

    def __str__(self) -> str:
        return f"ratio {self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] goal {self.goal:g} {self.about}"


def claim(ours: Sequence[float], peer: Sequence[float], *, goal: float, about: str, seed: int = 1) -> Claim:
    """The claim of rates that were measured in pairs: ours[i] beside peer[i]."""
    if len(ours) != len(peer):
        raise ValueError(f"{len(ours)} rates of ours and {len(peer)} of the peer are no pairs")
    if len(ours) < FEWEST_PAIRS:
        raise ValueError(f"{len(ours)} pairs are too few to claim anything; measure {FEWEST_PAIRS} or more")
    ratios = np.asarray(ours, dtype=np.float64) / np.asarray(peer, dtype=np.float64)
    low, high = median_interval(ratios, seed=seed)
    return Claim(_printed(float(np.median(ratios))), _printed(low), _printed(high), goal, about)


def _printed(ratio: float) -> float:
    """Two decimals, rounded down: a goal is judged by the numbers that are shown, and they never say too much."""
    return math.floor(100 * ratio + 1e-9) / 100


def median_interval(values: np.ndarray, *, seed: int) -> tuple[float, float]:
    """The middle 95% of the medians of resamples, each drawn with replacement and as large as the sample."""
    drawn = np.random.default_rng(seed).integers(0, len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return float(low), float(high)


def read_claims(text: str) -> list[Claim]:
    """The claims among the lines of a script's output."""
    found = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    return [
        Claim(float(each[1]), float(each[2]), float(each[3]), float(each[4]), each[5])
        for each in found
        if each is not None
    ]
