"""Optimisers: which parameters decay, and steps worked out by hand."""

import pytest
import torch
from torch import nn

from seqloom.core.errors import ModelError
from seqloom.training.optimisers import (
    make_optimiser,
    optimiser_tensors,
    restore_optimiser,
    set_rate,
    split_by_decay,
    trained,
)
from training.toy import ToyModel, settings


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_only_matrices_that_are_no_embeddings_decay() -> None:
    decayed, plain = split_by_decay(Mixed())
    assert list(decayed) == ["linear.weight"]
    assert set(plain) == {"embedding.weight", "linear.bias", "norm.weight", "norm.bias"}


def one_step(**changes: object) -> tuple[float, float]:
    """A weight of 2 and a bias of 2, both with gradient 0.5, after one step at rate 0.1."""
    model = nn.Linear(1, 1).double()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 2.0)
        parameter.grad = torch.full_like(parameter, 0.5)
    optimiser = make_optimiser(model, settings(**changes))
    set_rate(optimiser, 0.1)
    optimiser.step()
    return model.weight.item(), model.bias.item()


def test_one_step_of_each_optimiser_equals_its_formula() -> None:
    # The first step of Adam is the rate times the sign, whatever the betas: m̂ = g and √v̂ = |g|.
    assert one_step(optimiser="sgd", weight_decay=0.4) == pytest.approx((2 - 0.1 * (0.5 + 0.4 * 2), 2 - 0.1 * 0.5))
    assert one_step(optimiser="adamw", weight_decay=0.4) == pytest.approx((2 - 0.1 * 0.4 * 2 - 0.1, 2 - 0.1), abs=1e-8)
    assert one_step(optimiser="adam", weight_decay=0.4) == pytest.approx((2 - 0.1, 2 - 0.1), abs=1e-8)


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd"])
def test_a_restored_optimiser_continues_like_the_old_one(kind: str) -> None:
    def step(model: nn.Module, optimiser: torch.optim.Optimizer, number: int) -> None:
        for position, parameter in enumerate(model.parameters()):
            parameter.grad = torch.full_like(parameter, number - 0.3 * position)
        optimiser.step()

    config = settings(optimiser=kind, momentum=0.9, weight_decay=0.1)
    one, other = ToyModel(), ToyModel()
    first = make_optimiser(one, config)
    step(one, first, 1)
    other.load_state_dict(one.state_dict())
    second = make_optimiser(other, config)
    restore_optimiser(second, trained(other), optimiser_tensors(first, trained(one)))
    step(one, first, 2)
    step(other, second, 2)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert optimiser_tensors(second, trained(other))


def test_the_state_of_another_model_is_refused() -> None:
    optimiser = make_optimiser(ToyModel(), settings())
    with pytest.raises(ModelError, match=r"this one has no decoder\.weight"):
        restore_optimiser(optimiser, trained(ToyModel()), {"decoder.weight/exp_avg": torch.zeros(1)})
