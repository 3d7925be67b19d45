"""The last layer: from features to scores over the symbols."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.nn.losses import smoothed_cross_entropy
from seqloom.nn.rows import pick_rows


class Output(nn.Module):
    """Scores over the symbols, `W x + b`; tied when `weight` is the table of an embedding.

    Training hands `weight` and `bias` to a loss in `nn.losses`, which never keeps all scores at once;
    decoding asks for `log_probs`. `log_z` is one learned number for objectives that do not normalise (`nn.objectives`);
    it shifts all scores alike, so that probabilities do not depend on it.
    """

    row_gradients = False
    """Whether `picked` gives the table a gradient of the picked rows only; set by `training.sparse`."""

    def __init__(self, weight: nn.Parameter, *, has_bias: bool = False, has_log_z: bool = False) -> None:
        super().__init__()
        self.weight = weight
        self.bias = nn.Parameter(weight.new_zeros(weight.shape[0])) if has_bias else None
        self.log_z = nn.Parameter(weight.new_zeros(())) if has_log_z else None

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        return F.linear(features, self.weight, self.bias)

    def log_probs(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        """log softmax(W x + b)"""
        return log_softmax_(self(features))

    def cross_entropy(
        self, features: Float[Tensor, "tokens width"], labels: Int[Tensor, " tokens"], *, smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Σ over tokens of −log softmax(W x + b)[label], smoothed: the full softmax, as a loss."""
        return smoothed_cross_entropy(features, self.weight, self.bias, labels, smoothing=smoothing)

    def picked(
        self, symbols: Int[Tensor, " picked"]
    ) -> tuple[Float[Tensor, "picked width"], Float[Tensor, " picked"] | None]:
        """The rows of W and b that score some symbols."""
        weight = pick_rows(self.weight, symbols, sparse=self.row_gradients)
        bias = None if self.bias is None else pick_rows(self.bias, symbols, sparse=self.row_gradients)
        return weight, bias


def log_softmax_(scores: Float[Tensor, "*rows symbols"]) -> Float[Tensor, "*rows symbols"]:
    """log softmax of scores that nobody else needs, in their place where no gradient is asked for.

    A table of all scores is tens of megabytes, and memory of that size costs more to get than the softmax itself.
    """
    return F.log_softmax(scores, dim=-1) if scores.requires_grad else torch.log_softmax(scores, -1, out=scores)
