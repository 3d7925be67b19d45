"""The weights of a model as named tensors: read, loaded, compared, averaged. Shared weights are stored once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.training.distributed import World

_SHOWN = 3


def live_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers themselves, under the first of their names."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            weights[name] = tensor
    return weights


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights in the form in which they are written: on the CPU, contiguous, no two sharing memory."""
    return {name: for_disk(tensor) for name, tensor in live_weights(model).items()}


def for_disk(tensor: Tensor) -> Tensor:
    """A tensor that fills its own memory on the CPU; copied only where necessary."""
    plain = tensor.detach().cpu().contiguous()
    return plain if plain.untyped_storage().nbytes() == plain.nbytes else plain.clone()


@torch.no_grad()
def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    *,
    origin: str,
    remedy: str = "Use the config and the vocabulary that these weights were trained with",
) -> None:
    """Copy weights into a model in place. Names and shapes must agree; `origin` says where they come from."""
    live = live_weights(model)
    differences = first_differences(live, weights)
    if differences:
        raise ModelError(f"the weights in {origin} do not fit this model: {differences}. {remedy}")
    for name, tensor in live.items():
        tensor.copy_(weights[name])


@dataclass(frozen=True)
class TakenWeights:
    """What a model has not taken from another one, by the names of the weights."""

    new: tuple[str, ...]
    """Weights of the model that keep their first values."""
    unused: tuple[str, ...]
    """Weights of the other model that have no place here."""


@torch.no_grad()
def load_trunk(
    model: nn.Module, weights: Mapping[str, Tensor], *, trunk: Sequence[str], head: Sequence[str], origin: str
) -> TakenWeights:
    """Copy what fits, by name and shape, into a model for another task. Weights of the trunk must all fit.

    `trunk` and `head` are beginnings of names; a head is never taken: it belongs to the labels of another task.
    """
    live = live_weights(model)
    of_trunk = [{name: each[name] for name in each if name.startswith(tuple(trunk))} for each in (live, weights)]
    differences = first_differences(*of_trunk) if trunk else "this kind of model has no trunk for several tasks"
    if differences:
        raise ModelError(
            f"the weights in {origin} cannot be the start of this model: {differences}. Leave out settings of model "
            "and text, which are taken from that model"
        )
    fitting = [
        name
        for name, tensor in live.items()
        if name in weights and weights[name].shape == tensor.shape and not name.startswith(tuple(head))
    ]
    for name in fitting:
        live[name].copy_(weights[name])
    new, unused = ({*each} - {*fitting} for each in (live, weights))
    return TakenWeights(tuple(sorted(new)), tuple(sorted(unused)))


def unusable_weights(held: Mapping[str, Tensor], *, world: World) -> str:
    """The first parameters that hold a number which is not finite, from which nothing can be learned; "" for none.

    Every rank looks at what it holds of them, and all get the same answer.
    """
    bad_here = [float(not bool(torch.isfinite(tensor).all())) for tensor in held.values()]
    names = [name for name, ranks in zip(held, world.sum(*bad_here), strict=True) if ranks]
    return _some(names) if names else ""


def first_differences(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """Names that are missing, too many, or of another shape: the first of each, in words; "" where there are none."""
    missing = [name for name in wanted if name not in found]
    unknown = [name for name in found if name not in wanted]
    shapes = [
        f"{name} is {_shape(found[name])} in place of {_shape(wanted[name])}"
        for name in wanted
        if name in found and wanted[name].shape != found[name].shape
    ]
    parts = [("missing", missing), ("unknown", unknown), ("of another shape", shapes)]
    return "; ".join(f"{len(items)} {label} ({_some(items)})" for label, items in parts if items)


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "a single number"


def _some(items: list[str]) -> str:
    return ", ".join(items[:_SHOWN]) + (", …" if len(items) > _SHOWN else "")


# Checkpoint averaging: the mean of the weights at several steps is often better than any one of them.


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """w̄ = (w₁ + … + wₖ) / k for each weight of k safetensors files, added up in float64.

    A path may be a folder with a `model.safetensors`. Integer tensors (counters, tables) are taken from the last path.
    One file is held in memory at a time, besides the sum.
    """
    if not paths:
        raise UsageError("no weights to average: name at least one model")
    files = [path / "model.safetensors" if path.is_dir() else path for path in paths]
    first = _read(files[0])
    sums = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for file in files[1:]:
        tensors = _read(file)
        differences = first_differences(first, tensors)
        if differences:
            raise ModelError(f"{file} cannot be averaged with {files[0]}: {differences}")
        for name, tensor in tensors.items():
            sums[name] = sums[name] + tensor if tensor.is_floating_point() else tensor
    return {
        name: (total / len(files)).to(first[name].dtype) if first[name].is_floating_point() else total
        for name, total in sums.items()
    }


def _read(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(str(file), framework="pt") as reader:
            return {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
    except Exception as error:
        raise ModelError(f"{file} cannot be read as safetensors: {error}") from error
