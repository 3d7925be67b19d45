"""A model directory: what export gives and `load` needs.

    config.yaml            the complete settings it was trained with
    model.safetensors      its weights, or the arrays of a model that was fitted
    text/                  its tokenisers
    model.json             format number, languages, sizes, what it was trained on, its scores
    manifest.json          size and SHA-256 of every file
    lexicon.safetensors    what source symbols translate to, where that was asked for

It is written under a temporary name and renamed, and every file is checked on load.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.core.archive import by_origin, is_archive, temporary_folder, unpacked
from seqloom.core.arguments import as_path, shown
from seqloom.core.arrays import map_safetensors
from seqloom.core.config import resolve, to_yaml
from seqloom.core.declaration import ModelSettings
from seqloom.core.errors import ConfigError, DataError, ModelError, SeqloomError, UsageError, warn
from seqloom.core.files import (
    check_manifest,
    directory_manifest,
    fsync,
    fsync_directory,
    partial_name,
    read_json,
    sha256_of,
    why_unwritten,
    write_atomically,
)
from seqloom.metrics.translation import Score
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.int8 import Int8Weight, keep_scales, kept_scales
from seqloom.runs.config import BuildsModel, FitsText, FittedModel, OutsideConfig, RunConfig, is_own
from seqloom.search.settings import OutputLimit, SearchConfig
from seqloom.text.tokenizer import DESCRIPTION, Tokenizers
from seqloom.training.checkpoint import (
    NewerFormatError,
    checkpoint_folder,
    checkpoint_steps,
    copy_weights,
    pointed_step,
)
from seqloom.training.progress import Progress
from seqloom.training.run_guard import holder_of
from seqloom.training.weights import for_disk, load_weights, weights_of
from seqloom.version import __version__

# What settings ask of memory, before it is given: they must fit the weights of a model, or this machine.

NUMBERS = 4, 1 << 24
"""Numbers that building a model may ask for: so many times those of its weights, and so many besides for tables that
are computed. Our models ask for what they have and hardly more."""

TENSORS = 4, 100
"""The same for the number of tensors that are made, which ends a model of a million layers at its hundredth."""

_MAKERS = frozenset(f"aten::{name}" for name in ("empty", "empty_strided", "zeros", "ones", "full", "rand", "randn"))


def build_within(weights: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model whose weights are in a file; settings that ask for far more than the file holds are refused.

    Settings are a line of text: one that says width 1000000000 would otherwise fill the memory before anybody sees
    that no such weights are there.
    """
    shapes = shapes_of(weights)
    numbers, tensors = sum(map(math.prod, shapes.values())), len(shapes)
    complaint = (
        f"{weights.parent} does not fit together: its settings ask for a model far larger than the {numbers:,} numbers "
        f"in {weights.name}; copy the model directory again from where it was made"
    )
    most = NUMBERS[0] * numbers + NUMBERS[1], TENSORS[0] * tensors + TENSORS[1]
    try:
        with _Allowance(numbers=most[0], tensors=most[1], complaint=complaint):
            return build()
    except (OverflowError, TypeError, RuntimeError) as error:
        if "overflow" in str(error).lower():  # torch's word for a number that no tensor can have for a size
            raise ModelError(complaint) from error
        raise


def shapes_of(path: Path) -> dict[str, Sequence[int]]:
    """The shapes of the tensors in a safetensors file, from its header alone."""
    with _Meets(path), safe_open(str(path), framework="pt") as reader:
        return {name: reader.get_slice(name).get_shape() for name in reader.keys()}  # noqa: SIM118


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Its sizes are compared with its header before memory is given for them."""
    with _Meets(path):
        return load_file(path)


class _Meets:
    """What a library says of a file that it cannot read, as an error of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Its own class, and for types that torch does not have a bare KeyError or TypeError.
        if isinstance(error, (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError)):
            raise ModelError(
                f"{self._path} cannot be read as safetensors: {error}; copy the model directory again from where it "
                "was made"
            ) from error


class _Allowance(TorchDispatchMode):
    """Sees each tensor before it is made, and ends the building of a model that asks for too much."""

    def __init__(self, *, numbers: int, tensors: int, complaint: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._numbers, self._tensors, self._complaint = numbers, tensors, complaint

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _MAKERS:
            self._tensors -= 1
            self._numbers -= math.prod(args[0])
            if self._numbers < 0 or self._tensors < 0:
                raise ModelError(self._complaint)
        return func(*args, **(kwargs or {}))


# --- models that are to be trained ------------------------------------------------------------------------------------

FEWEST = Symbols(8, 8, is_shared=True, pieces=tuple("abcdefgh"))
"""Vocabularies that are smaller than any: what a model needs for these it needs for every text."""

SIZES = ("width", "embedding_width", "feed_forward", "encoder_layers", "decoder_layers", "layers")
"""Settings by which a model grows, in the order in which they are looked at."""


def require_memory(config: RunConfig, symbols: Symbols, *, memory: int | None = None) -> None:
    """Refuse a model whose training needs more memory than there is, with the setting at fault and a size that fits.

    Counted are weights, gradients and what the optimiser keeps for each, in four bytes; `memory` is by default all of
    the machine, of the GPU, or of what limits this process.
    """
    model, training = config.model, config.training
    if not isinstance(model, BuildsModel):
        return
    kept = {"adam": 2, "adamw": 2, "sgd": int(training.momentum > 0)}[training.optimiser]
    # Sharded, each rank builds the whole model before it gives most of it away.
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
    """Bytes of memory that this process can have at most on a device; None where the system does not say."""
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


# What `model.json` may hold: it can come from elsewhere, and its values are shown and counted with.

_COUNTED = ("pairs", "lines", "tokens", "steps", "target_tokens", "tokens_read", "seconds", "dev_loss")


def fault_of_card(values: Mapping[str, Any]) -> str | None:
    """The first thing in the values of a card that is not of its kind, in words; None where all is well."""
    for name in ("source", "target"):
        if not isinstance(values.get(name), str | None):
            return f"{name} is no language"
    if not _is_number(values.get("parameters")) or not isinstance(values.get("version", ""), str):
        return "it gives no number of parameters, or no version"
    if type(values.get("format", 1)) is not int:
        return "its format is no number"
    if not isinstance(trained_on := values.get("trained_on", {}), dict):
        return "trained_on is no table"
    for name in _COUNTED:
        if name in trained_on and not _is_number(trained_on[name]):
            return f"trained_on.{name} is no number"
    for name in ("files", "averaged"):
        if not isinstance(trained_on.get(name, []), list):
            return f"trained_on.{name} is no list"
    if "output_limit" in trained_on and not _is_output_limit(trained_on["output_limit"]):
        return f"trained_on.output_limit is {str(trained_on['output_limit'])[:40]!r}, not a factor and a constant"
    unfinished = trained_on.get("unfinished", {"step": 0, "steps": 0})
    if not isinstance(unfinished, dict) or not all(_is_number(unfinished.get(name)) for name in ("step", "steps")):
        return "trained_on.unfinished gives no step and steps"
    scores = values.get("scores", [])
    if not isinstance(scores, list) or not all(map(_is_score, scores)):
        return "scores are no list of names, values and signatures"
    return None


def _is_score(score: Any) -> bool:
    if not isinstance(score, dict) or not isinstance(score.get("name"), str):
        return False
    interval = score.get("interval")
    is_pair = interval is None or (isinstance(interval, list) and len(interval) == 2 and all(map(_is_number, interval)))
    is_measured = score.get("value") is None or _is_number(score["value"])
    return is_pair and is_measured and isinstance(score.get("signature"), str)


def _is_output_limit(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"factor", "constant"}:
        return False
    factor, constant = value["factor"], value["constant"]
    return _is_number(factor) and 0 < factor <= 100 and type(constant) is int and 0 < constant <= 10_000


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


FORMAT = 1
"""The number of this layout; a newer one is refused, not guessed at."""

INT8_FORMAT = 2
"""The same with large matrices rounded to eight bits, each with a scale per row: `NAME` and `NAME.scales`."""

_SAID = ("source", "target", "parameters")

AGAIN = "copy the model directory again from where it was made"


@dataclass(frozen=True)
class Card:
    """What a model says of itself."""

    source: str | None
    """Source language."""
    target: str | None
    """Target language."""
    parameters: int
    """Numbers in its weights."""
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Pairs, tokens, steps, hashes of the data."""
    scores: tuple[Mapping[str, Any], ...] = ()
    """Scores with their signatures and the data they were measured on."""
    version: str = __version__
    """The version of Seqloom that wrote it."""
    format: int = FORMAT

    @property
    def output_limit(self) -> OutputLimit:
        """The maximum output length that its training data asks for."""
        measured = self.trained_on.get("output_limit")
        return OutputLimit(**measured) if measured else OutputLimit()

    @property
    def is_rounded(self) -> bool:
        """Whether its large matrices were rounded to eight bits when it was packed."""
        return self.format == INT8_FORMAT

    @property
    def measured(self) -> tuple[Score, ...]:
        """Its scores, as `with_scores` was given them."""
        return tuple(
            Score(
                each["name"],
                math.inf if each["value"] is None else each["value"],
                each["signature"],
                tuple(each["interval"]) if each.get("interval") else None,
            )
            for each in self.scores
        )

    def with_scores(self, scores: Sequence[Score], *, lines: int) -> "Card":
        """The same with scores on so many lines of dev text. JSON knows no infinity: that value is null."""
        records = [{**asdict(each), "data": "dev", "lines": lines} for each in scores]
        measured = (each if math.isfinite(each["value"]) else {**each, "value": None} for each in records)
        return replace(self, scores=tuple(measured))


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for use."""

    folder: Path
    config: RunConfig
    tokenizers: Tokenizers
    model: nn.Module
    card: Card
    device: torch.device

    def __repr__(self) -> str:
        return f"LoadedModel({self.summary()})"

    def summary(self) -> str:
        """What it is and where it comes from, on one line."""
        return _summary(self)

    def search_settings(self, given: SearchConfig | None = None) -> SearchConfig:
        """These settings, or its own, with a maximum output length that fits its training data where none was set."""
        return (given or self.config.search).with_output_limit(self.card.output_limit)


@dataclass(frozen=True)
class LoadedFitted:
    """A fitted model ready for use."""

    folder: Path
    config: RunConfig
    tokenizers: Tokenizers
    model: FittedModel
    card: Card
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __repr__(self) -> str:
        return f"LoadedFitted({self.summary()})"

    def summary(self) -> str:
        """What it is and where it comes from, on one line."""
        return _summary(self)


Loaded = LoadedModel | LoadedFitted


def _summary(loaded: Loaded) -> str:
    card = loaded.card
    kind = "model from outside" if card.trained_on.get("outside_model") else loaded.config.model.kind
    languages = f" {card.source or '?'} → {card.target or '?'}" if loaded.config.purpose == "translator" else ""
    return f"{kind}{languages}, {card.parameters:,} parameters, {_place(loaded)}"


def _place(loaded: Loaded) -> str:
    """Where a model comes from: its folder, or the archive or the run and step that a temporary folder was made of."""
    place, unfinished = by_origin(str(loaded.folder)), loaded.card.trained_on.get("unfinished")
    if unfinished and place != str(loaded.folder):
        place += f", step {unfinished['step']:,} of {unfinished['steps']:,}"
    return place


def require_loaded(first: Any, others: Any, *, caller: str) -> list[Any]:
    """The models that are used together with the first; anything but loaded models is refused."""
    if isinstance(others, LoadedModel | LoadedFitted | str | bytes) or not isinstance(others, Iterable):
        raise UsageError(f"{caller} takes further models as a list, such as [seqloom.load(…)]; got {shown(others)}")
    further = list(others)
    for each in (first, *further):
        if not isinstance(each, LoadedModel | LoadedFitted):
            raise UsageError(
                f"{caller}(…) takes models that are loaded, as {caller}(seqloom.load(folder)); got {shown(each)}. "
                f"{caller}.load(folder) does both"
            )
    return further


def require_builder(model: Any) -> None:
    """Refuse settings of a model from outside that cannot build one."""
    if isinstance(model, type):
        raise UsageError(f"model={model.__name__} is a class; give an instance of it: model={model.__name__}()")
    if model is not None and not callable(getattr(model, "build", None)):
        raise UsageError(f"model={shown(model)} has no build(symbols, seed=…), which makes the model for a vocabulary")


def build_model(settings: BuildsModel, tokenizers: Tokenizers, *, seed: int) -> nn.Module:
    """A model for these vocabularies, with fresh weights."""
    name = type(settings).__name__
    try:
        model: Any = settings.build(symbols_of(tokenizers), seed=seed)
    except (SeqloomError, MemoryError):
        raise
    except Exception as error:
        if is_own(settings):
            raise
        raise ModelError(f"{name}.build(symbols, seed=…) failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name}.build(symbols, seed=…) must return a torch.nn.Module; got {shown(model)}")
    return model


def symbols_of(tokenizers: Tokenizers) -> Symbols:
    """The vocabularies of a model."""
    source, target = tokenizers.source, tokenizers.target
    return Symbols(source.size, target.size, is_shared=tokenizers.is_shared, pieces=target.vocabulary)


def save_model(
    folder: Path, config: RunConfig, *, tokenizers: Tokenizers, weights: Mapping[str, Tensor], card: Card
) -> None:
    """Write a model directory, whole or not at all; an older one at the same place is replaced."""

    def write(path: Path) -> None:
        save_file({name: for_disk(tensor) for name, tensor in weights.items()}, path)

    _write_model(folder, config, tokenizers=tokenizers, card=card, write=write)


def save_fitted(
    folder: Path, config: RunConfig, *, tokenizers: Tokenizers, arrays: Mapping[str, np.ndarray], card: Card
) -> None:
    """The same for a fitted model."""

    def write(path: Path) -> None:
        save_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)

    _write_model(folder, config, tokenizers=tokenizers, card=card, write=write)


def _write_model(
    folder: Path, config: RunConfig, *, tokenizers: Tokenizers, card: Card, write: Callable[[Path], None]
) -> None:
    partial = partial_name(folder, is_hidden=False)
    partial.mkdir(parents=True)
    try:
        write_atomically(partial / "config.yaml", to_yaml(config, comments=False))
        write_card(partial / "model.json", card)
        write(partial / "model.safetensors")
        fsync(partial / "model.safetensors")
        tokenizers.save(partial / "text")
        _write_manifest(partial, {"format": card.format, "files": directory_manifest(partial)})
        _put_in_place(partial, folder)
    except (OSError, SafetensorError) as error:
        reason = why_unwritten(error, folder.parent, need=None)
        raise SeqloomError(f"the model cannot be written to {folder}: {reason}; make room and try again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already where all went well


def add_file(folder: Path, name: str, *, write: Callable[[Path], None]) -> None:
    """Add a file to a model directory, or replace it. A crash in between leaves a whole model without that file."""
    path, manifest = folder / name, _read_json(folder / "manifest.json")
    if manifest["files"].pop(name, None) is not None:
        _write_manifest(folder, manifest)
    write(path)
    manifest["files"][name] = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    _write_manifest(folder, manifest)


def has_file(folder: Path, name: str) -> bool:
    """Whether a model directory lists this file, which `load` has then checked."""
    return name in _read_json(folder / "manifest.json")["files"]


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_atomically(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def load(folder: Path | str, *, device: str | None = None, model: BuildsModel | None = None) -> LoadedModel:
    """Read a model directory (or the `model/` inside a run directory) and check every file of it.

    A model that was trained from settings outside the house is read with the same settings as `model`.
    """
    folder = find_model(as_path(folder, "folder"))
    require_builder(model)
    card = read_card(folder)
    config = read_settings(folder, [] if device is None else [f"device={device}"])
    if isinstance(config.model, FitsText):
        raise UsageError(f"{folder} does not translate: {in_words(config)}, or seqloom.load(…).model from Python")
    # Earlier versions recorded a model from outside by its repr alone.
    outside = (
        config.model.in_words() if isinstance(config.model, OutsideConfig) else card.trained_on.get("outside_model")
    )
    if outside and model is None:
        raise ModelError(
            f"{folder} holds a model from outside, {outside}. Only Python can use it, with the settings it was "
            f"trained from: seqloom.load({str(folder)!r}, model={outside})"
        )
    tokenizers = Tokenizers.load(folder / "text")
    place = require_device(config.device)
    settings, weights = config.model if model is None else model, folder / "model.safetensors"
    assert isinstance(settings, BuildsModel)
    built = build_within(weights, lambda: build_model(settings, tokenizers, seed=config.seed))
    found, scales = unrounded(read_weights(weights), origin=weights)
    way_out = {"way_out": f"They were trained with {outside}; give these settings as model="} if outside else {}
    with torch.no_grad():
        load_weights(built, found, origin=str(folder), **way_out)
    keep_scales(built, scales)
    built.to(place).eval()
    return LoadedModel(folder, config, tokenizers, built, card, place)


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model as its directory holds them: rounded ones in eight bits, with their scales."""
    weights = weights_of(model)
    for name, scales in kept_scales(model).items():
        rounded = Int8Weight(weights[name], None, scales=scales.cpu()).rounded
        weights |= {name: rounded, f"{name}.scales": for_disk(scales)}
    return weights


def require_exact_weights(folder: Path, card: Card) -> None:
    """Refuse a model whose weights were rounded, where training goes on from them."""
    if card.is_rounded:
        raise UsageError(
            f"the weights of {folder} were rounded to eight bits when it was packed; use the model it was packed from"
        )


def unrounded(weights: Mapping[str, Tensor], *, origin: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights in floats, and the scales of those that were stored in eight bits."""
    rounded = [name for name, tensor in weights.items() if tensor.dtype == torch.int8]
    scales = {name: weights[f"{name}.scales"] for name in rounded if f"{name}.scales" in weights}
    for name in rounded:
        if name not in scales or scales[name].shape != weights[name].shape[:1] or not scales[name].is_floating_point():
            raise ModelError(f"{origin} is damaged: {name} is rounded to eight bits, without a scale per row; {AGAIN}")
    known = {f"{name}.scales" for name in rounded}
    plain = {name: tensor for name, tensor in weights.items() if name not in known}
    return {
        name: plain[name].float() * scales[name][:, None] if name in scales else plain[name] for name in plain
    }, scales


def require_translator(folder: Path, config: RunConfig) -> None:
    """Refuse a model that does not translate, with what can be done with it."""
    if config.purpose != "translator":
        raise UsageError(f"{folder} does not translate: {in_words(config)}")


def require_trained(folder: Path, config: RunConfig, *, what: str) -> None:
    """Refuse a model that was fitted by a loop of its own, and so lacks what is asked for."""
    if isinstance(config.model, FitsText):
        raise UsageError(f"{folder} was not trained by gradient descent, so {what}: {in_words(config)}")


def load_fitted(folder: Path | str) -> LoadedFitted:
    """Read the directory of a fitted model. Its arrays stay in their file, mapped into memory."""
    folder = find_model(as_path(folder, "folder"))
    card = read_card(folder)
    config = read_settings(folder)
    if not isinstance(config.model, FitsText):
        raise UsageError(
            f"{folder} holds a model of kind {config.model.kind}, not one that was fitted: {in_words(config)}"
        )
    tokenizers = Tokenizers.load(folder / "text")
    path = folder / "model.safetensors"
    try:
        fitted = config.model.restore(map_safetensors(path), tokenizers.target.vocabulary)
    except (DataError, ModelError) as error:  # which know nothing of a file, or name it already
        raise ModelError(str(error) if str(path) in str(error) else f"{path}: {error}; {AGAIN}") from error
    return LoadedFitted(folder, config, tokenizers, fitted, card)


def load_any(folder: Path | str, *, device: str | None = None, model: BuildsModel | None = None) -> Loaded:
    """Read a model directory (or the `model/` inside a run directory), whatever it holds, and check every file of it.

    A model that was trained from settings outside the house is read with the same settings as `model`.
    """
    found = find_model(as_path(folder, "folder"))
    require_builder(model)
    config = read_settings(found)
    if not isinstance(config.model, FitsText):
        return load(found, device=device, model=model)
    if model is not None:
        raise UsageError(f"{found} holds a model of kind {config.model.kind}, not one from outside; leave out model=")
    return load_fitted(found)


def in_words(config: RunConfig) -> str:
    """What a model is and what can be done with it, for messages."""
    commands = {
        "translator": "seqloom translate",
        "language model": "seqloom perplexity and seqloom generate",
        "word vectors": "seqloom vectors",
    }
    purpose = config.purpose
    what = f"it holds {purpose}" if purpose == "word vectors" else f"it is a {purpose}"
    return f"{what} of kind {config.model.kind}; use {commands[purpose]}"


def find_model(folder: Path) -> Path:
    """The model directory at this path; a run directory stands for the model in it, or for its best checkpoint.

    An archive stands for the model in it too. What is no model directory yet is made into one in a folder that goes
    when the program ends.
    """
    if (folder / "model.json").is_file():
        return folder
    if (folder / "model" / "model.json").is_file():
        return folder / "model"
    if not folder.exists():
        raise UsageError(f"{folder}: there is no such model directory")
    if is_archive(folder):
        return find_model(unpacked(folder, check=check_archived))
    if folder.is_file():
        raise ModelError(
            f"{folder} is a file, and a model is a folder or a .zip archive of one. Pickled checkpoints (.pt, .bin, "
            ".ckpt, .pkl) can carry code and are never opened"
        )
    if _is_run(folder):
        return _from_checkpoint(folder)
    if (holder := holder_of(folder)) is not None:
        raise ModelError(f"{folder} is in use by {holder}, which prepares a run there; it has no model yet")
    raise ModelError(f"{folder} is no model directory: it has no model.json")


# --- runs that have not finished --------------------------------------------------------------------------------------

CARD = "card.json"
"""What a model of a run would say of itself, written when training begins."""

_TRIES = 20
"""How often a checkpoint is looked for in a run that is training: it may be removed between two looks."""


def _from_checkpoint(run: Path) -> Path:
    """A model directory made of the best checkpoint of a run that has no model yet; a SeqloomWarning says so.

    It is in a folder that goes when the program ends. Nothing in the run is changed, which may be training.
    """
    for _ in range(_TRIES):
        steps = checkpoint_steps(run)
        best = pointed_step(run, "best")
        damages: list[str] = []
        # A run that was never validated has no best checkpoint.
        for step in dict.fromkeys([*([best] if best in steps else []), *reversed(steps)]):
            assert step is not None
            try:
                folder = _model_at(run, step)
            except NewerFormatError:
                raise
            except ModelError as error:
                damages.append(str(error))
                continue
            _warn_of_unfinished(run, folder, is_best=step == best, damages=damages)
            return folder
        if checkpoint_steps(run) == steps:
            break
    if damages:
        raise ModelError(f"no checkpoint of {run} can be read: {'; '.join(damages)}; bring one back from a copy")
    holder = holder_of(run)
    if holder is not None:
        raise ModelError(
            f"{run} is in use by {holder} and has no checkpoint yet, so it has no model; wait for the first"
        )
    raise ModelError(
        f"{run} has not finished and has no checkpoint yet, so it has no model; continue it with: "
        f"seqloom train --resume {run}"
    )


def _model_at(run: Path, step: int) -> Path:
    """The model directory made of a checkpoint, whose files are checked."""
    checkpoint = checkpoint_folder(run, step)
    try:
        version = (step, *(path.stat().st_mtime_ns for path in (checkpoint / "manifest.json", run / "config.yaml")))
    except OSError as error:
        raise ModelError(f"{error.filename} cannot be read: {error.strerror}") from error

    def make(folder: Path) -> None:
        config, tokenizers = read_settings(run), Tokenizers.load(run / "text")
        folder.parent.mkdir(parents=True, exist_ok=True)
        weights = folder.parent / "model.safetensors"
        state = copy_weights(checkpoint, weights)
        try:
            progress = Progress.from_json(state["progress"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{checkpoint} does not say how far its run has got ({error})") from error
        card = _card_at(run, config, progress=progress, weights=weights)

        def write(path: Path) -> None:
            weights.replace(path)

        _write_model(folder, config, tokenizers=tokenizers, card=card, write=write)

    return temporary_folder(run, version=version, make=make)


def _card_at(run: Path, config: RunConfig, *, progress: Progress, weights: Path) -> Card:
    """What the model of a run says of itself at a step. A run of an earlier version has not written down the rest."""
    try:
        begun = _card_of(_read_json(run / CARD), run / CARD)
    except ModelError:
        source = config.data.source if config.purpose == "translator" else None
        parameters = sum(map(math.prod, shapes_of(weights).values()))
        begun = Card(source, config.data.target, parameters, trained_on={"files": list(config.data.train)})
    best = progress.best
    is_best = best.step == progress.step
    reached = {
        "steps": progress.step,
        "target_tokens" if config.purpose == "translator" else "tokens_read": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "best_dev_loss": best.loss,
        "weights": "the best checkpoint" if is_best else "a checkpoint",
        **({"dev_loss": best.loss} if is_best else {}),
        "unfinished": {"run": str(run), "step": progress.step, "steps": config.training.steps},
    }
    return replace(begun, trained_on={**begun.trained_on, **reached})


def _warn_of_unfinished(run: Path, folder: Path, *, is_best: bool, damages: Sequence[str]) -> None:
    trained_on = _read_json(folder / "model.json")["trained_on"]
    loss = trained_on.get("dev_loss")
    where = f"step {trained_on['steps']:,} of {trained_on['unfinished']['steps']:,}"
    which = f"{'best' if is_best else 'newest'} checkpoint, {where}{f' (dev loss {loss:.4f})' if loss else ''}"
    holder, model = holder_of(run), read_settings(folder).model
    how = f"seqloom train --resume {run}"
    if isinstance(model, OutsideConfig):
        how = f"seqloom.resume({str(run)!r}, model={model.in_words()})"
    skipped = f" Not used: {'; '.join(damages)}." if damages else ""
    if holder is None:
        message = f"{run} has not finished: using its {which}.{skipped} Finish it with: {how}"
    else:
        message = (
            f"{run} is still training ({holder}): using its {which}.{skipped} Its model will be in {run / 'model'}"
        )
    warn(message)


def require_finished(model: Path) -> None:
    """Refuse a run that has not finished, where something is to be added to its model."""
    if _is_run(model) and not (model / "model" / "model.json").is_file():
        raise UsageError(
            f"{model} has not finished, so it has no model folder, and nothing is added to a checkpoint; finish it "
            f"with: seqloom train --resume {model}"
        )


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir() or (folder / "run.json").is_file()


def check_archived(archive: Path, folder: Path, names: Sequence[str]) -> None:
    """Refuse what came out of an archive if it is no model, is not as its manifest says, or has files besides."""
    lying = [Path(name).parent for name in names if Path(name).name == "model.json"]
    if len(lying) == 1 and lying[0].as_posix() not in (".", "model"):
        raise ModelError(
            f"{archive} is no archive of a model: the files of one lie in {lying[0].as_posix()}/ inside it; "
            "make it with seqloom pack"
        )
    try:
        home = find_model(folder)
        read_card(home)
        above = home.relative_to(folder)
        wanted = {(above / name).as_posix() for name in ("manifest.json", *listed_files(home))}
    except ModelError as error:
        # The folder has a temporary name, which would tell nobody anything.
        raise ModelError(f"{archive} holds no whole model: {str(error).replace(str(folder), archive.name)}") from error
    if unknown := sorted(set(names) - wanted):
        raise ModelError(
            f"{archive} was not unpacked: its manifest does not list {', '.join(unknown[:3])}; "
            "download it again, or have it packed again with seqloom pack"
        )


def read_settings(folder: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The settings that a model was trained with, and others laid over them."""
    try:
        config = resolve(RunConfig, file=folder / "config.yaml")
    except UsageError as error:  # nobody has written these settings here: it is the model that is at fault
        raise ModelError(f"the settings of the model cannot be read: {error}. {AGAIN.capitalize()}") from error
    return resolve(RunConfig, file=folder / "config.yaml", overrides=overrides) if overrides else config


def read_card(folder: Path) -> Card:
    """What the model says of itself, after its files were found to be whole."""
    manifest = _read_json(folder / "manifest.json")
    if not isinstance(manifest.get("format"), int) or not isinstance(manifest.get("files"), dict):
        raise ModelError(f"{folder} cannot be checked: its manifest.json gives no format and files; {_again(folder)}")
    _require_known_format(folder, manifest["format"])
    unlisted = [name for name in _needed(folder) if name not in manifest["files"]]
    if unlisted:
        missing = ", ".join(unlisted)
        raise ModelError(f"{folder} cannot be checked: its manifest.json does not list {missing}; {_again(folder)}")
    damage = check_manifest(folder, manifest["files"])
    if damage:
        raise ModelError(f"{folder} is damaged: {'; '.join(damage[:3])}; {_again(folder)}")
    values = _read_json(folder / "model.json")
    if type(values.get("format")) is int:  # first of all: what a newer format holds is unknown here
        _require_known_format(folder / "model.json", values["format"])
    return _card_of(values, folder / "model.json")


def _card_of(values: Mapping[str, Any], path: Path) -> Card:
    known = {name: value for name, value in values.items() if name in Card.__dataclass_fields__}
    fault = fault_of_card(known) or next((f"{name} is missing" for name in _SAID if name not in known), None)
    if fault:
        raise ModelError(f"{path} does not hold what a model says of itself: {fault}; {_again(path.parent)}")
    return Card(**{**known, "scores": tuple(known.get("scores", ()))})


def write_card(path: Path, card: Card) -> None:
    """Write what a model says of itself into a file."""
    write_atomically(path, json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n")


def _require_known_format(place: Path, number: int) -> None:
    if number > INT8_FORMAT:
        raise ModelError(
            f"{place} has format {number}, and this Seqloom ({__version__}) reads up to {INT8_FORMAT}; use a newer "
            "version"
        )


def _again(folder: Path) -> str:
    """How to get a whole model: a run that has checkpoints can make its own again."""
    run = folder.parent
    if folder.name == "model" and any((run / "checkpoints").glob("step-*")):
        return f"{AGAIN}, or have its run make it: seqloom train --resume {run}"
    return AGAIN


def listed_files(folder: Path) -> list[str]:
    """The files that the manifest of a model lists, which `read_card` has then checked."""
    return sorted(_read_json(folder / "manifest.json")["files"])


def _needed(folder: Path) -> list[str]:
    """The files that `load` reads. A tokeniser's description names the hash of its other file."""
    sides = ("shared",) if (folder / "text" / "shared").is_dir() else ("source", "target")
    return ["config.yaml", "model.json", "model.safetensors", *(f"text/{side}/{DESCRIPTION}" for side in sides)]


def require_device(name: str) -> torch.device:
    """The device of this name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device {name!r} is not known; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("no GPU found; use device=cpu")
    return device


def _put_in_place(partial: Path, folder: Path) -> None:
    old = None
    if folder.exists():
        old = partial_name(folder, mark="before", is_hidden=False)  # `remove_leftovers` can put it back
        folder.replace(old)
    partial.replace(folder)
    fsync_directory(folder.parent)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise ModelError(f"{path.parent} is not whole: {path.name} is missing; {_again(path.parent)}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} does not hold what a model directory has there")
    return values
