"""What a run says of its steps."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqloom.core.events import Value
from seqloom.training.distributed import World
from seqloom.training.holding import Holding
from seqloom.training.progress import Progress, Share
from seqloom.training.sparse import gradient_values
from seqloom.training.task import Batch, Task

_SHOWN = 3
_LAYERS_SHOWN = 12


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
    signal: int
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
        self._aside = 0.0

    def seconds(self) -> float:
        """Seconds in the loop so far, in earlier processes too."""
        return self._first.seconds + time.perf_counter() - self._started

    def leave_out(self, seconds: float) -> None:
        """Seconds in which nothing was learned, such as those of a validation: they belong to no speed."""
        self._aside += seconds

    def figures(self, progress: Progress, *, steps: int) -> dict[str, Value]:
        """Speed since the last call, and the seconds that the steps left will take at the mean pace of this process."""
        since_last = progress.seconds - self._last.seconds - self._aside
        per_step = (progress.seconds - self._first.seconds) / max(1, progress.step - self._first.step)
        speed = (progress.tokens - self._last.tokens) / since_last if since_last > 0 else 0.0
        self._last, self._aside = progress, 0.0
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


@dataclass(frozen=True)
class BadStep:
    """A step whose loss or gradient was no finite number."""

    epoch: int
    batches: tuple[int, ...]
    """The first batch with such a loss, or else all of the step."""
    where: str
    """The same in words, with what these batches hold and the gradients that were not finite."""
    norms: Mapping[str, float]
    """Length of the gradient of each layer."""

    @property
    def place(self) -> str:
        """Its batches in a few words."""
        return f"epoch {self.epoch}, batch {', '.join(map(str, self.batches[:_SHOWN]))}"


def find_bad_step(
    holding: Holding[Batch], task: Task[Batch], *, share: Share, losses: Sequence[Tensor], world: World
) -> BadStep:
    """Look at a step that went wrong.

    All ranks must call it: the batch may be another one's, and so may what was computed from it. Each can look at every
    batch, since a batch is a function of its position.
    """
    pairs = zip(share.mine, losses, strict=True)
    mine = [index for index, loss in pairs if index is not None and not math.isfinite(loss.item())]
    found = world.least(mine[0] if mine else share.last)
    indices = (found,) if found < share.last else tuple(range(share.first, share.last))
    texts = [f"batch {index} ({task.describe(task.batch(share.epoch, index))})" for index in indices[:_SHOWN]]
    bad_here = [
        (values := gradient_values(parameter)) is not None and not bool(torch.isfinite(values).all())
        for parameter in holding.parameters.values()
    ]
    found_bad = zip(holding.parameters, world.sum(*map(float, bad_here)), strict=True)
    names = [name for name, ranks in found_bad if ranks]
    bad = f"; gradients that are not finite: {_some(names)}" if names else ""
    where = f"epoch {share.epoch}, {', '.join(texts)}{', …' if indices[_SHOWN:] else ''}{bad}"
    norms = layer_norms(holding.parameters)
    if holding.is_sharded:
        # Every rank has the same layers, since all have a gradient of the same parameters.
        counted = layer_norms(holding.counted)
        squares = world.sum(*(counted.get(layer, 0.0) * counted.get(layer, 0.0) for layer in norms))
        norms = {layer: math.sqrt(square) for layer, square in zip(norms, squares, strict=True)}
    return BadStep(share.epoch, indices, where, norms)


def layer_norms(parameters: Mapping[str, nn.Parameter]) -> dict[str, float]:
    """The length of the gradient of each layer, which is what names have in common up to their first number."""
    squares: dict[str, float] = {}
    for name, parameter in parameters.items():
        values = gradient_values(parameter)
        if values is not None:
            layer = _layer(name)
            squares[layer] = squares.get(layer, 0.0) + values.detach().double().square().sum().item()
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def _layer(name: str) -> str:
    """encoder.layers.0.attention.weight → encoder.layers.0; output.weight → output."""
    parts = name.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else parts[0]


def in_words(norms: Mapping[str, float]) -> str:
    """Norms of layers in a sentence: "encoder.0 nan, encoder.1 0.31 …"."""
    shown = [f"{layer} {norm:.3g}" for layer, norm in list(norms.items())[:_LAYERS_SHOWN]]
    more = len(norms) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
