"""Masks: True where a position holds a token or may be looked at, everywhere in the house."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def length_mask(lengths: Int[Tensor, " batch"], longest: int) -> Bool[Tensor, "batch longest"]:
    """True where a position holds a token, False where it holds padding."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def additive(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where the mask allows, −∞ where it forbids: what is added to scores before the softmax."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def future(queries: int, keys: int, *, like: Float[Tensor, "*any"]) -> Float[Tensor, "queries keys"]:
    """0 where a query (row) may look at a key (column), itself and what came before; −∞ where the key comes later."""
    return like.new_full((queries, keys), float("-inf")).triu_(1)
