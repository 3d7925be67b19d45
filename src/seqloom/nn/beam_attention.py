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
    keys, values = kept.keys[layer].numpy(), kept.values[layer].numpy()
    owners, slots = lineage.owners.numpy(), lineage.queries.positions.numpy()
    numbers = joined.contiguous().numpy()
    out = joined.new_empty(len(joined), joined.shape[1] // 3)
    kernels, scale = _kernels(), _scale(keys.shape[4])
    kernels.write(numbers, keys, values, owners, slots, position)
    kernels.look_back(numbers, keys, values, owners, lineage.ancestors.numpy(), position, scale, out.numpy())
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
    out = torch.empty_like(query)
    arrays = (query.contiguous().numpy(), keys.numpy(), values.numpy(), owners.numpy(), lengths.numpy())
    _kernels().look_at(*arrays, _scale(keys.shape[3]), out.numpy())
    return out


def _scale(size: int) -> np.float32:
    return np.float32(1 / math.sqrt(size))


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@cache
def _kernels() -> ModuleType:
    from seqloom.nn import beam_kernels

    return beam_kernels
