"""Attention of a decoding step by compiled loops, where they are faster than products: see `nn.beam_kernels`."""

import math
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.nn.beam_cache import BeamCache, Lineage

FEWEST = 32
"""Rows from which on the loops are used: below, importing the compiler would take longer than a short translation."""


def has_loops(x: Float[Tensor, "rows width"]) -> bool:
    """Whether rows like these are looked after by compiled loops."""
    return (
        len(x) >= FEWEST
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and _has_numba()
    )


def look_back(
    joined: Float[Tensor, "rows three_widths"], kept: BeamCache, layer: int, *, lineage: Lineage, position: int
) -> Float[Tensor, "rows width"]:
    """Write the keys and values of the rows, then let each look at its own way so far."""
    *shape, size = kept.keys[layer].shape
    out = joined.new_empty(len(joined), joined.shape[1] // 3)
    # Rows that lie one after another, so that flat tables are views.
    tables = (_flat(joined.contiguous()), _flat(kept.keys[layer]), _flat(kept.values[layer]))
    ways = (lineage.owners.numpy(), lineage.ancestors.contiguous().numpy())
    _kernels().look_back(*tables, *ways, tuple(shape), _scale(size), _flat(out))
    kept.written = position + 1
    return out


def look_at(
    query: Float[Tensor, "rows width"],
    keys: Float[Tensor, "sentences heads source size"],
    values: Float[Tensor, "sentences heads source size"],
    *,
    owners: Int[Tensor, " rows"],
    lengths: Int[Tensor, " sentences"],
) -> Float[Tensor, "rows width"]:
    """Each row looks at the memory of its sentence, up to its length."""
    _, heads, source, size = keys.shape
    out = query.new_empty(query.shape)
    tables = (_flat(query.contiguous()), _flat(keys.contiguous()), _flat(values.contiguous()))
    places = (owners.numpy(), lengths.numpy())
    _kernels().look_at(*tables, *places, (heads, source), _scale(size), _flat(out))
    return out


def _flat(table: Float[Tensor, "..."]) -> Float[np.ndarray, " numbers"]:
    return table.view(-1).numpy()


def _scale(size: int) -> np.float32:
    """The scores' 1/√size, and log₂ e, because the loops take powers of 2."""
    return np.float32(math.log2(math.e) / math.sqrt(size))


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@cache
def _kernels() -> ModuleType:
    from seqloom.nn import beam_kernels

    return beam_kernels
