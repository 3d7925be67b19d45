"""The alias sampler: its tables are the distribution, its draws follow it, and no symbol is impossible."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from seqloom.core.errors import ConfigError, DataError
from seqloom.nn.objectives import AliasSampler, alias_tables, noise_distribution


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


@given(some.lists(some.integers(0, 10_000), min_size=1, max_size=60), some.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_the_tables_are_the_distribution(counts: list[int], power: float) -> None:
    q = noise_distribution(np.array(counts), power=power)
    thresholds, aliases = alias_tables(q.tolist())
    rebuilt = np.zeros(len(q))
    for slot, (threshold, alias) in enumerate(zip(thresholds, aliases, strict=True)):
        rebuilt[slot] += threshold / len(q)
        rebuilt[alias] += (1 - threshold) / len(q)
    np.testing.assert_allclose(rebuilt, q, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_draws_follow_the_distribution(power: float) -> None:
    # With 49 degrees of freedom a chi-square above 94 comes up once in ten thousand seeds; this seed is fixed.
    q = noise_distribution(1000 // np.arange(1, 51), power=power)
    draws = AliasSampler(q).draw((200, 1000), generator=torch.Generator().manual_seed(5))
    observed = np.bincount(draws.flatten().numpy(), minlength=50)
    assert draws.shape == (200, 1000)
    assert chi_square(observed, q * 200_000) < 94


def test_draws_from_another_power_are_noticed() -> None:
    q, other = (noise_distribution(1000 // np.arange(1, 51), power=power) for power in (1.0, 0.75))
    draws = AliasSampler(other).draw((200_000,), generator=torch.Generator().manual_seed(5))
    assert chi_square(np.bincount(draws.numpy(), minlength=50), q * 200_000) > 1000


def test_noise_is_uniform_unigram_or_between() -> None:
    counts = np.array([0, 7, 31])
    np.testing.assert_allclose(noise_distribution(counts, power=0.0), [1 / 3] * 3)
    np.testing.assert_allclose(noise_distribution(counts, power=1.0), np.array([1, 8, 32]) / 41)
    between = np.array([1, 8, 32]) ** 0.75
    np.testing.assert_allclose(noise_distribution(counts, power=0.75), between / between.sum())


def test_a_symbol_that_was_never_seen_can_be_drawn_and_has_a_log_probability() -> None:
    sampler = AliasSampler(noise_distribution(np.array([0, 3, 0, 5]), power=1.0))
    drawn = sampler.draw((2000,), generator=torch.Generator().manual_seed(1))
    assert set(drawn.tolist()) == {0, 1, 2, 3}
    symbols = torch.tensor([[0, 1], [2, 3]])
    torch.testing.assert_close(sampler.log_probs(symbols).exp(), torch.tensor([[1, 4], [1, 6]]).double() / 12)


def test_the_same_generator_draws_the_same() -> None:
    sampler = AliasSampler(noise_distribution(np.arange(100), power=0.75))
    one, same, other = (sampler.draw((50,), generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_single_symbol_is_always_drawn() -> None:
    sampler = AliasSampler(noise_distribution(np.array([4]), power=1.0))
    assert sampler.draw((3,), generator=torch.Generator()).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("counts", "words"),
    [([], r"shape \(0,\)"), ([3, -2], "the least is -2"), ([1.0, float("nan")], "finite and not negative")],
)
def test_bad_counts_are_refused(counts: list[float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        noise_distribution(np.array(counts), power=1.0)


def test_bad_settings_and_bad_probabilities_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"power 1\.5"):
        noise_distribution(np.array([1, 2]), power=1.5)
    with pytest.raises(ConfigError, match="smoothing 0"):
        noise_distribution(np.array([1, 2]), power=1.0, smoothing=0.0)
    with pytest.raises(DataError, match=r"sum to 1\.1"):
        AliasSampler(np.array([0.5, 0.6]))
