"""Packing: real tokens one after another, so that padding costs nothing outside attention.

A padded batch is `[batch, longest, …]`; packed it is `[tokens, …]`, sentence after sentence. Attention wants
`[batch, heads, longest, size]`. Each way there and back is one gather, and so is its gradient, because a real token
has exactly one place on either side: nothing has to be summed or filled in.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx

Pooling = Literal["mean", "cls", "last", "max"]
"""How the vectors of tokens become one: their mean, the first, the last, or the largest of each column."""


def length_mask(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    """True where a position holds a token, False where it holds padding."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def additive(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where the mask allows, −∞ where it forbids: what is added to scores before the softmax."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def future(queries: int, keys: int, *, like: Float[Tensor, "*any"]) -> Float[Tensor, "queries keys"]:
    """0 where a query (row) may attend to a key (column), itself and earlier ones; −∞ where the key is later."""
    return like.new_full((queries, keys), float("-inf")).triu_(1)


@dataclass(frozen=True)
class Gathers:
    """Row indices between `[tokens, parts, heads]` and `[parts, batch, heads, longest]`.

    `there[padded row]` is a packed row (any one, for padding); `back[packed row]` is a padded row.
    """

    there: Int[Tensor, " padded"]
    back: Int[Tensor, " packed"]


@dataclass(frozen=True)
class Packing:
    """The place of each packed token in the padded batch.

    `flat` holds one index into `batch · longest` per token, in any order; `positions` its place within its sentence.
    `has_empty` says that some sentence has no token at all, so that queries attend to its padding, and `is_ordered`
    that `flat` only rises.
    """

    batch: int
    longest: int
    flat: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    has_empty: bool = False
    is_ordered: bool = False
    _gathers: dict[tuple[int, int], Gathers] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_full(self) -> bool:
        """No sentence is shorter than another: there is no padding."""
        return self.flat.shape[0] == self.batch * self.longest

    @property
    def is_plain(self) -> bool:
        """Packed and padded are the same numbers in the same order, so that nothing has to be gathered."""
        return self.is_ordered and self.is_full

    def mask(self) -> Bool[Tensor, "batch longest"]:
        """True where a position holds a token."""
        mask = torch.zeros(self.batch * self.longest, dtype=torch.bool, device=self.flat.device)
        return mask.index_fill_(0, self.flat, True).view(self.batch, self.longest)

    def gathers(self, parts: int, heads: int) -> Gathers:
        """The indices for this many parts and heads, computed once."""
        if (parts, heads) not in self._gathers:
            self._gathers[parts, heads] = _gathers(self, parts, heads)
        return self._gathers[parts, heads]


def packing_of(lengths: Int[Tensor, " batch"], longest: int) -> Packing:
    """The packing of a batch whose sentences have these lengths."""
    flat = length_mask(lengths, longest).flatten().nonzero().flatten()
    return Packing(
        batch=len(lengths),
        longest=longest,
        flat=flat,
        positions=flat % max(longest, 1),
        has_empty=bool((lengths == 0).any()),
        is_ordered=True,
    )


def full_packing(batch: int, longest: int, *, device: torch.device) -> Packing:
    """The packing of a batch without padding."""
    positions = torch.arange(longest, device=device).repeat(batch)
    flat = torch.arange(batch * longest, device=device)
    return Packing(batch=batch, longest=longest, flat=flat, positions=positions, has_empty=not longest, is_ordered=True)


def side_by_side(owners: Int[Tensor, " rows"], sentences: int) -> Packing:
    """The packing of rows that belong to sentences, in any order: the n-th row of a sentence is at position n."""
    if sentences == 1:
        rows = torch.arange(len(owners), device=owners.device)
        return Packing(batch=1, longest=len(owners), flat=rows, positions=rows)
    slots, longest = slots_of(owners, sentences)
    return Packing(batch=sentences, longest=longest, flat=owners * longest + slots, positions=slots)


def slots_of(owners: Int[Tensor, " rows"], sentences: int) -> tuple[Int[Tensor, " rows"], int]:
    """A place for each row among the rows of its sentence, and the largest number of rows a sentence has."""
    counts = torch.bincount(owners, minlength=sentences)
    order = torch.argsort(owners, stable=True)
    begins = counts.cumsum(0) - counts
    slots = torch.empty_like(owners)
    slots[order] = torch.arange(len(owners), device=owners.device) - begins[owners[order]]
    return slots, int(counts.max()) if len(owners) else 0


def pack(padded: Tensor, packing: Packing) -> Tensor:
    """`[batch, longest, …]` to `[tokens, …]`."""
    return padded.flatten(0, 1).index_select(0, packing.flat)


def pack_features(padded: Float[Tensor, "batch longest width"], packing: Packing) -> Float[Tensor, "tokens width"]:
    """`[batch, longest, width]` to `[tokens, width]`, with a gradient that gathers too."""
    return join_heads(padded[:, None], packing)


def pool(
    states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " batch"], pooling: Pooling
) -> Float[Tensor, "batch width"]:
    """One vector for each text of packed ones, none of which is empty."""
    match pooling:
        case "cls":
            return states[lengths.cumsum(0) - lengths]
        case "last":
            return states[lengths.cumsum(0) - 1]
        case _:
            return torch.segment_reduce(states, pooling, lengths=lengths)


def split_heads(
    packed: Float[Tensor, "tokens joined"], packing: Packing, *, parts: int, heads: int
) -> tuple[Float[Tensor, "batch heads longest size"], ...]:
    """`[tokens, parts · heads · size]` to one padded `[batch, heads, longest, size]` per part.

    Padding holds copies of some token, finite numbers which a mask has to hide. If a sentence has no
    tokens at all, padding holds zeros: tokens of other sentences must not be seen there.
    """
    if not torch.is_grad_enabled():
        return _split(packed, packing, parts, heads).unbind(0)
    split: tuple[Tensor, ...] = _SplitHeads.apply(packed, packing, parts, heads)  # type: ignore[no-untyped-call]
    return split


def join_heads(split: Float[Tensor, "batch heads longest size"], packing: Packing) -> Float[Tensor, "tokens joined"]:
    """`[batch, heads, longest, size]` to `[tokens, heads · size]`; padding is left out."""
    if not torch.is_grad_enabled():
        return _join(split, packing)
    joined: Tensor = _JoinHeads.apply(split, packing)  # type: ignore[no-untyped-call]
    return joined


def _gathers(packing: Packing, parts: int, heads: int) -> Gathers:
    device, tokens = packing.flat.device, len(packing.flat)
    token_at = torch.zeros(packing.batch * packing.longest, dtype=torch.long, device=device)
    token_at[packing.flat] = torch.arange(tokens, device=device)
    part = torch.arange(parts, device=device)
    head = torch.arange(heads, device=device)
    row = (token_at.view(packing.batch, 1, packing.longest) * parts + part.view(-1, 1, 1, 1)) * heads
    there = row + head.view(-1, 1)  # [parts, batch, heads, longest]
    longest = max(packing.longest, 1)  # a batch without columns has no tokens, but dividing by 0 is an error
    sentence, position = packing.flat // longest, packing.flat % longest
    padded = (part[:, None] * packing.batch + sentence[:, None, None]) * heads + head
    back = padded * packing.longest + position[:, None, None]  # [tokens, parts, heads]
    return Gathers(there=there.flatten(), back=back.flatten())


def _split(packed: Tensor, packing: Packing, parts: int, heads: int) -> Tensor:
    size = packed.shape[1] // (parts * heads)
    shape = (parts, packing.batch, heads, packing.longest, size)
    if not len(packed):
        return packed.new_zeros(shape)
    if packing.is_plain:
        by_place = packed.view(packing.batch, packing.longest, parts, heads, size)
        return by_place.permute(2, 0, 3, 1, 4).contiguous()
    split = packed.reshape(-1, size).index_select(0, packing.gathers(parts, heads).there).view(shape)
    return split.mul_(packing.mask()[:, None, :, None]) if packing.has_empty else split


def _join(split: Tensor, packing: Packing) -> Tensor:
    if packing.is_plain:
        return split.transpose(1, 2).reshape(len(packing.flat), split.shape[1] * split.shape[3])
    rows = split.reshape(-1, split.shape[-1]).index_select(0, packing.gathers(1, split.shape[1]).back)
    return rows.view(len(packing.flat), split.shape[1] * split.shape[3])


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, packed: Tensor, packing: Packing, parts: int, heads: int) -> tuple[Tensor, ...]:
        ctx.packing, ctx.shape = packing, packed.shape  # type: ignore[attr-defined]
        return _split(packed, packing, parts, heads).unbind(0)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        packing: Packing = ctx.packing  # type: ignore[attr-defined]
        shape: torch.Size = ctx.shape  # type: ignore[attr-defined]
        tokens, parts = shape[0], len(gradients)
        result = gradients[0].new_empty(tokens, parts, shape[1] // parts)
        for part, gradient in enumerate(gradients):  # [batch, heads, longest, size]
            if packing.is_plain:
                by_place = gradient.transpose(1, 2)
                result[:, part].view(by_place.shape).copy_(by_place)
            else:
                result[:, part] = _join(gradient, packing)
        return result.view(shape), None, None, None


class _JoinHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, split: Tensor, packing: Packing) -> Tensor:
        ctx.packing, ctx.shape = packing, split.shape  # type: ignore[attr-defined]
        return _join(split, packing)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        shape: torch.Size = ctx.shape  # type: ignore[attr-defined]
        packing: Packing = ctx.packing  # type: ignore[attr-defined]
        if not len(gradient):
            return gradient.new_zeros(shape), None
        if packing.is_plain:
            by_place = gradient.view(shape[0], shape[2], shape[1], shape[3])
            return by_place.transpose(1, 2).contiguous(), None
        there = packing.gathers(1, shape[1]).there
        rows = gradient.reshape(-1, shape[-1]).index_select(0, there).view(shape)
        # A padded query has no gradient of its own; without this it would pass on a copy of another's.
        return rows if packing.is_full else rows.mul_(packing.mask()[:, None, :, None]), None
