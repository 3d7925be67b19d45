"""What stands between recurrent layers: ways past a layer, and dropout of two kinds.

With x_l for what layer l reads, h_l for its hidden states and y_l for what it leaves (y_0 = x_1 = the inputs):

    none       y_l = h_l                                    x_{l+1} = dropout(y_l)
    residual   y_l = h_l + y_{l−1}                          x_{l+1} = dropout(y_l)          (He et al., 2016)
    highway    y_l = T ⊙ h_l + (1 − T) ⊙ y_{l−1}            x_{l+1} = dropout(y_l)          (Srivastava et al., 2015)
    dense      y_l = h_l                                    x_{l+1} = [x_l; dropout(y_l)]   (Huang et al., 2017)

A sum needs two vectors of one width, so the lowest layer has a way past it only where the inputs are as wide as its
hidden states; all others always have. Dropout acts on what a layer reads and never on the way past it.
"""

from collections.abc import Callable, Sequence
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.errors import check_known
from seqloom.nn.dropout import Dropout
from seqloom.nn.init import xavier_uniform

Skip = Literal["none", "residual", "dense", "highway"]
"""The way past a layer."""

DropoutKind = Literal["between", "variational"]
"""Whether every number is dropped by itself, or the same ones at all positions of a sequence."""

Masks = tuple[Float[Tensor, "rows _"], ...]
"""What remains of each sequence in each place that drops something: 0 or 1 / (1 − rate)."""


class SequenceDropout(nn.Module):
    """Dropout on sequences: each number by itself ("between"), or one mask per sequence ("variational").

    The second is that of Gal & Ghahramani (2016) on what goes into and out of layers. What a layer hands to itself
    from step to step is left whole, since the kernels that run whole sequences do so in one call.
    """

    def __init__(self, rate: float, *, kind: DropoutKind) -> None:
        super().__init__()
        check_known("dropout_kind", kind, get_args(DropoutKind))
        self.kind = kind
        self.dropout = Dropout(rate)

    @property
    def has_masks(self) -> bool:
        """Whether a mask is drawn per sequence, now."""
        return self.kind == "variational" and self.training and self.dropout.threshold > 0

    def draw(self, rows: int, width: int, *, like: Float[Tensor, "*any"]) -> Float[Tensor, "rows width"]:
        """A mask for each sequence: dropout of ones."""
        mask: Tensor = self.dropout(like.new_ones(rows, width))
        return mask

    def forward(
        self, values: Float[Tensor, "rows *time width"], mask: Float[Tensor, "rows width"] | None = None
    ) -> Float[Tensor, "rows *time width"]:
        """Whole sequences, or one position of each. Who goes position by position hands in one `mask` for all."""
        dropped: Tensor
        if not self.has_masks:
            dropped = self.dropout(values)
            return dropped
        if mask is None:
            mask = self.draw(values.shape[0], values.shape[-1], like=values)
        return values * (mask if values.dim() == 2 else mask[:, None])


class Highway(nn.Module):
    """A gate between a layer and the way past it (Srivastava et al., 2015).

        T = σ(W x + b)                       transform gate: 1 takes the layer
        y = T ⊙ H(x) + (1 − T) ⊙ x           1 − T is the carry gate: 1 is the identity

    b begins below zero, so that a deep stack first carries its input upwards and learns where to change it.
    """

    def __init__(self, width: int, *, bias: float = -1.0) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        xavier_uniform(self.gate.weight)
        nn.init.constant_(self.gate.bias, bias)

    def forward(
        self, below: Float[Tensor, "*rows width"], hidden: Float[Tensor, "*rows width"]
    ) -> Float[Tensor, "*rows width"]:
        """From x and H(x) to y."""
        return torch.lerp(below, hidden, self.gate(below).sigmoid())


class Addition(nn.Module):
    """y = H(x) + x"""

    def forward(
        self, below: Float[Tensor, "*rows width"], hidden: Float[Tensor, "*rows width"]
    ) -> Float[Tensor, "*rows width"]:
        return below + hidden


class NoBypass(nn.Module):
    """y = H(x), which may be of another width than x."""

    def forward(
        self,
        below: Float[Tensor, "*rows inputs"],  # noqa: ARG002 - the same call as for the other ways
        hidden: Float[Tensor, "*rows width"],
    ) -> Float[Tensor, "*rows width"]:
        return hidden


Bypass = NoBypass | Addition | Highway


class Climb(nn.Module):
    """The way of a signal up through the layers of a stack: what each of them reads, and what it leaves."""

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        layers: int,
        skip: Skip,
        dropout_rate: float,
        dropout_kind: DropoutKind,
    ) -> None:
        super().__init__()
        self.width = width
        check_known("skip", skip, get_args(Skip))
        self.skip = skip
        bypasses = [_bypass(skip, input_width if layer == 0 else width, width) for layer in range(layers)]
        self.bypasses = cast("Sequence[Bypass]", nn.ModuleList(bypasses))
        self.dropout = SequenceDropout(dropout_rate, kind=dropout_kind)

    def draw(self, rows: int, *, like: Float[Tensor, "*any"]) -> Masks:
        """Masks for sequences that will be read position by position; none where none are needed."""
        gaps = len(self.bypasses) - 1 if self.dropout.has_masks else 0
        return tuple(self.dropout.draw(rows, self.width, like=like) for _ in range(gaps))

    def forward(
        self,
        inputs: Float[Tensor, "rows *time inputs"],
        layer: Callable[[int, Tensor], Tensor],
        *,
        masks: Masks = (),
    ) -> Float[Tensor, "rows *time width"]:
        """What the top leaves; `layer(l, x_l)` gives h_l."""
        read = left = inputs
        for number, bypass in enumerate(self.bypasses):
            if number:
                dropped = self.dropout(left, masks[number - 1] if masks else None)
                read = torch.cat([read, dropped], -1) if self.skip == "dense" else dropped
            left = bypass(left, layer(number, read))
        return left


def _bypass(skip: Skip, input_width: int, width: int) -> Bypass:
    if input_width != width or skip in ("none", "dense"):
        return NoBypass()
    return Highway(width) if skip == "highway" else Addition()
