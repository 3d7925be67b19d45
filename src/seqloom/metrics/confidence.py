"""How far the probabilities of a classifier can be trusted: a temperature that fits them, and their error.

    P_T(c ∣ x) = softmax(scores(x) / T)_c           T = argmin −Σ_i Σ_c q_ic log P_T(c ∣ x_i) over held-out examples
    q_ic       = (1 − ε) [c = c_i] + ε / classes    ε = 1 / (n + 2): n right ones do not make an n + 1st certain
    ECE = Σ_b n_b / n |right_b − confidence_b|      b: groups of equal size in the order of confidence

A temperature changes no label (Guo et al., 2017); ε is that of Platt (1999). The loss is convex in 1/T, so its minimum
is found by bisection of its slope Σ_i Σ_c (P_T(c ∣ x_i) − q_ic) s_ic.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float64, Integer

from seqloom.metrics.calibration import Reliability, measure_reliability

MIN_EXAMPLES = 30
"""Held-out examples from which a temperature is fitted; fewer leave it at 1."""

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
"""The temperature of a classifier that is always right, or of one that knows nothing, has no other bounds."""

BISECTIONS = 50


def softmax_at(scores: Float[np.ndarray, "rows classes"], temperature: float) -> Float64[np.ndarray, "rows classes"]:
    """The probabilities of scores at a temperature."""
    scaled = np.asarray(scores, np.float64) / temperature
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities: Float64[np.ndarray, "rows classes"] = powers / powers.sum(axis=1, keepdims=True)
    return probabilities


def fit_temperature(scores: Float[np.ndarray, "rows classes"], labels: Integer[np.ndarray, " rows"]) -> float:
    """The temperature at which the labels of held-out examples are most probable; 1 for few examples."""
    given = np.asarray(scores, np.float64)
    if len(given) < MIN_EXAMPLES or not np.isfinite(given).all():
        return 1.0
    epsilon = 1 / (len(given) + 2)
    wanted = (1 - epsilon) * given[np.arange(len(given)), labels] + epsilon * given.mean(axis=1)

    def slope(inverse: float) -> float:
        expected = (softmax_at(given, 1 / inverse) * given).sum(axis=1)
        return float((expected - wanted).sum())

    low, high = math.log(1 / MAX_TEMPERATURE), math.log(1 / MIN_TEMPERATURE)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(math.exp(middle)) > 0 else (middle, high)
    return math.exp(-(low + high) / 2)


def reliability(
    probabilities: Float[np.ndarray, "rows classes"], labels: Integer[np.ndarray, " rows"] | Sequence[int]
) -> Reliability:
    """The expected calibration error of the most probable labels, in ten groups."""
    given = np.asarray(probabilities)
    is_right = given.argmax(axis=1) == np.asarray(labels)
    return measure_reliability(given.max(axis=1).tolist(), is_right.astype(float).tolist(), rows=10)
