"""Multi-head attention (Vaswani et al., 2017) over packed batches in training and over caches in decoding.

    head_h = softmax(Q_h K_hᵀ / √d + mask) V_h        d = width / heads, unless given
    output = W_O [head_1; …; head_heads]

Each score q·k sums d products of unit variance, hence the √d. Masks are added as 0 and −∞ before the softmax. Several
heads of queries may share a head of keys and values (Ainslie et al., 2023): key head j serves queries jg … jg + g − 1.
With a window, position t attends to s only if |t − s| < window (Child et al., 2019; Beltagy et al., 2020).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

from seqloom.core.errors import ConfigError, UsageError
from seqloom.nn.blocks import RMSNorm
from seqloom.nn.dropout import Dropout, kept, scale_of
from seqloom.nn.fast import products
from seqloom.nn.fast.beam_attention import BeamCache, KeyValues
from seqloom.nn.init import reset_linear, xavier_uniform
from seqloom.nn.packing import Packing, additive, future, join_heads, split_heads
from seqloom.nn.probe import Probe
from seqloom.nn.rotary import Rotary


@dataclass(frozen=True)
class HeadPolicy:
    """Which of the heads of a Transformer counts as its attention.

    mean             the mean over the heads of the last layer
    max              the largest over those heads, divided by the sum
    2/mean, 2/max    the same of layer 2, counted from 0
    2/0              head 0 of layer 2
    """

    layer: int
    head: int | None
    """None takes all."""
    is_max: bool = False
    """Of all heads, the largest rather than the mean."""

    @staticmethod
    def of(text: str, *, layers: int, heads: int) -> "HeadPolicy":
        """Parse a policy for a model with this many layers and heads."""
        first, slash, last = text.partition("/")
        layer, how = (first, last) if slash else (str(layers - 1), first)
        is_joined = how in ("mean", "max")
        if not (layer.isdecimal() and (is_joined or (slash and how.isdecimal()))):
            raise UsageError(
                f"search.heads={text} is not a valid choice of heads; use mean, max, or LAYER/HEAD such as 2/0"
            )
        if int(layer) >= layers or (not is_joined and int(how) >= heads):
            raise UsageError(
                f"search.heads={text} is not in this model: it has layers 0 to {layers - 1} with heads 0 to {heads - 1}"
            )
        return HeadPolicy(int(layer), None if is_joined else int(how), how == "max")

    def choose(self, weights: Float[Tensor, "batch heads queries keys"]) -> Float[Tensor, "batch queries keys"]:
        """One distribution over the keys for each query."""
        if self.head is not None:
            return weights[:, self.head]
        if not self.is_max:
            return weights.mean(1)
        largest = weights.amax(1)  # [batch, queries, keys]
        # Hidden keys have 0 with every head; a query that sees none would divide by 0.
        return largest / largest.sum(-1, keepdim=True).clamp(min=torch.finfo(largest.dtype).tiny)


INITIAL_GAIN = 1 / math.sqrt(2)
"""Gain of the first queries, keys and values: scores begin so small that all positions get some attention."""

MAX_EXPLICIT_KEYS = 96
"""Keys up to which two batched products beat the fused kernel on CPUs, whose set-up costs more than it saves."""
MAX_BLOCKED_KEYS = 256
"""The same in training, where the fused kernel computes all weights again for the gradients; with more keys, those that
`attend_in_blocks` keeps would take too much memory."""


def attend(
    query: Float[Tensor, "batch heads queries size"],
    key: Float[Tensor, "batch key_heads keys size"],
    value: Float[Tensor, "batch key_heads keys size"],
    *,
    mask: Float[Tensor, "#batch #heads #queries keys"] | None,
    is_causal: bool,
    weights: Probe,
    scale: float | None = None,
    dropout: Dropout | None = None,
) -> Float[Tensor, "batch heads queries size"]:
    """dropout(softmax(scale · Q Kᵀ + mask)) V; the scale is 1/√size by default.

    By torch's fused kernel, or product by product: where that is faster, where the weights have listeners, and where
    some of them are dropped, since the fused kernel does not use our generator. In training on the CPU, the products
    are those of `attend_in_blocks`.
    """
    is_cpu, drops = key.device.type == "cpu", dropout is not None and dropout.is_active
    is_trained = torch.is_grad_enabled() and query.requires_grad
    is_short = is_cpu and key.shape[2] <= MAX_EXPLICIT_KEYS
    if mask is not None and is_causal:  # the fused kernel takes one or the other
        mask, is_causal = mask + future(query.shape[2], key.shape[2], like=mask), False
    if is_cpu and is_trained and not weights.has_listeners and (drops or 0 < key.shape[2] <= MAX_BLOCKED_KEYS):
        is_simple = query.shape[1] == key.shape[1] and (mask is None or not mask.requires_grad)
        is_square = not is_causal or query.shape[2] == key.shape[2]
        is_precise = query.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
        if is_simple and is_square and is_precise:
            return attend_in_blocks(query, key, value, mask=mask, is_causal=is_causal, scale=scale, dropout=dropout)
    if not (is_short or drops or weights.has_listeners):
        is_grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=is_grouped
        )
    # [batch, heads, queries, keys]
    scores = _by_group(query, key.transpose(-1, -2)).mul_(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    if is_causal:
        scores = scores + future(query.shape[2], key.shape[2], like=scores)
    shares: Tensor = weights(scores.softmax(-1))
    if dropout is not None:
        shares = dropout(shares)
    return _by_group(shares, value)  # [batch, heads, queries, size]


MAX_DIRECT_KEYS = 128
"""Keys up to which the fused kernel beats `attend_in_blocks` in training where it can read the joined queries, keys and
values in place."""


def attend_directly(
    joined: Float[Tensor, "tokens joined"], packing: Packing, *, heads: int, is_causal: bool, scale: float | None = None
) -> Float[Tensor, "tokens width"]:
    """softmax(scale · Q Kᵀ) V of [Q; K; V] by torch's fused kernel, for packed texts of one length.

    The kernel takes queries, keys and values where they are and writes heads side by side, so that no head has to be
    cut out or put back. `split_heads`, `attend` and `join_heads` compute the same for all packings.
    """
    by_place = joined.view(packing.batch, packing.longest, 3, heads, -1)
    query, key, value = (part.transpose(1, 2) for part in by_place.unbind(2))  # [batch, heads, longest, size] each
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale)
    return mixed.transpose(1, 2).reshape(len(joined), -1)


QUERY_BLOCK = 64
"""Queries of a causal block: fewer products with later keys, which count for nothing, but more calls."""


def attend_in_blocks(
    query: Float[Tensor, "batch heads queries size"],
    key: Float[Tensor, "batch heads keys size"],
    value: Float[Tensor, "batch heads keys size"],
    *,
    mask: Float[Tensor, "#batch #heads #queries keys"] | None,
    is_causal: bool,
    scale: float | None = None,
    dropout: Dropout | None = None,
) -> Float[Tensor, "batch heads queries size"]:
    """The same as the products of `attend`, with their gradients by hand; the mask has none.

        S = scale · Q Kᵀ + mask        P = softmax(S)        D = P ⊙ m / (1 − rate)        m: 0 where dropped, or 1
        Y = D V
        ∂D = ∂Y Vᵀ                     ∂V = Dᵀ ∂Y
        ∂S = P ⊙ (∂P − Σ P ∂P)         ∂P = ∂D ⊙ m / (1 − rate)
        ∂Q = scale · ∂S K              ∂K = scale · ∂Sᵀ Q

    Queries are cut into blocks if attention is causal, so that later keys are not multiplied at all: with four blocks,
    5/8 of the products are left. P is kept for the gradients, and one byte for each of its numbers if some are dropped.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    drawn, threshold = None, 0
    if dropout is not None and dropout.is_active:
        drawn, threshold = dropout.noise.draw((*query.shape[:3], key.shape[2]), query.device), dropout.threshold
    mixed: Tensor = _AttendInBlocks.apply(query, key, value, mask, is_causal, scale, drawn, threshold)  # type: ignore[no-untyped-call]
    return mixed


class _AttendInBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        scale: float,
        drawn: Tensor | None,
        threshold: int,
    ) -> Tensor:
        shape, keys = query.shape, key.shape[2]
        # [batch · heads, places, size]; queries are scaled in place of scores, which are more numbers
        query, key, value = (each.flatten(0, 1) for each in (query * scale, key, value))
        drawn = None if drawn is None else drawn.flatten(0, 1)  # [batch · heads, queries, keys]
        block = QUERY_BLOCK if is_causal else shape[2]
        later = future(min(block, shape[2]), min(block, shape[2]), like=query) if is_causal else None
        mixed, kept_shares = torch.empty_like(query), []
        for begin in range(0, shape[2], block):
            end = min(begin + block, shape[2])
            seen = end if is_causal else keys
            # [batch · heads, block, seen]
            shares = torch.bmm(query[:, begin:end], key[:, :seen].transpose(1, 2))
            if mask is not None:
                shares.view(*shape[:2], end - begin, seen).add_(mask)
            if later is not None:
                shares[:, :, begin:].add_(later[: end - begin, : end - begin])
            torch.softmax(shares, -1, out=shares)
            kept_shares.append(shares)
            if drawn is not None:
                shares = kept(drawn[:, begin:end, :seen], threshold, shares.dtype).mul_(shares)
            torch.bmm(shares, value[:, :seen], out=mixed[:, begin:end])
        if drawn is not None:
            mixed.mul_(scale_of(threshold))
        ctx.save_for_backward(query, key, value, drawn, *kept_shares)  # type: ignore[arg-type]
        ctx.settings = (shape, block, scale, threshold)  # type: ignore[attr-defined]
        return mixed.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, drawn, *kept_shares = ctx.saved_tensors  # type: ignore[attr-defined]
        shape, block, scale, threshold = ctx.settings  # type: ignore[attr-defined]
        gradient = gradient.reshape(query.shape)
        if drawn is not None:
            gradient = gradient * scale_of(threshold)
        to_query, to_key, to_value = (torch.empty_like(each) for each in (query, key, value))
        for number, shares in reversed([*enumerate(kept_shares)]):
            begin, seen = number * block, shares.shape[2]
            some = slice(begin, begin + shares.shape[1])
            to_shares = torch.bmm(gradient[:, some], value[:, :seen].transpose(1, 2))  # [batch · heads, block, seen]
            used = shares
            if drawn is not None:
                is_kept = kept(drawn[:, some, :seen], threshold, shares.dtype)
                to_shares.mul_(is_kept)
                used = is_kept.mul_(shares)
            to_scores = torch._softmax_backward_data(to_shares, shares, -1, shares.dtype)
            torch.bmm(to_scores, key[:, :seen], out=to_query[:, some])
            # The last block comes first: it sees all keys, and those before it add to what it leaves.
            rest = 0 if number == len(kept_shares) - 1 else 1
            to_value[:, :seen].baddbmm_(used.transpose(1, 2), gradient[:, some], beta=rest)
            to_key[:, :seen].baddbmm_(to_scores.transpose(1, 2), query[:, some], beta=rest)
        return (
            to_query.mul_(scale).view(shape),
            *(each.view(*shape[:2], *each.shape[1:]) for each in (to_key, to_value)),
            *[None] * 5,
        )


MIN_BLOCK = 32
"""Queries of a block of local attention, at least: products of fewer rows are mostly call overhead."""


def nearby(
    queries: range, keys: int, *, window: int | None, is_causal: bool, like: Float[Tensor, "*any"]
) -> Float[Tensor, "queries keys"]:
    """0 where the query at one of these positions may attend to a key: |query − key| < window; −∞ elsewhere.

    A causal query attends to no later key either.
    """
    after = torch.arange(queries.start, queries.stop, device=like.device)[:, None]
    after = after - torch.arange(keys, device=like.device)  # [queries, keys]
    is_seen = after >= 0 if is_causal else torch.ones_like(after, dtype=torch.bool)
    return additive(is_seen if window is None else is_seen & (after.abs() < window), like.dtype)


def attend_nearby(
    query: Float[Tensor, "batch heads places size"],
    key: Float[Tensor, "batch key_heads places size"],
    value: Float[Tensor, "batch key_heads places size"],
    *,
    window: int,
    mask: Float[Tensor, "#batch 1 1 places"] | None,
    is_causal: bool,
    weights: Probe,
    scale: float | None = None,
    relative: "ShawKeys | None" = None,
    dropout: Dropout | None = None,
) -> Float[Tensor, "batch heads places size"]:
    """The same with a window, in time and memory that grow with the length, not with its square.

    Queries are cut into blocks; a block reads its own keys, the window − 1 before it and, unless causal, as many after:

        keys of block b     b · size − before … (b + 1) · size + after − 1      zeros beyond the text, which are masked

    Blocks become rows of a larger batch. The weights of all pairs of positions are only computed for listeners.
    """
    batch, heads, length, size = query.shape
    block, before = max(window, MIN_BLOCK), window - 1
    span = block + (before if is_causal else 2 * before)  # keys of a block
    if weights.has_listeners or length <= span:
        block, span, before = length, length, 0
    blocks = -(-length // block)

    def spans(each: Float[Tensor, "some heads places numbers"], fill: float) -> Tensor:
        """[some, heads, places, numbers] to [some · blocks, heads, span, numbers]."""
        padded = F.pad(each, (0, 0, before, (blocks - 1) * block + span - before - length), value=fill)
        by_block = padded.unfold(2, span, block)  # [some, heads, blocks, numbers, span]
        return by_block.permute(0, 2, 1, 4, 3).flatten(0, 1)

    cut = F.pad(query, (0, 0, 0, blocks * block - length)).view(batch, heads, blocks, block, size)
    query = cut.transpose(1, 2).flatten(0, 1)  # [batch · blocks, heads, block, size]
    shown = query.new_zeros(1, length) if mask is None else mask[:, 0, 0]  # [batch or 1, length]
    near = nearby(range(before, before + block), span, window=window, is_causal=is_causal, like=query)
    seen = spans(shown[:, None, :, None], -torch.inf).transpose(2, 3) + near  # [(batch or 1) · blocks, 1, block, span]
    # A query that sees nothing has no softmax. Padding therefore attends to itself; other queries do so anyway.
    own = torch.arange(block, device=query.device)
    seen[:, :, own, before + own] = 0
    seen = seen if len(shown) == batch else seen.repeat(batch, 1, 1, 1)  # [batch · blocks, 1, block, span]
    if relative is not None:
        seen = seen + relative(query, first=before, keys=span)
    mixed = attend(
        query, spans(key, 0.0), spans(value, 0.0), mask=seen, is_causal=False, weights=weights, scale=scale,
        dropout=dropout,
    )  # fmt: skip
    joined = mixed.view(batch, blocks, heads, block, size).transpose(1, 2).flatten(2, 3)
    return joined[:, :, :length]


def _by_group(
    left: Float[Tensor, "batch heads queries inner"], right: Float[Tensor, "batch key_heads inner columns"]
) -> Float[Tensor, "batch heads queries columns"]:
    """The product of each head on the left with its head on the right, those of a group as rows of one product."""
    batch, heads, queries, inner = left.shape
    if heads == right.shape[1]:
        return torch.matmul(left, right)
    grouped = left.reshape(batch, right.shape[1], -1, inner)
    return torch.matmul(grouped, right).view(batch, heads, queries, -1)


class ShawKeys(nn.Module):
    """Relative positions on the key side (Shaw et al., 2018): score[t, s] = q_t · (k_s + a[s − t]) / √size.

    Distances are clipped to ±`farthest`. The second term is returned as a bias for the scores, all heads sharing `a`.
    """

    def __init__(self, size: int, *, farthest: int) -> None:
        super().__init__()
        self.farthest = farthest
        self.weight = nn.Parameter(torch.empty(2 * farthest + 1, size))
        nn.init.normal_(self.weight, std=size**-0.5)

    def forward(
        self, query: Float[Tensor, "batch heads queries size"], *, first: int, keys: int
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The bias of queries at positions `first`, `first + 1`, … against keys 0 … keys − 1."""
        at = torch.arange(first, first + query.shape[2], device=query.device)
        distance = torch.arange(keys, device=query.device)[None, :] - at[:, None]  # [queries, keys]
        column = distance.clamp(-self.farthest, self.farthest) + self.farthest
        # [batch, heads, queries, distances]
        by_distance = query @ self.weight.t() / math.sqrt(query.shape[-1])
        return by_distance.gather(-1, column.expand(*query.shape[:2], -1, -1))


HeadNorm = Literal["before", "after"]
"""An RMS norm of each query and each key, before they are turned by their position or after."""


class SelfAttention(nn.Module):
    """Queries, keys and values from the same sequence, by one fused matrix.

    `head_size` is width / heads by default, and `key_heads` the number of heads of keys and values, `heads` by default.
    With a `window`, positions attend to those at smaller distances only. The mask of `step` has to hide the others.
    `dropout_rate` is the share of attention weights that are dropped in training.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        has_output: bool = True,
        relative: ShawKeys | None = None,
        head_size: int | None = None,
        key_heads: int | None = None,
        has_bias: bool = True,
        has_output_bias: bool = True,
        scale: float | None = None,
        rotary: Rotary | None = None,
        head_norm: HeadNorm | None = None,
        epsilon: float = 1e-6,
        window: int | None = None,
        dropout_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads or heads
        self.head_size = head_size or _share(width, heads)
        check_groups(heads, self.key_heads)
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        self.qkv = nn.Linear(width, queries + 2 * keys, bias=has_bias)
        self.output = nn.Linear(queries, width, bias=has_output_bias) if has_output else nn.Identity()
        self.query_norm = None if head_norm is None else RMSNorm(self.head_size, epsilon)
        self.key_norm = None if head_norm is None else RMSNorm(self.head_size, epsilon)
        self.head_norm = head_norm
        self.relative, self.rotary, self.scale, self.window = relative, rotary, scale, window
        self.weights, self.dropout = Probe(), Dropout(dropout_rate)
        if queries == keys:
            xavier_uniform(self.qkv.weight, gain=INITIAL_GAIN, parts=3)
        else:
            for part in self.qkv.weight.detach().split([queries, keys, keys]):
                xavier_uniform(part, gain=INITIAL_GAIN)
        if has_bias:
            nn.init.zeros_(self.qkv.bias)
        reset_output(self.output)

    @property
    def is_plain(self) -> bool:
        """Whether it is that of the paper: equal shares of the width, biases, scores by 1/√size, no positions."""
        return (
            self.has_plain_heads
            and self.qkv.out_features == 3 * self.qkv.in_features
            and self.qkv.bias is not None
            and not (isinstance(self.output, nn.Linear) and self.output.bias is None)
            and self.scale is None
        )

    def fused_parts(self) -> dict[str, dict[str, int]]:
        """The rows of the parts of `qkv`."""
        queries, keys = self.heads * self.head_size, self.key_heads * self.head_size
        return {"qkv": {"query": queries, "key": keys, "value": keys}}

    @property
    def has_plain_heads(self) -> bool:
        """Whether each head has its own keys and values, and they are used as they are, without positions or norms."""
        has_changes = self.relative is not None or self.rotary is not None or self.head_norm is not None
        return self.key_heads == self.heads and not has_changes

    def is_direct(self, x: Float[Tensor, "tokens width"], packing: Packing) -> bool:
        """Whether `attend_directly` computes the heads of this input, in training on the CPU, if there is no mask."""
        is_trained = torch.is_grad_enabled() and x.device.type == "cpu"
        is_short = len(x) > 0 and packing.longest <= min(MAX_DIRECT_KEYS, self.window or MAX_DIRECT_KEYS)
        is_whole = not self.dropout.is_active and not self.weights.has_listeners
        return is_trained and is_short and is_whole and packing.is_plain and self.has_plain_heads

    def split(
        self, x: Float[Tensor, "tokens width"], packing: Packing
    ) -> tuple[
        Float[Tensor, "batch heads longest size"],
        Float[Tensor, "batch key_heads longest size"],
        Float[Tensor, "batch key_heads longest size"],
    ]:
        """Queries, keys and values, before positions."""
        joined = products.apply(self.qkv, x)
        if self.heads == self.key_heads:
            query, key, value = split_heads(joined, packing, parts=3, heads=self.heads)
        else:
            counts = [self.heads, self.key_heads, self.key_heads]
            split = split_heads(joined, packing, parts=1, heads=sum(counts))[0]  # [batch, all heads, longest, size]
            query, key, value = split.split(counts, dim=1)
        return query, key, value

    def place(
        self,
        query: Float[Tensor, "batch heads places size"],
        key: Float[Tensor, "batch key_heads places size"],
        *,
        first: int = 0,
        is_one: bool = False,
    ) -> tuple[Float[Tensor, "batch heads places size"], Float[Tensor, "batch key_heads places size"]]:
        """Queries and keys at positions `first`, `first + 1`, … (all at `first` with `is_one`), with their norms."""
        if self.head_norm == "before":
            query, key = self._normed(query, key)
        if self.rotary is not None:
            query, key = (self.rotary(each, first=first, is_one=is_one) for each in (query, key))
        if self.head_norm == "after":
            query, key = self._normed(query, key)
        return query, key

    def _normed(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        assert self.query_norm is not None
        assert self.key_norm is not None
        return self.query_norm(query), self.key_norm(key)

    def forward(
        self,
        x: Float[Tensor, "tokens width"],
        packing: Packing,
        *,
        mask: Float[Tensor, "#batch #heads #queries keys"] | None,
        is_causal: bool,
    ) -> Float[Tensor, "tokens width"]:
        if mask is None and self.is_direct(x, packing):
            joined = products.apply(self.qkv, x)
            mixed = attend_directly(joined, packing, heads=self.heads, is_causal=is_causal, scale=self.scale)
            return products.apply(self.output, mixed)
        query, key, value = self.split(x, packing)  # [batch, heads, longest, size] each
        query, key = self.place(query, key)
        mixed = join_heads(self.mix(query, key, value, mask=mask, is_causal=is_causal), packing)
        return products.apply(self.output, mixed)

    def mix(
        self,
        query: Float[Tensor, "batch heads longest size"],
        key: Float[Tensor, "batch key_heads longest size"],
        value: Float[Tensor, "batch key_heads longest size"],
        *,
        mask: Float[Tensor, "#batch #heads #queries keys"] | None,
        is_causal: bool,
    ) -> Float[Tensor, "batch heads longest size"]:
        """Attention over whole sequences. With a window that is shorter, the mask is that of keys alone."""
        if self.window is not None and self.window < query.shape[2]:
            return attend_nearby(
                query, key, value, window=self.window, mask=mask, is_causal=is_causal, weights=self.weights,
                scale=self.scale, relative=self.relative, dropout=self.dropout,
            )  # fmt: skip
        if self.relative is not None:
            bias = self.relative(query, first=0, keys=key.shape[2])
            mask = bias if mask is None else bias + mask
        return attend(
            query, key, value, mask=mask, is_causal=is_causal, weights=self.weights, scale=self.scale,
            dropout=self.dropout,
        )  # fmt: skip

    def step(
        self,
        x: Float[Tensor, "rows width"],
        cache: BeamCache,
        layer: int,
        *,
        queries: Packing,
        position: int,
        mask: Float[Tensor, "#sentences #heads #queries keys"] | None,
    ) -> Float[Tensor, "rows width"]:
        """One more position: writes its keys and values into the cache, then every row attends to its own history."""
        query, key, value = self.split(x, queries)  # [sentences, heads, queries, size] each
        query, key = self.place(query, key, first=position, is_one=True)
        keys, values = cache.write(layer, position, key=key, value=value)  # [sentences, heads, keys, size]
        if self.relative is not None:
            # The queries of a sentence are all at the same position, so each is one row of a larger batch.
            sentences, heads, count, size = query.shape
            rows = query.transpose(1, 2).reshape(sentences * count, heads, 1, size)
            bias = self.relative(rows, first=position, keys=position + 1).view(sentences, count, heads, position + 1)
            bias = bias.transpose(1, 2).repeat_interleave(cache.slots, dim=3)  # [sentences, heads, queries, keys]
            mask = bias if mask is None else bias + mask
        mixed = attend(query, keys, values, mask=mask, is_causal=False, weights=self.weights, scale=self.scale)
        attended: Tensor = self.output(join_heads(mixed, queries))
        return attended


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another, the memory. `has_bias` is for all of its matrices."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        has_output: bool = True,
        head_size: int | None = None,
        has_bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        inner = heads * (head_size or _share(width, heads))
        self.query = nn.Linear(width, inner, bias=has_bias)
        self.memory = nn.Linear(width, 2 * inner, bias=has_bias)
        self.output = nn.Linear(inner, width, bias=has_bias) if has_output else nn.Identity()
        self.weights = Probe()
        xavier_uniform(self.query.weight, gain=INITIAL_GAIN)
        xavier_uniform(self.memory.weight, gain=INITIAL_GAIN, parts=2)
        if has_bias:
            nn.init.zeros_(self.query.bias)
            nn.init.zeros_(self.memory.bias)
        reset_output(self.output)

    @property
    def is_plain(self) -> bool:
        """Whether it is that of the paper: equal shares of the width, biases, scores by 1/√size."""
        is_square = self.query.out_features == self.query.in_features
        return is_square and self.query.bias is not None and self.scale is None

    def fused_parts(self) -> dict[str, dict[str, int]]:
        """The rows of the parts of `memory`."""
        return {"memory": dict.fromkeys(("key", "value"), self.memory.out_features // 2)}

    def key_values(self, memory: Float[Tensor, "tokens width"], packing: Packing) -> KeyValues:
        """Keys and values of a memory, computed once for all queries."""
        keys, values = split_heads(products.apply(self.memory, memory), packing, parts=2, heads=self.heads)
        return KeyValues(keys, values)

    def forward(
        self,
        x: Float[Tensor, "tokens width"],
        packing: Packing,
        memory: KeyValues,
        *,
        mask: Float[Tensor, "#batch #heads #queries keys"] | None,
    ) -> Float[Tensor, "tokens width"]:
        query = split_heads(products.apply(self.query, x), packing, parts=1, heads=self.heads)[
            0
        ]  # [batch, heads, queries, size]
        mixed = attend(
            query, memory.keys, memory.values, mask=mask, is_causal=False, weights=self.weights, scale=self.scale
        )
        return products.apply(self.output, join_heads(mixed, packing))


def check_heads(width: int, heads: int) -> None:
    """Each head takes an equal share of the width."""
    if heads < 1 or width % heads:
        fits = [number for number in range(1, width + 1) if width % number == 0 and number <= 2 * max(heads, 1)]
        raise ConfigError(f"width {width} cannot be shared by {heads} heads; numbers of heads that fit: {fits}")


def check_groups(heads: int, key_heads: int) -> None:
    """Each head of keys and values serves equally many heads of queries."""
    if key_heads < 1 or heads % key_heads:
        fits = [number for number in range(1, heads + 1) if heads % number == 0]
        raise ConfigError(f"{heads} heads cannot share {key_heads} heads of keys; numbers that fit: {fits}")


def _share(width: int, heads: int) -> int:
    check_heads(width, heads)
    return width // heads


def reset_output(output: nn.Module) -> None:
    """First weights of an output projection, where there is one."""
    if isinstance(output, nn.Linear):
        reset_linear(output)
