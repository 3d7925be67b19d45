"""Forecasting: the summed error of the values that follow windows of a series.

    loss = Σ_w Σ_h Σ_c (y − ŷ)²  or  |y − ŷ|       over windows w, steps ahead h and columns c, in deviations

Training takes the steps that one pass of the model gives (its outputs): all of the horizon for a direct model, and one
for a recursive one. Validation always measures the squared error of the whole horizon.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from seqloom.core.errors import DataError
from seqloom.core.seeds import seed_for
from seqloom.models.protocols import ForecastingModel
from seqloom.tasks.settings import ForecastingConfig
from seqloom.training.task import Loss

DEV_WINDOWS = 256
"""Windows that are measured together."""


@dataclass(frozen=True)
class SeriesPart:
    """Scaled rows of series, of which windows are cut: the future of each is in the rows from `first` on."""

    values: Float32[Tensor, "time columns"]
    first: int
    """Rows before it serve as history only."""

    def begins(self, *, history: int, horizon: int) -> range:
        """The first rows of all windows."""
        return range(max(0, self.first - history), len(self.values) - history - horizon + 1)

    def windows(self, begins: Int64[np.ndarray, " windows"], length: int) -> Float32[Tensor, "windows length columns"]:
        """The rows from each of these on."""
        views = self.values.unfold(0, length, 1)  # [places, columns, length]
        return views[torch.from_numpy(begins).to(self.values.device)].transpose(1, 2)


class WindowBatch(NamedTuple):
    """Histories and what followed them, in deviations."""

    history: Float[Tensor, "windows history columns"]
    future: Float[Tensor, "windows outputs columns"]
    begins: Int64[np.ndarray, " windows"]


class ForecastingTask:
    """Windows of the training rows in an order drawn for each epoch, and all windows of the dev rows."""

    def __init__(
        self,
        train: SeriesPart,
        dev: SeriesPart,
        *,
        config: ForecastingConfig,
        history: int,
        horizon: int,
        outputs: int,
        seed: int,
        fingerprint: str,
    ) -> None:
        self.train, self.dev, self.config = train, dev, config
        self.history, self.horizon, self.outputs = history, horizon, outputs
        self._seed, self._fingerprint = seed, fingerprint
        self._latest: tuple[int, Int64[np.ndarray, " windows"]] | None = None
        for part, what, ahead in ((train, "training", outputs), (dev, "dev", horizon)):
            if not part.begins(history=history, horizon=ahead):
                raise DataError(
                    f"horizon {horizon} is beyond the {what} part: with history {history} a window has "
                    f"{history + ahead:,} rows, and there are {len(part.values):,}; choose a shorter horizon or history"
                )

    def batches(self, epoch: int) -> int:  # noqa: ARG002
        windows = len(self.train.begins(history=self.history, horizon=self.outputs))
        return -(-windows // self.config.windows_per_batch)

    def batch(self, epoch: int, index: int) -> WindowBatch:
        size = self.config.windows_per_batch
        begins = self._order(epoch)[index * size : (index + 1) * size]
        return self._cut(self.train, begins, ahead=self.outputs)

    def count(self, batch: WindowBatch) -> int:
        return batch.future.numel()

    def loss(self, model: nn.Module, batch: WindowBatch) -> Loss:
        difference = cast("ForecastingModel", model)(batch.history) - batch.future
        total = difference.square().sum() if self.config.loss == "squared" else difference.abs().sum()
        return Loss(total, batch.future.numel())

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Mean squared and mean absolute error over all dev windows and the whole horizon, in deviations."""
        squared, absolute, count = 0.0, 0.0, 0
        for forecasts, batch in self.dev_forecasts(model):
            difference = (forecasts - batch.future).double()
            squared += float(difference.square().sum())
            absolute += float(difference.abs().sum())
            count += difference.numel()
        return {"loss": squared / count, "mae": absolute / count}

    def dev_loss(self, model: nn.Module) -> float:
        """The mean squared error of the dev windows, in deviations."""
        return self.validate(model)["loss"]

    def dev_forecasts(
        self, model: nn.Module
    ) -> Iterator[tuple[Float32[Tensor, "windows horizon columns"], WindowBatch]]:
        """Forecasts of all dev windows in their order, some at a time, with these windows."""
        begins = np.array(self.dev.begins(history=self.history, horizon=self.horizon))
        for first in range(0, len(begins), DEV_WINDOWS):
            batch = self._cut(self.dev, begins[first : first + DEV_WINDOWS], ahead=self.horizon)
            with torch.no_grad():
                forecasts = cast("ForecastingModel", model).forecast(batch.history, horizon=self.horizon)
            yield forecasts, batch

    @property
    def chance(self) -> None:
        """A model that has learned nothing repeats the last value: rules are measured beside it."""
        return

    def describe(self, batch: WindowBatch) -> str:
        shown = ", ".join(str(begin + 1) for begin in batch.begins[:5].tolist())
        more = " …" if len(batch.begins) > 5 else ""
        return f"{len(batch.begins)} windows of {self.history} + {self.outputs} rows, from rows {shown}{more}"

    def fingerprint(self) -> str:
        return self._fingerprint

    def _order(self, epoch: int) -> Int64[np.ndarray, " windows"]:
        """The first rows of all training windows, shuffled by seed and epoch."""
        if self._latest is None or self._latest[0] != epoch:
            begins = np.array(self.train.begins(history=self.history, horizon=self.outputs))
            generator = np.random.default_rng(seed_for(self._seed, "forecasting windows", epoch))
            self._latest = epoch, generator.permutation(begins)
        return self._latest[1]

    def _cut(self, part: SeriesPart, begins: Int64[np.ndarray, " windows"], *, ahead: int) -> WindowBatch:
        windows = part.windows(begins, self.history + ahead)
        return WindowBatch(windows[:, : self.history], windows[:, self.history :], begins)
