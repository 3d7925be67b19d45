"""Attention of the rows of a search to their histories and to the memory: the cache, and compiled loops.

A search that keeps k hypotheses for a sentence would have to copy their keys and values whenever it reorders them. Here
they stay where they were written, in one of k slots of their position, and a row keeps its path through the slots:

    keys[sentence, position, slot]              the key that the row in this slot of its sentence had at this position
    ancestors[row, position]                    the slot of the symbol that the row has there

All rows of a sentence then attend to all slots at once, as queries side by side, and a mask leaves each its own path:

    mask[row, (position, slot)] = 0 if slot = ancestors[row, position], −∞ otherwise

That is k times the products of one row, on numbers that are read once for all of them, and reordering is free. Compiled
loops, where they can be used, read the path of each row alone.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.jit import compiled, has_numba
from seqloom.nn.packing import Packing

FIRST_ROOM = 32
"""Positions allocated at first; doubled when they are used up."""

Kept = Float[Tensor, "layers sentences room slots heads size"]
"""A row reads contiguous numbers at a position, and a sentence has written contiguous ones."""


Flat = Float[np.ndarray, " numbers"]


def flat(tensor: Float[Tensor, "..."]) -> Flat:
    """All numbers of a contiguous tensor, as compiled loops read them."""
    return tensor.view(-1).numpy()


def by_layer(tensor: Float[Tensor, "layers ..."]) -> Float[np.ndarray, "layers numbers"]:
    """The numbers of each layer of a contiguous tensor, as compiled loops read them."""
    return tensor.view(len(tensor), -1).numpy()


@dataclass(frozen=True)
class FlatKeys:
    """Keys and values of all layers, their layout in a layer, and the factor of the scores."""

    keys: Float[np.ndarray, "layers numbers"]
    values: Float[np.ndarray, "layers numbers"]
    shape: tuple[int, ...]
    scale: np.float32
    lengths: Int[np.ndarray, " sentences"] | None = None


def scale_of(size: int, scale: float | None = None) -> np.float32:
    """The scores' factor, 1/√size by default, times log₂ e, because the loops compute powers of 2."""
    return np.float32(math.log2(math.e) / math.sqrt(size) if scale is None else math.log2(math.e) * scale)


Biases = Float[np.ndarray, "heads distances"]
"""What is added to the scores by head and distance to an earlier position, times log₂ e; empty if that is nothing."""

NO_BIASES = np.empty((0, 0), np.float32)


class Table:
    """A table in single precision as products see it (a tensor) and as compiled loops see it (flat)."""

    def __init__(self, tensor: Float[Tensor, "rows columns"]) -> None:
        self.tensor = tensor
        self.flat = flat(tensor)


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

    def __init__(self, keys: Kept, values: Kept, *, written: int = 0) -> None:
        self.keys, self.values = keys, values
        self.written = written

    @staticmethod
    def empty(layers: int, sentences: int, *, heads: int, size: int, like: Tensor) -> "BeamCache":
        """Room for one row per sentence."""
        shape = (layers, sentences, FIRST_ROOM, 1, heads, size)
        return BeamCache(like.new_empty(shape), like.new_empty(shape))

    @cached_property
    def flat(self) -> FlatKeys:
        """As compiled loops read it."""
        _, *shape, size = self.keys.shape
        return FlatKeys(by_layer(self.keys), by_layer(self.values), tuple(shape), scale_of(size))

    @property
    def slots(self) -> int:
        return self.keys.shape[3]

    @property
    def room(self) -> int:
        """Positions that can be written."""
        return self.keys.shape[2]

    def at(self, position: int, *, slots: int, count: int = 1) -> "BeamCache":
        """A cache in which `slots` rows per sentence may write at `position`: this one, or a copy of what it holds.

        There is room for `count` positions from there on. A copy is needed when there is too little room, and when
        another state has been stepped from here before.
        """
        layers, sentences, room, present, *numbers = self.keys.shape
        last = position + count
        if self.written == position and last <= room and slots <= present:
            return self
        wider, longer = max(slots, present), room if last <= room else max(2 * room, last)

        def grown(kept: Tensor) -> Tensor:
            copy = kept.new_empty(layers, sentences, longer, wider, *numbers)
            copy[:, :, :position, :present] = kept[:, :, :position]
            # A slot that was never written is multiplied by a weight of 0, and 0 · NaN is not 0.
            copy[:, :, :position, present:] = 0
            return copy

        return BeamCache(grown(self.keys), grown(self.values), written=position)

    def of_sentences(self, sentences: Int[Tensor, " picked"], *, positions: int) -> "BeamCache":
        """The cache of these sentences, up to this many positions."""

        def picked(kept: Tensor) -> Tensor:
            copy = kept.new_empty(len(kept), len(sentences), *kept.shape[2:])
            for layer in range(len(kept)):
                torch.index_select(kept[layer, :, :positions], 0, sentences, out=copy[layer, :, :positions])
            return copy

        return BeamCache(picked(self.keys), picked(self.values), written=positions)

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


def _by_head(kept: Float[Tensor, "sentences room slots heads size"]) -> Float[Tensor, "sentences heads keys size"]:
    """Slot after slot, for each head."""
    return kept.flatten(1, 2).transpose(1, 2)


@dataclass(frozen=True)
class KeyValues:
    """Keys and values that a query attends to."""

    keys: Float[Tensor, "rows heads positions size"]
    values: Float[Tensor, "rows heads positions size"]


@dataclass(frozen=True)
class EncoderMemory:
    """The encoder's output for a decoder: keys and values of each layer, once per sentence, and the padding mask."""

    layers: tuple[KeyValues, ...]
    mask: Float[Tensor, "sentences one one source"]
    lengths: Int[Tensor, " sentences"]
    """Positions that may be attended to, at least one."""

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "EncoderMemory":
        layers = tuple(KeyValues(each.keys[sentences], each.values[sentences]) for each in self.layers)
        return EncoderMemory(layers, self.mask[sentences], self.lengths[sentences])

    @cached_property
    def flat(self) -> FlatKeys:
        """As compiled loops read it."""
        _, heads, source, size = self.layers[0].keys.shape
        keys = torch.stack([each.keys for each in self.layers])  # [layers, sentences, heads, source, size]
        values = torch.stack([each.values for each in self.layers])
        return FlatKeys(by_layer(keys), by_layer(values), (heads, source), scale_of(size), self.lengths.numpy())


MIN_ROWS = 1
"""Rows from which on the loops are used."""


def uses_loops(x: Float[Tensor, "rows width"]) -> bool:
    """Whether compiled loops compute the attention of these rows."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and loops_compute(len(x))


def loops_compute(rows: int) -> bool:
    """Whether compiled loops compute so many rows in single precision on a CPU."""
    return rows >= MIN_ROWS and not torch.is_grad_enabled() and has_numba()


class StepAttention:
    """The attention of one step by compiled loops; its arrays are laid out once for all layers."""

    def __init__(
        self,
        kept: BeamCache,
        lineage: Lineage,
        memory: EncoderMemory,
        *,
        scale: np.float32 | None = None,
        biases: Biases = NO_BIASES,
    ) -> None:
        """`scale` is log₂ e / √size by default, and `biases` are those of self-attention."""
        self.kept, self.memory, self.biases = kept, memory, biases
        self.scale = kept.flat.scale if scale is None else scale
        self.owners, self.ancestors = lineage.owners.numpy(), lineage.ancestors.contiguous().numpy()

    def to_self(self, joined: Table, layer: int, out: Table) -> Table:
        """Write the keys and values of the rows into the cache, then attend to each row's own history."""
        kept = self.kept.flat
        tables = (joined.flat, kept.keys[layer], kept.values[layer], self.owners, self.ancestors)
        attend_to_history(*tables, kept.shape, self.scale, self.biases, out.flat)
        self.kept.written = self.ancestors.shape[1]
        return out

    def to_memory(self, query: Table, layer: int, out: Table) -> Table:
        """Each row attends to the memory of its sentence, up to its length."""
        memory = self.memory.flat
        tables = (query.flat, memory.keys[layer], memory.values[layer], self.owners, memory.lengths)
        attend_to_memory(*tables, memory.shape, self.scale, out.flat)
        return out


# The attention of a step, compiled: single precision, on the CPU.
#
# A step has one query for each row and few keys, so products of matrices are mostly call overhead: hundreds of them
# with a handful of rows each. Here one call does all rows, and a row reads its own keys only, by its ancestors.
# Arguments are positional: that is how compiled code is called quickly. A row of the result depends on nothing but its
# own numbers, to the last bit.

Array = Any
"""numba infers types and shapes. Arrays are flat."""

# 2^f = Σ_i C_i f^i to 3e-9 for 0 ≤ f < 1, fitted by least squares on the relative error at Chebyshev's places.
MIN_EXPONENT = np.float32(-120.0)
C0, C1, C2 = np.float32(1.0000000018154933), np.float32(0.6931469870574706), np.float32(0.24022979581429327)
C3, C4 = np.float32(0.05548352472375446), np.float32(0.00967847255490023)
C5, C6 = np.float32(0.001244308150400659), np.float32(0.0002169060918639303)


@compiled(fast={"contract", "reassoc"})
def powers(exponents: Array, count: Any) -> None:
    """2^exponent in its place, for the first `count` exponents, none of which is above 0."""
    bits = exponents.view(np.int32)
    for p in range(count):
        power = max(exponents[p], MIN_EXPONENT)
        whole = np.floor(power)
        f = power - whole
        exponents[p] = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
        bits[p] += np.int32(whole) << 23  # one more in the exponent is a factor of 2


@compiled(fast={"contract", "reassoc"})
def _attend(
    query: Array, keys: Array, values: Array, places: Array, count: Any, heads: Any, stride: Any, scores: Array
) -> None:
    """query_h = Σ_p softmax_p(query_h · keys_h[p]) values_h[p] for each head, in the place of the query.

    The numbers of head h at position p begin at places[p] + h · stride. The query comes multiplied by log₂ e / √size,
    and `scores` hold what is added to the products, times log₂ e.
    Places and counts are unsigned: a number that may be negative is tested at every use, and loops stay slow.
    """
    size = np.uint64(query.shape[0]) // heads
    for p in range(count):
        for h in range(heads):
            at, own = places[p] + h * stride, h * size
            score = np.float32(0.0)
            for k in range(size):
                score += query[own + k] * keys[at + k]
            scores[h * count + p] += score
    for h in range(heads):
        first = h * count
        highest = np.float32(-np.inf)
        for p in range(count):
            highest = max(highest, scores[first + p])
        for p in range(count):
            scores[first + p] -= highest
    powers(scores, heads * count)
    for k in range(np.uint64(query.shape[0])):
        query[k] = np.float32(0.0)
    for h in range(heads):
        first = h * count
        total = np.float32(0.0)
        for p in range(count):
            total += scores[first + p]
        for p in range(count):
            scores[first + p] /= total
    for p in range(count):
        for h in range(heads):
            at, own, share = places[p] + h * stride, h * size, scores[h * count + p]
            for k in range(size):
                query[own + k] += share * values[at + k]


@compiled(fast={"contract", "reassoc"})
def attend_to_history(
    joined: Array,
    keys: Array,
    values: Array,
    owners: Array,
    ancestors: Array,
    shape: Any,
    scale: Any,
    biases: Array,
    out: Array,
) -> None:
    """Each row writes its key and value, then attends to its own history. Slots without a row become 0.

    `joined` holds query, key and value of a row, `shape` is (sentences, room, slots, heads), and all tables but the
    biases are flat.
    """
    sentences, room, slots, heads = shape
    rows, count = ancestors.shape
    width = np.uint64(out.shape[0] // rows)
    size = width // np.uint64(heads)
    places, query = np.empty(count, np.uint64), np.empty(width, np.float32)
    scores, taken = np.empty(count * heads, np.float32), np.zeros(sentences, np.int64)
    for r in range(rows):
        taken[owners[r]] += 1
        for p in range(count):
            places[p] = np.uint64((owners[r] * room + p) * slots + ancestors[r, p]) * width
        at, own, target = np.uint64(3 * r) * width, places[count - 1], np.uint64(r) * width
        for k in range(width):
            query[k] = scale * joined[at + k]
            keys[own + k] = joined[at + width + k]
            values[own + k] = joined[at + width + width + k]
        for h in range(heads):
            for p in range(count):
                scores[h * count + p] = biases[h, count - 1 - p] if biases.shape[0] else np.float32(0.0)
        _attend(query, keys, values, places, np.uint64(count), np.uint64(heads), size, scores)
        for k in range(width):
            out[target + k] = query[k]
    for s in range(sentences):
        first = (s * room + count - 1) * slots
        for free in range(np.uint64(first + taken[s]) * width, np.uint64(first + slots) * width):
            keys[free] = values[free] = np.float32(0.0)


@compiled(fast={"contract", "reassoc"})
def attend_to_memory(
    queries: Array, keys: Array, values: Array, owners: Array, lengths: Array, shape: Any, scale: Any, out: Array
) -> None:
    """Each row attends to the memory of its sentence, up to its length; `shape` is (heads, source), the tables flat."""
    heads, source = shape
    rows = owners.shape[0]
    width = np.uint64(out.shape[0] // rows)
    size = width // np.uint64(heads)
    stride = np.uint64(source) * size
    places, query = np.empty(source, np.uint64), np.empty(width, np.float32)
    scores = np.empty(source * heads, np.float32)
    for r in range(rows):
        count, first, target = lengths[owners[r]], owners[r] * heads * source, np.uint64(r) * width
        for p in range(count):
            places[p] = np.uint64(first + p) * size
        for k in range(width):
            query[k] = scale * queries[target + k]
        for p in range(heads * count):
            scores[p] = np.float32(0.0)
        _attend(query, keys, values, places, np.uint64(count), np.uint64(heads), stride, scores)
        for k in range(width):
            out[target + k] = query[k]
