"""The scalar mix: its formula, its beginning, and that it finds the layer that matters."""

import pytest
import torch

from seqloom.core.errors import UsageError
from seqloom.models.elmo import ScalarMix


def test_it_computes_its_formula() -> None:
    mix = ScalarMix(3).double()
    layers = torch.randn(3, 2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(mix(layers), layers.mean(0), rtol=0, atol=1e-12)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.scale.fill_(1.5)
    shares = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64).exp()
    shares = shares / shares.sum()
    by_hand = 1.5 * sum(share * layer for share, layer in zip(shares, layers, strict=True))
    torch.testing.assert_close(mix(layers), by_hand, rtol=0, atol=1e-12)
    assert mix.weights.sum().item() == pytest.approx(1)


def test_large_values_get_no_more_weight_where_layers_are_normalised() -> None:
    layers = torch.randn(2, 3, 8, dtype=torch.float64)
    louder = layers * torch.tensor([1.0, 100.0], dtype=torch.float64)[:, None, None]
    for normalise in (True, False):
        mix = ScalarMix(2, normalise=normalise).double()
        assert torch.allclose(mix(layers), mix(louder), atol=1e-3) == normalise


def test_the_layer_that_matters_gets_the_weight() -> None:
    torch.manual_seed(0)
    mix = ScalarMix(3)
    optimiser = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(150):
        layers = torch.randn(3, 16, 4)
        loss = (mix(layers) - 2 * layers[1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert mix.weights[1].item() > 0.9
    assert mix.scale.item() == pytest.approx(2, abs=0.1)


def test_a_wrong_number_of_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="3 weights, but got 2 layers"):
        ScalarMix(3)(torch.randn(2, 5, 4))
