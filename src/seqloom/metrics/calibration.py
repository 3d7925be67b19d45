"""Confidence: how good a translation probably is, by the probability that the model gives it.

    q = 1/n Σ_t log P(y_t ∣ x, y_<t)        mean log-probability of the n tokens of a translation, end included
    confidence = E[chrF / 100 ∣ q]          the chrF that such translations reached on dev text

The expectation is a table that never falls: dev lines in the order of q are cut into groups of equal size, neighbouring
groups whose means contradict that order are pooled (isotonic regression by pool adjacent violators; Barlow et al.,
1972), and between the means of the groups the confidence is linear. Beyond the ends it is constant. A translation that
was cut at the maximum length gets the lowest value: a model that repeats itself gives that a high probability.

A model without a table gives exp(q), the geometric mean of its token probabilities, which promises nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from seqloom.metrics.word_vectors import rank_correlation

MIN_LINES = 100
"""Dev lines from which a table can be learned."""

LINES_PER_GROUP = 25
MAX_GROUPS = 20

REVIEW_SHARE = 0.25
"""The share of the dev lines, those of the least confidence, below which a translation is marked for review."""


@dataclass(frozen=True)
class Calibration:
    """From the mean log-probability of a translation to its confidence."""

    log_probs: tuple[float, ...]
    """Rising, one for each group."""
    values: tuple[float, ...]
    """Mean chrF/100 of each group, rising."""
    lines: int
    """Dev lines that it was learned from."""
    review_below: float
    """The confidence below which a quarter of them are."""

    def confidence(self, mean_log_prob: float, *, is_cut: bool = False) -> float:
        """The chrF/100 to expect of a translation; `is_cut` if it ended at the maximum length."""
        return self.values[0] if is_cut else float(np.interp(mean_log_prob, self.log_probs, self.values))

    def to_json(self) -> dict[str, Any]:
        """As it is stored with a model."""
        return asdict(self)

    @staticmethod
    def from_json(stored: Any) -> "Calibration":
        """What `to_json` gave; a ValueError says what is wrong with anything else."""
        if not isinstance(stored, dict) or set(stored) != set(Calibration.__dataclass_fields__):
            raise ValueError(f"expected {', '.join(Calibration.__dataclass_fields__)}")
        tables = stored["log_probs"], stored["values"]
        if not all(isinstance(table, list) and table and all(map(_is_finite, table)) for table in tables):
            raise ValueError("log_probs and values must be lists of numbers")
        log_probs, values = map(tuple, tables)
        if len(log_probs) != len(values) or list(log_probs) != sorted(set(log_probs)) or list(values) != sorted(values):
            raise ValueError("log_probs and values must rise together")
        if not (values[0] >= 0 and values[-1] <= 1 and _is_finite(stored["review_below"])):
            raise ValueError("values and review_below must be between 0 and 1")
        if type(stored["lines"]) is not int:
            raise ValueError("lines is not a number")
        return Calibration(log_probs, values, stored["lines"], float(stored["review_below"]))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def fit_calibration(
    log_probs: Sequence[float] | Float[np.ndarray, " lines"], scores: Sequence[float] | Float[np.ndarray, " lines"]
) -> Calibration | None:
    """Learn a table from mean log-probabilities of translations and their chrF/100; None of too few lines."""
    given, reached = np.asarray(log_probs, np.float64), np.asarray(scores, np.float64)
    lines = len(given)
    if lines < MIN_LINES:
        return None
    order = np.argsort(given, kind="stable")
    groups = np.array_split(order, min(MAX_GROUPS, lines // LINES_PER_GROUP))
    pools: list[tuple[float, float, int]] = []  # mean log-probability, mean score, lines
    for group in groups:
        pool = float(given[group].mean()), float(reached[group].mean()), len(group)
        while pools and (pools[-1][1] >= pool[1] or pools[-1][0] >= pool[0]):
            pool = _pooled(pools.pop(), pool)
        pools.append(pool)
    table = Calibration(tuple(p[0] for p in pools), tuple(min(1.0, max(0.0, p[1])) for p in pools), lines, 0.0)
    confidences = [table.confidence(each) for each in given.tolist()]
    return Calibration(table.log_probs, table.values, lines, float(np.quantile(confidences, REVIEW_SHARE)))


def _pooled(one: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    lines = one[2] + other[2]
    log_prob, score = ((a * one[2] + b * other[2]) / lines for a, b in zip(one[:2], other[:2], strict=True))
    return log_prob, score, lines


# --- how well a confidence fits --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReliabilityRow:
    """Lines of similar confidence: what it says on average, and the chrF/100 that they reached."""

    lines: int
    confidence: float
    reached: float


@dataclass(frozen=True)
class Reliability:
    """How confidences fit the scores of the same lines."""

    lines: int
    rank_correlation: float
    """Spearman's ρ of confidence and score: 1 if they order the lines alike, 0 if by chance. NaN if one is constant."""
    error: float
    """Mean distance of the two columns of the table, weighted by lines (expected calibration error)."""
    rows: tuple[ReliabilityRow, ...]


def measure_reliability(confidences: Sequence[float], scores: Sequence[float], *, rows: int = 5) -> Reliability:
    """Compare confidences with scores of 0 to 1, in groups of equal size in the order of confidence."""
    given, reached = np.asarray(confidences, np.float64), np.asarray(scores, np.float64)
    groups = [group for group in np.array_split(np.argsort(given, kind="stable"), rows) if len(group)]
    table = tuple(ReliabilityRow(len(g), float(given[g].mean()), float(reached[g].mean())) for g in groups)
    error = sum(row.lines * abs(row.confidence - row.reached) for row in table) / max(1, len(given))
    return Reliability(len(given), rank_correlation(given, reached), error, table)
