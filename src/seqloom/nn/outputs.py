"""The last layer: from features to scores over the symbols."""

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
        return F.log_softmax(self(features), dim=-1)
