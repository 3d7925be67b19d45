"""The last layer: from features to scores over the symbols, by a full or an adaptive softmax, and its loss.

Losses are sums, never means. Only the trainer divides.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn.fast.products import multiplied

# Some rows of a large table, with a gradient that is as small as they are.
#
# Looking up r rows of a table of V rows touches r · width numbers, but the gradient of the table, written out, has V ·
# width, nearly all of them zero; with a large vocabulary these zeros cost more than the model. Here the gradient is a
# list of (row, values), in which a row may come up several times:
#
#     y_i = T[rows_i]          ∂L/∂T = Σ_i e(rows_i) ∂L/∂y_iᵀ, kept as the pairs (rows_i, ∂L/∂y_i)


def pick_rows(
    table: Float[Tensor, "symbols ..."], rows: Int[Tensor, " picked"], *, sparse: bool
) -> Float[Tensor, "picked ..."]:
    """T[rows]; with `sparse` the gradient of T is a sparse tensor of these rows, otherwise it is written out."""
    if not sparse:
        return table.index_select(0, rows)
    picked: Tensor = _PickRows.apply(table, rows)  # type: ignore[no-untyped-call]
    return picked


class _PickRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = table.shape  # type: ignore[attr-defined]
        return table.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors  # type: ignore[attr-defined]
        # Rows that come up twice are left so: several batches may follow, and they are summed up once, at the end.
        sparse = torch.sparse_coo_tensor(rows[None], gradient, ctx.shape, check_invariants=False)  # type: ignore[attr-defined]
        return sparse, None


class Output(nn.Module):
    """Scores over the symbols, `W x + b`; tied when `weight` is the table of an embedding.

    `cross_entropy` never keeps all scores at once; decoding needs `log_probs`. `log_z` is one learned number for
    objectives that do not normalise (`nn.objectives`); it shifts all scores equally and changes no probability.
    Symbols that are `absent` have a row, but no probability: their scores are −∞.
    """

    row_gradients = False
    """Whether `picked` gives the table a gradient of the picked rows only; set by `training.sparse`."""

    def __init__(
        self, weight: nn.Parameter, *, has_bias: bool = False, has_log_z: bool = False, absent: Sequence[int] = ()
    ) -> None:
        super().__init__()
        check_symbols("absent", absent, len(weight))
        self.absent = tuple(absent)
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(weight.shape[0])) if has_bias else None
        self.log_z = nn.Parameter(weight.new_zeros(())) if has_log_z else None

    @property
    def offsets(self) -> Float[Tensor, " symbols"] | None:
        """What products add to W x: the bias, −∞ for absent symbols; None if that is nothing."""
        if not self.absent:
            return self.bias
        offsets = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        return offsets.index_fill(0, torch.tensor(self.absent, device=offsets.device), float("-inf"))

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        return F.linear(features, self.weight, self.offsets)

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log softmax(W x + b)"""
        return log_softmax_(self(features))

    def cross_entropy(
        self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"], *, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Σ over tokens of −log softmax(W x + b)[label], smoothed: the full softmax, as a loss."""
        return smoothed_cross_entropy(features, self.weight, self.bias, labels, smoothing=smoothing, absent=self.absent)

    def consistent_cross_entropy(
        self,
        features: Float[Tensor, "2 tokens width"],
        labels: Int[Tensor, " tokens"],
        *,
        smoothing: float = 0.0,
        consistency: float,
    ) -> Float[Tensor, ""]:
        """The mean cross-entropy of two passes over the same tokens, and `consistency` times their divergence."""
        weight, bias, absent = self.weight, self.bias, self.absent
        return consistent_cross_entropy(
            features, weight, bias, labels, smoothing=smoothing, consistency=consistency, absent=absent
        )

    def picked(
        self, symbols: Int[Tensor, " picked"]
    ) -> tuple[Float[Tensor, "picked width"], Float[Tensor, " picked"] | None]:
        """The rows of W and b that score some symbols."""
        weight = pick_rows(self.weight, symbols, sparse=self.row_gradients)
        offsets = self.offsets
        bias = None if offsets is None else pick_rows(offsets, symbols, sparse=self.row_gradients and not self.absent)
        return weight, bias


def check_symbols(name: str, symbols: Sequence[int], count: int) -> None:
    """These are symbols of a vocabulary of so many."""
    for symbol in symbols:
        if not 0 <= symbol < count:
            raise ConfigError(f"{name} names the symbol {symbol}, but the vocabulary has those from 0 to {count - 1}")


def log_softmax_(scores: Float[Tensor, "*rows symbols"]) -> Float[Tensor, "*rows symbols"]:
    """log softmax of scores that are not needed afterwards: in place where no gradient is needed.

    A table of all scores is tens of megabytes, and memory of that size costs more to get than the softmax itself.
    """
    return F.log_softmax(scores, dim=-1) if scores.requires_grad else torch.log_softmax(scores, -1, out=scores)


class AdaptiveOutput(nn.Module):
    """The adaptive softmax: frequent symbols are cheap, rare ones are reached through a cluster (Grave et al., 2017).

    Symbols are ordered by frequency, most frequent first, and cut into a head and tail clusters C_1 … C_K:

        P(w ∣ x) = softmax(H x)_w                                     w in the head
        P(w ∣ x) = softmax(H x)_{C_k} · softmax(U_k V_k x)_w          w in the tail C_k

    H scores the symbols of the head and the K clusters. V_k (width / divisorᵏ rows) makes x narrower, so that a rare
    symbol costs fewer numbers. Most tokens lie in the head, and only those of a cluster meet its rows.

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
        self.edges = (*cutoffs, symbols)
        if not cutoffs or cutoffs[0] < 1 or any(begin >= end for begin, end in pairwise(self.edges)):
            raise ConfigError(
                f"the clusters of an adaptive softmax begin at {list(cutoffs)}, but they must be rising ranks between "
                f"1 and {symbols - 1}, the last of {symbols} symbols, such as [{max(1, symbols // 10)}]"
            )
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
                "compute; set it to 0, or use a full softmax"
            )
        ranks = self.ranks[labels]  # [tokens]
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
        head = F.log_softmax(self.head(features), dim=-1)  # [*rows, head + clusters]
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


# The cross-entropy of a large softmax, a block of scores at a time.

CHUNK_ELEMENTS = 2**22
"""Scores computed at one time: few enough to stay in the processor's largest cache between the passes over them, and
enough for the products to use all threads."""
MAX_WHOLE_ELEMENTS = 2**18
"""Scores up to which torch's operators on all of them are faster: with so few, calls take longer than passes."""


def smoothed_cross_entropy(
    features: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "symbols width"],
    bias: Float[Tensor, " symbols"] | None,
    targets: Int[Tensor, " tokens"],
    *,
    smoothing: float = 0.0,
    absent: tuple[int, ...] = (),
) -> Float[Tensor, ""]:
    """Σ over tokens of −Σ_k q_k log p_k with p = softmax(W x + b), q = (1 − ε)·one-hot(target) + ε/symbols.

    Symbols that are `absent` do not count: neither p nor q gives them a share.

    The scores of all tokens would be by far the largest tensor of a small model. Here some rows of them are
    computed at a time, and with ∂/∂score_k = p_k − q_k the gradients of x, W and b are summed up at once, so the
    backward pass only scales them. The scores of a large vocabulary are cut into blocks of symbols too, so that each
    block of W is read while it meets many rows. With h the highest score up to a block and z the sum of exponentials,

        E_B = exp(W_B x + b_B − h_B)         z ← z · exp(h − h_B) + Σ E_B         y ← y · exp(h − h_B) + W_Bᵀ E_B
        ∂W_B = Σ over tokens of (E_B · exp(h_B − h) / z) xᵀ − q_B xᵀ              ∂x = y / z − Wᵀ q

    where ∂W waits for the last h and z. The exponentials kept until then are no more than W has numbers.
    """
    if not absent and 0 < len(targets) * len(weight) <= MAX_WHOLE_ELEMENTS:
        scores = F.linear(features, weight, bias)
        return F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    inputs = (features, weight) if bias is None else (features, weight, bias)
    # Checked here, because inside an autograd function a parameter requires its gradient under `no_grad` too.
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    total: Tensor = _SmoothedCrossEntropy.apply(features, weight, bias, targets, smoothing, absent, needs_gradient)  # type: ignore[no-untyped-call]
    return total


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        absent: tuple[int, ...],
        needs_gradient: bool,
    ) -> Tensor:
        symbols, width = weight.shape
        share, hit = smoothing / (symbols - len(absent)), 1 - smoothing
        losses = features.new_zeros(len(targets))
        feature_gradient = torch.empty_like(features) if needs_gradient else None
        # A frozen table needs none, which is most of the work of a large vocabulary.
        needs_weight = needs_gradient and ctx.needs_input_grad[1]  # type: ignore[attr-defined]
        # The first rows overwrite it: a pass over the table less.
        weight_gradient = (torch.empty_like if len(targets) else torch.zeros_like)(weight) if needs_weight else None
        bias_gradient = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        rows = min(max(CHUNK_ELEMENTS // symbols, width), max(1, len(targets)))
        columns = max(1, CHUNK_ELEMENTS // rows)
        blocks = [slice(first, min(first + columns, symbols)) for first in range(0, symbols, columns)]
        for begin in range(0, len(targets), rows):
            some, labels = features[begin : begin + rows], targets[begin : begin + rows, None]
            part = None if feature_gradient is None else feature_gradient[begin : begin + rows]
            highest = normaliser = wanted = None  # [rows, 1] each
            found: list[tuple[Tensor, Tensor]] = []  # exponentials of a block, and the score which they are relative to
            for block in blocks:
                scores = multiplied(some, weight[block], None if bias is None else bias[block])  # [rows, columns]
                if absent:
                    scores[:, [each - block.start for each in absent if block.start <= each < block.stop]] = -torch.inf
                own = scores.gather(1, (labels - block.start).clamp_(0, scores.shape[1] - 1))
                peak = scores.amax(1, keepdim=True)
                if absent:  # maybe all symbols of the block
                    peak.clamp_(min=torch.finfo(peak.dtype).min)
                if highest is None or normaliser is None or wanted is None:
                    highest, wanted = peak, own
                    exponentials = scores.sub_(highest).exp_()
                    normaliser = exponentials.sum(1, keepdim=True)
                    if part is not None:
                        part.copy_(multiplied(exponentials, weight[block].t()))
                else:
                    risen = torch.maximum(highest, peak)
                    fade, highest = highest.sub(risen).exp_(), risen
                    wanted = torch.where((block.start <= labels) & (labels < block.stop), own, wanted)
                    exponentials = scores.sub_(highest).exp_()
                    normaliser = exponentials.sum(1, keepdim=True).addcmul_(normaliser, fade)
                    if part is not None:
                        part.mul_(fade).add_(multiplied(exponentials, weight[block].t()))
                if needs_weight or bias_gradient is not None:
                    found.append((exponentials, highest))
            assert highest is not None
            assert normaliser is not None
            assert wanted is not None
            # Token by token: the sums of the terms are far larger than the sum of their differences.
            losses[begin : begin + rows] = (normaliser.log() + highest).sub_(wanted, alpha=hit).squeeze(1)
            if part is not None:
                part.div_(normaliser)
            for block, (exponentials, level) in zip(blocks, found, strict=False):
                # p = exponentials · exp(level − highest) / normaliser, which is multiplied on the side of x.
                factor = (level - highest).exp_().div_(normaliser)  # [rows, 1]
                if weight_gradient is not None:
                    weight_gradient[block].addmm_(exponentials.t(), some * factor, beta=min(begin, 1))
                if bias_gradient is not None:
                    bias_gradient[block].addmv_(exponentials.t(), factor.squeeze(1))
        if share:
            # What smoothing contributes is linear in the scores s = W x + b, so it needs no pass over them:
            # −Σ_k q_k log p_k = log Σ_k exp s_k − (1 − ε)·s_target − ε/symbols·Σ_k s_k
            # with Σ_k s_k = (Σ_k W_k)·x + Σ_k b_k
            summed_weight = weight.sum(0) if not absent else weight.sum(0) - weight[list(absent)].sum(0)
            losses.sub_(torch.mv(features, summed_weight), alpha=share)
            if bias is not None:
                losses -= share * (bias.sum() if not absent else bias.sum() - bias[list(absent)].sum())
            if feature_gradient is not None:
                feature_gradient.sub_(share * summed_weight)
            if weight_gradient is not None:
                weight_gradient.sub_(share * features.sum(0))
            if bias_gradient is not None:
                bias_gradient.sub_(share * len(targets))
        if feature_gradient is not None:
            feature_gradient.sub_(weight.index_select(0, targets), alpha=hit)
        if weight_gradient is not None:
            weight_gradient.index_add_(0, targets, features, alpha=-hit)
        if bias_gradient is not None:
            bias_gradient.index_add_(0, targets, torch.ones_like(features[:, 0]), alpha=-hit)
        for gradient in (weight_gradient, bias_gradient):
            if absent and gradient is not None:
                gradient[list(absent)] = 0.0
        ctx.save_for_backward(feature_gradient, weight_gradient, bias_gradient)  # type: ignore[arg-type]
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors  # type: ignore[attr-defined]
        return *(None if gradient is None else gradient * upstream for gradient in gradients), None, None, None, None


def consistent_cross_entropy(
    features: Float[Tensor, "2 tokens width"],
    weight: Float[Tensor, "symbols width"],
    bias: Float[Tensor, " symbols"] | None,
    targets: Int[Tensor, " tokens"],
    *,
    consistency: float,
    smoothing: float = 0.0,
    absent: tuple[int, ...] = (),
) -> Float[Tensor, ""]:
    """Two passes over the same tokens that should agree (R-Drop; Liang et al., 2021).

        Σ over tokens of  ½ (H(q, p₁) + H(q, p₂)) + λ · ½ (KL(p₁‖p₂) + KL(p₂‖p₁))

    with p₁, p₂ the softmax of both passes, q the target as `smoothed_cross_entropy` smooths it, H(q, p) the
    cross-entropy −Σ_k q_k log p_k and λ = `consistency`. The paper adds both cross-entropies in place of their mean:
    its α is 2 λ.

    As there, a few rows of scores are held at a time, and gradients are summed up at once. With d = log p₁ − log p₂

        ∂/∂score₁ = ½ (p₁ − q + λ (p₁ ∘ (d − KL(p₁‖p₂)) + p₁ − p₂))

    and the same with 1 and 2 exchanged.
    """
    inputs = (features, weight) if bias is None else (features, weight, bias)
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    total: Tensor = _ConsistentCrossEntropy.apply(  # type: ignore[no-untyped-call]
        features, weight, bias, targets, smoothing, consistency, absent, needs_gradient
    )
    return total


class _ConsistentCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        consistency: float,
        absent: tuple[int, ...],
        needs_gradient: bool,
    ) -> Tensor:
        share, hit, none = smoothing / (weight.shape[0] - len(absent)), 1 - smoothing, list(absent)
        losses = features.new_empty(len(targets))
        feature_gradient = torch.empty_like(features) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight) if needs_gradient else None
        bias_gradient = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        rows = max(1, CHUNK_ELEMENTS // (2 * weight.shape[0]))
        for begin in range(0, len(targets), rows):
            some, labels = features[:, begin : begin + rows], targets[begin : begin + rows, None]
            log_p = F.linear(some, weight, bias)  # [2, rows, symbols]
            log_p[..., none] = float("-inf")
            torch.log_softmax(log_p, -1, out=log_p)
            p = log_p.exp()
            log_p[..., none] = 0.0  # they count in no sum
            wanted = log_p.gather(2, labels.expand(2, -1, -1)).squeeze(2)  # [2, rows]
            entropy = log_p.sum(2).mul_(-share).sub_(wanted, alpha=hit).mean(0)  # [rows]
            difference = log_p[0].sub_(log_p[1])  # [rows, symbols]
            # KL(p₁‖p₂) and KL(p₂‖p₁)
            divergence = torch.einsum("trs,rs->tr", p, difference) * features.new_tensor([[1.0], [-1.0]])
            losses[begin : begin + rows] = entropy + consistency / 2 * divergence.sum(0)
            if feature_gradient is None or weight_gradient is None:
                continue
            gradient = torch.stack([difference, -difference]).sub_(divergence[..., None])
            gradient.mul_(consistency).add_(1 + consistency).mul_(p).sub_(p.flip(0), alpha=consistency).sub_(share)
            gradient.scatter_add_(2, labels.expand(2, -1, -1), gradient.new_full((2, len(labels), 1), -hit))
            gradient[..., none] = 0.0
            gradient.mul_(0.5)
            feature_gradient[:, begin : begin + rows] = gradient @ weight
            flat = gradient.flatten(0, 1)  # [2 · rows, symbols]
            weight_gradient.addmm_(flat.t(), some.flatten(0, 1))
            if bias_gradient is not None:
                bias_gradient += flat.sum(0)
        ctx.save_for_backward(feature_gradient, weight_gradient, bias_gradient)  # type: ignore[arg-type]
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors  # type: ignore[attr-defined]
        return *(None if gradient is None else gradient * upstream for gradient in gradients), *[None] * 5
