"""Scores of forecasts equal plain loops, and conformal bands cover exactly as often as their theorem says."""

import numpy as np
import pytest

from seqloom.core.errors import ConfigError, DataError
from seqloom.metrics.forecasting import (
    Band,
    calibrate_bands,
    conformal_rank,
    measure_bands,
    measure_forecasts,
    seasonal_scale,
)


def test_errors_equal_plain_loops_for_each_step_ahead() -> None:
    generator = np.random.default_rng(0)
    forecasts, truth = generator.normal(size=(2, 7, 3, 2))
    train = generator.normal(size=(40, 2)).cumsum(axis=0)
    scale = seasonal_scale(train, 4)
    errors = measure_forecasts(forecasts, truth, scale=scale)
    assert errors.windows == 7
    for step in range(3):
        pairs = [(forecasts[w, step, c] - truth[w, step, c], c) for w in range(7) for c in range(2)]
        assert errors.squared[step] == pytest.approx(sum(d * d for d, _ in pairs) / 14)
        assert errors.absolute[step] == pytest.approx(sum(abs(d) for d, _ in pairs) / 14)
        assert errors.scaled is not None
        assert errors.scaled[step] == pytest.approx(sum(abs(d) / scale[c] for d, c in pairs) / 14)
    assert errors.mse == pytest.approx(np.mean((forecasts - truth) ** 2))
    assert errors.mae == pytest.approx(np.mean(np.abs(forecasts - truth)))
    assert measure_forecasts(forecasts, truth).mase is None
    # Within the training part, the seasonal naive forecast has a MASE of 1, whatever the units of a column.
    own = measure_forecasts(train[None, :-4] * [1, 1e6], train[None, 4:] * [1, 1e6], scale=scale * [1, 1e6])
    assert own.mase == pytest.approx(1)
    with pytest.raises(DataError, match="series 2 repeats itself exactly after 2 rows"):
        seasonal_scale(np.stack([np.arange(8.0), np.arange(8) % 2], axis=1), 2)
    with pytest.raises(ConfigError, match="period=40 must be from 1 to 39"):
        seasonal_scale(train, 40)


@pytest.mark.parametrize(("windows", "coverage"), [(9, 0.9), (19, 0.9), (23, 0.8), (30, 0.95)])
def test_conformal_bands_cover_with_probability_k_of_n_plus_1_and_plain_quantiles_less(
    windows: int, coverage: float
) -> None:
    """P(y in the band) = k / (n + 1) for any continuous residuals, here with very heavy tails."""
    draws = 20_000
    residuals = np.random.default_rng(windows).standard_t(2, size=(windows + 1, 1, draws)) ** 3
    known, new = residuals[:windows], residuals[windows:]
    bands = calibrate_bands(np.zeros_like(known), known, coverage=coverage)
    law = conformal_rank(windows, coverage) / (windows + 1)
    assert coverage <= law < coverage + 1 / (windows + 1)
    three_errors = 3 * np.sqrt(law * (1 - law) / draws)
    covered = measure_bands(bands.around(np.zeros_like(new)), new).coverage
    assert abs(covered - law) < three_errors
    # The quantile without the correction for a finite sample breaks the same law.
    plain = np.quantile(np.abs(known), coverage, axis=0)
    assert measure_bands(Band(-plain[None], plain[None]), new).coverage < coverage - three_errors


def test_each_step_and_column_has_its_own_band_and_its_width_is_measured() -> None:
    generator = np.random.default_rng(1)
    spread = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])  # [horizon, columns]
    truth = generator.uniform(-1, 1, size=(20_000, 3, 2)) * spread
    bands = calibrate_bands(np.zeros_like(truth[:10_000]), truth[:10_000], coverage=0.9)
    np.testing.assert_allclose(bands.radius, 0.9 * spread, rtol=0.03)
    score = measure_bands(bands.around(np.zeros_like(truth[10_000:])), truth[10_000:])
    np.testing.assert_allclose(score.coverages, 0.9, atol=0.01)
    np.testing.assert_allclose(score.widths, 2 * bands.radius.mean(axis=1))
    assert (score.width, score.windows) == (pytest.approx(2 * bands.radius.mean()), 10_000)


def test_too_few_windows_and_impossible_coverages_are_refused() -> None:
    assert [conformal_rank(n, 0.9) for n in (9, 10, 19, 99)] == [9, 10, 18, 90]
    with pytest.raises(DataError, match=r"8 windows are too few .* coverage 0.9: at least 9 are needed"):
        conformal_rank(8, 0.9)
    for coverage in (0.0, 1.0, 1.5):
        with pytest.raises(ConfigError, match=f"coverage={coverage} must be between 0 and 1"):
            conformal_rank(50, coverage)
