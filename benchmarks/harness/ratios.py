"""Ratios between ours and a peer, and the lines that claim them.

    ratio 1.27 [1.19, 1.34] goal 1.15 transformer-256 training vs transformers

The first number is the median over pairs measured side by side, the brackets hold its 95% bootstrap interval. A goal
says by its form when it is reached:

    goal 1.15        the median is at least 1.15, and the interval lies above 1: it is faster, and that is no luck
    goal 0.9         the median is at least 0.9; asked not to fall behind, it need not be shown to be faster
    goal low>0.95    the interval lies above 0.95: it is on a par, and that is no luck
    goal <=1.2       the median is at most 1.2, for what ought to be small
"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

FEWEST_PAIRS = 7
"""Pairs below which a median says too little to claim anything."""

RESAMPLES = 10_000

Sign = Literal["", "low>", "<="]
"""What stands before the number of a goal: the median at least, the interval above, the median at most."""

_LINE = re.compile(r"ratio (\S+) \[(\S+), (\S+)\] goal (low>|<=)?(\S+) (.+)")


@dataclass(frozen=True)
class Claim:
    """A ratio with its interval, the goal it is to reach, and what it is about."""

    ratio: float
    low: float
    high: float
    goal: float
    about: str
    sign: Sign = ""

    @property
    def is_reached(self) -> bool:
        """Whether the goal is, by the numbers that are shown."""
        if self.sign == "low>":
            return self.low > self.goal
        if self.sign == "<=":
            return self.ratio <= self.goal
        # Whoever promises more than 1 promises to be faster, so the interval has to lie above 1 too.
        return self.ratio >= self.goal and (self.goal <= 1 or self.low > 1)

    @property
    def goal_text(self) -> str:
        """The goal with its sign."""
        return f"{self.sign}{self.goal:g}"

    def __str__(self) -> str:
        return f"ratio {self.ratio:.2f} [{self.low:.2f}, {self.high:.2f}] goal {self.goal_text} {self.about}"


def claim(
    ours: Sequence[float], peer: Sequence[float], *, goal: float, about: str, sign: Sign = "", seed: int = 1
) -> Claim:
    """The claim of rates that were measured in pairs: ours[i] beside peer[i]."""
    if sign == "<=":
        raise ValueError("rates ought to be high; what ought to be small is claimed by claim_of_sizes")
    if len(ours) != len(peer):
        raise ValueError(f"{len(ours)} rates of ours and {len(peer)} of the peer are no pairs")
    if len(ours) < FEWEST_PAIRS:
        raise ValueError(f"{len(ours)} pairs are too few to claim anything; measure {FEWEST_PAIRS} or more")
    ratios = np.asarray(ours, dtype=np.float64) / np.asarray(peer, dtype=np.float64)
    low, high = median_interval(ratios, seed=seed)
    return Claim(_down(float(np.median(ratios))), _down(low), _down(high), goal, about, sign)


def claim_of_sizes(ours: Sequence[float], peer: Sequence[float], *, at_most: float, about: str) -> Claim:
    """The claim of sizes that repeat themselves, such as peaks of memory: medians, and the extremes in brackets.

    They do not drift with the machine, so there are no pairs to keep and one measurement of each is enough.
    """
    ratio = statistics.median(ours) / statistics.median(peer)
    low, high = min(ours) / max(peer), max(ours) / min(peer)
    return Claim(_up(ratio), _up(low), _up(high), at_most, about, "<=")


def _down(ratio: float) -> float:
    """Two decimals, rounded down: a goal is judged by the numbers that are shown, and they never say too much."""
    return math.floor(100 * ratio + 1e-9) / 100


def _up(ratio: float) -> float:
    """Two decimals, rounded up: the same for what ought to be small."""
    return math.ceil(100 * ratio - 1e-9) / 100


def median_interval(values: np.ndarray, *, seed: int) -> tuple[float, float]:
    """The middle 95% of the medians of resamples, each drawn with replacement and as large as the sample."""
    drawn = np.random.default_rng(seed).integers(0, len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return float(low), float(high)


def read_claims(text: str) -> list[Claim]:
    """The claims among the lines of a script's output."""
    claims = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line.strip())
        if found is not None:
            ratio, low, high, sign, goal, about = found.groups(default="")
            claims.append(Claim(float(ratio), float(low), float(high), float(goal), about, _as_sign(sign)))
    return claims


def _as_sign(text: str) -> Sign:
    return "low>" if text == "low>" else "<=" if text == "<=" else ""
