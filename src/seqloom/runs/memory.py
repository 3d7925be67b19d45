"""Whether training a model fits into memory, before anything is prepared for it."""

import math
import os
from contextlib import suppress
from pathlib import Path

import torch
from pydantic import ValidationError

from seqloom.core.declaration import ModelSettings
from seqloom.core.errors import ConfigError
from seqloom.nn.embeddings import Symbols
from seqloom.runs.config import BuildsModel, RunConfig

FEWEST = Symbols(8, 8, is_shared=True, pieces=tuple("abcdefgh"))
"""Vocabularies smaller than any real one: a lower bound of what a model needs."""

SIZES = ("width", "embedding_width", "feed_forward", "encoder_layers", "decoder_layers", "layers")
"""Settings by which a model grows, in the order in which they are tried."""


def require_memory(config: RunConfig, symbols: Symbols, *, memory: int | None = None) -> None:
    """Refuse a model whose training needs more memory than there is, with the setting at fault and a size that fits.

    Counted are weights, gradients and what the optimiser keeps for each, in four bytes; `memory` is by default all of
    the machine, of the GPU, or of what limits this process.
    """
    model, training = config.model, config.training
    if not isinstance(model, BuildsModel):
        return
    kept = {"adam": 2, "adamw": 2, "sgd": int(training.momentum > 0)}[training.optimiser]
    # Sharded, each rank first builds the whole model and then keeps a part of it.
    per_weight = 4 * (1 if training.parallel == "sharded" else 2 + kept)
    have = memory_of(config.device) if memory is None else memory
    # Most models are far below it, and torch takes seconds before it counts the first.
    if have is None or per_weight * _most_parameters(model, symbols) <= have:
        return
    need = per_weight * count_parameters(model, symbols)
    if need <= have:
        return

    def needed(name: str, value: int) -> int | float:
        try:
            return per_weight * count_parameters(_with_size(model, name, value), symbols)
        except ValidationError:
            return math.inf

    unit = math.lcm(8, getattr(model, "heads", 1))  # widths are divisible by heads, and by two directions
    sizes = {name: int(getattr(model, name)) for name in SIZES if isinstance(getattr(model, name, None), int)}
    # At fault is what would help most if it were made smaller.
    smallest = {name: needed(name, unit if "width" in name else 1) for name in sizes}
    name = min(sizes, key=lambda each: smallest[each])
    step = unit if "width" in name else 1
    low, high = 0, sizes[name] // step  # the largest that fits, and the smallest that does not, in steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(name, middle * step) <= have else (low, middle)
    fits = f"The largest model.{name} that fits is {low * step}" if low else "Make several sizes of the model smaller"
    raise ConfigError(
        f"model.{name}={sizes[name]} gives a model that needs at least {_bytes(need)} to train, and this machine has "
        f"{_bytes(have)}. {fits}; batches need memory too"
    )


def count_parameters(model: BuildsModel, symbols: Symbols) -> int | float:
    """The parameters of a model, counted without memory for them; ∞ for more than a tensor can have."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in model.build(symbols, seed=0).parameters())
    except (OverflowError, TypeError, RuntimeError) as error:
        if "overflow" in str(error).lower():
            return math.inf
        raise


def _most_parameters(model: ModelSettings, symbols: Symbols) -> int:
    """More parameters than the model has: no layer has 64 matrices of its largest size, no side eight tables."""
    sizes = {name: value for name, value in model.model_dump().items() if type(value) is int}
    largest = max(value for name, value in sizes.items() if "layers" not in name)
    layers = sum(value for name, value in sizes.items() if "layers" in name)
    return 64 * (layers + 2) * largest**2 + 8 * (symbols.source + symbols.target) * largest


def _with_size(model: ModelSettings, name: str, value: int) -> BuildsModel:
    changed = type(model).model_validate({**model.model_dump(), name: value})
    assert isinstance(changed, BuildsModel)
    return changed


def memory_of(device: str) -> int | None:
    """Bytes of memory that this process can use at most on a device; None if unknown."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    limits = []
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(ValueError, OSError):  # "max" where there is no limit
            limits.append(int(Path(path).read_text(encoding="ascii")))
    return min((limit for limit in limits if limit > 0), default=None)


def _bytes(count: int | float) -> str:
    if not math.isfinite(count):
        return "more memory than any machine has"
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e6:.1f} MB"
