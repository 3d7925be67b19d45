"""What experiments share: progress, frames to draw into, and cells from a seed with random inputs."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.optim import Optimizer

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import tidy
from seqloom.nn.cells.cell import Cell, CellState
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.jacobians import directions, gradient_by_lag, states_along

Say = Callable[[str], None]
"""Takes a line of progress."""


def silent(_line: str) -> None:
    """Reports nothing."""


class Countdown:
    """Reports the estimated time left after each part of an experiment, if all parts cost the same."""

    def __init__(self, say: Say, parts: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._parts, self._clock = say, parts, clock
        self._since, self._done = clock(), 0

    def done(self, what: str) -> None:
        """One more part is done: "forget bias 2: 3 of 7, about 20 s left"."""
        self._done += 1
        left = (self._clock() - self._since) / self._done * (self._parts - self._done)
        self._say(f"{what}: {self._done} of {self._parts}, about {left:.0f} s left")


# Frames that several experiments draw into.

LOWEST = 1e-10
"""Norms below this are not drawn: they would compress the rest of the plot."""


def frames(count: int, *, width: float = 9.6, height: float = 4.2, shares_y: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of some frames side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, count, sharey=shares_y, squeeze=False)[0])
    for each in axes:
        tidy(each)
    return figure, axes


def plot_by_lag(
    axes: Axes, norms: Sequence[float], *, colour: str, label: str | None = None, dashed: bool = False
) -> None:
    """Norms by lag, as far as they can be seen."""
    seen = next((lag for lag, norm in enumerate(norms) if norm < LOWEST), len(norms))
    width, style = (1.0, (0, (4, 3))) if dashed else (1.8, "-")
    axes.plot(range(seen), norms[:seen], color=colour, label=label, linewidth=width, linestyle=style)


def plot_medians(
    axes: Axes,
    places: Iterable[int | float],
    values: Iterable[Sequence[float]],
    *,
    colour: str,
    mark: str,
    label: str | None,
) -> None:
    """The median of the values at each place, and a bar from the lowest to the highest."""
    at, rows = list(places), list(values)
    axes.vlines(at, [min(row) for row in rows], [max(row) for row in rows], color=colour, linewidth=1, alpha=0.6)
    axes.plot(at, [median(row) for row in rows], color=colour, marker=mark, ms=5, linewidth=1.6, label=label)


def name_lags(axes: Axes, ylabel: str | None = "gradient norm (1 at lag 0)") -> None:
    """A logarithmic scale and the names of both axes."""
    axes.set(yscale="log", xlabel="lag ℓ (steps back)")
    if ylabel is not None:
        axes.set_ylabel(ylabel)


def powers_of_two(axes: Axes, ticks: Sequence[int]) -> None:
    """A logarithmic scale along x with these numbers on it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def legend_above(figure: Figure, columns: int) -> None:
    """One legend for all frames of a figure."""
    figure.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=columns)


def note_left(axes: Axes, text: str, place: tuple[float, float], *, colour: str) -> None:
    """Small text to the left of a point and a little above it."""
    axes.annotate(text, place, xytext=(-6, 3), textcoords="offset points", ha="right", fontsize=8, color=colour)


def signed(value: float) -> str:
    """A number with a typographic minus sign, as on the axes."""
    return f"{value:g}".replace("-", "−")


def shades(count: int) -> list[str]:
    """Colours from dark to light, for things in an order."""
    return [to_hex(colormaps["viridis"](0.92 * number / max(1, count - 1))) for number in range(count)]


def take_step(optimiser: Optimizer, loss: Float[Tensor, ""], *, clip_norm: float) -> None:
    """One update of the weights, by the clipped gradient of a loss."""
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_([weight for group in optimiser.param_groups for weight in group["params"]], clip_norm)
    optimiser.step()


C = TypeVar("C", bound=Cell)


@dataclass(frozen=True)
class Bench:
    """The sizes of a measurement on one cell. All of it is done in double precision."""

    width: int = 64
    """Of the state."""
    input_width: int = 16
    """Of the inputs, which are normal with deviation `loudness`, each independent of all others."""
    sequences: int = 16
    """Over which a measurement is averaged."""
    burn_in: int = 100
    """Steps before the measurement, so that the initial state has no effect."""
    steps: int = 100
    """Of the measurement: the largest lag."""
    loudness: float = 1.0
    """The standard deviation of the inputs: louder ones drive tanh and the gates further from the middle."""

    def cell(self, make: Callable[[int, int], C], *, seed: int) -> C:
        """A cell with weights from the seed."""
        with seeded(seed_for(seed, "cell")):
            return make(self.input_width, self.width).double()

    def inputs(self, seed: int, *, steps: int | None = None) -> Float[Tensor, "sequences steps inputs"]:
        """Random inputs, the same for every cell."""
        return self._drawn(self.steps if steps is None else steps, seed, "inputs")

    def settled(self, cell: Cell, *, seed: int) -> CellState:
        """The states of a cell, one row per sequence, after the burn-in."""
        empty = cell.begin(torch.zeros(self.sequences, self.width, dtype=torch.float64))
        return tuple(part[-1] for part in states_along(cell, self._drawn(self.burn_in, seed, "burn-in"), empty))

    def _drawn(self, steps: int, seed: int, use: str) -> Float[Tensor, "sequences steps inputs"]:
        shape = (self.sequences, steps, self.input_width)
        return self.loudness * torch.randn(shape, dtype=torch.float64, generator=generator_for(seed, use))

    def gradient_by_lag(self, cell: Cell, *, seed: int) -> list[float]:
        """The norm of the gradient that comes through 0 … `steps` steps, from 1 on."""
        gradient = directions(self.sequences, self.width, generator=generator_for(seed, "directions"))
        return gradient_by_lag(cell, self.inputs(seed), self.settled(cell, seed=seed), gradient=gradient)

    def as_data(self, seed: int) -> dict[str, Any]:
        """The seed and the sizes as JSON can hold them."""
        return {"seed": seed, "bench": asdict(self)}


def rounded(values: Iterable[float]) -> list[float]:
    """Six digits of each: more would be noise, and differ from machine to machine."""
    return [float(f"{value:.6g}") for value in values]


def generator_for(seed: int, use: str) -> torch.Generator:
    """A generator for one use."""
    return torch.Generator().manual_seed(seed_for(seed, use))


def output_layer(width: int, symbols: int) -> nn.Linear:
    """A linear layer that predicts symbols, with Glorot's start."""
    layer = nn.Linear(width, symbols)
    xavier_uniform(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
