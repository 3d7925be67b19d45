"""The summed loss of a batch as a module, so that gradients are shared over ranks where torch does it: in `forward`."""

from typing import Generic

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqloom.training.distributed import World
from seqloom.training.task import Batch, Task


class Objective(nn.Module, Generic[Batch]):
    """batch ↦ Σ loss; an empty batch ↦ 0, which touches no parameter of the model."""

    def __init__(self, model: nn.Module, task: Task[Batch]) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.spare: nn.Parameter | None = None
        """Used by empty batches alone, see `share_gradients`."""

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            assert self.spare is not None, "only one of several ranks can be without a batch"
            return self.spare * 0
        loss = self.task.loss(self.model, batch)
        assert loss.count == self.task.count(batch), "the loss counts other things than the task had announced"
        return loss.total


def share_gradients(objective: Objective[Batch], world: World) -> nn.Module:
    """The objective with gradients that are averaged over the ranks as they are computed; itself where there is one."""
    if world.size == 1:
        return objective
    # A batch need not use every parameter, and ranks need not use the same ones: torch has to look which are used. If
    # it finds that all of them are, it says at length on the console that it need not have looked; the spare one, which
    # is neither trained nor kept, spares us that. It is also what an empty batch goes back to: had that one touched the
    # model, a parameter that no other batch of the step uses would be taken for used, and decay.
    like = next(objective.model.parameters())
    objective.spare = nn.Parameter(torch.zeros((), dtype=like.dtype, device=like.device))
    return DistributedDataParallel(objective, find_unused_parameters=True, gradient_as_bucket_view=True)
