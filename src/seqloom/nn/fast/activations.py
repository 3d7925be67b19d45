"""Activations for training, compiled: the value and the slope of each number in one pass.

    forward     y = φ(x) and s = φ'(x)
    backward    ∂L/∂x = s ⊙ ∂L/∂y

torch computes φ' in the backward pass, with the same exponential or error function once more, and takes several
nanoseconds for each of them: at small widths, more than attention takes. Here both are quotients of polynomials, which
the compiled loop evaluates for many numbers at a time. Both passes keep one tensor, as torch does: s in place of x.

On the CPU, in single precision, and where numba is installed; everything else is computed by `nn.blocks.activated`, the
plain twin.
"""

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from seqloom.core.jit import compiled, has_numba
from seqloom.nn.bptt.lstm import MAX_ARGUMENT, tanh_of
from seqloom.nn.fast.threads import parts_of, share

Smooth = Literal["gelu", "gelu_tanh"]

MIN_NUMBERS = 1 << 14
"""Numbers from which on a compiled loop is worth its call."""
WORK = 40
"""Products and sums for one number, about."""
MOST_PARTS = 64


def can_fuse(x: Float[Tensor, "*rows inner"]) -> bool:
    """Whether the compiled loops compute this tensor: for gradients only, so that decoding never waits for numba."""
    is_trained = torch.is_grad_enabled() and x.requires_grad
    is_plain = x.dtype == torch.float32 and x.device.type == "cpu" and x.is_contiguous()
    return is_trained and is_plain and x.numel() >= MIN_NUMBERS and has_numba()


def fused_activation(x: Float[Tensor, "*rows inner"], activation: Smooth) -> Float[Tensor, "*rows inner"]:
    """φ(x); `can_fuse` says for which tensors."""
    active: Tensor = _Activated.apply(x, activation)  # type: ignore[no-untyped-call]
    return active


class _Activated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, activation: Smooth) -> Tensor:
        active, slopes = torch.empty_like(x), torch.empty_like(x)
        kernel = _gelu if activation == "gelu" else _gelu_tanh
        given, values, derivatives = (each.numpy().reshape(-1) for each in (x.detach(), active, slopes))
        parts = parts_of(WORK * x.numel(), most=MOST_PARTS)
        length = -(-x.numel() // parts)

        def compute(part: int) -> None:
            some = slice(part * length, (part + 1) * length)
            kernel(given[some], values[some], derivatives[some])

        share(parts, compute)
        ctx.save_for_backward(slopes)
        return active

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient * slopes, None


# The loops. Arguments are positional, as numba requires.

Array = Any
"""Of float32, flat. numba infers types and shapes."""

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)

# gelu: Φ(x) − ½ and φ'(x) − ½ = Φ(x) − ½ + x e^(−x²/2) / √(2π) are odd, so both are x P(x²) / Q(x²). They were fitted
# by least squares on the absolute error, weighted again where it was largest until it was nearly equal everywhere: to
# 1e-9 and 5e-9; rounding adds 2e-7. Beyond the bounds they are ±½ to 4e-8.
MAX_VALUE, MAX_SLOPE = np.float32(5.6), np.float32(6)
A0, A1, A2 = np.float32(0.3989422917366028), np.float32(0.03265249729156494), np.float32(0.004800252616405487)
A3, A4 = np.float32(0.00016954937018454075), np.float32(8.43330690258881e-06)
A5, A6 = np.float32(5.250586454508266e-08), np.float32(-7.468021340217845e-11)
B1, B2, B3 = np.float32(0.24851444363594055), np.float32(0.028451286256313324), np.float32(0.001930459402501583)
B4, B5 = np.float32(8.172256639227271e-05), np.float32(1.991973022086313e-06)
C0, C1, C2 = np.float32(0.7978845238685608), np.float32(-0.018084369599819183), np.float32(0.013570872135460377)
C3, C4, C5 = np.float32(0.0002843747497536242), np.float32(3.202823791070841e-05), np.float32(1.1195741080882726e-06)
C6, C7 = np.float32(1.2984486374989501e-08), np.float32(-2.885816238751282e-11)
D1, D2, D3 = np.float32(0.3106674551963806), np.float32(0.04556577652692795), np.float32(0.004147844389081001)
D4, D5, D6 = np.float32(0.00025839346926659346), np.float32(1.0801579264807515e-05), np.float32(3.6295409699960146e-07)


@compiled(fast={"contract"})
def _gelu(x: Array, values: Array, slopes: Array) -> None:
    """x Φ(x) and Φ(x) + x e^(−x²/2) / √(2π)"""
    for k in range(x.shape[0]):
        v = x[k]
        u = v * v
        top = A0 + u * (A1 + u * (A2 + u * (A3 + u * (A4 + u * (A5 + u * A6)))))
        odd = v * top / (ONE + u * (B1 + u * (B2 + u * (B3 + u * (B4 + u * B5)))))
        # Written so that a NaN passes every comparison and comes out again.
        odd = HALF if v > MAX_VALUE else odd
        odd = -HALF if v < -MAX_VALUE else odd
        values[k] = v * (HALF + odd)
        top = C0 + u * (C1 + u * (C2 + u * (C3 + u * (C4 + u * (C5 + u * (C6 + u * C7))))))
        odd = v * top / (ONE + u * (D1 + u * (D2 + u * (D3 + u * (D4 + u * (D5 + u * D6))))))
        odd = HALF if v > MAX_SLOPE else odd
        odd = -HALF if v < -MAX_SLOPE else odd
        slopes[k] = HALF + odd


@compiled(fast={"contract"})
def _rising(x: Any) -> Any:
    """(1 + tanh(x)) / 2, which is 0 or 1 from where on tanh is constant: its rounding would be multiplied by x."""
    p = HALF + HALF * tanh_of(x)
    p = ONE if x > MAX_ARGUMENT else p
    return ZERO if x < -MAX_ARGUMENT else p


INNER, CUBE = np.float32(np.sqrt(2 / np.pi)), np.float32(0.044715)
CUBE_SLOPE = np.float32(3 * 0.044715)


@compiled(fast={"contract"})
def _gelu_tanh(x: Array, values: Array, slopes: Array) -> None:
    """x p and p + 2 x p (1 − p) √(2/π) (1 + 3 · 0.044715 x²) with p = (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2"""
    for k in range(x.shape[0]):
        v = x[k]
        u = v * v
        p = _rising(INNER * v * (ONE + CUBE * u))
        values[k] = v * p
        slopes[k] = p + TWO * v * p * (ONE - p) * INNER * (ONE + CUBE_SLOPE * u)
