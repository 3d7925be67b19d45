"""Tables that products see as tensors and compiled loops as flat arrays: looked up once, not at every call."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

Flat = Float[np.ndarray, " numbers"]


def flat(table: Float[Tensor, "..."]) -> Flat:
    """All numbers of a table whose rows lie one after another."""
    return table.view(-1).numpy()


class Table:
    """A table in single precision, in both forms."""

    def __init__(self, tensor: Float[Tensor, "rows columns"]) -> None:
        self.tensor = tensor
        self.flat = flat(tensor)


@dataclass(frozen=True)
class FlatKeys:
    """Keys and values of all layers, how they are laid out, and what scores are multiplied by."""

    keys: Sequence[Flat]
    values: Sequence[Flat]
    shape: tuple[int, ...]
    scale: np.float32
    lengths: Int[np.ndarray, " sentences"] | None = None


def scale_of(size: int) -> np.float32:
    """The scores' 1/√size, and log₂ e, because the loops take powers of 2."""
    return np.float32(math.log2(math.e) / math.sqrt(size))
