"""Losses: sums, never means. Only the trainer divides."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

CHUNK_ELEMENTS = 2**20
"""Scores held at one time: small enough to stay in the processor's cache between the passes over them."""


def smoothed_cross_entropy(
    features: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "symbols width"],
    bias: Float[Tensor, " symbols"] | None,
    targets: Int[Tensor, " tokens"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ over tokens of −Σ_k q_k log p_k with p = softmax(W x + b), q = (1 − ε)·one-hot(target) + ε/symbols.

    The scores of all tokens would be by far the largest tensor of a small model. Here a few rows of them are
    computed at a time and turned into their gradient in place,

        ∂/∂score_k = p_k − q_k,

    and the gradients of x, W and b are summed up at once, so the backward pass only scales them.
    """
    total: Tensor = _SmoothedCrossEntropy.apply(features, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return total


def plain_smoothed_cross_entropy(
    features: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "symbols width"],
    bias: Float[Tensor, " symbols"] | None,
    targets: Int[Tensor, " tokens"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The same by the formula, all scores at once: the twin that `smoothed_cross_entropy` is compared with."""
    scores = F.linear(features, weight, bias)
    return F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
    ) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad[:3])  # type: ignore[attr-defined]
        symbols = weight.shape[0]
        rows = max(1, CHUNK_ELEMENTS // symbols)
        total = features.new_zeros(())
        feature_gradient = torch.empty_like(features) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight) if needs_gradient else None
        bias_gradient = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        for begin in range(0, len(targets), rows):
            chunk = slice(begin, begin + rows)
            some, wanted = features[chunk], targets[chunk, None]
            scores = F.linear(some, weight, bias)
            highest = scores.amax(1, keepdim=True)
            wanted_scores = scores.gather(1, wanted).sum()
            # −Σ_k q_k score_k, of which the smoothing part is over every symbol
            total -= (1 - smoothing) * wanted_scores
            if smoothing:
                total -= smoothing / symbols * scores.sum()
            probabilities = scores.sub_(highest).exp_()
            normaliser = probabilities.sum(1, keepdim=True)
            total += (normaliser.log() + highest).sum()
            if feature_gradient is None or weight_gradient is None:
                continue
            gradient = probabilities.div_(normaliser)
            if smoothing:
                gradient -= smoothing / symbols
            gradient.scatter_add_(1, wanted, gradient.new_full(wanted.shape, smoothing - 1))
            torch.mm(gradient, weight, out=feature_gradient[chunk])
            weight_gradient.addmm_(gradient.t(), some)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0)
        ctx.save_for_backward(feature_gradient, weight_gradient, bias_gradient)
        return total

    @staticmethod
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors  # type: ignore[attr-defined]
        return *(None if gradient is None else gradient * upstream for gradient in gradients), None, None
