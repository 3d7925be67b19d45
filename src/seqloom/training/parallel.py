"""What a rank holds of a model that is trained, and how ranks come by each other's gradients.

There are two ways: every rank holds all of it (`Replicated`), or a share of everything (`fsdp.Sharded`). The trainer
knows neither.
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


Fed = TypeVar("Fed", contravariant=True)
"""A batch, as what takes batches knows it."""


class ParallelStrategy(Protocol[Fed]):
    """The part of one rank. Every rank calls every method, in the same order."""

    is_sharded: bool
    """Whether each rank holds a share only; then no rank may be without a batch while others have one."""
    optimiser: Optimizer
    """Moves `parameters`; there is one after `share`."""

    @property
    def learner(self) -> nn.Module:
        """The model that losses are computed with."""
        ...

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """What this rank's optimiser moves, by the names of the parameters that it is, or is a part of."""
        ...

    @property
    def counted(self) -> Mapping[str, nn.Parameter]:
        """Those of them that this rank counts where numbers of all ranks are summed up: no number is counted twice."""
        ...

    @property
    def held(self) -> Mapping[str, Tensor]:
        """All that this rank has of the parameters, trained or not."""
        ...

    def share(self) -> None:
        """Begin to work together. The weights that the model has are those that training begins with."""
        ...

    def restore_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the optimiser the memory of another one, whole tensors as "parameter/part". After `share`."""
        ...

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        ...

    def loss(self, batch: Fed | None) -> Tensor:
        """The summed loss of a batch; None is an empty one."""
        ...

    def no_sync(self) -> AbstractContextManager[None]:
        """For a batch that is not the last of its step: what can wait for that one waits."""
        ...

    def collect(self) -> None:
        """Put the gradients of the whole step, of all ranks, where the optimiser looks for them."""
        ...

    def full_model(self) -> AbstractContextManager[None]:
        """Inside, the model that was handed in has all its weights on the first rank."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the model for a checkpoint, as far as this rank has them whole."""
        ...

    def optimiser_tensors(self) -> Mapping[str, Tensor]:
        """The memory of the optimiser, likewise."""
        ...

    def spread(self) -> ShardedState | None:
        """What no rank has whole, to be gathered for a checkpoint; None where there is no such thing."""
        ...

    def gather(self) -> None:
        """Give the model that was handed in what was learnt, on every rank."""
        ...

    def close(self) -> None:
        """Give up all that ties this rank to the others."""
        ...


class Replicated(Generic[Batch]):
    """All of the model, on a rank that is alone or one of several alike, whose gradients are averaged by DDP."""

    is_sharded = False

    def __init__(self, model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World) -> None:
        self.learner = model
        self.parameters = self.counted = trained(model)
        self.optimiser = make_optimiser(model, config)
        self._task, self._world = task, world
        self._objective: nn.Module = Objective(model, task)

    @property
    def held(self) -> Mapping[str, Tensor]:
        return dict(self.learner.named_parameters())

    def share(self) -> None:
        self._objective = share_gradients(Objective(self.learner, self._task), self._world)

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
        """They are there already."""

    @contextmanager
    def full_model(self) -> Iterator[None]:
        yield

    def weights(self) -> Mapping[str, Tensor]:
        return weights_of(self.learner)

    def spread(self) -> ShardedState | None:
        return None

    def optimiser_tensors(self) -> Mapping[str, Tensor]:
        tensors = optimiser_tensors(self.optimiser, self.parameters)
        return {name: for_disk(tensor) for name, tensor in tensors.items()}

    def gather(self) -> None:
        """It has it."""

    def close(self) -> None:
        """Give up what shares the gradients.

        It holds the process group. If it were the last to do so, torch would close the group while holding Python's
        lock, for which a thread of that group may be waiting: it has to go first, cycles included.
        """
        self._objective = Objective(self.learner, self._task)
        if self._world.size > 1:
            gc.collect()
