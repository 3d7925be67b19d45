"""Forecasts without a network: rules by hand, ridge regression against explicit windows, and the published figures."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from seqloom.classical.forecasting import (
    Drift,
    Forecaster,
    LastValue,
    Level,
    LinearWindow,
    MovingAverage,
    SeasonalNaive,
    choose_window,
    find_period,
    fit_window,
    possible_histories,
)
from seqloom.core.errors import ConfigError, DataError
from seqloom.data.series import cut_windows, fit_scaling, read_series, split_by_counts, split_by_shares
from seqloom.metrics.forecasting import calibrate_bands, measure_bands, measure_forecasts


def noisy_sine(rows: int = 1_000) -> np.ndarray:
    """The series of d2l: a sine with noise of variance 0.04."""
    time = np.arange(1, rows + 1)
    return np.asarray(np.sin(0.01 * time) + np.random.default_rng(0).normal(0, 0.2, rows))[:, None]


def test_rules_by_hand() -> None:
    history = np.array([[[2.0, 0.0], [4.0, 5.0], [3.0, 1.0], [8.0, 3.0]]])  # [rows, history, columns]

    def of(rule: Forecaster) -> list[list[float]]:
        found: list[list[float]] = rule.forecast(history, horizon=5)[0].T.tolist()
        return found

    assert of(LastValue()) == [[8] * 5, [3] * 5]
    assert of(SeasonalNaive(3)) == [[4, 3, 8, 4, 3], [5, 1, 3, 5, 1]]
    assert of(MovingAverage(2)) == [[5.5] * 5, [2] * 5]
    assert of(Drift()) == [[10, 12, 14, 16, 18], [4, 5, 6, 7, 8]]
    with pytest.raises(ConfigError, match="a period of 5 needs a history of at least 5; this one has 4 rows"):
        SeasonalNaive(5).forecast(history, horizon=1)


@given(st.integers(1, 60), st.integers(2, 40), st.sampled_from([0.1, 1.0]), st.integers(0, 9))
def test_the_period_of_a_cycle_is_found(phase: int, length: int, noise: float, seed: int) -> None:
    """A pattern of peaks, repeated on a rising line, is found at its length, and not at a multiple."""
    time = np.arange(12 * length + 40)
    series = 5.0 * ((time + phase) % length == 0) + 0.02 * time
    values = series[:, None] + np.random.default_rng(seed).normal(0, noise, (len(time), 3))
    found = find_period(values)
    assert found is not None
    assert found.length == length


def test_noise_lines_and_random_walks_have_no_period() -> None:
    generator = np.random.default_rng(0)
    noise = [find_period(generator.normal(size=(300, 1))) for _ in range(40)]
    walks = [find_period(generator.normal(size=(300, 1)).cumsum(axis=0)) for _ in range(40)]
    assert sum(found is not None for found in noise) <= 8
    assert sum(found is not None for found in walks) <= 4
    for values in (np.ones((50, 1)), np.arange(50.0)[:, None] * 1e9, np.zeros((2, 1)), np.zeros((3, 2))):
        assert find_period(values) is None


def explicit_ridge(
    values: np.ndarray, *, history: int, outputs: int, strength: float, level: Level, is_shared: bool
) -> LinearWindow:
    """The same regression from windows that are all written out, by least squares with rows for the penalty."""
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    windows = sliding_window_view((values - mean) / deviation, history + outputs, axis=0).transpose(1, 0, 2)
    weights, biases = [], []
    for group in [np.concatenate(list(windows))] if is_shared else list(windows):
        x, y = group[:, :history], group[:, history:]
        last = x[:, -1:] if level == "last" else np.zeros((len(x), 1))
        x, y = x - last, y - last
        rows = np.vstack([x - x.mean(axis=0), np.sqrt(len(x) * strength) * np.eye(history)])
        w = np.linalg.lstsq(rows, np.vstack([y - y.mean(axis=0), np.zeros((history, outputs))]), rcond=None)[0]
        biases.append(y.mean(axis=0) - x.mean(axis=0) @ w)
        if level == "last":
            w[-1] += 1 - w.sum(axis=0)
        weights.append(w)
    return LinearWindow(np.stack(weights), np.stack(biases), mean, deviation)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("level", ["mean", "last"])
def test_ridge_from_lagged_sums_equals_least_squares_on_explicit_windows(level: Level, is_shared: bool) -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(size=(90, 3)).cumsum(axis=0) * [1, 100, 0.01] + [0, 1e5, -3]
    ours = fit_window(values, history=7, outputs=4, strength=0.03, level=level, is_shared=is_shared)
    theirs = explicit_ridge(values, history=7, outputs=4, strength=0.03, level=level, is_shared=is_shared)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-9)
    np.testing.assert_allclose(ours.bias, theirs.bias, atol=1e-9)
    assert (ours.history, ours.is_shared) == (7, is_shared)
    other = explicit_ridge(values, history=7, outputs=4, strength=0.04, level=level, is_shared=is_shared)
    assert np.abs(ours.weights - other.weights).max() > 1e-4
    # About the last value, a forecast moves with its history; about the mean, it does not.
    history = values[None, -7:]
    moved = ours.forecast(history + 50.0, horizon=4) - ours.forecast(history, horizon=4)
    assert np.allclose(moved, 50) == (level == "last")


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 12), st.integers(0, 99))
def test_a_composed_recursion_equals_forecasts_that_are_appended_one_by_one(
    history: int, outputs: int, horizon: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    weights, bias = generator.normal(0, 0.5, (2, history, outputs)), generator.normal(size=(2, outputs))
    model = LinearWindow(weights, bias, np.array([3.0, -1.0]), np.array([2.0, 0.5]))
    past = generator.normal(size=(4, history + 2, 2))
    scaled = (past - model.mean) / model.deviation
    while scaled.shape[1] < history + 2 + horizon:
        recent = scaled[:, -history:]
        made = np.stack([recent[:, :, c] @ weights[c] + bias[c] for c in range(2)], axis=2)  # [rows, outputs, columns]
        scaled = np.concatenate([scaled, made], axis=1)
    expected = scaled[:, history + 2 : history + 2 + horizon] * model.deviation + model.mean
    np.testing.assert_allclose(model.forecast(past, horizon=horizon), expected, atol=1e-9)


@pytest.mark.parametrize("is_recursive", [False, True])
def test_errors_from_moments_equal_errors_of_forecasts_on_dev_windows(is_recursive: bool) -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(size=(160, 2)).cumsum(axis=0) * [1, 40]
    dev, histories = range(100, 160), (3, 8)
    choice = choose_window(values, dev, horizon=5, histories=histories, is_recursive=is_recursive)
    assert choice.best == min(choice.trials, key=lambda trial: trial.dev_error)
    assert len(choice.trials) == 2 * 2 * 2 * 8  # histories, shared or not, levels, strengths
    scaling = fit_scaling(values[:100])
    for trial in choice.trials[::5]:
        o = trial.options
        model = fit_window(
            *(values[:100],), history=o.history, outputs=1 if is_recursive else 5,
            strength=o.strength, level=o.level, is_shared=o.is_shared,
        )  # fmt: skip
        past, future = cut_windows(values, dev, history=o.history, horizon=5)
        found = measure_forecasts(scaling.apply(model.forecast(past, horizon=5)), scaling.apply(future))
        assert trial.dev_error == pytest.approx(found.mse, rel=1e-6)
    # The choice looks at nothing after the dev part.
    longer = np.concatenate([values, 1e3 * np.ones((50, 2))])
    again = choose_window(longer, dev, horizon=5, histories=histories, is_recursive=is_recursive)
    assert again.best == choice.best


def test_a_window_on_a_noisy_sine_beats_the_last_value_and_recursive_errors_rise() -> None:
    values = noisy_sine()
    split = split_by_counts(1_000, train=600, dev=200, test=200)
    recursive = fit_window(values[:600], history=4, outputs=1, strength=1e-6)
    errors = {}
    for horizon in (1, 4, 16, 64):
        past, future = cut_windows(values, split.test, history=64, horizon=horizon)
        direct = choose_window(
            values, split.dev, horizon=horizon, histories=possible_histories(600, horizon, period=None)
        )
        last = measure_forecasts(LastValue().forecast(past, horizon=horizon), future).mse
        history = cut_windows(values, split.test, history=direct.model.history, horizon=horizon)
        assert (
            measure_forecasts(direct.model.forecast(history.history, horizon=horizon), history.future).mse < 0.8 * last
        )
        errors[horizon] = measure_forecasts(recursive.forecast(past, horizon=horizon), future).squared[-1]
    assert errors[1] < errors[4] < errors[16] < errors[64]


def test_histories_and_horizons_that_do_not_fit_are_refused() -> None:
    assert possible_histories(8_640, 192, period=24) == (24, 48, 96, 168, 336, 504)
    assert possible_histories(30, 12, period=12) == (9,)
    with pytest.raises(DataError, match="horizon 12 is beyond the training part, which has 12 rows"):
        possible_histories(12, 12, period=None)
    with pytest.raises(DataError, match="horizon 6 is beyond the dev part, which has 5 rows"):
        choose_window(noisy_sine(50), range(45, 50), horizon=6, histories=(4,))
    with pytest.raises(DataError, match="a window of history and horizon has 60 rows, and there are 50"):
        fit_window(noisy_sine(50), history=40, outputs=20, strength=1.0)
    with pytest.raises(ConfigError, match="must be above 0"):
        fit_window(noisy_sine(50), history=4, outputs=2, strength=0.0)


def test_airline_passengers_by_a_window_beat_last_value_and_seasonal_naive(real_data: Path) -> None:
    values = read_series(real_data / "time-series" / "airline-passengers.csv").series.values
    split = split_by_shares(len(values), dev=0.2, test=0.2)
    period = find_period(values[: split.train.stop])
    assert period is not None
    assert period.length == 12
    histories = possible_histories(split.train.stop, 12, period=12)
    for is_recursive in (False, True):
        choice = choose_window(values, split.dev, horizon=12, histories=histories, is_recursive=is_recursive)
        past, future = cut_windows(values, split.test, history=max(histories), horizon=12)
        last, seasonal, window = (
            measure_forecasts(each.forecast(past, horizon=12), future).mse
            for each in (LastValue(), SeasonalNaive(12), choice.model)
        )
        assert window < seasonal / 2 < last / 4


def test_etth1_has_the_published_errors_and_bands_cover(real_data: Path) -> None:
    """MSE of the naive, seasonal and ridge forecasts in the usual protocol: 1.294, 0.512, 0.370."""
    series = read_series(real_data / "ett" / "ETTh1.csv.gz").series
    split = split_by_counts(len(series), train=8_640, dev=2_880, test=2_880)
    values = fit_scaling(series.values[: split.train.stop]).apply(series.values)
    period = find_period(values[: split.train.stop])
    assert period is not None
    assert period.length == 24
    window = fit_window(values[: split.train.stop], history=336, outputs=96, strength=1e-3, is_shared=True)
    past, future = cut_windows(values, split.test, history=336, horizon=96)
    assert len(future) == 2_785
    naive, seasonal, ridge = (
        measure_forecasts(each.forecast(past, horizon=96), future).mse
        for each in (LastValue(), SeasonalNaive(24), window)
    )
    assert naive == pytest.approx(1.294, abs=1e-3)
    assert seasonal == pytest.approx(0.512, abs=1e-3)
    assert ridge == pytest.approx(0.370, abs=1e-3)
    dev = cut_windows(values, split.dev, history=336, horizon=96)
    bands = calibrate_bands(window.forecast(dev.history, horizon=96), dev.future, coverage=0.9)
    assert 0.85 < measure_bands(bands.around(window.forecast(past, horizon=96)), future).coverage < 0.95
