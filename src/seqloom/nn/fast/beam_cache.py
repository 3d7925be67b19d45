"""Keys and values of the rows of a search, stored once and never moved.

A search that keeps k hypotheses for a sentence would have to copy their keys and values whenever it reorders them. Here
they stay where they were written, in one of k slots of their position, and a row keeps its path through the slots:

    keys[sentence, position, slot]              the key that the row in this slot of its sentence had at this position
    ancestors[row, position]                    the slot of the symbol that the row has there

All rows of a sentence then attend to all slots at once, as queries side by side, and a mask leaves each its own path:

    mask[row, (position, slot)] = 0 if slot = ancestors[row, position], −∞ otherwise

That is k times the products of one row, on numbers that are read once for all of them, and reordering is free.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.nn.packing import Packing

FIRST_ROOM = 32
"""Positions allocated at first; doubled when they are used up."""

Kept = Float[Tensor, "sentences room slots heads size"]
"""A row reads contiguous numbers at a position, and a sentence has written contiguous ones."""


Flat = Float[np.ndarray, " numbers"]


def flat(tensor: Float[Tensor, "..."]) -> Flat:
    """All numbers of a contiguous tensor, as compiled loops read them."""
    return tensor.view(-1).numpy()


@dataclass(frozen=True)
class FlatKeys:
    """Keys and values of all layers, their layout, and the factor of the scores."""

    keys: Sequence[Flat]
    values: Sequence[Flat]
    shape: tuple[int, ...]
    scale: np.float32
    lengths: Int[np.ndarray, " sentences"] | None = None


def scale_of(size: int) -> np.float32:
    """The scores' 1/√size times log₂ e, because the loops compute powers of 2."""
    return np.float32(math.log2(math.e) / math.sqrt(size))


@dataclass(frozen=True)
class Lineage:
    """The rows of a step: their sentences, their places side by side, and their paths through the slots."""

    owners: Int[Tensor, " rows"]
    queries: Packing
    ancestors: Int[Tensor, "rows positions"]

    def mask(self, slots: int, *, dtype: torch.dtype) -> Float[Tensor, "sentences one queries keys"] | None:
        """Hides the slots of other rows; None if there is only one slot."""
        if slots == 1:
            return None
        rows, positions = self.ancestors.shape
        # [rows, positions, slots]
        own = torch.full((rows, positions, slots), float("-inf"), dtype=dtype, device=self.owners.device)
        own.scatter_(2, self.ancestors[:, :, None], 0.0)
        # A place without a row may attend to everything: its result is discarded, but must be finite.
        mask = own.new_zeros(self.queries.batch * self.queries.longest, positions * slots)
        mask[self.queries.flat] = own.flatten(1)
        return mask.view(self.queries.batch, 1, self.queries.longest, positions * slots)


class BeamCache:
    """Keys and values of all layers. What was written is never changed, so older states may still read it."""

    def __init__(self, keys: list[Kept], values: list[Kept], *, written: int = 0) -> None:
        self.keys, self.values = keys, values
        self.written = written

    @staticmethod
    def empty(layers: int, sentences: int, *, heads: int, size: int, like: Tensor) -> "BeamCache":
        """Room for one row per sentence."""
        shape = (sentences, FIRST_ROOM, 1, heads, size)
        keys, values = ([like.new_empty(shape) for _ in range(layers)] for _ in range(2))
        return BeamCache(keys, values)

    @cached_property
    def flat(self) -> FlatKeys:
        """As compiled loops read it."""
        *shape, size = self.keys[0].shape
        return FlatKeys(
            [flat(each) for each in self.keys], [flat(each) for each in self.values], tuple(shape), scale_of(size)
        )

    @property
    def slots(self) -> int:
        return self.keys[0].shape[2]

    def at(self, position: int, *, slots: int) -> "BeamCache":
        """A cache in which `slots` rows per sentence may write at `position`: this one, or a copy of what it holds.

        A copy is needed when there is too little room, and when another state has been stepped from here before.
        """
        _, room, present, _, _ = self.keys[0].shape
        if self.written == position < room and slots <= present:
            return self
        wider, longer = max(slots, present), room if position < room else 2 * room

        def grown(kept: Tensor) -> Tensor:
            copy = kept.new_empty(len(kept), longer, wider, *kept.shape[3:])
            copy[:, :position, :present] = kept[:, :position]
            # A slot that was never written is multiplied by a weight of 0, and 0 · NaN is not 0.
            copy[:, :position, present:] = 0
            return copy

        return BeamCache([grown(each) for each in self.keys], [grown(each) for each in self.values], written=position)

    def of_sentences(self, sentences: Int[Tensor, " picked"], *, positions: int) -> "BeamCache":
        """The cache of these sentences, up to this many positions."""

        def picked(kept: Tensor) -> Tensor:
            copy = kept.new_empty(len(sentences), *kept.shape[1:])
            torch.index_select(kept[:, :positions], 0, sentences, out=copy[:, :positions])
            return copy

        return BeamCache(
            [picked(each) for each in self.keys], [picked(each) for each in self.values], written=positions
        )

    def write(
        self,
        layer: int,
        position: int,
        *,
        key: Float[Tensor, "sentences heads queries size"],
        value: Float[Tensor, "sentences heads queries size"],
    ) -> tuple[Float[Tensor, "sentences heads keys size"], Float[Tensor, "sentences heads keys size"]]:
        """Write the keys and values of a position; returns all that may be attended to, slot after slot."""
        keys, values = self.keys[layer], self.values[layer]
        for kept, new in ((keys, key), (values, value)):
            kept[:, position, : new.shape[2]] = new.transpose(1, 2)
            kept[:, position, new.shape[2] :] = 0
        self.written = position + 1
        return _by_head(keys[:, : position + 1]), _by_head(values[:, : position + 1])


def _by_head(kept: Kept) -> Float[Tensor, "sentences heads keys size"]:
    """Slot after slot, for each head."""
    return kept.flatten(1, 2).transpose(1, 2)
