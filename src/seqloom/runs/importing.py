"""Published models as model directories of ours.

model.safetensors   the same numbers under our names, in the type in which they were published
pretrained/         config.json, tokeniser files and others as they were, and how tensors were converted: what an
                    export needs to write the same folder again
"""

import glob
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqloom.core.archive import temporary_folder
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, ModelError
from seqloom.models.frames import FrameConfig
from seqloom.nn.embeddings import Symbols
from seqloom.pretrained.convert import ConvertedTensor, PublishedModel
from seqloom.pretrained.folder import kept_files, version_of
from seqloom.pretrained.record import ConversionRecord
from seqloom.pretrained.weights import write_safetensors
from seqloom.runs.config import BuildsModel, RunConfig
from seqloom.runs.model_dir import PUBLISHED, Card, write_model
from seqloom.training.weights import live_weights

if sys.platform != "win32":
    import fcntl

TensorsDone = Callable[[int, int], None]
"""Gets the numbers written so far, and those of the whole model."""


def ignore_tensors(_done: int, _all: int) -> None:
    """Report nothing."""


def import_published(path: Path, out: Path, *, progress: TensorsDone = ignore_tensors) -> RunConfig:
    """Write a published folder as a model directory; nothing is left behind if that fails."""
    published = PublishedModel.open(path)
    try:
        config = resolve(RunConfig, defaults=dict(published.settings))
    except ConfigError as error:
        raise ModelError(f"{path} cannot be converted: {error}") from error
    wanted = _shapes(config, published)
    total = sum(torch.Size(shape).numel() for shape in wanted.values())
    # Read before anything is written: names that do not fit are reported at once.
    tensors = list(published.tensors(wanted))
    card = Card(
        source=config.data.source,
        target=config.data.target,
        parameters=total,
        trained_on={
            "imported": {
                "model_type": published.family.model_type,
                "dtypes": sorted({str(each.dtype).removeprefix("torch.") for each in tensors}),
            }
        },
    )

    held = ExitStack()

    def write(weights: Path) -> None:
        held.enter_context(_lock(weights.parent))
        count = _Count(total, progress)
        write_safetensors(weights, [(each.name, each.shape, each.dtype, count.around(each)) for each in tensors])
        kept = weights.with_name(PUBLISHED)
        kept.mkdir()
        for name, file in kept_files(path, published.parts).items():
            (kept / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(file, kept / name)
        record = ConversionRecord.of(
            published.conversion, published.stored, published.numbers, model_type=published.family.model_type
        )
        record.write(kept, published.stored)

    _remove_leftovers(out)
    with held:
        write_model(out, config, tokenizers=published.text.tokenizers, card=card, write=write)
    return config


def _remove_leftovers(out: Path) -> None:
    """Remove the partial folders of imports to this place that were killed: those that no process holds."""
    if sys.platform != "win32":  # where nothing tells which are in use
        for left in out.parent.glob(f"{glob.escape(out.name)}.partial-*"):
            with suppress(OSError), _lock(left):
                shutil.rmtree(left)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a folder; an OSError if another process does. The system releases it if this process is killed."""
    if sys.platform == "win32":
        yield
    else:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)


def opened_published(path: Path) -> Path:
    """A temporary model directory made of a published folder, the same one while the folder does not change."""

    def make(folder: Path) -> None:
        import_published(path, folder)

    return temporary_folder(path, version=version_of(path), make=make)


def _shapes(config: RunConfig, published: PublishedModel) -> dict[str, tuple[int, ...]]:
    """The tensors that our model has, without allocating them."""
    text = published.text
    symbols = Symbols(
        len(text.source.foreign),
        len(text.target.foreign),
        is_shared=text.tokenizers.is_shared,
        pieces=text.tokenizers.target.vocabulary,
    )
    # The languages are chosen when the model is used.
    settings = config.model.model_copy(update={"frame": FrameConfig()})
    assert isinstance(settings, BuildsModel)
    with _WithoutWeights():
        built = settings.build(symbols, seed=config.seed)
    return {name: tuple(tensor.shape) for name, tensor in live_weights(built).items()}


class _WithoutWeights(TorchFunctionMode):
    """Gives weights no memory, and so no first values.

    `torch.device("meta")` does the same for all tensors, and imports torch's compiler when it computes with one, which
    takes a second.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func is torch.empty:
            given["device"] = "meta"
        tensor = args[0] if args else given.get("tensor")
        is_in_place = bool(re.fullmatch(r"[a-z]\w*_", getattr(func, "__name__", "")))
        return tensor if is_in_place and isinstance(tensor, Tensor) and tensor.is_meta else func(*args, **given)


class _Count:
    """Reports the numbers of all tensors that were made."""

    def __init__(self, total: int, progress: TensorsDone) -> None:
        self._total, self._progress, self._done = total, progress, 0

    def around(self, tensor: ConvertedTensor) -> Callable[[], Tensor]:
        """What makes a tensor, and reports it."""

        def make() -> Tensor:
            made = tensor.make()
            self._done += made.numel()
            self._progress(self._done, self._total)
            return made

        return make
