"""Compiled activations beside those of torch."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.nn.blocks import activated
from seqloom.nn.fast import activations
from seqloom.nn.fast.activations import MIN_NUMBERS, Smooth, can_fuse, fused_activation

pytest.importorskip("numba")


def by_torch(x: Tensor, activation: Smooth) -> Tensor:
    return F.gelu(x, approximate="none" if activation == "gelu" else "tanh")


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_values_and_slopes_are_those_of_torch_in_double_precision(activation: Smooth) -> None:
    x = torch.linspace(-20, 20, 100_001, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    ours, theirs = fused_activation(x, activation), by_torch(exact, activation)
    torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2e-6)
    upstream = torch.randn(len(x))
    (slopes,) = torch.autograd.grad(ours, x, upstream)
    (exact_slopes,) = torch.autograd.grad(theirs, exact, upstream.double())
    torch.testing.assert_close(slopes.double(), exact_slopes, rtol=0, atol=3e-5)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_far_values_are_exact_and_nan_comes_out(activation: Smooth) -> None:
    x = torch.tensor([-1000.0, -30.0, 0.0, 30.0, 1000.0, math.nan], requires_grad=True)
    ours = fused_activation(x, activation)
    torch.testing.assert_close(ours, by_torch(x, activation), rtol=0, atol=0, equal_nan=True)
    (slopes,) = torch.autograd.grad(ours[:5].sum(), x)
    torch.testing.assert_close(slopes[:5], torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_several_threads_compute_the_same_bits(activation: Smooth, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(333, 77, requires_grad=True)
    alone = fused_activation(x, activation)
    monkeypatch.setattr(activations, "parts_of", lambda _work, *, most: most)
    assert torch.equal(fused_activation(x, activation), alone)


def test_it_is_used_for_large_single_precision_tensors_in_training() -> None:
    large = torch.randn(MIN_NUMBERS // 8, 8, requires_grad=True)
    assert can_fuse(large)
    assert not can_fuse(large[:-1])
    assert not can_fuse(large.detach())
    assert not can_fuse(large.double())
    with torch.no_grad():
        assert not can_fuse(large)
    assert activated(large, "gelu").grad_fn.name() == "_ActivatedBackward"  # type: ignore[union-attr]
    assert activated(large, "silu").grad_fn.name() == "SiluBackward0"  # type: ignore[union-attr]
