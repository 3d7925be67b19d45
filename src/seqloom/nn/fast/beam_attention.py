"""Attention of a decoding step by compiled loops, where they are faster than products."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.jit import compiled, has_numba
from seqloom.nn.fast.beam_cache import BeamCache, FlatKeys, Lineage, flat, scale_of
from seqloom.nn.fast.norms import Table
from seqloom.nn.multihead import KeyValues


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
        keys = [flat(each.keys.contiguous()) for each in self.layers]
        values = [flat(each.values.contiguous()) for each in self.layers]
        return FlatKeys(keys, values, (heads, source), scale_of(size), self.lengths.numpy())


MIN_ROWS = 1
"""Rows from which on the loops are used."""


def uses_loops(x: Float[Tensor, "rows width"]) -> bool:
    """Whether compiled loops compute the attention of these rows."""
    return (
        len(x) >= MIN_ROWS
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and has_numba()
    )


class StepAttention:
    """The attention of one step by compiled loops; its arrays are laid out once for all layers."""

    def __init__(self, kept: BeamCache, lineage: Lineage, memory: EncoderMemory) -> None:
        self.kept, self.memory = kept, memory
        self.owners, self.ancestors = lineage.owners.numpy(), lineage.ancestors.contiguous().numpy()

    def to_self(self, joined: Table, layer: int, out: Table) -> Table:
        """Write the keys and values of the rows into the cache, then attend to each row's own history."""
        kept = self.kept.flat
        tables = (joined.flat, kept.keys[layer], kept.values[layer], self.owners, self.ancestors)
        _attend_to_history(*tables, kept.shape, kept.scale, out.flat)
        self.kept.written = self.ancestors.shape[1]
        return out

    def to_memory(self, query: Table, layer: int, out: Table) -> Table:
        """Each row attends to the memory of its sentence, up to its length."""
        memory = self.memory.flat
        tables = (query.flat, memory.keys[layer], memory.values[layer], self.owners, memory.lengths)
        _attend_to_memory(*tables, memory.shape, memory.scale, out.flat)
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
def _powers(exponents: Array, count: int) -> None:
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

    The numbers of head h at position p begin at places[p] + h · stride. The query comes multiplied by log₂ e / √size.
    Places and counts are unsigned: a number that may be negative is tested at every use, and loops stay slow.
    """
    size = np.uint64(query.shape[0]) // heads
    for p in range(count):
        for h in range(heads):
            at, own = places[p] + h * stride, h * size
            score = np.float32(0.0)
            for k in range(size):
                score += query[own + k] * keys[at + k]
            scores[h * count + p] = score
    for h in range(heads):
        first = h * count
        highest = np.float32(-np.inf)
        for p in range(count):
            highest = max(highest, scores[first + p])
        for p in range(count):
            scores[first + p] -= highest
    _powers(scores, heads * count)
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
def _attend_to_history(
    joined: Array, keys: Array, values: Array, owners: Array, ancestors: Array, shape: Any, scale: Any, out: Array
) -> None:
    """Each row writes its key and value, then attends to its own history. Slots without a row become 0.

    `joined` holds query, key and value of a row, `shape` is (sentences, room, slots, heads), and all tables are flat.
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
        _attend(query, keys, values, places, np.uint64(count), np.uint64(heads), size, scores)
        for k in range(width):
            out[target + k] = query[k]
    for s in range(sentences):
        first = (s * room + count - 1) * slots
        for free in range(np.uint64(first + taken[s]) * width, np.uint64(first + slots) * width):
            keys[free] = values[free] = np.float32(0.0)


@compiled(fast={"contract", "reassoc"})
def _attend_to_memory(
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
        _attend(query, keys, values, places, np.uint64(count), np.uint64(heads), stride, scores)
        for k in range(width):
            out[target + k] = query[k]
