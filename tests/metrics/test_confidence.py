"""Temperatures: found again where they are known, and a better fit than any other."""

import numpy as np
import pytest

from seqloom.metrics.confidence import fit_temperature, reliability, softmax_at


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_a_temperature_is_found_again_and_calibrates(temperature: float) -> None:
    draw = np.random.default_rng(1)
    scores = draw.normal(size=(20_000, 4)) * 2
    labels = np.array([draw.choice(4, p=row) for row in softmax_at(scores, temperature)])
    found = fit_temperature(scores, labels)
    assert found == pytest.approx(temperature, rel=0.05)
    losses = {
        each: -np.log(softmax_at(scores, each)[np.arange(len(labels)), labels]).sum()
        for each in (found, 0.97 * found, 1.03 * found)
    }
    assert min(losses, key=losses.__getitem__) == found
    assert reliability(softmax_at(scores, found), labels).error < 0.02
    if temperature != 1.0:
        assert reliability(softmax_at(scores, 1.0), labels).error > 0.05


def test_few_examples_leave_scores_as_they_are() -> None:
    assert fit_temperature(np.eye(3), np.arange(3)) == 1.0


def test_examples_that_are_all_right_do_not_make_the_next_one_certain() -> None:
    """At the temperature of 40 right examples, the next has the probability 1 − 1/42 + 1/84 of Platt's target."""
    labels = np.arange(40) % 2
    scores = np.eye(2)[labels] * 5
    probabilities = softmax_at(scores, fit_temperature(scores, labels))
    assert probabilities.max(1) == pytest.approx(np.full(40, 1 - 1 / 84), abs=1e-9)
