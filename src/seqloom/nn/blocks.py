"""The blocks that a Transformer repeats: feed-forward layers and residual connections with their norm."""

from collections.abc import Callable
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import check_known
from seqloom.nn.dropout import Dropout
from seqloom.nn.init import xavier_uniform

NormPlace = Literal["before", "after"]
Activation = Literal["relu", "gelu"]


class FeedForward(nn.Module):
    """The same two layers at every position: W₂ φ(W₁ x + b₁) + b₂."""

    def __init__(self, width: int, inner: int, *, activation: Activation, dropout_rate: float = 0.0) -> None:
        super().__init__()
        check_known("activation", activation, get_args(Activation))
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.activation = activation
        self.dropout = Dropout(dropout_rate)
        for layer in (self.inner, self.outer):
            xavier_uniform(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
        inner = self.inner(x)  # [tokens, inner]
        # In place: the product before it does not need its own result for its gradients.
        active = F.relu_(inner) if self.activation == "relu" else F.gelu(inner)
        result: Tensor = self.outer(self.dropout(active))
        return result


class Residual(nn.Module):
    """A sublayer on a bypass, with its norm before or after.

    before   x + dropout(f(norm(x)))         pre-norm: deep stacks train without warm-up
    after    norm(x + dropout(f(x)))         post-norm: the paper
    """

    def __init__(self, width: int, *, norm: NormPlace, dropout_rate: float) -> None:
        super().__init__()
        check_known("norm", norm, get_args(NormPlace))
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout_rate)
        self.place = norm

    def forward(
        self, x: Float[Tensor, "tokens width"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "tokens width"]:
        if self.place == "before":
            return self.dropout.add(x, sublayer(self.norm(x)))
        summed: Tensor = self.norm(self.dropout.add(x, sublayer(x)))
        return summed
