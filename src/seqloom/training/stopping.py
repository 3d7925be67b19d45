"""Early stopping: the best dev loss so far, and how long it has stood."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Best:
    """The lowest dev loss of a run, the step that reached it, and the validations since."""

    loss: float | None = None
    step: int | None = None
    stale: int = 0

    def after(self, loss: float, step: int) -> "Best":
        """The record after one more validation. A loss that is no finite number never becomes the best."""
        if math.isfinite(loss) and (self.loss is None or loss < self.loss):
            return Best(loss=loss, step=step)
        return replace(self, stale=self.stale + 1)

    def is_over(self, patience: int) -> bool:
        """Whether patience is at its end; a patience of 0 has none."""
        return 0 < patience <= self.stale
