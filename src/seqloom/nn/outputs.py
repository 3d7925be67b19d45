"""The last layer: from features to scores over the symbols."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Output(nn.Module):
    """Scores over the symbols, `W x + b`; tied when `weight` is the table of an embedding.

    Training hands `weight` and `bias` to a loss in `nn.losses`, which never keeps all scores at once;
    decoding asks for `log_probs`.
    """

    def __init__(self, weight: nn.Parameter, *, has_bias: bool = False) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(weight.shape[0])) if has_bias else None

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        return F.linear(features, self.weight, self.bias)

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log softmax(W x + b)"""
        return log_softmax_(self(features))


def log_softmax_(scores: Float[Tensor, "*rows symbols"]) -> Float[Tensor, "*rows symbols"]:
    """log softmax of scores that nobody else needs, in their place where no gradient is asked for.

    A table of all scores is tens of megabytes, and memory of that size costs more to get than the softmax itself.
    """
    return F.log_softmax(scores, dim=-1) if scores.requires_grad else torch.log_softmax(scores, -1, out=scores)
