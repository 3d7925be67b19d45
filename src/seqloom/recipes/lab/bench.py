"""What the experiments on cells have in common: cells from a seed, random inputs, a state that has settled."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.seeds import seed_for
from seqloom.inspection.jacobians import states_along
from seqloom.inspection.lags import directions, gradient_by_lag
from seqloom.nn.cells import Cell, CellState
from seqloom.nn.init import seeded
from seqloom.nn.recurrent import MakeCell


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
    """Steps before the measurement, so that what is seen is no effect of the empty state."""
    steps: int = 100
    """Of the measurement: the largest lag."""
    loudness: float = 1.0
    """The standard deviation of the inputs: louder ones drive tanh and the gates further from the middle."""

    def cell(self, make: MakeCell, *, seed: int) -> Cell:
        """A cell with weights from the seed."""
        with seeded(seed_for(seed, "cell")):
            return make(self.input_width, self.width).double()

    def inputs(self, seed: int, *, steps: int | None = None) -> Float[Tensor, "sequences steps inputs"]:
        """Random inputs, the same for every cell."""
        shape = (self.sequences, self.steps if steps is None else steps, self.input_width)
        return self.loudness * torch.randn(shape, dtype=torch.float64, generator=_generator(seed, "inputs"))

    def settled(self, cell: Cell, *, seed: int) -> CellState:
        """The states of a cell, one row per sequence, after the burn-in."""
        shape = (self.sequences, self.burn_in, self.input_width)
        before = self.loudness * torch.randn(shape, dtype=torch.float64, generator=_generator(seed, "burn-in"))
        empty = cell.begin(torch.zeros(self.sequences, self.width, dtype=torch.float64))
        return tuple(part[-1] for part in states_along(cell, before, empty))

    def gradient_by_lag(self, cell: Cell, *, seed: int) -> list[float]:
        """The norm of the gradient that comes through 0 … `steps` steps, from 1 on."""
        gradient = directions(self.sequences, self.width, generator=_generator(seed, "directions"))
        return gradient_by_lag(cell, self.inputs(seed), self.settled(cell, seed=seed), gradient=gradient)

    def as_data(self) -> dict[str, Any]:
        """The sizes as JSON can hold them."""
        return asdict(self)


def rounded(values: Iterable[float]) -> list[float]:
    """Six digits of each: more would be noise, and differ from machine to machine."""
    return [float(f"{value:.6g}") for value in values]


def _generator(seed: int, use: str) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(seed, use))
