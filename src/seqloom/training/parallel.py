"""Parallel strategies: what a rank holds of a model in training, and how ranks exchange gradients.

Every rank holds all of the model (`Replicated`), or a shard of it (`fsdp.Sharded`). The trainer knows neither.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from seqloom.training.checkpoint import ShardedState
from seqloom.training.distributed import World
from seqloom.training.optimisers import make_optimiser, optimiser_tensors, restore_optimiser, trained
from seqloom.training.settings import TrainingConfig
from seqloom.training.task import Batch, Task
from seqloom.training.weights import for_disk, weights_of

# The summed loss of a batch as a module, so that gradients are shared over ranks where torch does it: in `forward`.


class SummedLoss(nn.Module, Generic[Batch]):
    """batch ↦ Σ loss; an empty batch ↦ 0, which touches no parameter of the model."""

    def __init__(self, model: nn.Module, task: Task[Batch]) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.spare: nn.Parameter | None = None
        """Used by empty batches alone, see `Replicated.share`."""

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            assert self.spare is not None, "only one of several ranks can be without a batch"
            return self.spare * 0
        loss = self.task.loss(self.model, batch)
        assert loss.count == self.task.count(batch), "the loss counts differently than task.count"
        return loss.total


Fed = TypeVar("Fed", contravariant=True)
"""A batch, as an argument."""


class ParallelStrategy(Protocol[Fed]):
    """The part of one rank. Every rank calls every method, in the same order."""

    is_sharded: bool
    """Whether each rank holds a shard; then every rank needs a batch while any rank has one."""
    optimiser: Optimizer
    """Updates `parameters`; available after `share`."""
    learner: nn.Module
    """The model that losses are computed with."""
    parameters: Mapping[str, nn.Parameter]
    """What the optimiser of this rank updates, by the names of the parameters that it is, or is a part of."""
    counted: Mapping[str, nn.Parameter]
    """Those that this rank counts in sums over ranks: no element is counted twice."""
    held: Mapping[str, Tensor]
    """All that this rank has of the parameters, trained or not."""

    def share(self) -> None:
        """Distribute the model with its current weights."""
        ...

    def restore_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of the optimiser from unsharded tensors, named "parameter/part". After `share`."""
        ...

    def clear(self) -> None:
        """Clear the gradients of the last step."""
        ...

    def loss(self, batch: Fed | None) -> Tensor:
        """The summed loss of a batch; None is an empty one."""
        ...

    def no_sync(self) -> AbstractContextManager[None]:
        """For a batch that is not the last of its step: communication that can wait is left to the last one."""
        ...

    def collect(self) -> None:
        """Give the parameters the gradients of the whole step, over all ranks."""
        ...

    def full_model(self) -> AbstractContextManager[None]:
        """Inside, the original model has all its weights on the first rank."""
        ...

    def state(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Weights and optimiser state for a checkpoint, as far as this rank has them unsharded."""
        ...

    def sharded_state(self) -> ShardedState | None:
        """Sharded state, to be gathered for a checkpoint; None without shards."""
        ...

    def gather(self) -> None:
        """Give the original model its trained weights, on every rank."""
        ...

    def close(self) -> None:
        """Release everything that refers to the process group."""
        ...


class Replicated(Generic[Batch]):
    """All of the model, on a single rank or on each of several, whose gradients DDP averages."""

    is_sharded = False

    def __init__(self, model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World) -> None:
        self.learner = model
        self.parameters: Mapping[str, nn.Parameter] = trained(model)
        self.counted: Mapping[str, nn.Parameter] = self.parameters
        self.held: Mapping[str, Tensor] = dict(model.named_parameters())
        self.optimiser = make_optimiser(model, config)
        self._task, self._world = task, world
        self._objective: nn.Module = SummedLoss(model, task)

    def share(self) -> None:
        objective = SummedLoss(self.learner, self._task)
        self._objective = objective
        if self._world.size > 1:
            # A batch need not use every parameter, and ranks need not use the same ones: torch has to look which are
            # used. If it finds that all of them are, it prints a long warning; the spare one, which is neither trained
            # nor stored, avoids that. An empty batch uses it too: if it used the model, a parameter that no other batch
            # of the step uses would count as used, and decay.
            like = next(self.learner.parameters())
            objective.spare = nn.Parameter(torch.zeros((), dtype=like.dtype, device=like.device))
            self._objective = DistributedDataParallel(
                objective, find_unused_parameters=True, gradient_as_bucket_view=True
            )

    def restore_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        restore_optimiser(self.optimiser, self.parameters, tensors)

    def clear(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)

    def loss(self, batch: Batch | None) -> Tensor:
        loss: Tensor = self._objective(batch)
        return loss

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients inside are added up here; the last batch of the step sends the sums to the other ranks."""
        objective = self._objective
        return objective.no_sync() if isinstance(objective, DistributedDataParallel) else nullcontext()

    def collect(self) -> None:
        """Nothing to do."""

    @contextmanager
    def full_model(self) -> Iterator[None]:
        yield

    def state(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        tensors = optimiser_tensors(self.optimiser, self.parameters)
        return weights_of(self.learner), {name: for_disk(tensor) for name, tensor in tensors.items()}

    def sharded_state(self) -> ShardedState | None:
        return None

    def gather(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Release DDP, which refers to the process group.

        If it held the last reference, torch would close the group while holding Python's lock, for which a thread of
        that group may be waiting: it is released first, cycles included.
        """
        self._objective = SummedLoss(self.learner, self._task)
        if self._world.size > 1:
            gc.collect()
