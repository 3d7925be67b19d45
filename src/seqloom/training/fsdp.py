"""A model that is sharded over ranks: each holds an equal part of weights, gradients and optimiser state (FSDP2).

Every parameter is split along its first axis into as many shards as there are ranks. A layer is gathered when the loss
enters it and released when it leaves, once more in the backward pass; gradients are summed where the shards are. What
belongs to no layer (embeddings, output) is gathered for the duration of a batch.

torch gathers in hooks on the layers. Everything else sees plain tensors: the optimiser updates the shards as parameters
of their own, and checkpoints are gathered tensor by tensor into the files that one process would write.
"""

import copy
import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, cast

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from seqloom.core.errors import ConfigError
from seqloom.core.events import Listener, notice
from seqloom.training.checkpoint import LazyTensors, ShardedState, TensorSpec
from seqloom.training.distributed import World
from seqloom.training.optimisers import HasLayers, make_optimiser, optimiser_tensors, restore_optimiser
from seqloom.training.parallel import ParallelStrategy, Replicated, SummedLoss
from seqloom.training.settings import TrainingConfig
from seqloom.training.task import Batch, Task
from seqloom.training.weights import live_weights

# Sharding a model: which parts are gathered together, and what cannot be split.

_DEVICES = ("cpu", "cuda")


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside, the layers of a sharded model are gathered, for callers that enter them by another method."""
    layers: list[Any] = [module for module in model.modules() if callable(getattr(module, "unshard", None))]
    for layer in layers:
        layer.unshard()
    try:
        yield
    finally:
        for layer in layers:
            layer.reshard()


def require_shardable(model: nn.Module, world: World) -> None:
    remedy = "set training.parallel=replicated"
    if world.device.type not in _DEVICES:
        raise ConfigError(
            f"training.parallel=sharded is for devices {' and '.join(_DEVICES)}, but this is {world.device.type}; "
            f"{remedy}"
        )
    kinds = sorted({str(each.dtype) for each in model.parameters() if each.requires_grad and each.dim()})
    if len(kinds) > 1:
        raise ConfigError(
            f"training.parallel=sharded needs weights of one type, but these are {', '.join(kinds)}; {remedy}"
        )
    scattered = [name for name, each in model.named_parameters() if not each.is_contiguous()]
    if scattered:
        raise ConfigError(
            f"training.parallel=sharded splits weights into rows, but {scattered[0]} is not contiguous in memory; "
            f"make it contiguous, or {remedy}"
        )
    from torch.distributed.fsdp import FSDPModule

    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise ConfigError(
            f"training.parallel=sharded needs a newer torch than {torch.__version__}, such as 2.13, which "
            f"handles weights that some batches do not use; {remedy}"
        )


def shard_parameters(objective: SummedLoss[Any], world: World, *, used: set[str]) -> None:
    """Replace the parameters of a model by the shards of this rank, layer by layer, and the rest at the root.

    Backward passes add the names of the parameters that they give a gradient to `used`.
    """
    # Imported late: it takes a second, which only sharded runs need.
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    # The result of a cell may be a view, which is never changed in place: see `Cell.run`.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDP\w*Cell\) returned a view tensor")
    group = distributed.group.WORLD
    assert group is not None
    mesh = DeviceMesh.from_group(group, world.device.type)
    names = {id(each): name for name, each in objective.model.named_parameters()}
    replicated = {each for each in objective.parameters() if each.dim() == 0}
    layers = separate_layers(objective.model)
    inside = {id(module) for layer, _ in layers for module in layer.modules()}
    rest = [module for module in objective.modules() if id(module) not in inside]
    for module, entry, modules in [
        *((layer, entry, list(layer.modules())) for layer, entry in layers),
        (objective, "forward", rest),
    ]:
        places = [
            (names[id(each)], owner, attribute)
            for owner in modules
            for attribute, each in owner.named_parameters(recurse=False)
            if each.requires_grad
        ]
        _watch(module, entry, places, used)
        fully_shard(module, mesh=mesh, ignored_params=replicated)
        if entry != "forward":
            register_fsdp_forward_method(module, entry)
    # A batch need not use every parameter, and ranks need not use the same ones.
    cast("FSDPModule", objective).set_reduce_scatter_unused_params(True)


def separate_layers(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """The layers of a model that have weights, and share none with anything outside themselves."""
    layers = list(model.layers_by_entry()) if isinstance(model, HasLayers) else []
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for each in module.parameters(recurse=False):
            owners.setdefault(id(each), set()).add(id(module))
    separate = []
    for layer, entry in layers:
        own = {id(module) for module in layer.modules()}
        mine = [owners[id(each)] for each in layer.parameters() if each.dim()]
        if mine and all(found <= own for found in mine):
            separate.append((layer, entry))
    return separate


def _watch(module: nn.Module, entry: str, places: Sequence[tuple[str, nn.Module, str]], used: set[str]) -> None:
    """When a method is entered, and torch has gathered what it needs, watch which parameters get a gradient."""
    enter = getattr(module, entry)
    watched: dict[str, Tensor] = {}

    def entered(*args: Any, **options: Any) -> Any:
        for name, owner, attribute in places:
            parameter: Tensor = getattr(owner, attribute)
            if watched.get(name) is not parameter:  # torch gathers into the same tensor every time: watch it once
                watched[name] = parameter
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: used.add(name))
        return enter(*args, **options)

    setattr(module, entry, entered)


def choose_strategy(
    model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World, listener: Listener
) -> ParallelStrategy[Batch]:
    """The strategy that `training.parallel` names."""
    if config.parallel == "sharded" and world.size > 1:
        return Sharded(model, task, config, world=world)
    if config.parallel == "sharded":
        notice(listener, "training.parallel=sharded: a single process holds the whole model")
    return Replicated(model, task, config, world=world)


class Sharded(Generic[Batch]):
    """A shard of the model. The original model is an empty shell outside of `full_model` and before `gather`."""

    is_sharded = True
    optimiser: Optimizer
    """Over the shards."""

    def __init__(self, model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World) -> None:
        require_shardable(model, world)
        self._model, self._task, self._config, self._world = model, task, config, world
        self.learner = model
        self.parameters: Mapping[str, nn.Parameter] = {}
        self.counted: Mapping[str, nn.Parameter] = {}
        self.held: Mapping[str, Tensor] = {}

    def share(self) -> None:
        """Shard the model. A copy takes part in training; its tensors are those of the model until they are split."""
        self._stored = [*live_weights(self._model)]
        whole = {**dict(self._model.named_parameters()), **live_weights(self._model)}
        self._specs = {name: TensorSpec(each.dtype, tuple(each.shape)) for name, each in whole.items()}
        try:
            shared = (*self._model.parameters(), *self._model.buffers())
            self.learner = copy.deepcopy(self._model, {id(each): each for each in shared})
        except Exception as error:
            raise ConfigError(
                f"training.parallel=sharded works on a copy of the model, but {type(self._model).__name__} cannot be "
                f"copied ({error}); set training.parallel=replicated"
            ) from error
        # As with DDP, all ranks start with the weights of the first: a model from outside may draw others on each.
        for each in whole.values():
            distributed.broadcast(each.detach(), src=0)
        self._objective = SummedLoss(self.learner, self._task)
        self._used: set[str] = set()
        shard_parameters(self._objective, self._world, used=self._used)
        self._sharded = dict(self.learner.named_parameters())
        # A scalar cannot be split: every rank has it.
        self._replicated = [name for name, each in self._sharded.items() if each.dim() == 0]
        held = {name: each if name in self._replicated else _local_shard(each) for name, each in self._sharded.items()}
        self.held = held
        self.parameters = {name: each for name, each in held.items() if each.requires_grad}
        is_mine = self._world.is_first
        self.counted = {name: each for name, each in self.parameters.items() if is_mine or name not in self._replicated}
        self.optimiser = make_optimiser(self.learner, self._config, held=self.parameters)
        self._empty()

    def restore_optimiser(self, tensors: Mapping[str, Tensor]) -> None:
        mine = {}
        for name, tensor in tensors.items():
            owner, part = name.rsplit("/", 1)
            if part == "step" and tensor.dim():
                raise ConfigError(
                    f"this run has updated single rows of {owner} so far (training.table_updates=rows), and the step "
                    "of the last update of each row cannot be sharded; resume with training.parallel=replicated"
                )
            mine[name] = tensor
            if tensor.dim() and owner not in self._replicated:
                rows = -(-len(tensor) // self._world.size)
                mine[name] = tensor[rows * self._world.rank : rows * (self._world.rank + 1)]
        restore_optimiser(self.optimiser, self.parameters, mine)

    # --- steps -------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        for each in (*self._sharded.values(), *self.parameters.values()):
            each.grad = None
        self._used.clear()
        # As with DDP, buffers are those of the first rank.
        for buffer in self.learner.buffers():
            distributed.broadcast(buffer, src=0)

    def loss(self, batch: Batch | None) -> Tensor:
        loss: Tensor = self._objective(batch)
        return loss

    def no_sync(self) -> "nullcontext[None]":
        """Nothing waits: accumulated gradients would be unsharded."""
        return nullcontext()

    @torch.no_grad()
    def collect(self) -> None:
        """A parameter that no batch of the step has used, on any rank, has no gradient and is not updated."""
        used_here = [float(name in self._used) for name in self.parameters]
        used = [count > 0 for count in self._world.sum(*used_here)]
        for (name, parameter), is_used in zip(self.parameters.items(), used, strict=True):
            if not is_used:
                parameter.grad = None
            elif name in self._replicated:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                distributed.all_reduce(gradient)
                parameter.grad = gradient / self._world.size
            else:
                sharded_gradient: Any = self._sharded[name].grad
                parameter.grad = sharded_gradient.to_local()

    # --- the whole model ---------------------------------------------------------------------------------------------

    @contextmanager
    def full_model(self) -> Iterator[None]:
        self._fill(everywhere=False)
        try:
            yield
        finally:
            self._empty()

    def gather(self) -> None:
        self._fill(everywhere=True)

    def close(self) -> None:
        """Release what refers to the process group, cycles included, see `Replicated.close`."""
        self.learner = self._model
        self.parameters, self.counted, self.held = {}, {}, {}
        for name in ("_objective", "_sharded", "_used", "optimiser"):
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
            if name not in self._replicated:
                parameter.data = parameter.data.new_empty(0)

    def _gather(self, name: str, mine: Tensor, *, everywhere: bool = False) -> Tensor | None:
        """A tensor of which each rank has the rows that it has of a parameter: whole, on the first rank or on all."""
        if name in self._replicated or not mine.dim():
            return mine.detach()
        world, length = self._world, self._specs[name].shape[0]
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

    def state(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Nothing: all of it is sharded."""
        return {}, {}

    def sharded_state(self) -> ShardedState:
        kept = {**dict(self.learner.named_buffers()), **self.held}
        weight_specs = {name: self._full_spec(kept[name], like=name) for name in self._stored}
        states = optimiser_tensors(self.optimiser, self.parameters)
        owners = {name: name.rsplit("/", 1)[0] for name in states}
        optimiser_specs = {name: self._full_spec(tensor, like=owners[name]) for name, tensor in states.items()}

        def whole(owner: str, part: Tensor) -> Tensor | None:
            return self._gather(owner, part) if owner in self.held else part.detach()

        return (
            LazyTensors(weight_specs, lambda name: whole(name, kept[name])),
            LazyTensors(optimiser_specs, lambda name: whole(owners[name], states[name])),
        )

    def _full_spec(self, part: Tensor, *, like: str) -> TensorSpec:
        """What this part of a weight, or of what is remembered of it, is when it is whole."""
        is_whole = like not in self.held or like in self._replicated or not part.dim()
        return TensorSpec(part.dtype, tuple(part.shape) if is_whole else self._specs[like].shape)


@torch.no_grad()
def _local_shard(parameter: nn.Parameter) -> nn.Parameter:
    """The rows of a sharded parameter on this rank: a parameter of its own, on the same memory."""
    rows: Tensor = cast("Any", parameter).to_local()
    return nn.Parameter(rows.detach(), requires_grad=parameter.requires_grad)
