"""Cutting a model up for the ranks that share it: which parts are gathered together, and what cannot be cut."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, distributed, nn

from seqloom.core.errors import ConfigError
from seqloom.training.distributed import World
from seqloom.training.objective import Objective

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


def cut(objective: Objective[Any], world: World, *, uses: "Uses") -> None:
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


class Uses:
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
