"""Forecasts without a network: four rules, and a linear map from a window of the past, fitted in closed form.

With a history x_1 … x_L, its last value x_L, and h = 1 … H steps ahead:

    last value        ŷ_h = x_L
    seasonal naive    ŷ_h = x_(L + h − m⌈h/m⌉)                 the same place of the last period of m steps
    moving average    ŷ_h = (x_(L−k+1) + … + x_L) / k
    drift             ŷ_h = x_L + h (x_L − x_1) / (L − 1)
    linear window     ŷ = b + Wᵀ x                             ridge regression of `outputs` steps on L values

A linear window with H outputs is direct: each step ahead has weights of its own. With one output it is recursive: a
forecast is appended to the history for the next step, so errors accumulate. Both are linear in the history; a recursion
is composed into the weights of all H steps before it is applied.

Ridge regression over all n windows of a training part needs their second moments only:

    minimise  1/n Σ_w ‖y_w − b − Wᵀ x_w‖² + λ ‖W‖²        (C_xx + λ I) W = C_xy,   b = ȳ − Wᵀ x̄

Windows overlap, so moments are sums of products of the series with itself at a lag, M_ij = 1/n Σ_(w<n) v_(w+i) v_(w+j):
a difference of two cumulative sums for each pair (i, j), or O(T (L + H)) for T rows instead of O(T L (L + H)), and no
window is ever copied. The error on another part follows from the moments of that part alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import ConfigError, DataError, check_known

Histories = Float64[np.ndarray, "rows history columns"]
Forecasts = Float64[np.ndarray, "rows horizon columns"]
Level = Literal["mean", "last"]
LEVELS: tuple[Level, ...] = ("mean", "last")

STRENGTHS = tuple(10.0**exponent for exponent in range(-6, 2))
"""λ to choose from: in scaled values, variances are 1, so that 10 leaves little of any weight."""

PERIODS_OF_HISTORY = (1, 2, 4, 7, 14, 21)
"""Lengths of history to choose from, in periods: of hourly values from a day to three weeks."""

HISTORIES = (4, 8, 16, 32, 64, 128, 256)
"""Lengths of history to choose from in a series without a period."""

MIN_CYCLES = 3
"""Repetitions of a period that a series must have for it to be found."""

MIN_CONTRAST = 2.8
"""Standard errors by which the autocorrelation at a period must be above that at the lags around it."""

NEAR_BEST = 0.9
"""A period whose contrast is this share of the highest one is preferred to its multiples."""


class Forecaster(Protocol):
    """Anything that continues histories."""

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        """The next `horizon` values of each history, of each column by itself."""
        ...


# --- rules ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastValue:
    """The last value again: ŷ_h = x_L."""

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        return np.repeat(history[:, -1:], horizon, axis=1)


@dataclass(frozen=True)
class SeasonalNaive:
    """The last period again: ŷ_h = x_(L + h − m⌈h/m⌉) with m = `period`."""

    period: int

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        _require(history, self.period, what=f"a period of {self.period}")
        return history[:, history.shape[1] - self.period + np.arange(horizon) % self.period]


@dataclass(frozen=True)
class MovingAverage:
    """The mean of the last `length` values for every step ahead."""

    length: int

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        _require(history, self.length, what=f"a moving average of {self.length}")
        return np.repeat(history[:, -self.length :].mean(axis=1, keepdims=True), horizon, axis=1)


@dataclass(frozen=True)
class Drift:
    """The straight line through the first and the last value: ŷ_h = x_L + h (x_L − x_1) / (L − 1)."""

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        _require(history, 2, what="a drift")
        first, last = history[:, :1], history[:, -1:]
        slope = (last - first) / (history.shape[1] - 1)  # [rows, 1, columns]
        return np.asarray(last + np.arange(1, horizon + 1)[:, None] * slope)


def _require(history: Histories, length: int, *, what: str) -> None:
    if not 1 <= length <= history.shape[1]:
        raise ConfigError(f"{what} needs a history of at least {max(1, length)}; this one has {history.shape[1]} rows")


# --- the period -------------------------------------------------------------------------------------------------------


class Period(NamedTuple):
    """The length of a cycle, and the autocorrelation at this lag."""

    length: int
    autocorrelation: float


def autocorrelations(values: Float64[np.ndarray, "time columns"], lags: int) -> Float64[np.ndarray, " lag"]:
    """The mean over columns of r_0 … r_lags, without the straight line that fits each column best.

        r_k = Σ_t (x_t − x̄)(x_(t+k) − x̄) / Σ_t (x_t − x̄)²  ·  T / (T − k)

    The last factor makes up for the fewer products at long lags, which would favour short periods.
    """
    rows = len(values)
    line = np.stack([np.ones(rows), np.linspace(-1, 1, rows)], axis=1)
    rest = values - line @ np.linalg.lstsq(line, values, rcond=None)[0]
    size = 1 << (2 * rows - 1).bit_length()  # zeros after the series: it must not meet its own beginning
    spectrum = np.fft.rfft(rest, size, axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size, axis=0)[: lags + 1]  # [lag, columns]
    # What a straight line leaves of a straight line is rounding.
    varies = products[0] > 1e-20 * rows * np.maximum(1e-300, np.abs(values).max(axis=0) ** 2)
    if not varies.any():
        return np.zeros(lags + 1)
    ratios = products[:, varies] / products[0, varies]
    return np.asarray(ratios.mean(axis=1) * rows / (rows - np.arange(lags + 1)))


def find_period(values: Float64[np.ndarray, "time columns"]) -> Period | None:
    """The period of a series by its autocorrelation r; None if it has none.

        contrast_k = r_k − mean of r_j over j = k/2 … 3k/2
        noise_k    = √((1 + 2 Σ_(j ≤ k/2) r_j²) / T)             standard error of r_k (Bartlett, 1946)

    A candidate is a lag k from 2 to T / 3 at which r is highest from 3k/4 to 5k/4, with a contrast above 2.8 noise_k
    and above √(2 ln T / T), the highest of T independent ones. What changes slowly raises r at all lags around k and
    leaves the contrast as it is. The shortest candidate that reaches 9/10 of the highest contrast is the period: its
    multiples are about as high.
    """
    rows = len(values)
    lags = rows // MIN_CYCLES
    r = autocorrelations(values, 3 * lags // 2 + 1)
    contrasts = {}
    for k in range(2, lags + 1):
        around = r[min(k - 1, 3 * k // 4) : max(k + 1, -(-5 * k // 4)) + 1]
        contrast = float(r[k] - r[k // 2 : 3 * k // 2 + 1].mean())
        noise = math.sqrt((1 + 2 * float((r[1 : k // 2 + 1] ** 2).sum())) / rows)
        if r[k] == around.max() and contrast > max(MIN_CONTRAST * noise, math.sqrt(2 * math.log(rows) / rows)):
            contrasts[k] = contrast
    if not contrasts:
        return None
    shortest = next(k for k, contrast in contrasts.items() if contrast >= NEAR_BEST * max(contrasts.values()))
    return Period(shortest, float(r[shortest]))


# --- the linear window ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinearWindow:
    """A linear map from the last values to the next ones, in scaled values z = (x − mean) / deviation.

        ẑ_(L+1) … ẑ_(L+outputs) = bias + weightsᵀ (z_1 … z_L)

    One map for each column, or one for all of them (`models` = 1). Steps beyond the outputs are made of forecasts.
    """

    weights: Float64[np.ndarray, "models history outputs"]
    bias: Float64[np.ndarray, "models outputs"]
    mean: Float64[np.ndarray, " columns"]
    deviation: Float64[np.ndarray, " columns"]

    @property
    def history(self) -> int:
        """Values that it looks at."""
        return int(self.weights.shape[1])

    @property
    def is_shared(self) -> bool:
        """Whether all columns have the same map."""
        return len(self.weights) < len(self.mean)

    def forecast(self, history: Histories, *, horizon: int) -> Forecasts:
        _require(history, self.history, what="this linear window")
        weights, bias = composed(self.weights, self.bias, horizon=horizon)
        found = np.empty((len(history), horizon, len(self.mean)))
        for column, (mean, deviation) in enumerate(zip(self.mean, self.deviation, strict=True)):
            model = 0 if self.is_shared else column
            scaled = (history[:, -self.history :, column] - mean) / deviation  # [rows, history]
            found[:, :, column] = (scaled @ weights[model] + bias[model]) * deviation + mean
        return found


def composed(
    weights: Float64[np.ndarray, "models history outputs"], bias: Float64[np.ndarray, "models outputs"], *, horizon: int
) -> tuple[Float64[np.ndarray, "models history horizon"], Float64[np.ndarray, "models horizon"]]:
    """The map to `horizon` steps of a map to fewer, which is applied repeatedly to its own results.

    Row t of A has the coefficients of step t in the L values of the history, and a constant:

        A_1 … A_L = I        A_(t+1) … A_(t+outputs) = weightsᵀ (A_(t−L+1) … A_t) + bias
    """
    models, history, outputs = weights.shape
    if horizon <= outputs:
        return weights[:, :, :horizon], bias[:, :horizon]
    blocks = -(-horizon // outputs)
    steps = np.zeros((models, history + blocks * outputs, history + 1))
    steps[:, :history, :history] = np.eye(history)
    for block in range(blocks):
        begin = block * outputs
        made = weights.transpose(0, 2, 1) @ steps[:, begin : begin + history]  # [models, outputs, history + 1]
        made[:, :, -1] += bias
        steps[:, begin + history : begin + history + outputs] = made
    ahead = steps[:, history : history + horizon]  # [models, horizon, history + 1]
    return ahead[:, :, :-1].transpose(0, 2, 1), ahead[:, :, -1]


class Moments(NamedTuple):
    """First and second moments of all windows of L + H values, for each column."""

    first: Float64[np.ndarray, "columns length"]
    second: Float64[np.ndarray, "columns length length"]
    windows: int

    def pooled(self) -> "Moments":
        """Those of the windows of all columns together."""
        first, second = self.first.mean(axis=0, keepdims=True), self.second.mean(axis=0, keepdims=True)
        return Moments(first, second, self.windows * len(self.first))


def window_moments(values: Float64[np.ndarray, "time columns"], length: int) -> Moments:
    """The moments of the windows that begin in rows 0 … T − length.

    first_i = 1/n Σ_w v_(w+i)       second_ij = 1/n Σ_w v_(w+i) v_(w+j)       n = T − length + 1
    """
    rows, columns = values.shape
    windows = rows - length + 1
    if windows < 1:
        raise DataError(f"a window of history and horizon has {length:,} rows, and there are {rows:,}; shorten either")

    def sums(products: Float64[np.ndarray, "some columns"], places: int) -> Float64[np.ndarray, "places columns"]:
        """Sums over n neighbours that begin at 0 … places − 1."""
        total = np.concatenate([np.zeros((1, columns)), np.cumsum(products, axis=0)])
        return np.asarray(total[windows : windows + places] - total[:places])

    first = sums(values, length).T / windows
    second = np.empty((columns, length, length))
    for lag in range(length):
        places = np.arange(length - lag)
        at_lag = sums(values[: rows - lag] * values[lag:], length - lag).T / windows  # [columns, places]
        second[:, places, places + lag] = second[:, places + lag, places] = at_lag
    return Moments(first, second, windows)


def solve_ridge(
    moments: Moments, *, history: int, strengths: Sequence[float], level: Level = "mean"
) -> Iterator[tuple[Float64[np.ndarray, "models history outputs"], Float64[np.ndarray, "models outputs"]]]:
    """Weights and biases of ridge regression for each strength λ, from one decomposition C_xx = Q diag(e) Qᵀ.

        W = Q diag(1 / (e + λ)) Qᵀ C_xy

    `level` says what the regression is about, and so what a strong penalty leaves over: deviations from the mean of the
    training part, or from the last value of each history. The latter is the first with x_i − x_L and y_h − x_L in place
    of x_i and y_h; the weights of a step then sum to 1, and a forecast moves with the level of the history.
    """
    check_known("level", level, LEVELS)
    if not strengths or min(strengths) <= 0:
        raise ConfigError(f"strengths {list(strengths)} must be above 0: neighbouring values are nearly collinear")
    first, second = moments.first, moments.second
    covariance = second - first[:, :, None] * first[:, None, :]  # [models, length, length]
    if level == "last":
        last = history - 1
        of_last = covariance[:, last]  # [models, length]
        covariance = (
            covariance - of_last[:, None, :] - of_last[:, :, None] + of_last[:, last, None, None]
        )  # (I − 1 eᵀ) C (I − 1 eᵀ)ᵀ
    values, vectors = np.linalg.eigh(covariance[:, :history, :history])
    values = np.maximum(values, 0)[:, :, None]  # rounding may leave a tiny negative one
    rotated = vectors.transpose(0, 2, 1) @ covariance[:, :history, history:]  # [models, history, outputs]
    for strength in strengths:
        weights = vectors @ (rotated / (values + strength))
        if level == "last":
            weights[:, history - 1] = 0  # x_L − x_L is 0 and has no weight of its own
            weights[:, history - 1] = 1 - weights.sum(axis=1)
        yield weights, first[:, history:] - np.einsum("mho,mh->mo", weights, first[:, :history])


def squared_errors(
    moments: Moments,
    weights: Float64[np.ndarray, "models history horizon"],
    bias: Float64[np.ndarray, "models horizon"],
) -> Float64[np.ndarray, "columns horizon"]:
    """The mean squared error of each column and step over windows that have these moments.

    E (y − b − wᵀx)² = E y² − 2 wᵀ E xy + wᵀ (E xxᵀ) w − 2 b E y + 2 b wᵀ E x + b²
    """
    history = weights.shape[1]
    first, second = moments.first, moments.second
    of_y = np.einsum("cii->ci", second)[:, history:]
    of_xy = (weights * second[:, :history, history:]).sum(axis=1)
    of_xx = (weights * (second[:, :history, :history] @ weights)).sum(axis=1)
    of_x = np.einsum("cho,ch->co", np.broadcast_to(weights, (len(first), *weights.shape[1:])), first[:, :history])
    return np.asarray(of_y - 2 * of_xy + of_xx + bias * (bias + 2 * of_x - 2 * first[:, history:]))


def _scale(values: Float64[np.ndarray, "time columns"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each column; 1 for a constant one."""
    is_constant = values.max(axis=0) == values.min(axis=0)
    return values.mean(axis=0), np.where(is_constant, 1.0, values.std(axis=0))


def fit_window(
    values: Float64[np.ndarray, "time columns"],
    *,
    history: int,
    outputs: int,
    strength: float,
    level: Level = "mean",
    is_shared: bool = False,
) -> LinearWindow:
    """Ridge regression of `outputs` steps on the `history` values before them, over all windows of a training part."""
    if min(history, outputs) < 1:
        raise ConfigError(f"history={history} and outputs={outputs} must be at least 1")
    mean, deviation = _scale(values)
    moments = window_moments((values - mean) / deviation, history + outputs)
    moments = moments.pooled() if is_shared else moments
    weights, bias = next(solve_ridge(moments, history=history, strengths=[strength], level=level))
    return LinearWindow(weights, bias, mean, deviation)


# --- the choice of a window -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowOptions:
    """What is chosen on dev rows."""

    history: int
    strength: float
    level: Level
    is_shared: bool


class WindowTrial(NamedTuple):
    """The mean squared error of options on the dev rows, in scaled values."""

    options: WindowOptions
    dev_error: float


@dataclass(frozen=True, eq=False)
class WindowChoice:
    """The linear window with the least error on the dev rows, and all that were tried."""

    model: LinearWindow
    best: WindowTrial
    trials: tuple[WindowTrial, ...]


def possible_histories(rows: int, horizon: int, *, period: int | None) -> tuple[int, ...]:
    """Lengths of history to try on a training part of so many rows: at most as long as there are windows of them."""
    lengths = [period * count for count in PERIODS_OF_HISTORY] if period else HISTORIES
    fitting = tuple(length for length in lengths if 2 * length + horizon <= rows + 1)
    if fitting:
        return fitting
    if rows < horizon + 1:
        raise DataError(f"horizon {horizon} is beyond the training part, which has {rows:,} rows; choose a shorter one")
    return (max(1, (rows + 1 - horizon) // 2),)


def choose_window(
    values: Float64[np.ndarray, "time columns"],
    dev: range,
    *,
    horizon: int,
    histories: Sequence[int],
    strengths: Sequence[float] = STRENGTHS,
    is_recursive: bool = False,
) -> WindowChoice:
    """Fit linear windows on the rows before `dev`, and take the one with the least error over the horizon there.

    Every history is measured on the same future rows of dev. A map that is shared by all columns, and one for each of
    them, are both tried, and both levels.
    """
    if len(dev) < horizon:
        raise DataError(f"horizon {horizon} is beyond the dev part, which has {len(dev):,} rows; choose a shorter one")
    mean, deviation = _scale(values[: dev.start])
    scaled = (values[: dev.stop] - mean) / deviation
    outputs = 1 if is_recursive else horizon
    trials, best, model = list[WindowTrial](), None, None
    for history in histories:
        fitted = window_moments(scaled[: dev.start], history + outputs)
        held_out = window_moments(scaled[dev.start - history :], history + horizon)
        for is_shared in (False, True) if values.shape[1] > 1 else (False,):
            moments = fitted.pooled() if is_shared else fitted
            for level in LEVELS:
                solved = solve_ridge(moments, history=history, strengths=strengths, level=level)
                for strength, (weights, bias) in zip(strengths, solved, strict=True):
                    error = float(squared_errors(held_out, *composed(weights, bias, horizon=horizon)).mean())
                    trial = WindowTrial(WindowOptions(history, strength, level, is_shared), error)
                    trials.append(trial)
                    if best is None or error < best.dev_error:
                        best, model = trial, LinearWindow(weights, bias, mean, deviation)
    if best is None or model is None:
        raise ConfigError("histories and strengths to choose from must not be empty")
    return WindowChoice(model, best, tuple(trials))
