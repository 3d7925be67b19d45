"""A pointer gate: the next symbol is written from the vocabulary or copied from the source (See et al., 2017).

    a = softmax_j(f · K h_j / √width)                       where to copy from, over the positions of the source
    g = σ(z),  z = w · f + b                                how much is written from the vocabulary
    P(y) = g P_vocab(y) + (1 − g) Σ_j a_j [x_j = y]         P_vocab = softmax(W f + b)

f are the features of a target position, and h_j is the memory at the source symbol x_j. Both sides have one vocabulary,
so that x_j is a symbol of the target too. A symbol that is rare, or new in the place where it stands, can be written
because the source has it.

The features alone do not give P. A model with a pointer returns in their place what its output reads of a position,

    r = [f; z; a_1 … a_n; x_1 … x_n]

and `PointerOutput` computes P from it, so callers treat r as they treat features. Symbols in r are numbers that floats
hold exactly, up to 2²⁴. Padding of the source has a_j = 0.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn.init import xavier_uniform
from seqloom.nn.outputs import Output
from seqloom.nn.packing import Packing, additive, length_mask, pack


@dataclass(frozen=True)
class PointerMemory:
    """What can be copied: the keys and symbols of each source."""

    keys: Float[Tensor, "sentences source width"]
    """K h_j"""
    ids: Int[Tensor, "sentences source"]
    mask: Float[Tensor, "sentences one source"]
    """−∞ at padding."""

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "PointerMemory":
        return PointerMemory(self.keys[sentences], self.ids[sentences], self.mask[sentences])


class Pointer(nn.Module):
    """The attention from which symbols are copied, and the gate."""

    def __init__(self, width: int, memory_width: int) -> None:
        super().__init__()
        self.key = nn.Linear(memory_width, width, bias=False)
        self.gate = nn.Linear(width, 1)
        xavier_uniform(self.key.weight)
        xavier_uniform(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def remember(
        self,
        values: Float[Tensor, "batch source memory"],
        ids: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
    ) -> PointerMemory:
        """The sources of a batch. One without symbols points at its first padding: all −∞ would give NaN."""
        mask = additive(length_mask(lengths.clamp(min=1), ids.shape[1]), values.dtype)[:, None]  # [batch, 1, source]
        return PointerMemory(self.key(values), ids, mask)

    def forward(
        self, features: Float[Tensor, "batch queries width"], memory: PointerMemory
    ) -> Float[Tensor, "batch queries read"]:
        """r, what the output reads."""
        scores = features @ memory.keys.transpose(1, 2) / math.sqrt(features.shape[2])  # [batch, queries, source]
        weights = (scores + memory.mask).softmax(2)
        # Symbols need the precision of single floats, whatever that of the features is.
        exact = torch.promote_types(features.dtype, torch.float32)
        ids = memory.ids[:, None].expand(-1, features.shape[1], -1).to(exact)
        return torch.cat([features, self.gate(features), weights, ids], 2)  # [batch, queries, width + 1 + 2 · source]

    def packed(
        self, features: Float[Tensor, "tokens width"], packing: Packing, memory: PointerMemory
    ) -> Float[Tensor, "tokens read"]:
        """The same for packed positions, or for rows side by side."""
        places = features.new_zeros(packing.batch * packing.longest, features.shape[1])
        padded = places.index_copy(0, packing.flat, features).view(packing.batch, packing.longest, -1)
        return pack(self(padded, memory), packing)


class PointerOutput(Output):
    """Makes P(y) of what a pointer reads; `forward` gives the scores of the vocabulary for features alone.

    The loss is −log P(label) summed over the tokens. With label smoothing ε it is

        −(1 − ε) log P(y) − ε/symbols · Σ_k log P_vocab(k)

    so the smoothed share is that of the vocabulary: P is 0 for no symbol, but smoothing must not reward copies. P_vocab
    of each token is needed by itself, so all scores are kept for the backward pass, and not a few rows at a time.
    """

    def log_probs(self, features: Float[Tensor, "*rows read"]) -> Float[Tensor, "*rows symbols"]:
        """log P of all symbols."""
        own, gate, weights, ids = self._parts(features)
        log_vocabulary = F.log_softmax(self(own), -1)  # [*rows, symbols]
        copied = torch.zeros_like(log_vocabulary).scatter_add(-1, ids, weights.to(log_vocabulary.dtype))
        return _mixed(log_vocabulary, copied, gate[..., None])

    def cross_entropy(
        self, features: Float[Tensor, "tokens read"], labels: Int[Tensor, " tokens"], *, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        own, gate, weights, ids = self._parts(features)
        log_vocabulary = F.log_softmax(self(own), -1)  # [tokens, symbols]
        copied = (weights * (ids == labels[:, None])).sum(1)  # [tokens]
        log_probs = _mixed(log_vocabulary.gather(1, labels[:, None])[:, 0], copied, gate)
        total = -(1 - smoothing) * log_probs.sum()
        return total - smoothing * log_vocabulary.mean(1).sum() if smoothing else total

    def consistent_cross_entropy(
        self,
        features: Float[Tensor, "2 tokens read"],  # noqa: ARG002
        labels: Int[Tensor, " tokens"],  # noqa: ARG002
        *,
        smoothing: float = 0.0,  # noqa: ARG002
        consistency: float,
    ) -> Float[Tensor, ""]:
        raise ConfigError(f"task.consistency={consistency:g} is not supported with model.copy; leave one of them out")

    def _parts(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """f [*rows, width], z [*rows], a [*rows, source] and x [*rows, source]."""
        width = self.weight.shape[1]
        source = (read.shape[-1] - width - 1) // 2
        own, gate, weights, ids = read.split([width, 1, source, source], -1)
        return own.to(self.weight.dtype), gate[..., 0], weights, ids.long()


def _mixed(
    log_vocabulary: Float[Tensor, "*rows"], copied: Float[Tensor, "*rows"], gate: Float[Tensor, "*gates"]
) -> Float[Tensor, "*rows"]:
    """log(g P_vocab + (1 − g) copied). Where nothing is copied, log 0 would make the gradient NaN and is left out."""
    written, is_copied = F.logsigmoid(gate) + log_vocabulary, copied > 0
    log_copied = F.logsigmoid(-gate) + torch.where(is_copied, copied, 1).log()
    return torch.where(is_copied, torch.logaddexp(written, log_copied), written)
