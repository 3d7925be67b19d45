"""Large products of training on the CPU by oneDNN.

torch multiplies matrices by MKL, which runs an older kernel on processors of other makers than its own: by a tenth
slower there, more with several threads, and by half where few columns meet a large table. oneDNN is in torch too and
has one kernel for all of them, which it makes for each shape when that is first seen. This takes a third of a
millisecond, so only products which take much longer are computed here; all others, and those on other devices or with
other numbers, are those of `F.linear`, the plain twin.

    forward     y = x Wᵀ + b
    backward    ∂x = ∂y W        ∂W = ∂yᵀ x        ∂b = Σ over tokens of ∂y
"""

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

MIN_LARGE = 1 << 28
"""Multiplications from which on a product is large. It depends on nothing else, so that a resumed run computes the same
bits."""


def apply(layer: nn.Module, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
    """layer(x), which may be any layer; that of a plain linear one in training, if it is large, by oneDNN."""
    has_hooks = bool(layer._forward_hooks or layer._forward_pre_hooks)
    if type(layer) is nn.Linear and not has_hooks and torch.is_grad_enabled() and is_large(x, layer.weight):
        product: Tensor = _Linear.apply(x, layer.weight, layer.bias)  # type: ignore[no-untyped-call]
        return product
    applied: Tensor = layer(x)
    return applied


def is_large(x: Float[Tensor, "*rows inputs"], weight: Float[Tensor, "outputs inputs"]) -> bool:
    """Whether oneDNN computes x Wᵀ."""
    is_float = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    is_here = x.device.type == "cpu" and x.numel() * weight.shape[0] >= MIN_LARGE
    return is_float and is_here and _has_onednn() and bool(torch.backends.mkldnn.enabled)


def multiplied(
    x: Float[Tensor, "*rows inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*rows outputs"]:
    """x Wᵀ + b without gradients: by oneDNN if it is large, otherwise `F.linear`."""
    if not is_large(x, weight):
        return F.linear(x, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


@cache
def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiplied(x, weight, bias)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        to_x, to_weight, to_bias = ctx.needs_input_grad  # type: ignore[attr-defined]
        # Gradients of gradients are those of torch's operators.
        product = F.linear if torch.is_grad_enabled() else multiplied
        rows, outputs = (each.reshape(-1, each.shape[-1]) for each in (x, gradient))
        return (
            product(gradient, weight.t()) if to_x else None,
            # oneDNN is no faster where both factors are turned.
            outputs.t() @ rows if to_weight else None,
            outputs.sum(0) if to_bias else None,
        )
