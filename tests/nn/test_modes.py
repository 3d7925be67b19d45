"""A model is looked at without being changed."""

import pytest
import torch
from torch import nn

from seqloom.nn.dropout import Dropout, evaluating


def test_nothing_is_dropped_and_every_mode_is_restored() -> None:
    model = nn.Sequential(nn.Linear(3, 3), Dropout(0.5))
    model[0].eval()
    with evaluating(model):
        first, second = (model(torch.ones(4, 3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert [model.training, model[0].training, model[1].training] == [True, False, True]
    assert model(torch.ones(4, 3)).requires_grad


def test_a_failure_inside_leaves_the_mode_alone() -> None:
    model = Dropout(0.5)
    with pytest.raises(RuntimeError), evaluating(model):
        torch.ones(2) @ torch.ones(3)
    assert model.training
    assert torch.is_grad_enabled()
