"""A shortlist: only symbols that are likely in the translation of a sentence get a score.

    P(y ∣ …) = exp(w_y · x + b_y) / Σ_{y' offered} exp(w_y' · x + b_y')        for the symbols offered to the sentence

Each sentence has its own list, independent of its neighbours, and the cost of a step is proportional to its length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.jit import compiled
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.nn.fast.beam_attention import uses_loops
from seqloom.nn.fast.selection import log_softmax_by_loops
from seqloom.nn.outputs import Output, log_softmax_

Array = Any
"""numba infers types and shapes."""

Shortlister = Callable[[Source], Int[Tensor, "sentences offered"]]
"""The symbols offered to each sentence in rising order, then −1 where its list is shorter than others."""


@dataclass(frozen=True)
class Offered:
    """The symbols offered to each sentence, and the output whose rows score them."""

    symbols: Int[Tensor, "sentences offered"]
    bias: Float[Tensor, "sentences offered"]
    """−∞ where a list has ended."""
    weight: Float[Tensor, "symbols width"]
    """That of the output, for all symbols."""

    @staticmethod
    def of(output: Output, listed: Int[Tensor, "sentences offered"]) -> "Offered":
        """The output for these lists."""
        if listed.numel() and int(listed.max()) >= len(output.weight):
            raise ModelError(
                f"the shortlist offers symbol {int(listed.max())}, but the model has {len(output.weight)}; "
                "it belongs to another vocabulary: make it again for this model"
            )
        if not bool((listed == END).any(1).all()):
            raise ModelError("a shortlist without the end symbol cannot end an output; add it to every list")
        # The highest symbol fills the columns left over, so that the order of symbols does not fall.
        symbols = torch.where(listed < 0, listed.amax(1, keepdim=True), listed)
        offsets = output.offsets
        bias = output.weight.new_zeros(symbols.shape) if offsets is None else offsets[symbols]
        return Offered(symbols, bias.masked_fill(listed < 0, float("-inf")), output.weight)

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "Offered":
        return Offered(self.symbols[sentences], self.bias[sentences], self.weight)

    def log_probs(
        self, features: Float[Tensor, "rows width"], *, owners: Int[Tensor, " rows"], slots: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows offered"]:
        """Of the rows of each sentence, which are side by side in slots."""
        if uses_loops(features):
            scores = features.new_empty(len(features), self.symbols.shape[1])
            score_offered(features.contiguous().view(-1).numpy(), *self.arrays, owners.numpy(), scores.numpy())
            return log_softmax_by_loops(scores)
        width = int(slots.max()) + 1 if len(slots) else 0
        table = features.new_zeros(len(self.symbols), width, features.shape[1])  # [sentences, slots, width]
        table[owners, slots] = features
        # [sentences, slots, offered]
        scores = torch.baddbmm(self.bias[:, None], table, self._own_weight.transpose(1, 2))
        return log_softmax_(scores[owners, slots])

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array]:
        """The weight (flat), the symbols and the bias as compiled loops read them."""
        return self.weight.detach().contiguous().view(-1).numpy(), self.symbols.numpy(), self.bias.numpy()

    @cached_property
    def _own_weight(self) -> Float[Tensor, "sentences offered width"]:
        """The rows of the output that belong to each list, picked once."""
        return self.weight[self.symbols]


# Scores of the symbols offered to each sentence, compiled. A product needs the rows of the output that belong to a
# sentence side by side, a copy of them for every sentence; here they are read in place. The scores of a sentence depend
# on nothing but its own rows, to the last bit.


@compiled(fast={"contract", "reassoc"})
def score_offered(features: Array, weight: Array, symbols: Array, bias: Array, owners: Array, out: Array) -> None:
    """out[r, c] = features[r] · weight[y] + bias[s, c], where y = symbols[s, c] and s = owners[r].

    Features and weight are flat; their places are unsigned, because a number that may be negative is tested at every
    use. Rows of one sentence that follow each other share the rows of the weight, four at a time.
    """
    rows, columns = out.shape
    width = np.uint64(features.shape[0] // max(rows, 1))
    begin = 0
    while begin < rows:
        s, end = owners[begin], begin + 1
        while end < rows and owners[end] == s:
            end += 1
        fours = begin + (end - begin) // 4 * 4
        for c in range(columns):
            at = np.uint64(symbols[s, c]) * width
            for r in range(begin, fours, 4):
                first = np.uint64(r) * width
                second, third, fourth = first + width, first + width + width, first + width + width + width
                a = b = d = e = np.float32(0.0)
                for k in range(width):
                    number = weight[at + k]
                    a += features[first + k] * number
                    b += features[second + k] * number
                    d += features[third + k] * number
                    e += features[fourth + k] * number
                out[r, c], out[r + 1, c] = a + bias[s, c], b + bias[s, c]
                out[r + 2, c], out[r + 3, c] = d + bias[s, c], e + bias[s, c]
            for r in range(fours, end):
                row, total = np.uint64(r) * width, np.float32(0.0)
                for k in range(width):
                    total += features[row + k] * weight[at + k]
                out[r, c] = total + bias[s, c]
        begin = end
