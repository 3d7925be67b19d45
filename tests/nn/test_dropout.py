"""Dropout: what it drops, what it keeps and by how much, and that the same seed drops the same."""

import pytest
import torch
from torch import nn

from seqloom.core.errors import ConfigError
from seqloom.nn.dropout import Dropout, RandomBytes, kept, reseed, scale_of

RATES = [0.1, 0.25, 0.5, 0.9]


def dropout_of(rate: float, seed: int = 5) -> Dropout:
    dropout = Dropout(rate)
    reseed(dropout, seed)
    return dropout


def in_force(rate: float) -> float:
    return round(256 * rate) / 256


@pytest.mark.parametrize("rate", [*RATES, 1 / 256, 255 / 256])
def test_rate_mean_and_scale(rate: float) -> None:
    values = torch.ones(2**20, dtype=torch.float64)
    dropped = dropout_of(rate)(values)
    assert set(dropped.unique().tolist()) == {0.0, 1 / (1 - in_force(rate))}  # the scale is exact
    share = float((dropped == 0).double().mean())
    deviation = (in_force(rate) * (1 - in_force(rate)) / len(values)) ** 0.5
    assert abs(share - in_force(rate)) < 5 * deviation
    assert abs(in_force(rate) - rate) <= 0.5 / 256
    assert abs(float(dropped.mean()) - 1) < 5 * deviation / (1 - in_force(rate))


def test_every_byte_is_on_its_side_of_the_threshold() -> None:
    drawn = torch.arange(256).to(torch.uint8)
    for threshold in (1, 2, 26, 128, 255):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            assert torch.equal(kept(drawn, threshold, dtype), (torch.arange(256) >= threshold).to(dtype))


def test_neighbouring_bytes_are_uniform_and_independent() -> None:
    drawn = RandomBytes(3).bytes_like(torch.empty(2**18)).long()
    counts = torch.bincount(drawn, minlength=256).double()
    expected = len(drawn) / 256
    assert ((counts - expected).square() / expected).sum() < 255 + 6 * (2 * 255) ** 0.5  # χ² with 255 degrees
    centred = (drawn - 127.5).double()
    for lag in (1, 2, 8):
        assert abs(float((centred[lag:] * centred[:-lag]).mean() / centred.square().mean())) < 5 / len(drawn) ** 0.5


def test_the_same_seed_gives_the_same_mask_and_another_another() -> None:
    values = torch.randn(40, 30)
    first, again, other = (dropout_of(0.5, seed)(values) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    dropout = dropout_of(0.5, 1)
    assert torch.equal(dropout(values), first)
    assert not torch.equal(dropout(values), first)  # the stream goes on


def test_reseed_gives_all_layers_one_reproducible_stream() -> None:
    model = nn.Sequential(Dropout(0.5), nn.Sequential(Dropout(0.5)), nn.Linear(2, 2))
    values = torch.ones(500)

    def masks(seed: int) -> list[torch.Tensor]:
        reseed(model, seed)
        inner = model[1]
        assert isinstance(inner, nn.Sequential)
        return [model[0](values), inner[0](values)]

    first, again = masks(7), masks(7)
    assert all(torch.equal(left, right) for left, right in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])  # two layers do not drop the same places
    assert not torch.equal(first[0], masks(8)[0])


def test_global_random_state_is_neither_read_nor_changed() -> None:
    values = torch.ones(200)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = dropout_of(0.5)(values)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(dropout_of(0.5)(values), first)


@pytest.mark.parametrize("rate", RATES)
def test_add_is_residual_plus_forward(rate: float) -> None:
    residual, branch = torch.randn(2, 50, 7, dtype=torch.float64)
    summed = dropout_of(rate).add(residual, branch)
    torch.testing.assert_close(summed, residual + dropout_of(rate)(branch), rtol=0, atol=1e-14)
    assert not torch.allclose(summed, residual + dropout_of(rate, seed=6)(branch))


@pytest.mark.parametrize("rate", RATES)
def test_gradient_passes_where_values_pass(rate: float) -> None:
    """Dropout is linear for a given mask: its gradient is the same mask with the same scale."""
    values = torch.randn(300, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(300, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(300, dtype=torch.float64)
    mask = dropout_of(rate)(torch.ones(300, dtype=torch.float64))
    (alone,) = torch.autograd.grad(dropout_of(rate)(values), values, upstream)
    torch.testing.assert_close(alone, mask * upstream, rtol=0, atol=1e-14)
    bypass, branch = torch.autograd.grad(dropout_of(rate).add(residual, values), (residual, values), upstream)
    assert torch.equal(bypass, upstream)
    torch.testing.assert_close(branch, mask * upstream, rtol=0, atol=1e-14)


def test_gradcheck_under_a_fixed_seed() -> None:
    values = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: dropout_of(0.4)(values), values)
    assert torch.autograd.gradcheck(lambda *each: dropout_of(0.4).add(*each), (residual, values))


def test_nothing_is_dropped_outside_training_or_at_rate_zero() -> None:
    values, residual = torch.randn(2, 100)
    for dropout in (dropout_of(0.5).eval(), dropout_of(0.0), dropout_of(0.001)):
        assert torch.equal(dropout(values), values)
        assert torch.equal(dropout.add(residual, values), residual + values)


@pytest.mark.parametrize("rate", [-0.1, 0.999, 1.0, 1.5, float("nan")])
def test_a_rate_that_keeps_nothing_or_makes_no_sense_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=rf"dropout rate of {rate} .* from 0 to 0\.996"):
        Dropout(rate)


def test_empty_tensors_are_supported() -> None:
    assert dropout_of(0.5)(torch.empty(0, 3)).shape == (0, 3)
    assert scale_of(128) == 2.0
