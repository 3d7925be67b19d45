"""Packing: real tokens one after another, so that padding costs nothing outside attention.

A padded batch is `[batch, longest, …]`; packed it is `[tokens, …]`, sentence after sentence. The two directions are
each other's transpose, so each one's gradient is the other: a gather and a scatter, with no addition in either.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx

from seqloom.nn.masks import length_mask


@dataclass(frozen=True)
class Packing:
    """Where each packed token stands in the padded batch.

    `flat` holds one index into `batch · longest` per token; `positions` its place within its own sentence.
    """

    batch: int
    longest: int
    flat: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]

    @property
    def is_full(self) -> bool:
        """No sentence is shorter than another: packing is only another view."""
        return self.flat.shape[0] == self.batch * self.longest


def packing_of(lengths: Int[Tensor, " batch"], longest: int) -> Packing:
    """The packing of a batch whose sentences have these lengths."""
    flat = length_mask(lengths, longest).flatten().nonzero().flatten()
    return Packing(batch=len(lengths), longest=longest, flat=flat, positions=flat % longest)


def pack(padded: Tensor, packing: Packing) -> Tensor:
    """`[batch, longest, …]` to `[tokens, …]`."""
    flat = padded.flatten(0, 1)
    return flat if packing.is_full else flat.index_select(0, packing.flat)


def pack_features(padded: Float[Tensor, "batch longest width"], packing: Packing) -> Float[Tensor, "tokens width"]:
    """The same with a gradient that scatters instead of adding."""
    if packing.is_full:
        return padded.flatten(0, 1)
    packed: Tensor = _Pack.apply(padded, packing)  # type: ignore[no-untyped-call]
    return packed


def pad_features(packed: Float[Tensor, "tokens width"], packing: Packing) -> Float[Tensor, "batch longest width"]:
    """`[tokens, width]` to `[batch, longest, width]`, zeros in the padding."""
    if packing.is_full:
        return packed.reshape(packing.batch, packing.longest, -1)
    padded: Tensor = _Pad.apply(packed, packing)  # type: ignore[no-untyped-call]
    return padded


def _scatter(packed: Tensor, packing: Packing) -> Tensor:
    flat = packed.new_zeros(packing.batch * packing.longest, packed.shape[1])
    flat.index_copy_(0, packing.flat, packed)
    return flat.view(packing.batch, packing.longest, -1)


def _gather(padded: Tensor, packing: Packing) -> Tensor:
    return padded.reshape(packing.batch * packing.longest, -1).index_select(0, packing.flat)


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, padded: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing  # type: ignore[attr-defined]
        return _gather(padded, packing)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return _scatter(gradient, ctx.packing), None  # type: ignore[attr-defined]


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, packed: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing  # type: ignore[attr-defined]
        return _scatter(packed, packing)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return _gather(gradient, ctx.packing), None  # type: ignore[attr-defined]
