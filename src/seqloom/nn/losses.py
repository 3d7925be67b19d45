"""Losses: sums, never means. Only the trainer divides."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F

CHUNK_ELEMENTS = 2**22
"""Scores held at one time: few enough to stay in the processor's largest cache between the passes over them, and
enough for the products to use all threads."""


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
    computed at a time, and with ∂/∂score_k = p_k − q_k the gradients of x, W and b are summed up at once, so the
    backward pass only scales them.
    """
    inputs = (features, weight) if bias is None else (features, weight, bias)
    # Checked here, because inside an autograd function a parameter requires its gradient under `no_grad` too.
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    total: Tensor = _SmoothedCrossEntropy.apply(features, weight, bias, targets, smoothing, needs_gradient)  # type: ignore[no-untyped-call]
    return total


def plain_smoothed_cross_entropy(
    features: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "symbols width"],
    bias: Float[Tensor, " symbols"] | None,
    targets: Int[Tensor, " tokens"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The formula with all scores at once: the plain twin of `smoothed_cross_entropy`, for comparison."""
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
        needs_gradient: bool,
    ) -> Tensor:
        share, hit = smoothing / weight.shape[0], 1 - smoothing
        # What smoothing contributes is linear in the scores s = W x + b, so it needs no pass over them:
        # −Σ_k q_k log p_k = log Σ_k exp s_k − (1 − ε)·s_target − ε/symbols·Σ_k s_k with Σ_k s_k = (Σ_k W_k)·x + Σ_k b_k
        summed_weight = weight.sum(0)
        losses = torch.mv(features, summed_weight).mul_(-share)
        if bias is not None:
            losses -= share * bias.sum()
        feature_gradient = torch.empty_like(features) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight) if needs_gradient else None
        bias_gradient = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        rows = max(1, CHUNK_ELEMENTS // weight.shape[0])
        for begin in range(0, len(targets), rows):
            some = features[begin : begin + rows]
            scores = F.linear(some, weight, bias)  # [rows, symbols]
            wanted = scores.gather(1, targets[begin : begin + rows, None])  # [rows, 1]
            highest = scores.amax(1, keepdim=True)
            exponentials = scores.sub_(highest).exp_()
            normaliser = exponentials.sum(1, keepdim=True)  # [rows, 1]
            # Token by token: the sums of the terms are far larger than the sum of their differences.
            losses[begin : begin + rows] += (normaliser.log() + highest).sub_(wanted, alpha=hit).squeeze(1)
            if feature_gradient is None or weight_gradient is None:
                continue
            # p = exponentials / normaliser; the division is done on the short side of each product.
            part = feature_gradient[begin : begin + rows]
            torch.mm(exponentials, weight, out=part).div_(normaliser)
            weight_gradient.addmm_(exponentials.t(), some / normaliser)
            if bias_gradient is not None:
                bias_gradient.addmv_(exponentials.t(), normaliser.reciprocal().squeeze(1))
        if feature_gradient is not None and weight_gradient is not None:
            feature_gradient.sub_(share * summed_weight).sub_(weight.index_select(0, targets), alpha=hit)
            weight_gradient.sub_(share * features.sum(0)).index_add_(0, targets, features, alpha=-hit)
        if bias_gradient is not None:
            bias_gradient.sub_(share * len(targets))
            bias_gradient.index_add_(0, targets, torch.ones_like(features[:, 0]), alpha=-hit)
        ctx.save_for_backward(feature_gradient, weight_gradient, bias_gradient)  # type: ignore[arg-type]
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors  # type: ignore[attr-defined]
        return *(None if gradient is None else gradient * upstream for gradient in gradients), None, None, None
