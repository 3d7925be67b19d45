"""The memory of a decoder: what the encoder left, once per sentence."""

from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from seqloom.nn.multihead import KeyValues
from seqloom.nn.tables import FlatKeys, flat, scale_of


@dataclass(frozen=True)
class Memory:
    """Keys and values for each decoder layer, and what hides the padding."""

    layers: tuple[KeyValues, ...]
    mask: Float[Tensor, "sentences one one source"]
    lengths: Int[Tensor, " sentences"]
    """Positions that may be looked at, one at least."""

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "Memory":
        layers = tuple(KeyValues(each.keys[sentences], each.values[sentences]) for each in self.layers)
        return Memory(layers, self.mask[sentences], self.lengths[sentences])

    @cached_property
    def flat(self) -> FlatKeys:
        """As compiled loops read it."""
        _, heads, source, size = self.layers[0].keys.shape
        keys, values = ([flat(each.contiguous()) for each in kept] for kept in zip(*self._pairs, strict=True))
        return FlatKeys(keys, values, (heads, source), scale_of(size), self.lengths.numpy())

    @property
    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        return [(each.keys, each.values) for each in self.layers]
