"""How weights begin: bounds, variances, and a global generator that is given back."""

import math

import pytest
import torch
from torch import nn

from seqloom.core.errors import ConfigError
from seqloom.nn.init import seeded, spectral_normal, spectral_radius, state_matrices, xavier_uniform


def test_seeded_draws_the_same_and_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    with seeded(4):
        first = nn.Linear(5, 6).weight
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    with seeded(4):
        again = nn.Linear(5, 6).weight
    with seeded(5):
        other = nn.Linear(5, 6).weight
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_xavier_bounds_and_variance() -> None:
    weight = xavier_uniform(torch.empty(300, 100), gain=0.5)
    bound = 0.5 * math.sqrt(6 / 400)
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.99 * bound
    assert abs(float(weight.var()) / (bound**2 / 3) - 1) < 0.05


def test_each_part_of_a_fused_matrix_is_initialised_independently() -> None:
    with seeded(1):
        fused = xavier_uniform(torch.empty(3 * 40, 50), parts=3)
    with seeded(1):
        alone = xavier_uniform(torch.empty(40, 50))
    assert torch.equal(fused[:40], alone)
    assert fused.abs().max() > math.sqrt(6 / (3 * 40 + 50))  # larger than the fused shape would give


def test_the_spectral_radius_is_the_largest_modulus() -> None:
    turn = 3 * torch.tensor([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]], dtype=torch.float64)
    assert spectral_radius(turn) == pytest.approx(3)  # both eigenvalues are complex
    assert spectral_radius(torch.tensor([[0.5, 100.0], [0.0, -2.0]])) == pytest.approx(2)


@pytest.mark.parametrize("radius", [0.5, 1.0, 1.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_spectral_start_has_its_radius(radius: float, dtype: torch.dtype) -> None:
    weight = spectral_normal(torch.empty(60, 60, dtype=dtype), radius=radius)
    assert abs(spectral_radius(weight) - radius) < 1e-6
    assert float(torch.linalg.matrix_norm(weight, 2)) > 1.3 * radius  # it is no rotation


@pytest.mark.parametrize("start", ["orthogonal", "spectral"])
def test_every_gate_of_a_fused_matrix_has_the_radius(start: str) -> None:
    weight = state_matrices(torch.empty(3 * 20, 20), gates=3, start=start, radius=0.9)  # type: ignore[arg-type]
    gates = weight.chunk(3)
    assert [spectral_radius(gate) for gate in gates] == pytest.approx([0.9] * 3, abs=1e-6)
    assert not torch.equal(gates[0], gates[1])


def test_an_orthogonal_start_is_a_rotation_times_its_radius() -> None:
    weight = state_matrices(torch.empty(30, 30, dtype=torch.float64), gates=1, radius=0.9)
    torch.testing.assert_close(weight @ weight.t(), 0.81 * torch.eye(30, dtype=torch.float64))


def test_a_glorot_start_has_its_bounds_for_each_gate() -> None:
    weight = state_matrices(torch.empty(4 * 50, 50), gates=4, start="xavier")
    assert math.sqrt(6 / 250) < weight.abs().max() <= math.sqrt(6 / 100)


def test_invalid_radii_are_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"spectral_radius=-1\.0 is not possible"):
        state_matrices(torch.empty(4, 4), gates=1, radius=-1.0)
    with pytest.raises(ConfigError, match=r"spectral_radius=0\.5 cannot be combined with start='xavier'"):
        state_matrices(torch.empty(4, 4), gates=1, start="xavier", radius=0.5)
