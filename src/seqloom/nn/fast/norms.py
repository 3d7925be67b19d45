"""The end of a sublayer and the beginning of the next in one pass, by compiled loops: a sum and its layer norm."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.jit import compiled
from seqloom.nn.fast.beam_cache import flat

Array = Any
"""numba infers types and shapes. Arrays are flat."""


@compiled(fast={"contract", "reassoc"}, is_inlined=True)
def _normalise_row(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any, start: Any) -> None:
    """The same for the row that begins at `start`."""
    width = np.uint64(weight.shape[0])
    share = np.float32(1) / np.float32(weight.shape[0])
    total, squares = np.float32(0), np.float32(0)
    for k in range(width):
        total += x[start + k]
    mean = total * share
    for k in range(width):
        apart = x[start + k] - mean
        squares += apart * apart
    scale = np.float32(1) / np.sqrt(squares * share + epsilon)
    for k in range(width):
        out[start + k] = (x[start + k] - mean) * scale * weight[k] + bias[k]


@compiled(fast={"contract", "reassoc"})
def _add_and_normalise(x: Array, branch: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """x = x + branch, out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        for k in range(start, start + width):
            x[k] += branch[k]
        _normalise_row(x, weight, bias, out, epsilon, start)


@compiled(fast={"contract", "reassoc"})
def _normalise(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        _normalise_row(x, weight, bias, out, epsilon, start)


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
        _normalise(x.flat, self.weight, self.bias, out.flat, self.epsilon)
        return out

    def add(self, x: Table, branch: Table, out: Table) -> Table:
        """x becomes x + branch; returns its norm. `out` may be x itself, which then holds the norm."""
        _add_and_normalise(x.flat, branch.flat, self.weight, self.bias, out.flat, self.epsilon)
        return out
