"""Scores of forecasts by the steps ahead, and bands that hold the truth with a given probability.

With n windows, columns c, steps ahead h, forecasts ŷ and truth y:

    MSE_h  = mean over windows and columns of (y − ŷ)²
    MAE_h  = mean over windows and columns of |y − ŷ|
    MASE_h = mean over windows and columns of |y − ŷ| / s_c         s_c = mean_t |x_t − x_(t−m)| of the training part

MASE (Hyndman and Koehler, 2006) is below 1 where a forecast is better than the seasonal naive one of period m is within
the training part, one period ahead; m = 1 compares with the last value.

Bands by split conformal prediction (Vovk et al., 2005; Lei et al., 2018), for each step and column by itself:

    q = the k-th smallest of the n residuals |y − ŷ| of a calibration part,   k = ⌈(n + 1)(1 − α)⌉
    band = [ŷ − q, ŷ + q]

If residuals of calibration and test are exchangeable, P(y in the band) = k / (n + 1) ≥ 1 − α for any forecaster and any
continuous distribution. The k of n is the quantile ⌈(n + 1)(1 − α)⌉ / n, a little above 1 − α: the plain one covers too
little. Windows of a series overlap and drift, so measure the coverage on test rows.

Residuals may be divided by the spread of the history before (normalised conformal prediction; Papadopoulos et al.,
2002), and the radius multiplied by it again: bands are then wider where the series vary more.

    s = deviation of x_1 … x_L + MIN_SPREAD          in deviations of the training part
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import ConfigError, DataError

Forecasts = Float64[np.ndarray, "windows horizon columns"]


@dataclass(frozen=True, eq=False)
class ForecastErrors:
    """Errors by steps ahead; the properties are means over all steps."""

    windows: int
    squared: Float64[np.ndarray, " horizon"]
    """MSE of each step ahead."""
    absolute: Float64[np.ndarray, " horizon"]
    """MAE of each step ahead."""
    scaled: Float64[np.ndarray, " horizon"] | None
    """MASE of each step ahead, if the scale of the columns is known."""

    @property
    def mse(self) -> float:
        return float(self.squared.mean())

    @property
    def mae(self) -> float:
        return float(self.absolute.mean())

    @property
    def mase(self) -> float | None:
        return None if self.scaled is None else float(self.scaled.mean())


def seasonal_scale(values: Float64[np.ndarray, "time columns"], period: int) -> Float64[np.ndarray, " columns"]:
    """What MASE divides by: the mean |x_t − x_(t−period)| of each column of a training part."""
    if not 1 <= period < len(values):
        raise ConfigError(f"period={period} must be from 1 to {len(values) - 1}, less than the rows of the series")
    scale = np.abs(values[period:] - values[:-period]).mean(axis=0)
    if not scale.all():
        column = int(np.flatnonzero(scale == 0)[0]) + 1
        raise DataError(f"series {column} repeats itself exactly after {period} rows: MASE would divide by zero")
    return np.asarray(scale)


def measure_forecasts(
    forecasts: Forecasts, truth: Forecasts, *, scale: Float64[np.ndarray, " columns"] | None = None
) -> ForecastErrors:
    """MSE, MAE and, with the scale of the columns, MASE."""
    difference = np.abs(forecasts - truth)
    scaled = None if scale is None else (difference / scale).mean(axis=(0, 2))
    return ForecastErrors(len(truth), (difference**2).mean(axis=(0, 2)), difference.mean(axis=(0, 2)), scaled)


# --- bands ------------------------------------------------------------------------------------------------------------


MIN_SPREAD = 0.05
"""Added to the deviation of each history, so that the bands of a constant one have a width."""


def history_spread(history: Float64[np.ndarray, "windows history columns"]) -> Float64[np.ndarray, "windows 1 columns"]:
    """How much each column varies in each history, in deviations of the training part."""
    return np.asarray(history.std(axis=1, keepdims=True) + MIN_SPREAD)


class Band(NamedTuple):
    """The bounds of forecasts."""

    lower: Forecasts
    upper: Forecasts


@dataclass(frozen=True, eq=False)
class ConformalBands:
    """Half the width of the band of each step and column."""

    coverage: float
    """The probability 1 − α that was requested."""
    windows: int
    """Windows that it was calibrated on."""
    radius: Float64[np.ndarray, "horizon columns"]

    def around(self, forecasts: Forecasts) -> Band:
        """The bounds of forecasts of the same horizon."""
        return Band(forecasts - self.radius, forecasts + self.radius)


def conformal_rank(windows: int, coverage: float) -> int:
    """k = ⌈(n + 1) · coverage⌉: which of n residuals in rising order is the bound."""
    if not 0 < coverage < 1:
        raise ConfigError(f"coverage={coverage} must be between 0 and 1")
    # (9 + 1) · 0.9 may come out a rounding error above 9.
    rank = math.ceil((windows + 1) * coverage - 1e-9)
    if rank > windows:
        needed = math.ceil(coverage / (1 - coverage) - 1e-9)
        raise DataError(
            f"{windows:,} windows are too few to calibrate bands of coverage {coverage}: at least {needed:,} are needed"
        )
    return max(1, rank)


def calibrate_bands(forecasts: Forecasts, truth: Forecasts, *, coverage: float = 0.9) -> ConformalBands:
    """Bands from the residuals of a calibration part, which the forecaster was not fitted on."""
    rank = conformal_rank(len(truth), coverage)
    residuals = np.abs(truth - forecasts)
    return ConformalBands(coverage, len(truth), np.partition(residuals, rank - 1, axis=0)[rank - 1])


@dataclass(frozen=True, eq=False)
class BandScore:
    """How often bands hold the truth, and how wide they are, by steps ahead."""

    windows: int
    coverages: Float64[np.ndarray, " horizon"]
    widths: Float64[np.ndarray, " horizon"]

    @property
    def coverage(self) -> float:
        return float(self.coverages.mean())

    @property
    def width(self) -> float:
        return float(self.widths.mean())


def measure_bands(band: Band, truth: Forecasts) -> BandScore:
    """The share of true values within the bounds, and the mean distance of these."""
    is_within = (band.lower <= truth) & (truth <= band.upper)
    return BandScore(len(truth), is_within.mean(axis=(0, 2)), (band.upper - band.lower).mean(axis=(0, 2)))
