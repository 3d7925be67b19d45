"""Products of a few rows with packed matrices: exact sums, and rows that do not depend on each other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.nn.fast import packed
from seqloom.nn.fast.int8 import Int8Linear, round_rows
from seqloom.nn.fast.packed import MAX_INT8_INPUTS, PANEL, PackedProducts, can_be_packed


def layer(inputs: int, outputs: int, *, seed: int = 1) -> nn.Linear:
    generator = torch.Generator().manual_seed(seed)
    linear = nn.Linear(inputs, outputs)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(outputs, inputs, generator=generator))
        linear.bias.copy_(torch.randn(outputs, generator=generator))
    return linear.requires_grad_(False)


def products(linear: nn.Module, x: Tensor) -> Tensor:
    """W x + b by a packed layer, the outputs that its last panel has too many included."""
    made = PackedProducts.of([layer(3, 5), linear])  # not the first, which begins at other places
    outputs = -(-len(linear.weight) // PANEL) * PANEL
    out = np.empty(len(x) * outputs, np.float32)
    made.multiply(1, x.reshape(-1).numpy(), out)
    return torch.from_numpy(out).view(len(x), outputs)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 20), inputs=st.integers(1, 70), outputs=st.integers(1, 140), seed=st.integers(0, 99))
def test_a_product_is_that_of_torch_in_double_precision(rows: int, inputs: int, outputs: int, seed: int) -> None:
    linear, x = layer(inputs, outputs, seed=seed), torch.randn(rows, inputs)
    found = products(linear, x)
    expected = x.double() @ linear.weight.double().t() + linear.bias.double()
    torch.testing.assert_close(found[:, :outputs].double(), expected, rtol=0, atol=2e-5)
    assert (found[:, outputs:] == float("-inf")).all()


@pytest.mark.parametrize("is_rounded", [False, True])
def test_a_row_does_not_depend_on_its_neighbours_to_the_last_bit(is_rounded: bool) -> None:
    linear = layer(200, 150)
    x, used = torch.randn(23, 200), Int8Linear(linear) if is_rounded else linear
    together = products(used, x)
    for row in range(len(x)):
        assert torch.equal(products(used, x[row : row + 1])[0], together[row])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    assert torch.equal(products(used, x[order]), together[order])
    assert not torch.equal(products(used, x + 1e-3)[0], together[0])


@pytest.mark.parametrize("inputs", [1, 128, MAX_INT8_INPUTS])
def test_eight_bits_give_the_sums_of_whole_numbers(inputs: int) -> None:
    rounded = Int8Linear(layer(inputs, 40))
    x = torch.randn(7, inputs)
    x[1] = 1.0  # with the largest weights, the largest sums
    with torch.no_grad():
        rounded.weight[3] = 1.0
    rounded = Int8Linear(rounded)
    found = products(rounded, x)[:, :40]
    whole, scales = round_rows(x)
    sums = (whole.long() - 128) @ rounded.int8.rounded.long().t()
    assert int(sums.abs().max()) < 2**24
    scaled = sums.float() * rounded.int8.scales
    expected = scaled.double() * scales.double() + rounded.bias.double()  # a product and a sum that are rounded once
    assert torch.equal(found, expected.float())
    torch.testing.assert_close(found, rounded(x), rtol=1e-6, atol=1e-6)


def test_layers_that_cannot_be_exact_or_fast_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_packed(layer(16, 16))
    assert can_be_packed(Int8Linear(layer(MAX_INT8_INPUTS, 16)))
    assert not can_be_packed(Int8Linear(layer(MAX_INT8_INPUTS + 1, 16)))
    assert not can_be_packed(layer(16, 16).double())
    assert not can_be_packed(layer(16, 16).to("meta"))
    monkeypatch.setattr(packed.torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    assert not can_be_packed(layer(16, 16))
