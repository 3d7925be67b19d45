"""Scaled dot-product attention (Vaswani et al., 2017), one query at a time.

    score_k = q · k_k / √d + mask_k          how well the query fits key k; −∞ where it must not look
    w       = softmax(score)                 weights over the positions, which add up to 1
    out     = Σ_k w_k v_k                    the values it reads, weighted

Several heads are several such attentions side by side, each on its own part of the width. The fast version is
`seqloom.nn.multihead`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def attend_one(
    query: Float[Tensor, " size"],
    keys: Float[Tensor, "source size"],
    values: Float[Tensor, "source size"],
    mask: Float[Tensor, " source"] | None = None,
) -> tuple[Float[Tensor, " size"], Float[Tensor, " source"]]:
    """What one query reads, and its weights."""
    scores = keys @ query / math.sqrt(len(query))  # [source]
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(0)
    return weights @ values, weights


def attend(
    query: Float[Tensor, "batch heads target size"],
    keys: Float[Tensor, "batch heads source size"],
    values: Float[Tensor, "batch heads source size"],
    mask: Float[Tensor, "#batch #heads #target source"] | None = None,
) -> Float[Tensor, "batch heads target size"]:
    """The same for all sentences, heads and positions."""
    batch, heads, target, _ = query.shape
    masks = None if mask is None else mask.expand(batch, heads, target, -1)
    out = torch.empty_like(query)
    for b in range(batch):
        for h in range(heads):
            for t in range(target):
                mask_of_one = None if masks is None else masks[b, h, t]
                out[b, h, t], _ = attend_one(query[b, h, t], keys[b, h], values[b, h], mask_of_one)
    return out
