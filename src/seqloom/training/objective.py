"""The summed loss of a batch as a module, so that gradients are shared over ranks where torch does it: in `forward`."""

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
        # Used by nothing, see `share_gradients`.
        self.spare = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            # Nothing to learn from, but the other ranks wait for a gradient of every parameter.
            return torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum() * 0
        loss = self.task.loss(self.model, batch)
        assert loss.count == self.task.count(batch), "the loss counts other things than the task had announced"
        return loss.total


def share_gradients(objective: Objective[Batch], world: World) -> nn.Module:
    """The objective with gradients that are averaged over the ranks as they are computed; itself where there is one."""
    if world.size == 1:
        return objective
    # A batch need not use every parameter, and ranks need not use the same ones: torch has to look which are used. If
    # it finds that all of them are, it says at length on the console that it need not have looked; the spare one, which
    # is neither trained nor kept, spares us that.
    return DistributedDataParallel(objective, find_unused_parameters=True, gradient_as_bucket_view=True)
