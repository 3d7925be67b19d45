"""A model that is spread over ranks: each holds an equal share of weights, gradients and optimiser state (FSDP2).

Every parameter is cut along its first axis into as many parts as there are ranks. A layer is gathered when the loss
enters it and given up when it leaves, on the way back once more; the gradients of its parts are summed where the parts
are. What belongs to no layer (embeddings, output) is gathered for as long as a batch takes.

torch does the gathering in hooks on the layers. All else sees plain tensors: the optimiser moves the shares as if they
were parameters of their own, and checkpoints are gathered tensor by tensor into the files that one process would write.
"""

import copy
import gc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from seqloom.core.errors import ConfigError
from seqloom.core.events import Listener, notice
from seqloom.training.checkpoint import LazyTensors, ShardedState, TensorSpec
from seqloom.training.distributed import World
from seqloom.training.optimisers import make_optimiser, optimiser_tensors, restore_optimiser
from seqloom.training.parallel import Objective, ParallelStrategy, Replicated
from seqloom.training.settings import TrainingConfig
from seqloom.training.task import Batch, Task
from seqloom.training.weights import live_weights

# Cutting a model up for the ranks that share it: which parts are gathered together, and what cannot be cut.

_DEVICES = ("cpu", "cuda")


@runtime_checkable
class HasLayers(Protocol):
    """A model that can be gathered layer by layer. One that says nothing of it is gathered whole for each batch."""

    def layers_by_entry(self) -> Sequence[tuple[nn.Module, str]]:
        """Its layers, each with the method by which a loss enters it.

        In training a layer must be used through this method alone, and as often for one batch as for any other: ranks
        with different batches meet in every call.
        """
        ...


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside, the layers of a model are whole even if it is sharded, for those who enter them by another way."""
    layers: list[Any] = [module for module in model.modules() if callable(getattr(module, "unshard", None))]
    for layer in layers:
        layer.unshard()
    try:
        yield
    finally:
        for layer in layers:
            layer.reshard()


def require_shardable(model: nn.Module, world: World) -> None:
    way_out = "set training.parallel=replicated"
    if world.device.type not in _DEVICES:
        raise ConfigError(
            f"training.parallel=sharded is for devices {' and '.join(_DEVICES)}, but this is {world.device.type}; "
            f"{way_out}"
        )
    kinds = sorted({str(each.dtype) for each in model.parameters() if each.requires_grad and each.dim()})
    if len(kinds) > 1:
        raise ConfigError(
            f"training.parallel=sharded sends weights of one type together, but these are {', '.join(kinds)}; {way_out}"
        )
    scattered = [name for name, each in model.named_parameters() if not each.is_contiguous()]
    if scattered:
        raise ConfigError(
            f"training.parallel=sharded cuts weights into rows, but the numbers of {scattered[0]} do not stand one "
            f"after another in memory; make it contiguous, or {way_out}"
        )
    from torch.distributed.fsdp import FSDPModule

    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise ConfigError(
            f"training.parallel=sharded needs a newer torch than {torch.__version__}, such as 2.13, which knows of "
            f"weights that some batches do not use; {way_out}"
        )


def cut(objective: Objective[Any], world: World, *, uses: "UsedParameters") -> None:
    """Replace the parameters of a model by the shares of this rank, layer by layer, and the rest at the root."""
    # Imported late: this takes a second, which runs that share nothing need not wait for.
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    # What a cell gives may be a view, which nobody changes in place: see `Cell.run`.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDP\w*Cell\) returned a view tensor")
    group = distributed.group.WORLD
    assert group is not None
    mesh = DeviceMesh.from_group(group, world.device.type)
    names = {id(each): name for name, each in objective.model.named_parameters()}
    uncut = {each for each in objective.parameters() if each.dim() == 0}
    layers = separate_layers(objective.model)
    inside = {id(module) for layer, _ in layers for module in layer.modules()}
    rest = [module for module in objective.modules() if id(module) not in inside]
    for module, entry, modules in [
        *((layer, entry, list(layer.modules())) for layer, entry in layers),
        (objective, "forward", rest),
    ]:
        _watch(module, entry, uses.watching(modules, names=names))
        fully_shard(module, mesh=mesh, ignored_params=uncut)
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


class UsedParameters:
    """The names of the parameters that backward passes have given a gradient."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._watched: dict[str, Tensor] = {}

    def watching(self, modules: Sequence[nn.Module], *, names: Mapping[int, str]) -> Callable[[], None]:
        """What to call when the parameters of these modules have been gathered."""
        places = [
            (names[id(each)], module, attribute)
            for module in modules
            for attribute, each in module.named_parameters(recurse=False)
            if each.requires_grad
        ]

        def watch() -> None:
            for name, module, attribute in places:
                self._watch(name, getattr(module, attribute))

        return watch

    def _watch(self, name: str, parameter: Tensor) -> None:
        # torch gathers into the same tensor every time, so this is done once.
        if self._watched.get(name) is not parameter:
            self._watched[name] = parameter
            parameter.register_post_accumulate_grad_hook(lambda _: self.names.add(name))


def _watch(module: nn.Module, entry: str, act: Callable[[], None]) -> None:
    """Act when a method is entered, after torch has gathered what it needs."""
    enter = getattr(module, entry)

    def entered(*args: Any, **options: Any) -> Any:
        act()
        return enter(*args, **options)

    setattr(module, entry, entered)


def choose_strategy(
    model: nn.Module, task: Task[Batch], config: TrainingConfig, *, world: World, listener: Listener
) -> ParallelStrategy[Batch]:
    """What this rank will hold of a model, as `training.parallel` says."""
    if config.parallel == "replicated":
        return Replicated(model, task, config, world=world)
    if world.size == 1:
        notice(
            listener, "training.parallel=sharded: one process holds the whole model, there is nobody to share it with"
        )
        return Replicated(model, task, config, world=world)
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
        self._forms = {name: TensorSpec(each.dtype, tuple(each.shape)) for name, each in whole.items()}
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
        self._uses = UsedParameters()
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

    def no_sync(self) -> "nullcontext[None]":
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
    def full_model(self) -> Iterator[None]:
        self._fill(everywhere=False)
        try:
            yield
        finally:
            self._empty()

    def gather(self) -> None:
        self._fill(everywhere=True)

    def close(self) -> None:
        """Give up what holds the process group, cycles included, see `Replicated.close`."""
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

    def spread(self) -> ShardedState:
        kept = {**dict(self.learner.named_buffers()), **self.held}
        of_weights = {name: self._form_of(kept[name], like=name) for name in self._forms}
        moved = optimiser_tensors(self.optimiser, self.parameters)
        owners = {name: name.rsplit("/", 1)[0] for name in moved}
        forms = {name: self._form_of(tensor, like=owners[name]) for name, tensor in moved.items()}
        return ShardedState(
            weights=LazyTensors(of_weights, self._maker(kept, {name: name for name in kept})),
            optimiser=LazyTensors(forms, self._maker(moved, owners)),
        )

    def _maker(self, parts: Mapping[str, Tensor], owners: Mapping[str, str]) -> Callable[[str], Tensor | None]:
        def make(name: str) -> Tensor | None:
            owner = owners[name]
            return self._gather(owner, parts[name]) if owner in self.held else parts[name].detach()

        return make

    def _form_of(self, part: Tensor, *, like: str) -> TensorSpec:
        """What this part of a weight, or of what is remembered of it, is when it is whole."""
        is_whole = like not in self.held or like in self._uncut or not part.dim()
        return TensorSpec(part.dtype, tuple(part.shape) if is_whole else self._forms[like].shape)


@torch.no_grad()
def _share_of(parameter: nn.Parameter) -> nn.Parameter:
    """This rank's rows of a parameter that was cut: a parameter of its own, on the same memory."""
    rows: Tensor = cast("Any", parameter).to_local()
    return nn.Parameter(rows.detach(), requires_grad=parameter.requires_grad)
