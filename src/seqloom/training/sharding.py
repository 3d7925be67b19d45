"""A model that is spread over ranks: each holds an equal share of weights, gradients and optimiser state (FSDP2).

Every parameter is cut along its first axis into as many parts as there are ranks. A layer is gathered when the loss
enters it and given up when it leaves, on the way back once more; the gradients of its parts are summed where the parts
are. What belongs to no layer (embeddings, output) is gathered for as long as a batch takes.

torch does the gathering in hooks on the layers. All else sees plain tensors: the optimiser moves the shares as if they
were parameters of their own, and checkpoints are gathered tensor by tensor into the files that one process would write.
"""

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, cast

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from seqloom.core.errors import ConfigError
from seqloom.core.events import Listener, notice
from seqloom.training.arriving import Arriving, Form
from seqloom.training.checkpoint import Spread
from seqloom.training.cutting import Uses, cut, require_shardable
from seqloom.training.distributed import World
from seqloom.training.holding import Holding, Whole
from seqloom.training.objective import Objective
from seqloom.training.optimisers import make_optimiser, optimiser_tensors, restore_optimiser
from seqloom.training.settings import TrainingConfig
from seqloom.training.task import Batch, Task
from seqloom.training.weights import live_weights


def hold(
    model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World, listener: Listener
) -> Holding[Batch]:
    """What this rank will hold of a model, as `training.parallel` says."""
    if config.parallel == "replicated":
        return Whole(model, task, config, world=world)
    if world.size == 1:
        notice(
            listener, "training.parallel=sharded: one process holds the whole model, there is nobody to share it with"
        )
        return Whole(model, task, config, world=world)
    return Sharded(model, task, config, world=world)


class Sharded(Generic[Batch]):
    """A share of the model. The model that was handed in is an empty shell until it is asked for."""

    is_sharded = True
    optimiser: Optimizer
    """Over the shares."""

    def __init__(self, model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World) -> None:
        require_shardable(model, world)
        self._model, self._task, self._config, self._world = model, task, config, world
        self.learner = model
        self.parameters: Mapping[str, nn.Parameter] = {}
        self.counted: Mapping[str, nn.Parameter] = {}
        self.held: Mapping[str, Tensor] = {}

    def share(self) -> None:
        """Cut the model up. A copy takes part in training; its tensors are those of the model, until they are cut."""
        whole = live_weights(self._model)
        self._forms = {name: Form(each.dtype, tuple(each.shape)) for name, each in whole.items()}
        try:
            shared = (*self._model.parameters(), *self._model.buffers())
            self.learner = copy.deepcopy(self._model, {id(each): each for each in shared})
        except Exception as error:
            raise ConfigError(
                f"training.parallel=sharded works on a copy of the model, but {type(self._model).__name__} cannot be "
                f"copied ({error}); set training.parallel=replicated"
            ) from error
        # As with DDP, all begin with what the first rank has: a model from outside may draw other weights on each.
        for each in whole.values():
            distributed.broadcast(each.detach(), src=0)
        self._objective = Objective(self.learner, self._task)
        self._uses = Uses()
        cut(self._objective, self._world, uses=self._uses)
        self._cut = dict(self.learner.named_parameters())
        # A single number cannot be cut: every rank has it.
        self._uncut = [name for name, each in self._cut.items() if each.dim() == 0]
        held = {name: each if name in self._uncut else _share_of(each) for name, each in self._cut.items()}
        self.held = held
        self.parameters = {name: each for name, each in held.items() if each.requires_grad}
        is_mine = self._world.is_first
        self.counted = {name: each for name, each in self.parameters.items() if is_mine or name not in self._uncut}
        self.optimiser = make_optimiser(self.learner, self._config, held=self.parameters)
        self._empty()

    def restore_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        mine = {}
        for name, tensor in tensors.items():
            owner, part = name.rsplit("/", 1)
            if part == "step" and tensor.dim():
                raise ConfigError(
                    f"this run has moved rows of {owner} one by one so far (training.table_updates=rows), and when "
                    "each was moved last cannot be shared by ranks; go on with training.parallel=replicated"
                )
            mine[name] = tensor if not tensor.dim() or owner in self._uncut else self._part(tensor)
        restore_optimiser(self.optimiser, self.parameters, mine)

    def _part(self, whole: Tensor) -> Tensor:
        """The rows of a tensor that are this rank's."""
        rows = -(-len(whole) // self._world.size)
        return whole[rows * self._world.rank : rows * (self._world.rank + 1)]

    # --- steps -------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        for each in (*self._cut.values(), *self.parameters.values()):
            each.grad = None
        self._uses.names.clear()
        # As with DDP, what a model keeps besides its weights is that of the first rank.
        for buffer in self.learner.buffers():
            distributed.broadcast(buffer, src=0)

    def loss(self, batch: Batch | None) -> Tensor:
        loss: Tensor = self._objective(batch)
        return loss

    def unsent(self) -> "nullcontext[None]":
        """Nothing waits: gradients that were added up first would be whole ones."""
        return nullcontext()

    @torch.no_grad()
    def collect(self) -> None:
        """A parameter that no batch of the step has used, on any rank, has no gradient and is not moved."""
        used_here = [float(name in self._uses.names) for name in self.parameters]
        used = [count > 0 for count in self._world.sum(*used_here)]
        for (name, parameter), is_used in zip(self.parameters.items(), used, strict=True):
            if not is_used:
                parameter.grad = None
            elif name in self._uncut:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                distributed.all_reduce(gradient)
                parameter.grad = gradient / self._world.size
            else:
                of_share: Any = self._cut[name].grad
                parameter.grad = of_share.to_local()

    # --- the whole model ---------------------------------------------------------------------------------------------

    @contextmanager
    def whole(self) -> Iterator[None]:
        self._fill(everywhere=False)
        try:
            yield
        finally:
            self._empty()

    def give_back(self) -> None:
        self._fill(everywhere=True)

    def let_go(self) -> None:
        """Give up what holds the process group, cycles included, see `Whole.let_go`."""
        self.learner = self._model
        self.parameters, self.counted, self.held = {}, {}, {}
        for name in ("_objective", "_cut", "_uses", "optimiser"):
            self.__dict__.pop(name, None)
        gc.collect()

    @torch.no_grad()
    def _fill(self, *, everywhere: bool) -> None:
        for name, parameter in self._model.named_parameters():
            whole = self._gather(name, self.held[name], everywhere=everywhere)
            if whole is not None:
                parameter.data = whole
        buffers = dict(self._model.named_buffers())
        for name, buffer in self.learner.named_buffers():
            if buffers[name] is not buffer:  # unlike one that is changed in place, one that is replaced is another
                buffers[name].data = buffer.detach().clone()

    def _empty(self) -> None:
        for name, parameter in self._model.named_parameters():
            if name not in self._uncut:
                parameter.data = parameter.data.new_empty(0)

    def _gather(self, name: str, mine: Tensor, *, everywhere: bool = False) -> Tensor | None:
        """A tensor of which each rank has the rows that it has of a parameter: whole, on the first rank or on all."""
        if name in self._uncut or not mine.dim():
            return mine.detach()
        world, length = self._world, self._forms[name].shape[0]
        rows = -(-length // world.size)
        sent = mine.new_zeros(rows, *mine.shape[1:])
        sent[: len(mine)] = mine.detach()
        if not everywhere and not world.is_first:
            distributed.gather(sent, dst=0)
            return None
        # The last rank that has rows may have fewer than the others, and ranks after it none.
        whole = mine.new_empty(rows * world.size, *mine.shape[1:])
        parts = list(whole.split(rows)) if rows else [sent] * world.size
        if everywhere:
            distributed.all_gather(parts, sent)
        else:
            distributed.gather(sent, parts, dst=0)
        return whole[:length]

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def weights(self) -> Mapping[str, Tensor]:
        """They are spread."""
        return {}

    def optimiser_tensors(self) -> Mapping[str, Tensor]:
        """They are spread."""
        return {}

    def spread(self) -> Spread:
        kept = {**dict(self.learner.named_buffers()), **self.held}
        of_weights = {name: self._form_of(kept[name], like=name) for name in self._forms}
        moved = optimiser_tensors(self.optimiser, self.parameters)
        owners = {name: name.rsplit("/", 1)[0] for name in moved}
        forms = {name: self._form_of(tensor, like=owners[name]) for name, tensor in moved.items()}
        return Spread(
            weights=Arriving(of_weights, self._maker(kept, {name: name for name in kept})),
            optimiser=Arriving(forms, self._maker(moved, owners)),
        )

    def _maker(self, parts: Mapping[str, Tensor], owners: Mapping[str, str]) -> Callable[[str], Tensor | None]:
        def make(name: str) -> Tensor | None:
            owner = owners[name]
            return self._gather(owner, parts[name]) if owner in self.held else parts[name].detach()

        return make

    def _form_of(self, part: Tensor, *, like: str) -> Form:
        """What this part of a weight, or of what is remembered of it, is when it is whole."""
        is_whole = like not in self.held or like in self._uncut or not part.dim()
        return Form(part.dtype, tuple(part.shape) if is_whole else self._forms[like].shape)


@torch.no_grad()
def _share_of(parameter: nn.Parameter) -> nn.Parameter:
    """This rank's rows of a parameter that was cut: a parameter of its own, on the same memory."""
    rows: Tensor = cast("Any", parameter).to_local()
    return nn.Parameter(rows.detach(), requires_grad=parameter.requires_grad)
