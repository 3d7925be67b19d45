"""Series of numbers for forecasters: opened, split, stored, trained on and measured beside rules without a network.

run/data/train/     the training rows, memory-mapped
run/data/dev/       the rows after them, with as many rows before as a history has

Names, period and scaling are found when sizes are chosen, and are part of the settings (`task.series`, `task.period`,
`model.mean`, `model.deviation`). Without a dev file, the last rows are held out.

What a model directory has beside its weights (`ForecastRecord`):

    radius      half the width of the bands of each coverage, step and column, in spreads of the history
    quantiles   of the training rows, by which drift is measured
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float64

from seqloom.classical.forecasting import Forecaster, LastValue, MovingAverage, SeasonalNaive, find_period
from seqloom.core.declaration import SeriesFacts
from seqloom.core.errors import DataError, ModelError, Problem, UsageError
from seqloom.core.events import Event, Listener, ignore, notice
from seqloom.core.files import sha256_of
from seqloom.data.series import (
    Scaling,
    SeriesReading,
    SeriesStore,
    continue_times,
    cut_windows,
    fit_scaling,
    format_times,
    read_series,
    store_series,
)
from seqloom.metrics.forecasting import conformal_rank, history_spread
from seqloom.metrics.scoring import CorpusScore
from seqloom.models.forecaster import ForecasterConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import Sizing, choose_series_sizes
from seqloom.runs.twins import beside, report_unbeaten
from seqloom.tasks.forecasting import ForecastingTask, SeriesPart
from seqloom.tasks.settings import ForecastingConfig
from seqloom.text.tokenizer import NoTokenizers, Tokenizers

MAX_PERIOD_ROWS = 20_000
"""Rows, the last ones, in which a period is looked for."""

HELD_OUT_SHARE = 5
"""One row of so many is held out, at the end, if there is no dev file and data.held_out is not set."""

WINDOWS_AT_ONCE = 512
"""Windows that rules forecast together."""

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Coverages that bands are calibrated for, as far as there are windows enough."""

QUANTILES = 11
"""Quantiles of the training rows that are kept: from the least value by tenths to the largest."""


# --- files -----------------------------------------------------------------------------------------------------------


def size_series(config: RunConfig, files: Sequence[Path]) -> Sizing:
    """Sizes for the table of numbers at this place, with its names, period and scaling."""
    model, task = series_settings(config)
    train = _read(config, "train", [str(file) for file in files])
    dev = _read(config, "dev", config.data.dev, like=train) if config.data.dev else None
    values = train.series.values
    rows, dev_rows = len(values), 0 if dev is None else len(dev.series)
    if dev is None:
        rows, dev_rows = _held_out(config, train)
    period = task.period or None
    if "period" not in task.model_fields_set:
        found = find_period(values[max(0, rows - MAX_PERIOD_ROWS) : rows])
        period = None if found is None else found.length
    sizing = sizes_for(config, SeriesFacts(rows, dev_rows, len(train.series.names), period))
    scaling = fit_scaling(values[:rows])
    horizon = model.horizon if "horizon" in model.model_fields_set else sizing.defaults["model"]["horizon"]
    history = model.history if "history" in model.model_fields_set else sizing.defaults["model"]["history"]
    train.require_horizon(history, horizon=horizon if model.strategy == "direct" else 1, rows=rows)
    (dev or train).require_horizon(0, horizon=horizon, rows=dev_rows)
    found_settings = {
        "columns": len(train.series.names),
        "mean": scaling.mean.tolist(),
        "deviation": scaling.deviation.tolist(),
    }
    return replace(
        sizing,
        defaults={
            **sizing.defaults,
            "model": {**sizing.defaults["model"], **found_settings},
            "task": {**sizing.defaults["task"], "series": list(train.series.names), "period": period or 0},
        },
    )


def sizes_for(config: RunConfig, facts: SeriesFacts) -> Sizing:
    """Sizes for such series, given the settings that were set."""
    training, (model, task) = config.training, series_settings(config)
    steps = training.steps if "steps" in training.model_fields_set else None
    batch = task.windows_per_batch if "windows_per_batch" in task.model_fields_set else None
    return choose_series_sizes(facts, model, steps=steps, windows_per_batch=batch)


def series_settings(config: RunConfig) -> tuple[ForecasterConfig, ForecastingConfig]:
    """The settings of a forecaster and of its task."""
    assert isinstance(config.task, ForecastingConfig)
    return cast("ForecasterConfig", config.model), config.task


def scaling_of(config: RunConfig) -> Scaling:
    """How values are scaled for a model."""
    model, _ = series_settings(config)
    return Scaling(np.array(model.mean), np.array(model.deviation))


def _read(config: RunConfig, side: str, names: Sequence[str], *, like: SeriesReading | None = None) -> SeriesReading:
    """The one table that is named, with the same columns as another, if one is given."""
    if len(names) != 1:
        raise UsageError(
            f"--{side} {' '.join(names[:3])}: a forecaster reads one table, with a column for each series; give one of "
            f"the {len(names)}"
        )
    settings = config.data.series
    read = read_series(
        Path(names[0]), time_column=settings.time_column, fill=settings.fill, encoding=config.data.encoding
    )
    if like is not None:
        require_names(read, like.series.names, of=str(like.path))
    return read


def require_names(read: SeriesReading, names: Sequence[str], *, of: str) -> None:
    """Refuse a table whose columns are not these, in this order."""
    if read.series.names != tuple(names):
        shown, wanted = (", ".join(each)[:80] for each in (read.series.names, names))
        message = f"the columns are {shown}, but those of {of} are {wanted}; bring them into the same order"
        raise DataError(problems=[Problem(message, str(read.path), 1)])


def _held_out(config: RunConfig, train: SeriesReading) -> tuple[int, int]:
    """Rows to train on, and rows after these that are held out."""
    rows = len(train.series)
    count = config.data.held_out if "held_out" in config.data.model_fields_set else max(1, rows // HELD_OUT_SHARE)
    if count >= rows - 1:
        message = f"{count:,} rows cannot be held out of {rows:,}; set a lower data.held_out, or give a --dev file"
        raise DataError(problems=[Problem(message, str(train.path), train.lines)])
    return rows - count, count


def open_series(config: RunConfig, *, listener: Listener) -> "SeriesFiles":
    """Open and check the table of a run. Without a dev file, its last rows are held out."""
    model, task = series_settings(config)
    train = _read(config, "train", config.data.train)
    for sentence in (*train.form.reasons, *train.notices):
        notice(listener, f"{train.path.name}: {sentence}" if sentence in train.form.reasons else sentence)
    require_names(train, task.series, of="task.series")
    if len(train.series.names) != model.columns:  # such as of training.start_from
        message = f"{len(train.series.names)} series, but the model reads {model.columns} (model.columns)"
        raise DataError(problems=[Problem(message, str(train.path), 1)])
    values, times = train.series.values, train.series.times
    span = ""
    if times is not None:
        first, last = format_times(times[[0, -1]])
        span = f", {train.frequency}, from {first} to {last}"
    columns = len(train.series.names)
    notice(listener, f"{len(values):,} rows of {columns:,} series{span}")
    fingerprints = {"train": sha256_of(train.path)}
    if config.data.dev:
        dev = _read(config, "dev", config.data.dev, like=train)
        for sentence in dev.notices:
            notice(listener, sentence)
        context = values[len(values) - model.history :] if _follows(train, dev, listener=listener) else values[:0]
        held = np.concatenate([context, dev.series.values])
        dev.require_horizon(model.history, horizon=model.horizon, rows=len(held))
        fingerprints |= {"dev": sha256_of(dev.path)}
        return SeriesFiles(values, held, len(context), fingerprints)
    rows, count = _held_out(config, train)
    notice(listener, f"no dev file: the last {count:,} of {len(values):,} rows are held out for validation")
    context_rows = min(model.history, rows)
    return SeriesFiles(values[:rows], values[rows - context_rows :], context_rows, fingerprints)


def _follows(train: SeriesReading, dev: SeriesReading, *, listener: Listener) -> bool:
    """Whether the dev rows come right after the training rows, so that their histories may reach back to them."""
    before, after = train.series.times, dev.series.times
    if before is None or after is None or train.frequency is None:
        notice(listener, "the dev rows are taken to follow the training rows: they have no times")
        return True
    if before.dtype.kind == after.dtype.kind and continue_times(before, train.frequency, steps=1)[0] == after[0]:
        return True
    last, first = format_times(before[-1:])[0], format_times(after[:1])[0]
    notice(
        listener,
        f"the dev rows begin at {first}, not one step after the training rows, which end at {last}: the first dev rows "
        "serve as history only",
    )
    return False


@dataclass(frozen=True, eq=False)
class SeriesFiles:
    """The rows of a run."""

    train: Float64[np.ndarray, "time columns"]
    dev: Float64[np.ndarray, "dev_time columns"]
    """With rows before them."""
    context: int
    """How many these are."""
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"rows": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:  # noqa: ARG002
        """There is no text."""
        return NoTokenizers()

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:  # noqa: ARG002
        """Store the rows below `run`/data."""
        store_series(self.train, run / "data" / "train")
        store_series(self.dev, run / "data" / "dev", first=self.context)
        for name, rows in (("train", len(self.train)), ("dev", len(self.dev) - self.context)):
            listener(Event("encoded", {"name": name, "rows": rows}))


# --- what a run learns from ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SeriesData:
    """The rows of a run, stored: what a forecaster learns from."""

    tokenizers: Tokenizers
    train: SeriesStore
    dev: SeriesStore

    @staticmethod
    def load(run: Path, config: RunConfig) -> "SeriesData":
        """What `SeriesFiles.encode` stored. A DataError names a file that is missing or damaged."""
        model, _ = series_settings(config)
        train, dev = (SeriesStore.open(run / "data" / name, columns=model.columns) for name in ("train", "dev"))
        return SeriesData(NoTokenizers(), train, dev)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> ForecastingTask:
        """What the model is trained for. The errors of rules are reported first."""
        model, task = series_settings(config)
        scaling = scaling_of(config)
        found = self._rule_errors(config)
        shown = ", ".join(f"{name} {error:.4f}" for name, error in found.items())
        notice(listener, f"dev error (MSE over {model.horizon:,} steps) without a model: {shown}")
        train, dev = (
            SeriesPart(torch.from_numpy(scaling.apply(store.values)).float().to(device), store.first)
            for store in (self.train, self.dev)
        )
        return ForecastingTask(
            train,
            dev,
            config=task,
            history=model.history,
            horizon=model.horizon,
            outputs=model.outputs,
            seed=config.seed,
            fingerprint=self.train.fingerprint(),
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        _, columns = self.train.values.shape
        return {
            "files": list(config.data.train),
            "rows": len(self.train.values),
            "series": columns,
            "data": self.train.fingerprint(),
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return ()

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """The errors of the model on the dev windows, beside those of rules, and what its bands are made of."""
        model, _ = series_settings(loaded.config)
        task = self.task(loaded.config, device=loaded.device, listener=ignore)
        loaded.model.eval()
        figures = task.validate(loaded.model)
        signature = f"horizon:{model.horizon}|history:{model.history}|scaled"
        rules = self._rule_errors(loaded.config)
        own = (CorpusScore("MSE", figures["loss"], signature), CorpusScore("MAE", figures["mae"], signature))
        scores = beside(own, {"MSE": rules})
        windows = len(task.dev.begins(history=model.history, horizon=model.horizon))
        listener(Event("scores", {"data": "dev", "lines": windows, "scores": [vars(each) for each in scores]}))
        best = min(rules, key=lambda name: rules[name])
        share = figures["loss"] / rules[best] if rules[best] else np.inf
        if share < 1:
            notice(listener, f"dev MSE {figures['loss']:.4f}: {1 - share:.0%} below {best}, the best rule")
        remedy = "use that rule, give more rows, or try another model.history or model.design"
        report_unbeaten(scores, remedy=remedy, listener=listener)
        record = calibrate(task, loaded.model, quantiles=_quantiles(self.train.values))
        return DevResult(scores, windows, arrays=record.arrays())

    def _rule_errors(self, config: RunConfig) -> dict[str, float]:
        """The mean squared error of each rule over all dev windows, in deviations."""
        model, task = series_settings(config)
        values, part = scaling_of(config).apply(self.dev.values), self.dev.part
        history, future = cut_windows(values, part, history=model.history, horizon=model.horizon)
        found = {}
        for name, rule in rules_for(task.period, history=model.history).items():
            total = 0.0
            for some in _blocks(len(history)):
                made = rule.forecast(history[some], horizon=model.horizon)
                total += float(np.square(made - future[some]).sum())
            found[name] = total / future.size
        return found


def rules_for(period: int, *, history: int) -> dict[str, Forecaster]:
    """Forecasts without a model that look at no more than a history."""
    rules: dict[str, Forecaster] = {"last value": LastValue()}
    if 1 < period <= history:
        rules[f"last period of {period}"] = SeasonalNaive(period)
    length = min(history, period if period > 1 else 10)
    if length > 1:
        rules[f"mean of {length}"] = MovingAverage(length)
    return rules


def _blocks(windows: int) -> Iterator[slice]:
    for begin in range(0, windows, WINDOWS_AT_ONCE):
        yield slice(begin, begin + WINDOWS_AT_ONCE)


# --- bands and quantiles ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ForecastRecord:
    """What bands and drift are computed with."""

    coverages: Float64[np.ndarray, " coverages"]
    radius: Float64[np.ndarray, "coverages horizon columns"]
    """In spreads of the history."""
    windows: int
    """Dev windows that the bands were calibrated on."""
    quantiles: Float64[np.ndarray, "quantiles columns"]
    """Of the training rows, in their own unit."""

    def arrays(self) -> dict[str, np.ndarray]:
        """As they are stored with a model."""
        parts = {"coverages": self.coverages, "radius": self.radius, "quantiles": self.quantiles}
        return {**parts, "windows": np.array([self.windows])}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], config: RunConfig, *, place: Path) -> "ForecastRecord":
        """What `arrays` gave; a ModelError for anything else."""
        model, _ = series_settings(config)
        try:
            coverages, radius = arrays["coverages"], arrays["radius"]
            quantiles, windows = arrays["quantiles"], int(arrays["windows"][0])
        except (KeyError, IndexError) as error:
            raise ModelError(
                f"{place} is not a record of forecasts: {error} is missing; train the model again"
            ) from None
        shapes = (len(coverages), model.horizon, model.columns), (QUANTILES, model.columns)
        if (radius.shape, quantiles.shape) != shapes:
            raise ModelError(
                f"{place} does not fit the model: bands of shape {list(radius.shape)}, expected {list(shapes[0])}"
            )
        return ForecastRecord(coverages, radius, windows, quantiles)


def _quantiles(values: Float64[np.ndarray, "time columns"]) -> Float64[np.ndarray, "quantiles columns"]:
    return np.asarray(np.quantile(values, np.linspace(0, 1, QUANTILES), axis=0))


def calibrate(
    task: ForecastingTask, model: torch.nn.Module, *, quantiles: Float64[np.ndarray, "quantiles columns"]
) -> ForecastRecord:
    """The radius of bands for each coverage: the k-th smallest residual |y − ŷ| / s of the dev windows."""
    parts = []
    for forecasts, batch in task.dev_forecasts(model):
        spread = history_spread(batch.history.double().cpu().numpy())
        parts.append(np.abs((forecasts - batch.future).double().cpu().numpy()) / spread)
    residuals = np.sort(np.concatenate(parts), axis=0)  # [windows, horizon, columns]
    windows = len(residuals)
    coverages = np.array([each for each in COVERAGES if windows >= each / (1 - each) - 1e-9])
    radius = np.array([residuals[conformal_rank(windows, each) - 1] for each in coverages.tolist()])
    return ForecastRecord(coverages, radius.reshape(-1, *residuals.shape[1:]), windows, quantiles)
