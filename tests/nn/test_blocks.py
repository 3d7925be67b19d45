"""The blocks of a Transformer: feed-forward by its formula, a bypass with its norm before or after."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.nn.blocks import FeedForward, NormPlace, Residual
from seqloom.nn.dropout import reseed


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_two_layers_with_an_activation_between(activation: str) -> None:
    block = FeedForward(4, 9, activation="relu" if activation == "relu" else "gelu").double()
    assert block.inner.weight.shape == (9, 4)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    between = F.linear(x, block.inner.weight, block.inner.bias)
    active = between.clamp(min=0) if activation == "relu" else between * 0.5 * (1 + torch.erf(between / 2**0.5))
    expected = F.linear(active, block.outer.weight, block.outer.bias)
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-14)
    left, right = (torch.autograd.grad(each.square().sum(), (x, *block.parameters())) for each in (block(x), expected))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_feed_forward_drops_between_its_layers_in_training_alone() -> None:
    block = FeedForward(4, 50, activation="relu", dropout_rate=0.5)
    x = torch.randn(3, 4)
    reseed(block, 1)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))


def double(x: Tensor) -> Tensor:
    return 2 * x


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_norm_is_before_or_after(place: NormPlace) -> None:
    residual = Residual(6, norm=place, dropout_rate=0.0)
    x = 3 + torch.randn(5, 6)
    normed = F.layer_norm(x, (6,))
    expected = x + 2 * normed if place == "before" else F.layer_norm(3 * x, (6,))
    torch.testing.assert_close(residual(x, double), expected)


@pytest.mark.parametrize("place", ["before", "after"])
def test_dropout_falls_on_the_branch_and_never_on_the_bypass(place: NormPlace) -> None:
    residual = Residual(6, norm=place, dropout_rate=0.5)
    reseed(residual, 1)
    x = torch.randn(50, 6)
    if place == "before":
        change = residual(x, torch.ones_like) - x
        assert (change.isclose(torch.zeros(()), atol=1e-6) | change.isclose(torch.tensor(2.0))).all()
        assert 0.3 < float((change > 1).float().mean()) < 0.7
    else:
        torch.testing.assert_close(residual(x, torch.zeros_like), F.layer_norm(x, (6,)))
