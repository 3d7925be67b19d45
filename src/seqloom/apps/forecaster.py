"""Forecasts of series of numbers with bands, a rolling backtest, and how far the series have moved since training.

    forecaster = Forecaster.load("run/model")
    forecast = forecaster.forecast("load.csv", steps=96)
    forecast.values, forecast.lower, forecast.upper        # [steps, columns], in the units of the file

Bands hold the truth with the requested probability as long as errors are as they were on the dev rows: half the width
is a quantile of the dev residuals of the same step and column, in spreads of the history (metrics/forecasting.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_whole_number, shown
from seqloom.core.arrays import map_safetensors
from seqloom.core.errors import DataError, ModelError, Problem, UsageError, warn
from seqloom.data.series import (
    Fill,
    Series,
    SeriesReading,
    continue_times,
    cut_windows,
    format_times,
    read_series,
)
from seqloom.metrics.forecasting import history_spread
from seqloom.models.protocols import ForecastingModel
from seqloom.runs.forecasting import ForecastRecord, require_names, rules_for, scaling_of, series_settings
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.runs.model_dir import FORECASTS, has_file
from seqloom.tasks.settings import ForecastingConfig

WINDOWS_AT_ONCE = 256
"""Windows that are forecast together."""

USUAL_COVERAGE = 0.9
"""Of bands, unless another one is requested; less if there were too few dev windows to calibrate it."""

MAX_SHIFT = 2.0
"""Deviations of the training rows by which the mean of the recent rows may differ before it counts as drift."""

MAX_OUTSIDE = 0.05
"""Share of the recent values that may be outside the range of the training rows before it counts as drift."""

Input = Path | str | SeriesReading | Series | np.ndarray
"""A table of numbers, or its values: [time, columns], or [time] for one series."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The values that follow a series."""

    names: tuple[str, ...]
    times: tuple[str, ...]
    """The times of the rows, or their numbers if the series has no times."""
    values: Float64[np.ndarray, "steps columns"]
    coverage: float | None
    """The probability that the bands hold the truth; None without bands."""
    lower: Float64[np.ndarray, "steps columns"] | None
    """NaN beyond the horizon that the model was trained for."""
    upper: Float64[np.ndarray, "steps columns"] | None


@dataclass(frozen=True, eq=False)
class Backtest:
    """How good forecasts of past rows are. Errors are in deviations of the training rows, unless they are by series."""

    windows: int
    horizon: int
    squared: Float64[np.ndarray, " horizon"]
    """Mean squared error of each step ahead."""
    absolute: Float64[np.ndarray, " horizon"]
    """Mean absolute error of each step ahead."""
    absolute_by_series: Mapping[str, float]
    """Mean absolute error of each series, in its own unit."""
    rules: Mapping[str, float]
    """Mean squared error of forecasts without a model, on the same windows."""
    coverage: float | None
    """The probability that was requested of the bands; None without bands."""
    covered: Float64[np.ndarray, " horizon"] | None
    """The share of true values that the bands hold, at each step ahead."""

    @property
    def mse(self) -> float:
        return float(self.squared.mean())

    @property
    def mae(self) -> float:
        return float(self.absolute.mean())

    @property
    def best_rule(self) -> str:
        """The rule with the least error."""
        return min(self.rules, key=lambda name: self.rules[name])


@dataclass(frozen=True)
class Drift:
    """How the recent rows of a series differ from those of training."""

    name: str
    rows: int
    """Recent rows that were compared."""
    shift: float
    """Difference of the means, in deviations of the training rows."""
    spread: float
    """Ratio of the deviations."""
    outside: float
    """Share of the values outside the range of the training rows."""
    stability: float
    """Σ (p − q) ln(p / q) over tenths of the training rows: the population stability index, 0 for equal shares."""

    @property
    def has_drifted(self) -> bool:
        """Whether forecasts and bands may not be reliable any more."""
        return abs(self.shift) > MAX_SHIFT or self.outside > MAX_OUTSIDE


class Forecaster:
    """Continues the series that it was trained on.

    forecaster = Forecaster.load("run/model")
    forecaster.forecast("load.csv", steps=96).values
    """

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Forecaster")
        if not isinstance(loaded.config.task, ForecastingConfig):
            raise UsageError(by_origin(f"{loaded.folder} is not a forecaster: {in_words(loaded.config)}"))
        self.loaded = loaded
        self.config, self.card = loaded.config, loaded.card
        settings, task = series_settings(loaded.config)
        self.names, self.period = task.series, task.period
        self.history, self.horizon = settings.history, settings.horizon
        self.scaling, self._model = scaling_of(loaded.config), loaded.model.eval()
        self.record: ForecastRecord | None = None
        if has_file(loaded.folder, FORECASTS):  # a checkpoint of an unfinished run has none
            place = loaded.folder / FORECASTS
            self.record = ForecastRecord.of(map_safetensors(place), loaded.config, place=place)

    def __repr__(self) -> str:
        return f"Forecaster({self.loaded.summary()})"

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Forecaster":
        """Read the directory of a forecaster, or the run in which it was trained."""
        return Forecaster(load_any(folder, device=device))

    def read(self, series: Input, *, fill: Fill | None = None) -> SeriesReading | Series:
        """A table as it was read in training, with its columns checked; gaps are filled if `fill` says how."""
        if isinstance(series, Path | str):
            settings = self.config.data.series
            read = read_series(
                Path(series),
                time_column=settings.time_column,
                fill=fill or settings.fill,
                encoding=self.config.data.encoding,
            )
            series = read
        if isinstance(series, SeriesReading):
            require_names(series, self.names, of=by_origin(str(self.loaded.folder)))
            return series
        if isinstance(series, np.ndarray):
            values = np.asarray(series, np.float64)
            series = Series(self.names, None, values[:, None] if values.ndim == 1 else values)
        if not isinstance(series, Series):
            raise UsageError(f"series takes a file, or an array of numbers; got {shown(series)}")
        if series.values.ndim != 2 or series.values.shape[1] != len(self.names):
            raise UsageError(
                f"series has the shape {list(series.values.shape)}; needed are [time, {len(self.names)}], for "
                f"{', '.join(self.names)[:80]}"
            )
        if not np.isfinite(series.values).all():
            row = int(np.flatnonzero(~np.isfinite(series.values).all(axis=1))[0])
            raise DataError(f"row {row + 1} has a value that is not a number; fill the gaps first")
        return series

    # --- forecasts ---------------------------------------------------------------------------------------------------

    def forecast(
        self, series: Input, *, steps: int | None = None, coverage: float | Literal["usual"] | None = "usual"
    ) -> Forecast:
        """The next `steps` values, by default as many as the horizon, with bands of this coverage; None for none.

        The usual coverage is 0.9, or what there were dev windows enough for.
        """
        read = self.read(series)
        table = read.series if isinstance(read, SeriesReading) else read
        count = self.horizon if steps is None else as_whole_number(steps, "steps", least=1)
        self._require_rows(read, self.history, what="a forecast")
        coverage = self.usual_coverage if coverage == "usual" else coverage
        radius = None if coverage is None else self._radius(coverage)
        past = self.scaling.apply(table.values[None, len(table) - self.history :])  # [1, history, columns]
        ahead = self._run(past, count)
        lower = upper = None
        if radius is not None:
            known = min(count, self.horizon)
            half = np.full((count, len(self.names)), np.nan)
            half[:known] = radius[:known] * history_spread(past)[0]
            lower, upper = (self.scaling.invert(ahead[0] + sign * half) for sign in (-1, 1))
            if count > self.horizon:
                warn(
                    f"the model was trained for {self.horizon:,} steps ahead: later ones are made of forecasts, and "
                    "have no bands"
                )
        times = tuple(map(str, range(len(table) + 1, len(table) + count + 1)))
        if isinstance(read, SeriesReading) and table.times is not None and read.frequency is not None:
            zone = "Z" if read.form.time_kind == "date-time with offset" else ""
            made = continue_times(table.times, read.frequency, steps=count)
            times = tuple(time + zone for time in format_times(made))
        values = self.scaling.invert(ahead[0])
        return Forecast(self.names, times, values, None if radius is None else coverage, lower, upper)

    def forecast_many(
        self,
        histories: Float64[np.ndarray, "windows rows columns"],
        *,
        steps: int | None = None,
        windows_per_batch: int = WINDOWS_AT_ONCE,
    ) -> Float64[np.ndarray, "windows steps columns"]:
        """The next values of many histories, without bands. What is beside a history in a batch changes nothing."""
        found = np.asarray(histories, np.float64)
        if found.ndim != 3 or found.shape[1] < self.history or found.shape[2] != len(self.names):
            raise UsageError(
                f"histories has the shape {list(found.shape)}; needed are [windows, {self.history} or more, "
                f"{len(self.names)}]"
            )
        count = self.horizon if steps is None else as_whole_number(steps, "steps", least=1)
        made = np.empty((len(found), count, len(self.names)))
        for some in _blocks(len(found), as_whole_number(windows_per_batch, "windows_per_batch", least=1)):
            made[some] = self._run(self.scaling.apply(found[some]), count)
        return self.scaling.invert(made)

    @property
    def usual_coverage(self) -> float | None:
        """The coverage of bands if none is requested; None if they are not calibrated."""
        known = [] if self.record is None else self.record.coverages.tolist()
        return max((each for each in known if each <= USUAL_COVERAGE), default=None)

    def _radius(self, coverage: float) -> Float64[np.ndarray, "horizon columns"]:
        """Half the width of bands of this coverage, in spreads of the history."""
        if self.record is None:
            raise UsageError(
                f"{by_origin(str(self.loaded.folder))} has no calibrated bands: it is a checkpoint of an unfinished "
                "run, or a mean of models; finish the run, or forecast without bands"
            )
        known = self.record.coverages.tolist()
        if coverage not in known:
            few = f" ({self.record.windows:,} dev windows)" if coverage in (0.9, 0.95, 0.98, 0.99) else ""
            possible = ", ".join(f"{each:g}" for each in known) or "none"
            raise UsageError(f"coverage={coverage:g}: bands of this model are calibrated for {possible}{few}")
        return np.asarray(self.record.radius[known.index(coverage)])

    def _run(
        self, past: Float64[np.ndarray, "windows history columns"], steps: int
    ) -> Float64[np.ndarray, "windows steps columns"]:
        """Forecasts of scaled histories, scaled."""
        with torch.inference_mode():
            history = torch.from_numpy(np.ascontiguousarray(past)).float().to(self.loaded.device)
            ahead = cast("ForecastingModel", self._model).forecast(history, horizon=steps).double().cpu().numpy()
        if not np.isfinite(ahead).all():
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(
                f"{folder} gives forecasts that are not numbers; its weights are damaged, or its recursion grows"
            )
        return np.asarray(ahead)

    def _require_rows(self, read: SeriesReading | Series, rows: int, *, what: str) -> None:
        table = read.series if isinstance(read, SeriesReading) else read
        if len(table) >= rows:
            return
        message = f"{len(table):,} rows, but {what} needs {rows:,}: the model looks at {self.history:,}; give more rows"
        if isinstance(read, SeriesReading):
            raise DataError(problems=[Problem(message, str(read.path), read.lines)])
        raise DataError(message)

    # --- backtest ----------------------------------------------------------------------------------------------------

    def backtest(
        self,
        series: Input,
        *,
        steps: int | None = None,
        rows: int | None = None,
        stride: int = 1,
        coverage: float | Literal["usual"] | None = "usual",
    ) -> Backtest:
        """Forecast from every `stride`-th row, and compare with what followed.

        Only futures in the last `rows` rows count; by default in all rows after the first history.
        """
        read = self.read(series)
        table = read.series if isinstance(read, SeriesReading) else read
        horizon = self.horizon if steps is None else as_whole_number(steps, "steps", least=1)
        stride = as_whole_number(stride, "stride", least=1)
        self._require_rows(read, self.history + horizon, what=f"a backtest of {horizon:,} steps")
        last = len(table) - self.history if rows is None else as_whole_number(rows, "rows", least=1)
        if not horizon <= last <= len(table) - self.history:
            raise UsageError(
                f"rows={last:,}: a backtest of {horizon:,} steps with a history of {self.history:,} can have from "
                f"{horizon:,} to {len(table) - self.history:,} of the {len(table):,} rows"
            )
        coverage, radius = self.usual_coverage if coverage == "usual" else coverage, None
        if coverage is not None and self.record is not None and horizon <= self.horizon:
            radius = self._radius(coverage)[:horizon]
        scaled, part = self.scaling.apply(table.values), range(len(table) - last, len(table))
        history, future = cut_windows(scaled, part, history=self.history, horizon=horizon, stride=stride)
        shape = (horizon, len(self.names))
        squared, absolute, covered = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        rules = rules_for(self.period, history=self.history)
        of_rules = dict.fromkeys(rules, 0.0)
        for some in _blocks(len(future)):
            past, truth = history[some], future[some]
            error = np.abs(self._run(past, horizon) - truth)
            squared += np.square(error).sum(axis=0)
            absolute += error.sum(axis=0)
            if radius is not None:
                covered += (error <= radius * history_spread(past)).sum(axis=0)
            for name, rule in rules.items():
                of_rules[name] += float(np.square(rule.forecast(past, horizon=horizon) - truth).sum())
        count = len(future)
        by_series = (absolute / count).mean(axis=0) * self.scaling.deviation
        return Backtest(
            windows=count,
            horizon=horizon,
            squared=(squared / count).mean(axis=1),
            absolute=(absolute / count).mean(axis=1),
            absolute_by_series=dict(zip(self.names, by_series.tolist(), strict=True)),
            rules={name: total / future.size for name, total in of_rules.items()},
            coverage=None if radius is None else coverage,
            covered=None if radius is None else (covered / count).mean(axis=1),
        )

    # --- drift -------------------------------------------------------------------------------------------------------

    def drift(self, series: Input, *, rows: int | None = None) -> tuple[Drift, ...]:
        """How the last `rows` rows, by default those of one history, differ from the training rows."""
        if self.record is None:
            raise UsageError(
                f"{by_origin(str(self.loaded.folder))} does not describe its training rows: it is a checkpoint of an "
                "unfinished run, or a mean of models; finish the run"
            )
        read = self.read(series)
        table = read.series if isinstance(read, SeriesReading) else read
        count = min(len(table), self.history if rows is None else as_whole_number(rows, "rows", least=1))
        recent, found = table.values[len(table) - count :], []
        for column, name in enumerate(self.names):
            values, quantiles = recent[:, column], self.record.quantiles[:, column]
            mean, deviation = float(self.scaling.mean[column]), float(self.scaling.deviation[column])
            # The shares of the recent values in each tenth of the training rows; half a value keeps ln finite.
            inner = np.unique(quantiles[1:-1])
            expected = np.diff(
                [0.0, *(np.searchsorted(quantiles, inner, side="right") - 1) / (len(quantiles) - 1), 1.0]
            )
            counts = np.bincount(np.searchsorted(inner, values, side="left"), minlength=len(inner) + 1)
            share = (counts + 0.5) / (count + 0.5 * len(counts))
            expected = np.maximum(expected, 0.5 / (count + 1))
            found.append(
                Drift(
                    name,
                    count,
                    shift=(float(values.mean()) - mean) / deviation,
                    spread=float(values.std()) / deviation,
                    outside=float(((values < quantiles[0]) | (values > quantiles[-1])).mean()),
                    stability=float(((share - expected) * np.log(share / expected)).sum()),
                )
            )
        return tuple(found)


def _blocks(windows: int, size: int = WINDOWS_AT_ONCE) -> Iterator[slice]:
    for begin in range(0, windows, size):
        yield slice(begin, begin + size)


def plain_values(found: Forecast | Backtest) -> dict[str, Any]:
    """As JSON has it; steps without bands have null."""

    def rows(array: np.ndarray | None) -> Any:
        if array is None:
            return None
        found = array.astype(object)
        found[~np.isfinite(array)] = None
        return found.tolist()

    if isinstance(found, Forecast):
        return {
            "series": list(found.names),
            "times": list(found.times),
            "values": rows(found.values),
            "coverage": found.coverage,
            "lower": rows(found.lower),
            "upper": rows(found.upper),
        }
    return {
        "windows": found.windows,
        "horizon": found.horizon,
        "mse": found.mse,
        "mae": found.mae,
        "rules": dict(found.rules),
        "beats_rules": found.mse < found.rules[found.best_rule],
        "coverage": found.coverage,
        "covered": None if found.covered is None else float(found.covered.mean()),
        "by_step": {
            "mse": rows(found.squared),
            "mae": rows(found.absolute),
            "covered": rows(found.covered),
        },
        "mae_by_series": dict(found.absolute_by_series),
    }
