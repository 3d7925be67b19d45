"""A shortlist: only the symbols that may come up in the translation of a sentence get a score.

    P(y ∣ …) = exp(w_y · x + b_y) / Σ_{y' offered} exp(w_y' · x + b_y')        for the symbols offered to the sentence

Each sentence has its own list, whatever stands beside it, and a step costs as much as the list is long.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.nn.fast.beam_attention import uses_loops
from seqloom.nn.outputs import Output, log_softmax_

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
        _check(listed, symbols=len(output.weight))
        # The highest symbol fills the columns left over, so that the order of symbols does not fall.
        symbols = torch.where(listed < 0, listed.amax(1, keepdim=True), listed)
        bias = output.weight.new_zeros(symbols.shape) if output.bias is None else output.bias[symbols]
        return Offered(symbols, bias.masked_fill(listed < 0, float("-inf")), output.weight)

    def of_sentences(self, sentences: Int[Tensor, " picked"]) -> "Offered":
        return Offered(self.symbols[sentences], self.bias[sentences], self.weight)

    def log_probs(
        self, features: Float[Tensor, "rows width"], *, owners: Int[Tensor, " rows"], slots: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows offered"]:
        """Of the rows of each sentence, which stand side by side in slots."""
        if uses_loops(features):
            return log_softmax_(self._scores_by_loops(features, owners))
        width = int(slots.max()) + 1 if len(slots) else 0
        table = features.new_zeros(len(self.symbols), width, features.shape[1])
        table[owners, slots] = features
        scores = torch.baddbmm(self.bias[:, None], table, self._own_weight.transpose(1, 2))
        return log_softmax_(scores[owners, slots])

    @cached_property
    def _own_weight(self) -> Float[Tensor, "sentences offered width"]:
        """The rows of the output that belong to each list, picked once."""
        return self.weight[self.symbols]

    def _scores_by_loops(
        self, features: Float[Tensor, "rows width"], owners: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows offered"]:
        from seqloom.nn.fast.kernels import score

        scores = features.new_empty(len(features), self.symbols.shape[1])
        tables = (features.contiguous().view(-1), self.weight.detach().contiguous().view(-1))
        places = (self.symbols, self.bias, owners, scores)
        score(*(each.numpy() for each in (*tables, *places)))
        return scores


def _check(listed: Int[Tensor, "sentences offered"], *, symbols: int) -> None:
    if listed.numel() and int(listed.max()) >= symbols:
        raise ModelError(
            f"the shortlist offers symbol {int(listed.max())}, but the model has {symbols}; "
            "it belongs to another vocabulary: make it again for this model"
        )
    if not bool((listed == END).any(1).all()):
        raise ModelError("a shortlist without the end symbol lets no output end; add it to every list")
