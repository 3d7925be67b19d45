"""The adaptive softmax: frequent symbols are cheap, rare ones are reached through a cluster (Grave et al., 2017).

Symbols are ordered by how often they occur, most frequent first, and cut into a head and tail clusters C_1 … C_K:

    P(w ∣ x) = softmax(H x)_w                                     w in the head
    P(w ∣ x) = softmax(H x)_{C_k} · softmax(U_k V_k x)_w          w in the tail C_k

H scores the symbols of the head and the K clusters. V_k (width / divisorᵏ rows) makes x narrower, so that a rare symbol
costs fewer numbers. Most tokens lie in the head, and only those of a cluster meet its rows.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn.losses import smoothed_cross_entropy


class AdaptiveOutput(nn.Module):
    """Probabilities of symbols by way of clusters.

    `order` lists the symbols from frequent to rare and `cutoffs` the ranks at which the clusters begin: (2000, 10000)
    makes a head of 2,000 symbols and two clusters. Left open, the order is that of the ids, which a vocabulary sorted
    by frequency has anyway.
    """

    ranks: Tensor
    order: Tensor

    def __init__(
        self,
        width: int,
        symbols: int,
        *,
        cutoffs: Sequence[int],
        divisor: float = 4.0,
        has_bias: bool = False,
        order: Int[Tensor, " symbols"] | None = None,
    ) -> None:
        super().__init__()
        self.width, self.symbols = width, symbols
        self.edges = _edges(cutoffs, symbols)
        order = torch.arange(symbols) if order is None else order
        if not torch.equal(order.sort().values, torch.arange(symbols)):
            raise ConfigError(f"the order of {symbols} symbols by frequency must name each of them once")
        self.register_buffer("order", order)
        self.register_buffer("ranks", torch.argsort(order), persistent=False)
        self.head = nn.Linear(width, self.edges[0] + len(self.edges) - 1, bias=has_bias)
        self.tails = nn.ModuleList(
            _Tail(width, max(1, int(width / divisor ** (number + 1))), end - begin)
            for number, (begin, end) in enumerate(pairwise(self.edges))
        )
        nn.init.normal_(self.head.weight, std=width**-0.5)
        if has_bias:
            nn.init.zeros_(self.head.bias)

    def cross_entropy(
        self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"], *, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Σ over tokens of −log P(label ∣ x). Only tokens of a cluster meet its rows, hence nothing is smoothed."""
        if smoothing:
            raise ConfigError(
                f"smoothing {smoothing:g} spreads probability over all symbols, which an adaptive softmax does not "
                "look at; set it to 0, or use a full softmax"
            )
        ranks = self.ranks[labels]
        first = ranks.clone()
        total = features.new_zeros(())
        for number, (begin, end) in enumerate(pairwise(self.edges)):
            is_here = (begin <= ranks) & (ranks < end)
            first[is_here] = self.edges[0] + number
            here = is_here.nonzero().squeeze(1)
            if len(here):
                tail = cast("_Tail", self.tails[number])
                narrow = tail.narrow(features[here])
                total = total + smoothed_cross_entropy(narrow, tail.wide.weight, None, ranks[here] - begin)
        return total + smoothed_cross_entropy(features, self.head.weight, self.head.bias, first)

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log P of every symbol."""
        head = F.log_softmax(self.head(features), dim=-1)
        parts = [head[..., : self.edges[0]]]
        for number, tail in enumerate(self.tails):
            parts.append(F.log_softmax(tail(features), dim=-1) + head[..., self.edges[0] + number, None])
        return torch.cat(parts, dim=-1).index_select(-1, self.ranks)


class _Tail(nn.Module):
    """Scores of a cluster, U V x."""

    def __init__(self, width: int, narrow: int, symbols: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, narrow, bias=False)
        self.wide = nn.Linear(narrow, symbols, bias=False)
        nn.init.normal_(self.narrow.weight, std=width**-0.5)
        nn.init.normal_(self.wide.weight, std=narrow**-0.5)

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        scores: Tensor = self.wide(self.narrow(features))
        return scores


def _edges(cutoffs: Sequence[int], symbols: int) -> tuple[int, ...]:
    edges = (*cutoffs, symbols)
    if not cutoffs or cutoffs[0] < 1 or any(begin >= end for begin, end in pairwise(edges)):
        raise ConfigError(
            f"the clusters of an adaptive softmax begin at {list(cutoffs)}, which are no rising ranks between 1 and "
            f"{symbols - 1}, the last of {symbols} symbols; give some such as [{max(1, symbols // 10)}]"
        )
    return edges
