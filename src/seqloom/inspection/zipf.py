"""Zipf's law: how fast counts fall with their rank, by maximum likelihood and as a line through the logarithms.

n_i ∝ 1 / i^α                  Zipf: the i-th most frequent word is seen n_i times
n_i ∝ 1 / (i + b)^α            Mandelbrot: the first ranks fall more slowly
log n_i = −α log(i + b) + c    the same as a line
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from seqloom.core.errors import DataError

FEWEST_RANKS = 5
"""Ranks below which no exponent is told."""

_PRECISION = 1e-9
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class ZipfFit:
    """A curve n_i = exp(log_scale) / (i + shift)^exponent through the first ranks of a text."""

    exponent: float
    """α: how fast counts fall."""
    shift: float
    """b: how many ranks it takes until they fall so fast; 0 is Zipf's own law."""
    log_scale: float
    """c: the logarithm of the constant before the power."""
    ranks: int
    """How many ranks it was fitted to, from the first on."""
    gap: float
    """The largest difference between the shares of the tokens that the first k ranks hold, in the text and here."""

    def counts(self, ranks: Int[np.ndarray, " ranks"]) -> Float[np.ndarray, " ranks"]:
        """The counts that the curve gives these ranks, which are counted from 1."""
        return np.exp(self.log_scale - self.exponent * np.log(ranks + self.shift))


def frequent(counts: Int[np.ndarray, " types"], minimum_count: int) -> Int[np.ndarray, " ranks"]:
    """The counts of the first ranks, in falling order, down to `minimum_count`.

    Ranks of rare words are chance: sorting puts those first that luck has favoured, and those never seen have no rank
    at all. An exponent fitted to all of them is therefore off, by 0.1 and more in a short text.
    """
    return np.sort(counts[counts >= minimum_count])[::-1]


def fit_zipf(counts: Int[np.ndarray, " ranks"], *, has_shift: bool = False) -> ZipfFit:
    """The exponent (and shift) under which the counts of these ranks, in falling order, are the most likely.

        p_i = (i + b)^−α / Σ_j (j + b)^−α,   i, j = 1 … ranks
        log L(α, b) = Σ_i n_i log p_i

    This is the likelihood of the ranks given that a token is among them, so what lies beyond needs no model. In α it
    is concave, and Newton's method finds its maximum, where Σ p_i log(i + b) = Σ n_i log(i + b) / Σ n_i. The shift is
    found by golden sections of log(1 + b) between 0 and the number of ranks.
    """
    _require_counts(counts)
    shift = _best_shift(counts) if has_shift else 0.0
    exponent, _ = _maximise(counts, shift)
    ranks = np.arange(1, len(counts) + 1)
    log_weights = -exponent * np.log(ranks + shift)
    log_scale = math.log(counts.sum()) - _log_sum(log_weights)
    return ZipfFit(exponent, shift, log_scale, len(counts), _gap(counts, np.exp(log_weights)))


def fit_line(counts: Int[np.ndarray, " ranks"]) -> ZipfFit:
    """The line log n_i = −α log i + c with the least squares, as one draws it by eye: all ranks weigh the same."""
    _require_counts(counts)
    log_ranks, log_counts = np.log(np.arange(1, len(counts) + 1)), np.log(counts)
    centred = log_ranks - log_ranks.mean()
    exponent = -float(centred @ log_counts / (centred @ centred))
    log_scale = float(log_counts.mean() + exponent * log_ranks.mean())
    return ZipfFit(exponent, 0.0, log_scale, len(counts), _gap(counts, np.exp(-exponent * log_ranks)))


def _require_counts(counts: Int[np.ndarray, " ranks"]) -> None:
    if len(counts) < FEWEST_RANKS:
        raise DataError(
            f"an exponent needs {FEWEST_RANKS} ranks at least, but there are {len(counts)}; "
            "give more text, or let rarer words count"
        )
    if counts[-1] < 1 or (np.diff(counts) > 0).any():
        raise DataError("counts by rank are positive and never rise; sort them in falling order and leave out zeros")


def _maximise(counts: Int[np.ndarray, " ranks"], shift: float, *, start: float = 1.0) -> tuple[float, float]:
    """The best exponent for a shift, and the mean log-likelihood per token that it reaches."""
    logs = np.log(np.arange(1, len(counts) + 1) + shift)
    observed = float(counts @ logs / counts.sum())
    exponent = start
    for _ in range(200):
        weights = np.exp(-exponent * (logs - logs[0]))
        shares = weights / weights.sum()
        expected = float(shares @ logs)
        variance = float(shares @ (logs - expected) ** 2)
        # A full step can leave the region in which the curve is near its parabola.
        step = min(1.0, max(-0.5, (expected - observed) / max(variance, 1e-300)))
        exponent += step
        if abs(step) < _PRECISION * (1 + abs(exponent)):
            break
    return exponent, -exponent * observed - _log_sum(-exponent * logs)


def _best_shift(counts: Int[np.ndarray, " ranks"]) -> float:
    low, high = 0.0, math.log1p(len(counts))
    exponent = 1.0

    def likelihood(place: float) -> float:
        nonlocal exponent  # the best one of a shift nearby is a good start
        exponent, reached = _maximise(counts, math.expm1(place), start=exponent)
        return reached

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = likelihood(left), likelihood(right)
    while high - low > 1e-5:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = likelihood(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = likelihood(right)
    # A section never reaches the border itself, which is Zipf's own law.
    return 0.0 if likelihood(0.0) >= likelihood((low + high) / 2) else math.expm1((low + high) / 2)


def _log_sum(logs: Float[np.ndarray, " ranks"]) -> float:
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _gap(counts: Int[np.ndarray, " ranks"], weights: Float[np.ndarray, " ranks"]) -> float:
    seen, fitted = np.cumsum(counts) / counts.sum(), np.cumsum(weights) / weights.sum()
    return float(np.abs(seen - fitted).max())
