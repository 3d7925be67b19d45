"""The promises of a forecaster, checked with a constant history, a straight line, and histories of random walks."""

from functools import partial

import numpy as np

from seqloom.apps.forecaster import Forecaster
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.promises import TIE, Check, CheckResult, checks_of, counted, judged, within


class ForecasterChecks:
    """A forecaster and the histories it is checked with, in the units of its training rows."""

    def __init__(self, loaded: LoadedModel, *, count: int, seed: int) -> None:
        self.loaded, self.forecaster = loaded, Forecaster(loaded)
        rows, columns = self.forecaster.history, len(self.forecaster.names)
        walks = np.random.default_rng(seed).normal(0, 0.2, (count, rows, columns)).cumsum(axis=1)
        line = np.broadcast_to(np.linspace(-1, 1, rows)[:, None], (rows, columns))
        scaled = np.stack([np.zeros((rows, columns)), line, *walks])
        self.histories = self.forecaster.scaling.invert(scaled)  # [histories, rows, columns]

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": self._check_order,
                "batch": self._check_batch,
            },
            reason="a forecaster reads and writes no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return [made.tolist() for made in Forecaster(loaded).forecast_many(self.histories)]

    def _check_order(self) -> CheckResult:
        """As many forecasts as histories, in their order, all finite."""
        found = self.forecaster.forecast_many(self.histories)
        turned = self.forecaster.forecast_many(self.histories[::-1])[::-1]
        moved = int((self._gaps(found, turned) >= TIE).sum())
        infinite = int((~np.isfinite(found)).any(axis=(1, 2)).sum())
        sentence = (
            f"{len(self.histories):,} histories in, {counted(len(found), 'forecast')} out; in reverse order {moved:,} "
            f"differ; {infinite:,} are not finite"
        )
        return judged(len(found) == len(self.histories) and not moved and not infinite, sentence)

    def _check_batch(self) -> CheckResult:
        """A history has the same forecast alone, in small batches, and in one batch with all others."""
        alone = self.forecaster.forecast_many(self.histories, windows_per_batch=1)
        others = [self.forecaster.forecast_many(self.histories, windows_per_batch=size) for size in (3, 1_000_000)]
        gap = max(float(self._gaps(alone, other).max()) for other in others)
        sentence = (
            f"{len(alone):,} histories alone, in small batches and in one: forecasts are equal {within(gap)}, in "
            "deviations of the training rows"
        )
        return judged(gap < TIE, sentence, figures={"largest_difference": gap})

    def _gaps(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The largest difference of each forecast, in deviations of the training rows."""
        return np.asarray((np.abs(one - other) / self.forecaster.scaling.deviation).max(axis=(1, 2)))
