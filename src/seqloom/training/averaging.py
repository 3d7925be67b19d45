"""Checkpoint averaging: the mean of the weights at several steps is often better than any one of them."""

from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import Listener
from seqloom.training.checkpoint import final_folders
from seqloom.training.settings import TrainingConfig
from seqloom.training.weights import first_differences


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


def final_weights(run: Path, config: TrainingConfig, *, listener: Listener) -> dict[str, Tensor]:
    """The weights of the model that a finished run gives: the mean of its last checkpoints, or its best one."""
    folders = final_folders(run, average=config.average, save_every=config.save_every, listener=listener)
    return average_weights(folders)


def _read(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(str(file), framework="pt") as reader:
            return {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
    except Exception as error:
        raise ModelError(f"{file} cannot be read as safetensors: {error}") from error
