"""Layer norms, compiled: a row is read from memory once. `seqloom.nn.norms` is the only one who calls."""

from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself. Tables are flat, and a row is as long as the weight."""


@compiled(fast={"contract", "reassoc"}, is_inlined=True)
def normalise_row(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any, start: Any) -> None:
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
def add_and_normalise(x: Array, branch: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """x = x + branch, out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        for k in range(start, start + width):
            x[k] += branch[k]
        normalise_row(x, weight, bias, out, epsilon, start)


@compiled(fast={"contract", "reassoc"})
def normalise(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        normalise_row(x, weight, bias, out, epsilon, start)
