"""Schedules of the learning rate: pure functions from the step, counted from 1, to a factor of the highest rate.

With a warm-up of w steps out of n and the step t = 1, 2, …, n:

    warm-up         t / w                                for t < w, under every schedule
    constant        1
    inverse_sqrt    √(w / t)                             (Vaswani et al., 2017; w = 0 counts as 1)
    cosine          ½ (1 + cos(π (t − w) / (n − w)))     1 at the end of the warm-up, 0 at the last step
    plateau         fᵏ                                   after k halts of the dev loss
"""

import math
from dataclasses import dataclass, replace


def warm_up(step: int, *, warmup: int) -> float:
    """t / w up to the end of the warm-up, then 1."""
    return min(1.0, step / warmup) if warmup else 1.0


def inverse_sqrt(step: int, *, warmup: int) -> float:
    """√(w / t) after the warm-up."""
    start = max(1, warmup)
    return min(step / start, math.sqrt(start / step))


def cosine(step: int, *, warmup: int, steps: int) -> float:
    """½ (1 + cos(π (t − w) / (n − w))) after the warm-up."""
    if step <= warmup:
        return warm_up(step, warmup=warmup)
    share = min(1.0, (step - warmup) / max(1, steps - warmup))
    return 0.5 * (1 + math.cos(math.pi * share))


@dataclass(frozen=True)
class Plateau:
    """What the schedule "plateau" remembers: the best dev loss, validations since, and how often the rate fell."""

    best: float | None = None
    stale: int = 0
    falls: int = 0

    def after(self, loss: float, *, patience: int) -> "Plateau":
        """The state after one more validation. A loss that is no number is no better than any other."""
        if self.best is None or loss < self.best:
            return replace(self, best=loss if math.isfinite(loss) else self.best, stale=0)
        if self.stale < patience:
            return replace(self, stale=self.stale + 1)
        return replace(self, stale=0, falls=self.falls + 1)


def plateau(step: int, *, warmup: int, factor: float, falls: int) -> float:
    """fᵏ after the warm-up."""
    return warm_up(step, warmup=warmup) * factor**falls
