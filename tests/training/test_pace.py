"""Speed is that of learning: what a validation takes belongs to no speed."""

import pytest

from seqloom.training.progress import Progress
from seqloom.training.trainer import Pace


def test_a_validation_between_two_reports_does_not_slow_the_figures() -> None:
    pace = Pace(Progress())
    pace.leave_out(8.0)
    figures = pace.figures(Progress(step=1, tokens=100, seconds=10.0), steps=3)
    assert figures["tokens_per_second"] == pytest.approx(50.0)
    assert figures["eta"] == pytest.approx(20.0)  # which the validations to come are part of
    again = pace.figures(Progress(step=2, tokens=200, seconds=12.0), steps=3)
    assert again["tokens_per_second"] == pytest.approx(50.0)
