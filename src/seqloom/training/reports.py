"""What a run says of its steps."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.core.events import Value
from seqloom.training.distributed import World
from seqloom.training.optimisers import trained
from seqloom.training.progress import Progress, Share
from seqloom.training.sparse import gradient_values
from seqloom.training.task import Batch, Task

TIMING_KEYS = frozenset({"seconds", "tokens_per_second", "eta"})
"""Values of events that depend on the clock. Without them, two runs with one seed emit the same events."""

_SHOWN = 3


@dataclass(frozen=True)
class Measured:
    """What a step has found out, the same on all ranks."""

    loss: float
    """Sum over all batches of the step."""
    count: int
    """What it sums over."""
    norm: float
    """Length of the gradient before clipping."""
    rate: float
    """Learning rate of the step."""
    signal: Literal[0, 130, 143]
    """Exit code of a signal that some rank has received; 0 without one."""

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are numbers to learn from."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Pace:
    """The clock of a process, for what is reported; nothing is decided by it."""

    def __init__(self, progress: Progress) -> None:
        self._first = self._last = progress
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Seconds in the loop so far, in earlier processes too."""
        return self._first.seconds + time.perf_counter() - self._started

    def figures(self, progress: Progress, *, steps: int) -> dict[str, Value]:
        """Speed since the last call, and the seconds that the steps left will take at the mean pace of this process."""
        since_last = progress.seconds - self._last.seconds
        per_step = (progress.seconds - self._first.seconds) / max(1, progress.step - self._first.step)
        speed = (progress.tokens - self._last.tokens) / since_last if since_last > 0 else 0.0
        self._last = progress
        return {"seconds": progress.seconds, "tokens_per_second": speed, "eta": per_step * (steps - progress.step)}


def step_values(progress: Progress, measured: Measured) -> dict[str, Value]:
    """The values of a "step" event, but for the timing ones."""
    return {
        "step": progress.step,
        "epoch": progress.epoch,
        "loss": progress.logged_loss / progress.logged_count if progress.logged_count else None,
        "learning_rate": measured.rate,
        "norm": measured.norm,
        "tokens": progress.tokens,
    }


def describe_bad_step(
    model: nn.Module, task: Task[Batch], *, share: Share, losses: Sequence[Tensor], world: World
) -> str:
    """The first batch with a bad loss and what it holds, or else all of the step; and the first bad gradients.

    All ranks must call it: the batch may be another one's. Each can look at every batch, since a batch is a function of
    its position.
    """
    pairs = zip(share.mine, losses, strict=True)
    mine = [index for index, loss in pairs if index is not None and not math.isfinite(loss.item())]
    found = world.least(mine[0] if mine else share.last)
    indices = [found] if found < share.last else list(range(share.first, share.last))
    texts = [f"batch {index} ({task.describe(task.batch(share.epoch, index))})" for index in indices[:_SHOWN]]
    names = [
        name
        for name, parameter in trained(model).items()
        if (values := gradient_values(parameter)) is not None and not bool(torch.isfinite(values).all())
    ]
    where = f"; gradients that are not finite: {_some(names)}" if names else ""
    return f"epoch {share.epoch}, {', '.join(texts)}{', …' if indices[_SHOWN:] else ''}{where}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
