"""What a Transformer has besides attention: feed-forward layers, residual connections with their norm, positions."""

import math
from collections.abc import Callable
from typing import Literal, Protocol, get_args

import torch
from jaxtyping import Float, Int
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


# Position codes, absolute and relative: without them attention sees a set, not a sequence.

Combination = Literal["add", "concat"]


def sinusoids(positions: int, width: int) -> Float[Tensor, "positions width"]:
    """The position code of Vaswani et al. (2017), for odd widths too.

    code[t, 2i]     = sin(t / 10000^(2i / width))
    code[t, 2i + 1] = cos(t / 10000^(2i / width))
    """
    even = torch.arange(0, width, 2, dtype=torch.float64)
    # [positions, ⌈width / 2⌉]
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * torch.exp(even * (-math.log(10000.0) / width))
    code = torch.empty(positions, width, dtype=torch.float64)
    code[:, 0::2] = angles.sin()
    code[:, 1::2] = angles[:, : width // 2].cos()
    return code.to(torch.get_default_dtype())


class AbsolutePositions(Protocol):
    """Adds its position to each vector."""

    def __call__(
        self, vectors: Float[Tensor, "tokens width"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        """`positions` are all below `longest`."""
        ...


class SinusoidalPositions(nn.Module):
    """Adds the sinusoid code to each vector, or joins the two.

        add      x + code[t]                    the paper
        concat   W [x ; code[t]]                the code keeps columns of its own; W brings the width back

    The table grows with the longest sequence seen, so there is no longest sentence.
    """

    table: Tensor

    def __init__(self, width: int, *, combine: Combination = "add", prepared: int = 256) -> None:
        super().__init__()
        check_known("combine", combine, get_args(Combination))
        self.combine = combine
        self.joined = nn.Linear(2 * width, width, bias=False) if combine == "concat" else None
        self.register_buffer("table", sinusoids(prepared, width), persistent=False)

    def forward(
        self, vectors: Float[Tensor, "tokens width"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        if longest > len(self.table):
            # A table that grows while decoding may be used in training later, which rejects inference tensors.
            with torch.inference_mode(False):
                longer = sinusoids(max(longest, 2 * len(self.table)), self.table.shape[1])
                self.table = longer.to(device=self.table.device, dtype=self.table.dtype)
        code = self.table.index_select(0, positions)  # [tokens, width]
        if self.joined is None:
            return vectors + code
        joined: Tensor = self.joined(torch.cat([vectors, code], dim=-1))
        return joined


class LearnedPositions(nn.Module):
    """Adds a learned row per position: x + P[t]. Positions past the table use its last row."""

    def __init__(self, width: int, *, positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(
        self,
        vectors: Float[Tensor, "tokens width"],
        positions: Int[Tensor, " tokens"],
        *,
        longest: int,  # noqa: ARG002 - the same call as for the other kinds of position
    ) -> Float[Tensor, "tokens width"]:
        return vectors + F.embedding(positions.clamp(max=len(self.weight) - 1), self.weight)


class NoPositions(nn.Module):
    """Leaves the vectors as they are: positions come from elsewhere, or order does not matter."""

    def forward(
        self,
        vectors: Float[Tensor, "tokens width"],
        positions: Int[Tensor, " tokens"],  # noqa: ARG002
        *,
        longest: int,  # noqa: ARG002
    ) -> Float[Tensor, "tokens width"]:
        return vectors


class RelativeBias(nn.Module):
    """A learned number per head and distance, added to the attention scores (T5; Raffel et al., 2020).

        score[h, t, s] = q_t · k_s / √d + b[h, bucket(s − t)]

    Distances up to half of `buckets` have a bucket each, longer ones share logarithmically wider buckets up to
    `farthest`, beyond which all share one. Only differences enter: a shifted sequence gets the same bias.
    """

    def __init__(self, heads: int, *, buckets: int = 32, farthest: int = 128, is_causal: bool) -> None:
        super().__init__()
        self.buckets = buckets
        self.farthest = farthest
        self.is_causal = is_causal
        self.weight = nn.Parameter(torch.zeros(heads, buckets))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, queries: range, keys: int) -> Float[Tensor, "heads queries keys"]:
        """The bias of the queries at these positions against keys 0 … keys − 1."""
        device = self.weight.device
        at = torch.arange(queries.start, queries.stop, device=device)
        distance = torch.arange(keys, device=device)[None, :] - at[:, None]  # [queries, keys]
        return self.weight[:, self.bucket(distance)]

    def bucket(self, distance: Int[Tensor, "queries keys"]) -> Int[Tensor, "queries keys"]:
        """The bucket of each distance key − query."""
        buckets = self.buckets
        if self.is_causal:
            first, away = torch.zeros_like(distance), (-distance).clamp(min=0)
        else:
            buckets //= 2
            first, away = (distance > 0) * buckets, distance.abs()
        exact = buckets // 2
        ratio = torch.log(away.clamp(min=1) / exact) / math.log(self.farthest / exact)
        wide = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(away < exact, away, wide)
