"""Head policies: which of the many looks of a Transformer counts as its attention.

mean        the mean over the heads of the last layer
max         the largest over those heads, divided by the sum
2/mean      the same of layer 2, counted from 0
2/max
2/0         head 0 of layer 2
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import UsageError


@dataclass(frozen=True)
class HeadPolicy:
    """Layer and head, or how heads become one."""

    layer: int
    head: int | None
    """None takes all."""
    is_max: bool = False
    """Of all heads, the largest rather than the mean."""

    @staticmethod
    def of(text: str, *, layers: int, heads: int) -> "HeadPolicy":
        """What a text means for a model with so many layers and heads."""
        first, slash, last = text.partition("/")
        layer, how = (first, last) if slash else (str(layers - 1), first)
        is_joined = how in ("mean", "max")
        if not (layer.isdecimal() and (is_joined or (slash and how.isdecimal()))):
            raise UsageError(f"search.heads={text} is no choice of heads; write mean, max, or LAYER/HEAD such as 2/0")
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
        largest = weights.amax(1)
        # Hidden keys have 0 with every head; a query that sees none would divide by 0.
        return largest / largest.sum(-1, keepdim=True).clamp(min=torch.finfo(largest.dtype).tiny)
