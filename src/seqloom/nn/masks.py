"""Masks: True where a position holds a token or may be looked at, everywhere in the house."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def length_mask(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    """True where a position holds a token, False where it holds padding."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def causal_mask(length: int, *, device: torch.device) -> Bool[Tensor, "length length"]:
    """True where a query (row) may look at a key (column): itself and what came before."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def additive(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where the mask allows, −∞ where it forbids: what is added to scores before the softmax."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
