"""How weights begin: bounds, variances, and a global generator that is given back."""

import math

import torch
from torch import nn

from seqloom.nn.init import seeded, xavier_uniform


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


def test_each_part_of_a_fused_matrix_begins_as_if_it_stood_alone() -> None:
    with seeded(1):
        fused = xavier_uniform(torch.empty(3 * 40, 50), parts=3)
    with seeded(1):
        alone = xavier_uniform(torch.empty(40, 50))
    assert torch.equal(fused[:40], alone)
    assert fused.abs().max() > math.sqrt(6 / (3 * 40 + 50))  # larger than the fused shape would give
