"""What a Transformer has besides attention: feed-forward layers, residual connections with their norm, positions."""

import math
from collections.abc import Callable
from typing import Literal, Protocol, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import ModelError, check_known
from seqloom.nn.dropout import Dropout
from seqloom.nn.fast import products
from seqloom.nn.fast.activations import can_fuse, fused_activation
from seqloom.nn.init import reset_linear

NormPlace = Literal["before", "after"]
NormKind = Literal["layer", "rms"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


def activated(x: Float[Tensor, "*rows inner"], activation: Activation) -> Float[Tensor, "*rows inner"]:
    """φ(x) of a tensor that is not needed afterwards.

    relu        max(x, 0)
    gelu        x Φ(x), Φ the normal distribution function (Hendrycks & Gimpel, 2016)
    gelu_tanh   x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, close to it (GPT-2)
    silu        x σ(x), also called swish

    In training on the CPU, `nn.fast.activations` computes gelu and gelu_tanh.
    """
    if activation in ("gelu", "gelu_tanh") and can_fuse(x):
        return fused_activation(x, activation)
    match activation:
        case "relu":  # in place: the product before it does not need its own result for its gradients
            return F.relu_(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu":
            return F.silu(x)


class FeedForward(nn.Module):
    """The same two layers at every position, the inner one with a gate or without.

    W₂ φ(W₁ x + b₁) + b₂                      the paper
    W₂ (φ(W_g x + b_g) ⊙ (W₁ x + b₁)) + b₂    gated (Shazeer, 2020)
    """

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: Activation,
        dropout_rate: float = 0.0,
        has_bias: bool = True,
        is_gated: bool = False,
    ) -> None:
        super().__init__()
        check_known("activation", activation, get_args(Activation))
        self.inner = nn.Linear(width, inner, bias=has_bias)
        self.outer = nn.Linear(inner, width, bias=has_bias)
        self.gate = nn.Linear(width, inner, bias=has_bias) if is_gated else None
        self.activation: Activation = activation
        self.dropout = Dropout(dropout_rate)
        for layer in (self.inner, self.outer, self.gate):
            if layer is not None:
                reset_linear(layer)

    @property
    def is_plain(self) -> bool:
        """Whether it is that of the paper, with any activation: biases, no gate."""
        return self.gate is None and self.inner.bias is not None

    def forward(self, x: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens width"]:
        if self.gate is None:
            active = activated(products.apply(self.inner, x), self.activation)  # [tokens, inner]
        else:
            active = activated(products.apply(self.gate, x), self.activation) * products.apply(self.inner, x)
        return products.apply(self.outer, self.dropout(active))


class RMSNorm(nn.Module):
    """factor · weight ⊙ x / √(mean(x²) + ε): a layer norm without mean and bias (Zhang & Sennrich, 2019)."""

    def __init__(self, width: int, epsilon: float = 1e-6, *, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.factor = epsilon, factor

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        normed = F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return normed if self.factor == 1 else normed * self.factor


def make_norm(width: int, *, kind: NormKind = "layer", epsilon: float = 1e-5) -> nn.LayerNorm | RMSNorm:
    """A norm of this kind."""
    check_known("norm kind", kind, get_args(NormKind))
    return nn.LayerNorm(width, eps=epsilon) if kind == "layer" else RMSNorm(width, epsilon)


class Residual(nn.Module):
    """A sublayer on a bypass, with its norm before or after.

    before   x + dropout(f(norm(x)))         pre-norm: deep stacks train without warm-up
    after    norm(x + dropout(f(x)))         post-norm: the paper
    """

    def __init__(
        self,
        width: int,
        *,
        norm: NormPlace,
        dropout_rate: float,
        kind: NormKind = "layer",
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        check_known("norm", norm, get_args(NormPlace))
        self.norm, self.kind = make_norm(width, kind=kind, epsilon=epsilon), kind
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
SinusoidLayout = Literal["alternating", "halves", "tensor2tensor"]


def sinusoids(
    positions: int, width: int, *, layout: SinusoidLayout = "alternating", first: int = 0
) -> Float[Tensor, "positions width"]:
    """The position code of Vaswani et al. (2017), for odd widths too. Positions are counted from `first` on.

    code[t, 2i]     = sin(t / 10000^(2i / width))              alternating: the paper
    code[t, 2i + 1] = cos(t / 10000^(2i / width))
    code[t]         = [code[t, 0::2]; code[t, 1::2]]           halves: all sines, then all cosines
    code[t, i]      = sin(t / 10000^(i / (width/2 − 1)))       tensor2tensor: halves whose slowest rate is 1/10000
    """
    if layout == "tensor2tensor":
        half = width // 2
        # In single precision, as in the programs that trained such models: far positions differ otherwise.
        rates = torch.exp(torch.arange(half).float() * -(math.log(10000.0) / max(half - 1, 1)))
        angles = torch.arange(first, first + positions).float()[:, None] * rates  # [positions, width / 2]
        code = torch.cat([angles.sin(), angles.cos(), angles.new_zeros(positions, width % 2)], 1)
        return code.to(torch.get_default_dtype())
    even = torch.arange(0, width, 2, dtype=torch.float64)
    # [positions, ⌈width / 2⌉]
    angles = torch.arange(first, first + positions, dtype=torch.float64)[:, None] * torch.exp(
        even * (-math.log(10000.0) / width)
    )
    code = torch.empty(positions, width, dtype=torch.float64)
    sines, cosines = (slice(0, None, 2), slice(1, None, 2))
    if layout == "halves":
        sines, cosines = slice(0, len(even)), slice(len(even), None)
    code[:, sines] = angles.sin()
    code[:, cosines] = angles[:, : width // 2].cos()
    return code.to(torch.get_default_dtype())


class AbsolutePositions(Protocol):
    """Adds its position to each vector."""

    @property
    def bound(self) -> int | None:
        """How many positions there are; None if they do not end."""
        ...

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
    bound = None

    def __init__(
        self,
        width: int,
        *,
        combine: Combination = "add",
        prepared: int = 256,
        layout: SinusoidLayout = "alternating",
        first: int = 0,
    ) -> None:
        super().__init__()
        check_known("combine", combine, get_args(Combination))
        check_known("layout", layout, get_args(SinusoidLayout))
        self.combine = combine
        self.layout: SinusoidLayout = layout
        self.first = first
        self.joined = nn.Linear(2 * width, width, bias=False) if combine == "concat" else None
        self.register_buffer("table", self.code(prepared, width), persistent=False)

    def code(self, positions: int, width: int) -> Float[Tensor, "positions width"]:
        """What the first so many positions add."""
        return sinusoids(positions, width, layout=self.layout, first=self.first)

    def forward(
        self, vectors: Float[Tensor, "tokens width"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        if longest > len(self.table):
            # A table that grows while decoding may be used in training later, which rejects inference tensors.
            with torch.inference_mode(False):
                longer = self.code(max(longest, 2 * len(self.table)), self.table.shape[1])
                self.table = longer.to(device=self.table.device, dtype=self.table.dtype)
        code = self.table.index_select(0, positions)  # [tokens, width]
        if self.joined is None:
            return vectors + code
        joined: Tensor = self.joined(torch.cat([vectors, code], dim=-1))
        return joined


class LearnedPositions(nn.Module):
    """Adds a learned row per position: x + P[t + first], where the rows before `first` are not used.

    Positions past the table use its last row, or are an error.
    """

    def __init__(self, width: int, *, positions: int, first: int = 0, is_bounded: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(first + positions, width))
        self.first = first
        self.bound = positions if is_bounded else None
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(
        self, vectors: Float[Tensor, "tokens width"], positions: Int[Tensor, " tokens"], *, longest: int
    ) -> Float[Tensor, "tokens width"]:
        check_bound(longest, self.bound)
        rows = positions + self.first if self.first else positions
        return vectors + F.embedding(rows.clamp(max=len(self.weight) - 1), self.weight)


class NoPositions(nn.Module):
    """Leaves the vectors as they are: positions come from elsewhere, or order does not matter."""

    bound = None

    def forward(
        self,
        vectors: Float[Tensor, "tokens width"],
        positions: Int[Tensor, " tokens"],  # noqa: ARG002
        *,
        longest: int,  # noqa: ARG002
    ) -> Float[Tensor, "tokens width"]:
        return vectors


def check_bound(longest: int, bound: int | None) -> None:
    """A table of positions that may not be exceeded is long enough."""
    if bound is not None and longest > bound:
        raise ModelError(
            f"a text of {longest:,} tokens does not fit this model, whose table ends at {bound:,}; split the text"
        )


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
