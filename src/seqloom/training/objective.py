"""The summed loss of a batch as a module, so that gradients are shared over ranks where torch does it: in `forward`."""

import warnings
from typing import Generic

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom.training.distributed import World
from seqloom.training.task import Batch, Task


class Objective(nn.Module, Generic[Batch]):
    """batch ↦ Σ loss; an empty batch ↦ 0, which still touches every parameter."""

    def __init__(self, model: nn.Module, task: Task[Batch]) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            # Nothing to learn from, but the other ranks wait for a gradient of every parameter.
            return torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum() * 0
        return self.task.loss(self.model, batch).total


def share_gradients(objective: Objective[Batch], world: World) -> nn.Module:
    """An objective whose gradients are averaged over the ranks as they are computed."""
    if world.size == 1:
        return objective
    # A batch need not use every parameter, and ranks need not use the same ones: torch has to look which are used. It
    # then remarks once that a model which uses all of them would not need that.
    warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")
    return DistributedDataParallel(objective, find_unused_parameters=True, gradient_as_bucket_view=True)
