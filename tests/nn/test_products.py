"""Large products by oneDNN equal those of torch's linear layers: values, gradients, gradients of gradients."""

import pytest
import torch
from torch import nn

from seqloom.nn.fast import products


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "MIN_LARGE", 0)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(37, 24), (3, 5, 24), (1, 24)])
def test_value_and_gradients_equal_the_plain_layer(
    shape: tuple[int, ...],
    has_bias: bool,
    all_large: None,
) -> None:
    layer = nn.Linear(24, 56, bias=has_bias)
    x = torch.randn(shape, requires_grad=True)
    assert products.is_large(x, layer.weight)
    ours, plain = products.apply(layer, x), layer(x)
    assert type(ours.grad_fn).__name__ == "_LinearBackward"
    wanted, upstream = [x, *layer.parameters()], torch.randn_like(plain)
    torch.testing.assert_close(ours, plain)
    left, right = (torch.autograd.grad(each, wanted, upstream) for each in (ours, plain))
    torch.testing.assert_close(left, right)


def test_gradients_of_gradients_equal_the_plain_layer(all_large: None) -> None:
    layer, x = nn.Linear(6, 4), torch.randn(5, 6, requires_grad=True)
    found = []
    for y in (products.apply(layer, x), layer(x)):
        (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), layer.weight)[0])
    torch.testing.assert_close(*found)


def test_what_is_fixed_gets_no_gradient(all_large: None) -> None:
    layer, x = nn.Linear(6, 4), torch.randn(5, 6, requires_grad=True)
    layer.weight.requires_grad_(False)
    products.apply(layer, x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None
    assert x.grad is not None


def test_other_numbers_few_numbers_and_other_layers_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(6, 4), torch.randn(5, 6, requires_grad=True)
    monkeypatch.setattr(products, "MIN_LARGE", 5 * 6 * 4)
    assert products.is_large(x, layer.weight)
    assert not products.is_large(x[:4], layer.weight)
    assert not products.is_large(x.double(), layer.weight.double())
    with torch.autocast("cpu"):
        assert not products.is_large(x, layer.weight)
        assert products.apply(layer, x).dtype == torch.bfloat16
    with torch.no_grad():
        assert torch.equal(products.apply(layer, x), layer(x))
    seen: list[torch.Tensor] = []
    with layer.register_forward_hook(lambda _module, _given, result: seen.append(result)):
        products.apply(layer, x)
    assert len(seen) == 1
    assert products.apply(nn.Identity(), x) is x
