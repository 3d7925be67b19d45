"""The progress and the outcome of a run, as values; and the batches of a step."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from seqloom.training.schedules import Plateau

# Early stopping: the best dev loss so far, and the validations since.


@dataclass(frozen=True)
class Best:
    """The lowest dev loss of a run, the step that reached it, and the validations since."""

    loss: float | None = None
    step: int | None = None
    stale: int = 0

    def after(self, loss: float, step: int) -> "Best":
        """The record after one more validation. A non-finite loss never becomes the best."""
        if math.isfinite(loss) and (self.loss is None or loss < self.loss):
            return Best(loss=loss, step=step)
        return replace(self, stale=self.stale + 1)

    def is_over(self, patience: int) -> bool:
        """Whether training ends early; a patience of 0 never ends it."""
        return 0 < patience <= self.stale


@dataclass(frozen=True)
class Progress:
    """The state of the loop after a step. With the tensors of a checkpoint this is the whole state of a run."""

    step: int = 0
    """Steps made, skipped ones included."""
    epoch: int = 0
    index: int = 0
    """Batches of this epoch that are used up."""
    tokens: int = 0
    """What the losses have counted so far."""
    seconds: float = 0.0
    """Time spent in the loop, in earlier processes too; for reports and `training.minutes`."""
    bad_steps: int = 0
    """Non-finite steps in a row up to now."""
    skipped: int = 0
    """Non-finite steps of the whole run."""
    logged_loss: float = 0.0
    """Sum of the losses since the last "step" event."""
    logged_count: int = 0
    """What they counted."""
    best: Best = field(default_factory=Best)
    plateau: Plateau = field(default_factory=Plateau)
    falling: tuple[float, ...] = ()
    """Last values of the guarded figure (`training.task.Guard`), each lower than the one before."""

    def after_guarded(self, value: float) -> "Progress":
        """The same after a validation with this value of the guarded figure."""
        is_lower = not self.falling or not value >= self.falling[-1]
        return replace(self, falling=(*self.falling, value) if is_lower else (value,))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `state.json`."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "Progress":
        """What `to_json` was made from."""
        nested = {"best": Best(**values["best"]), "plateau": Plateau(**values["plateau"])}
        nested["falling"] = tuple(values.get("falling", ()))
        return Progress(**{**values, **nested})


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: Literal["steps", "minutes", "patience", "falls", "nothing to do", "fitted"]
    message: str
    step: int
    best_loss: float | None
    best_step: int | None
    tokens: int
    seconds: float
    skipped: int
    last_loss: float | None = None
    """Dev loss of the last validation, where this process made one."""


@dataclass(frozen=True)
class Share:
    """The batches of one step: `first` up to but not `last` of an epoch, and those among them that are this rank's."""

    epoch: int
    first: int
    last: int
    mine: tuple[int | None, ...]
    """Indices in the order in which they are used; None is an empty batch that keeps this rank in step."""

    def stand_in(self, position: int, *, ranks: int) -> int:
        """A batch that some rank has at this position, for one that has none but must take part."""
        return self.first + position * ranks


def deal(epoch: int, first: int, last: int, *, rank: int, ranks: int) -> Share:
    """Distribute batches round-robin, with an empty one for ranks that the last round does not reach."""
    rounds = range(first, last, ranks)
    mine = tuple(start + rank if start + rank < last else None for start in rounds)
    return Share(epoch=epoch, first=first, last=last, mine=mine)
