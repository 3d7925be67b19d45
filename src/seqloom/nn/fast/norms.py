"""The end of a sublayer and the beginning of the next in one pass, by compiled loops: a sum and its layer norm."""

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.fast.beam_cache import flat


class Table:
    """A table in single precision as products see it (a tensor) and as compiled loops see it (flat)."""

    def __init__(self, tensor: Float[Tensor, "rows columns"]) -> None:
        self.tensor = tensor
        self.flat = flat(tensor)


@dataclass(frozen=True)
class FusedNorm:
    """A layer norm, (x − mean) / √(variance + ε) · weight + bias of each row, as compiled loops read it."""

    weight: Any
    bias: Any
    epsilon: np.float32

    @staticmethod
    def of(norm: nn.LayerNorm) -> "FusedNorm":
        return FusedNorm(norm.weight.detach().numpy(), norm.bias.detach().numpy(), np.float32(norm.eps))

    def __call__(self, x: Table, out: Table) -> Table:
        """The norm of x."""
        _kernels().normalise(x.flat, self.weight, self.bias, out.flat, self.epsilon)
        return out

    def add(self, x: Table, branch: Table, out: Table) -> Table:
        """x becomes x + branch; returns its norm. `out` may be x itself, which then holds the norm."""
        _kernels().add_and_normalise(x.flat, branch.flat, self.weight, self.bias, out.flat, self.epsilon)
        return out


@cache
def _kernels() -> ModuleType:
    from seqloom.nn.fast import kernels as norm_kernels

    return norm_kernels
