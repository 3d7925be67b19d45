"""Attention of a decoding step by compiled loops (`nn.fast.kernels`), where they are faster than products."""

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from types import ModuleType

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.nn.fast.beam_cache import BeamCache, FlatKeys, Lineage, flat, scale_of
from seqloom.nn.fast.norms import Table
from seqloom.nn.multihead import KeyValues


@dataclass(frozen=True)
class EncoderMemory:
    """The encoder's output for a decoder: keys and values of each layer, once per sentence, and the padding mask."""

    layers: tuple[KeyValues, ...]
    mask: Float[Tensor, "sentences one one source"]
    lengths: Int[Tensor, " sentences"]
    """Positions that may be looked at, one at least."""

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "EncoderMemory":
        layers = tuple(KeyValues(each.keys[sentences], each.values[sentences]) for each in self.layers)
        return EncoderMemory(layers, self.mask[sentences], self.lengths[sentences])

    @cached_property
    def flat(self) -> FlatKeys:
        """As compiled loops read it."""
        _, heads, source, size = self.layers[0].keys.shape
        keys, values = ([flat(each.contiguous()) for each in kept] for kept in zip(*self._pairs, strict=True))
        return FlatKeys(keys, values, (heads, source), scale_of(size), self.lengths.numpy())

    @property
    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        return [(each.keys, each.values) for each in self.layers]


MIN_ROWS = 1
"""Rows from which on the loops are used."""


def uses_loops(x: Float[Tensor, "rows width"]) -> bool:
    """Whether compiled loops compute the attention of these rows."""
    return (
        len(x) >= MIN_ROWS
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and _has_numba()
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
        _kernels().look_back(*tables, kept.shape, kept.scale, out.flat)
        self.kept.written = self.ancestors.shape[1]
        return out

    def to_memory(self, query: Table, layer: int, out: Table) -> Table:
        """Each row attends to the memory of its sentence, up to its length."""
        memory = self.memory.flat
        tables = (query.flat, memory.keys[layer], memory.values[layer], self.owners, memory.lengths)
        _kernels().look_at(*tables, memory.shape, memory.scale, out.flat)
        return out


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@cache
def _kernels() -> ModuleType:
    from seqloom.nn.fast import kernels as beam_kernels

    return beam_kernels
