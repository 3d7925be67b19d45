"""Confidence: monotone, within what was observed, and well calibrated on lines that were not used to learn it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.metrics.calibration import MIN_LINES, Calibration, fit_calibration, measure_reliability

NUMBERS = st.floats(-10, 0, allow_nan=False)
PAIRS = st.lists(st.tuples(NUMBERS, st.floats(0, 1)), min_size=MIN_LINES, max_size=300)


@given(PAIRS, NUMBERS, NUMBERS)
def test_confidence_never_falls_with_the_probability(
    pairs: list[tuple[float, float]], one: float, other: float
) -> None:
    fitted = fit_calibration(*map(list, zip(*pairs, strict=True)))
    assert fitted is not None
    low, high = sorted((one, other))
    scores = [score for _, score in pairs]
    assert min(scores) - 1e-12 <= fitted.confidence(low) <= fitted.confidence(high) <= max(scores) + 1e-12
    assert fitted.confidence(high, is_cut=True) <= fitted.confidence(low)
    assert Calibration.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted


def test_the_table_is_isotonic_regression_of_the_groups() -> None:
    """Brute force: of all monotone step functions on the group means, the table has the least squared error."""
    generator = np.random.default_rng(3)
    log_probs = np.sort(generator.normal(-1, 0.5, 120))
    scores = generator.random(120)
    fitted = fit_calibration(log_probs, scores)
    assert fitted is not None
    means = np.array([group.mean() for group in np.array_split(scores, 4)])
    # max over starts of min over ends of the mean of what lies between: the formula of isotonic regression.
    expected = [max(min(means[a : b + 1].mean() for b in range(at, 4)) for a in range(at + 1)) for at in range(4)]
    np.testing.assert_allclose(sorted(set(np.round(fitted.values, 12))), sorted(set(np.round(expected, 12))), atol=1e-9)


def test_a_learned_confidence_is_reliable_on_other_lines_and_a_bare_probability_is_not() -> None:
    generator = np.random.default_rng(1)
    log_probs = generator.gamma(2.0, 0.4, 4000) * -1
    scores = np.clip(0.7 * np.exp(log_probs) + generator.normal(0, 0.1, 4000), 0, 1)
    fitted = fit_calibration(log_probs[:2000], scores[:2000])
    assert fitted is not None
    held_out = scores[2000:].tolist()
    learned = measure_reliability([fitted.confidence(each) for each in log_probs[2000:].tolist()], held_out)
    bare = measure_reliability(np.exp(log_probs[2000:]).tolist(), held_out)
    assert learned.error < 0.01 < 0.1 < bare.error
    assert learned.rank_correlation > 0.8
    below = np.mean([fitted.confidence(each) < fitted.review_below for each in log_probs[2000:].tolist()])
    assert abs(below - 0.25) < 0.04
    assert math.isnan(measure_reliability([0.5] * 10, held_out[:10]).rank_correlation)


def test_too_few_lines_give_no_table_and_damaged_tables_are_refused() -> None:
    assert fit_calibration([-1.0] * (MIN_LINES - 1), [0.5] * (MIN_LINES - 1)) is None
    good = {"log_probs": [-2.0, -1.0], "values": [0.2, 0.4], "lines": 100, "review_below": 0.3}
    assert Calibration.from_json(good).confidence(-1.5) == pytest.approx(0.3)
    for change in (
        {"values": [0.4, 0.2]},
        {"values": [0.2, 1.4]},
        {"values": [0.2]},
        {"log_probs": [-1.0, -1.0]},
        {"log_probs": [math.nan, -1.0]},
        {"log_probs": []},
        {"lines": "100"},
        {"review_below": None},
        {"more": 1},
    ):
        with pytest.raises(ValueError, match=r"expected|must|not a number"):
            Calibration.from_json({**good, **change})
