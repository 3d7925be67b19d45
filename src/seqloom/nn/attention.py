"""Attention of a recurrent decoder: where to attend in the memory, for one query or many at once.

    score(s, h) = s · h                        dot       (Luong et al., 2015)
                  s · W h                      bilinear  (Luong et al., 2015, "general")
                  v · tanh(W s + U h)          additive  (Bahdanau et al., 2015)
    weights[j] = softmax_j(score(s, h_j))      over the real positions of the sentence
    context = Σ_j weights[j] h_j

What depends on the memory alone (W h, U h) is its `keys`: computed once per sentence, whatever the number of queries.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import ConfigError
from seqloom.nn.init import xavier_uniform
from seqloom.nn.packing import additive, length_mask, slots_of
from seqloom.nn.probe import Probe

Queries = Float[Tensor, "batch queries width"]
Memory = Float[Tensor, "batch source memory"]
Keys = Float[Tensor, "batch source key"]
Scores = Float[Tensor, "batch queries source"]


class AttentionScore(nn.Module):
    """How well each query matches each position of the memory: their dot product, unless a subclass computes more."""

    def keys(self, memory: Memory) -> Keys:
        """The part of the scores that depends on the memory alone."""
        return memory

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """The score of each query with each position."""
        return queries @ keys.transpose(1, 2)


class DotScore(AttentionScore):
    """s · h; both must have the same width."""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        if query_width != memory_width:
            raise ConfigError(
                f"dot attention multiplies decoder states of width {query_width} with a memory of width "
                f"{memory_width}; make them equal, or set model.attention=bilinear"
            )


class BilinearScore(AttentionScore):
    """s · W h"""

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(memory_width, query_width, bias=False)
        xavier_uniform(self.from_memory.weight)

    def keys(self, memory: Memory) -> Keys:
        keys: Tensor = self.from_memory(memory)
        return keys


class AdditiveScore(AttentionScore):
    """v · tanh(W s + U h), a network of one hidden layer as wide as the query.

    Every pair of query and position has a hidden layer of its own, so this takes `width` times the memory of the
    other two.
    """

    def __init__(self, query_width: int, memory_width: int) -> None:
        super().__init__()
        self.from_query = nn.Linear(query_width, query_width, bias=False)
        self.from_memory = nn.Linear(memory_width, query_width, bias=False)
        self.weigh = nn.Linear(query_width, 1, bias=False)
        for layer in (self.from_query, self.from_memory, self.weigh):
            xavier_uniform(layer.weight)

    def keys(self, memory: Memory) -> Keys:
        keys: Tensor = self.from_memory(memory)
        return keys

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        pairs = self.from_query(queries)[:, :, None] + keys[:, None]  # [batch, queries, source, width]
        scores: Tensor = self.weigh(pairs.tanh_()).squeeze(3)  # [batch, queries, source]
        return scores


@dataclass(frozen=True)
class AttentionMemory:
    """The encoder's output for each sentence: its values, the keys made of them, and a mask of 0 and −∞."""

    values: Float[Tensor, "sentences source width"]
    keys: Float[Tensor, "sentences source key"]
    mask: Float[Tensor, "sentences one source"]

    def select(self, sentences: Int[Tensor, " picked"]) -> "AttentionMemory":
        """The memory of these sentences."""
        return AttentionMemory(self.values[sentences], self.keys[sentences], self.mask[sentences])


class Attention(nn.Module):
    """A score, the softmax over its real positions, and the weighted sum."""

    def __init__(self, score: AttentionScore) -> None:
        super().__init__()
        self.score = score
        self.weights = Probe()

    def remember(self, values: Float[Tensor, "batch source width"], lengths: Int[Tensor, " batch"]) -> AttentionMemory:
        """The memory of a batch of sentences, with all that can be computed before the first query."""
        # A sentence of no tokens attends to its first padding: all −∞ would give NaN.
        mask = length_mask(lengths.clamp(min=1), values.shape[1])  # [batch, source]
        return AttentionMemory(values, self.score.keys(values), additive(mask, values.dtype)[:, None])

    def forward(
        self, queries: Queries, memory: AttentionMemory
    ) -> tuple[Float[Tensor, "batch queries memory"], Scores]:
        """The context of each query and its weights, which sum to one and are zero on padding."""
        scores = self.score(queries, memory.keys) + memory.mask  # [batch, queries, source]
        weights: Tensor = self.weights(scores.softmax(2))
        return weights @ memory.values, weights


@dataclass(frozen=True)
class Owners:
    """Which sentence each row belongs to, and its slot among the rows of that sentence.

    The rows of a sentence are queries side by side, so its memory is read in place and never copied per row.
    """

    sentence: Int[Tensor, " rows"]
    slot: Int[Tensor, " rows"]
    sentences: int
    slots: int
    is_plain: bool
    """Row r is sentence r, all of them."""

    def gather(self, rows: Float[Tensor, "rows width"]) -> Float[Tensor, "sentences slots width"]:
        """The rows of each sentence side by side, zeros in the slots left over."""
        if self.is_plain:
            return rows[:, None]  # [sentences, 1, width]
        table = rows.new_zeros(self.sentences, self.slots, rows.shape[1])
        table[self.sentence, self.slot] = rows
        return table

    def rows_of(self, table: Float[Tensor, "sentences slots width"]) -> Float[Tensor, "rows width"]:
        """Each row's part of a table: the inverse of `gather`."""
        return table[:, 0] if self.is_plain else table[self.sentence, self.slot]


def owners_of(sentence: Int[Tensor, " rows"], sentences: int) -> Owners:
    """The owners of rows that belong to these sentences."""
    slot, slots = slots_of(sentence, sentences)
    is_plain = len(sentence) == sentences and torch.equal(sentence, torch.arange(sentences, device=sentence.device))
    return Owners(sentence, slot, sentences=sentences, slots=slots, is_plain=is_plain)
