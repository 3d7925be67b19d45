"""Opening models: a model directory, a run, its best checkpoint or an archive, as a model ready for use."""

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.core.archive import by_origin, is_archive, temporary_folder, unpacked
from seqloom.core.arguments import as_path, shown
from seqloom.core.arrays import map_safetensors
from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError, warn
from seqloom.core.events import ignore
from seqloom.metrics.calibration import Calibration
from seqloom.nn.embeddings import NO_SYMBOLS, Symbols
from seqloom.nn.fast.int8 import keep_scales
from seqloom.nn.lora import merge_adapters
from seqloom.pretrained.folder import is_published
from seqloom.runs.adapters import Base, add_adapters, is_adapter, load_start
from seqloom.runs.config import (
    BuildsModel,
    FitsDocuments,
    FitsPairs,
    FitsText,
    FittedModel,
    OutsideConfig,
    RunConfig,
    is_own,
)
from seqloom.runs.importing import opened_published
from seqloom.runs.languages import LanguageChoice
from seqloom.runs.model_dir import (
    AGAIN,
    CARD,
    PUBLISHED,
    Card,
    counted_name,
    listed_files,
    parse_card,
    read_calibration,
    read_card,
    read_part,
    read_settings,
    read_weights,
    shapes_of,
    stored_tokenizers,
    unrounded,
    write_model,
)
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import NoTokenizers, Tokenizers
from seqloom.training.checkpoint import (
    NewerFormatError,
    checkpoint_folder,
    checkpoint_steps,
    copy_weights,
    pointed_step,
)
from seqloom.training.progress import Progress
from seqloom.training.run_guard import holder_of
from seqloom.training.weights import load_weights, weights_of

CPU = torch.device("cpu")

MAX_NUMBERS = 4, 1 << 24
"""Numbers that building a model may allocate: so many times those of its weights, and so many more for tables."""

MAX_TENSORS = 4, 100
"""The same for the number of tensors, which stops a model of a million layers early."""

_MAKERS = frozenset(f"aten::{name}" for name in ("empty", "empty_strided", "zeros", "ones", "full", "rand", "randn"))

_FILLERS = frozenset({"aten::normal_", "aten::uniform_"})
"""What draws the first weights of a model, which are replaced by those of a file."""

_MAX_ATTEMPTS = 20
"""Attempts to open a checkpoint of a run that is training: one may be removed in the meantime."""


@dataclass(frozen=True)
class Loaded:
    """A model ready for use."""

    folder: Path
    config: RunConfig
    tokenizers: Tokenizers
    model: Any
    card: Card
    device: torch.device = CPU
    calibration: Calibration | None = None
    """What the confidence of its translations is computed with."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def summary(self) -> str:
        """What it is and where it comes from, on one line."""
        card = self.card
        kind = "model from outside" if card.trained_on.get("outside_model") else self.config.model.kind
        languages = f" {card.source or '?'} → {card.target or '?'}" if self.config.reads_pairs else ""
        # A temporary folder is named by the archive, or by the run and step, that it was made of.
        place, unfinished = by_origin(str(self.folder)), card.trained_on.get("unfinished")
        if unfinished and place != str(self.folder):
            place += f", step {unfinished['step']:,} of {unfinished['steps']:,}"
        return f"{kind}{languages}, {card.parameters:,} parameters, {place}"

    def search_settings(self, given: SearchConfig | None = None) -> SearchConfig:
        """These settings, or its own, with a maximum output length that fits its training data where none was set.

        The search of a fitted model has no such maximum.
        """
        settings = given or self.config.search
        return settings if self.config.model.is_fitted else settings.with_output_limit(self.card.output_limit)


@dataclass(frozen=True, repr=False)
class LoadedModel(Loaded):
    """A model that was trained in steps."""

    model: nn.Module


@dataclass(frozen=True, repr=False)
class LoadedFitted(Loaded):
    """A model that was fitted to a text, to sentence pairs or to documents, as a whole."""

    model: FittedModel


def load(
    folder: Path | str,
    *,
    device: str | None = None,
    model: BuildsModel | None = None,
    source: str | None = None,
    target: str | None = None,
) -> LoadedModel:
    """Read a model directory (or the `model/` inside a run directory) and check every file of it.

    A model that was trained from settings of another package needs the same settings as `model`. `source` and `target`
    choose the languages of a model that knows several.
    """
    folder = find_model(as_path(folder, "folder"))
    require_builder(model)
    card = read_card(folder)
    choice = LanguageChoice(source, target)
    config = read_settings(folder, [*choice.overrides(), *([] if device is None else [f"device={device}"])])
    if choice != LanguageChoice():
        card = replace(card, source=config.data.source, target=config.data.target)
    if config.model.is_fitted:
        raise UsageError(f"{folder} is not a neural network: {in_words(config)}, or seqloom.load(…).model from Python")
    # Earlier versions recorded a model from outside by its repr alone.
    outside = (
        config.model.in_words() if isinstance(config.model, OutsideConfig) else card.trained_on.get("outside_model")
    )
    if outside and model is None:
        raise ModelError(
            f"{folder} holds a model from outside, {outside}. Only Python can use it, with the settings it was "
            f"trained from: seqloom.load({str(folder)!r}, model={outside})"
        )
    tokenizers = stored_tokenizers(folder, config)
    place = require_device(config.device)
    settings, weights = config.model if model is None else model, folder / "model.safetensors"
    assert isinstance(settings, BuildsModel)
    built = build_within(weights, lambda: build_model(settings, tokenizers, seed=config.seed))
    found, scales = unrounded(read_weights(weights), origin=weights)
    remedy = {"remedy": f"They were trained with {outside}; give these settings as model="} if outside else {}
    with torch.no_grad():
        load_weights(built, found, origin=str(folder), **remedy)
    keep_scales(built, scales)
    built.to(place).eval()
    return LoadedModel(folder, config, tokenizers, built, card, place, read_calibration(folder))


def load_fitted(folder: Path | str, *, source: str | None = None, target: str | None = None) -> LoadedFitted:
    """Read the directory of a fitted model. Its arrays stay in their file, mapped into memory.

    `source` and `target`, if given, must be the languages of the model.
    """
    folder = find_model(as_path(folder, "folder"))
    card = read_card(folder)
    config = read_settings(folder, LanguageChoice(source, target).overrides())
    settings = config.model
    if not settings.is_fitted:
        raise UsageError(f"{folder} holds a model of kind {settings.kind}, not one that was fitted: {in_words(config)}")
    tokenizers = stored_tokenizers(folder, config)
    path = folder / "model.safetensors"
    try:
        arrays = map_safetensors(path)
        fitted: FittedModel
        if isinstance(settings, FitsPairs):
            fitted = settings.restore_pairs(arrays, tokenizers)
        elif isinstance(settings, FitsDocuments):
            fitted = settings.restore_documents(arrays)
        else:
            assert isinstance(settings, FitsText)
            fitted = settings.restore(arrays, tokenizers.target.vocabulary)
    except (DataError, ModelError) as error:  # which know nothing of a file, or name it already
        raise ModelError(str(error) if str(path) in str(error) else f"{path}: {error}; {AGAIN}") from error
    return LoadedFitted(folder, config, tokenizers, fitted, card, calibration=read_calibration(folder))


def load_translator(
    folder: Path | str,
    *,
    device: str | None = None,
    model: BuildsModel | None = None,
    source: str | None = None,
    target: str | None = None,
) -> Loaded:
    """The same as `load` for translators of either sort: trained in steps, or fitted to sentence pairs as a whole."""
    found = find_model(as_path(folder, "folder"))
    require_builder(model)
    config = read_settings(found)
    if not config.model.is_fitted:
        return load(found, device=device, model=model, source=source, target=target)
    require_translator(found, config)
    _require_inside(found, config, model)
    return load_fitted(found, source=source, target=target)


def load_any(folder: Path | str, *, device: str | None = None, model: BuildsModel | None = None) -> Loaded:
    """Read a model directory (or the `model/` inside a run directory), whatever it holds, and check every file of it.

    A model that was trained from settings of another package needs the same settings as `model`.
    """
    found = find_model(as_path(folder, "folder"))
    require_builder(model)
    config = read_settings(found)
    if not config.model.is_fitted:
        return load(found, device=device, model=model)
    _require_inside(found, config, model)
    return load_fitted(found)


def _require_inside(folder: Path, config: RunConfig, model: BuildsModel | None) -> None:
    """Refuse settings of a model from outside for a model of this package."""
    if model is not None:
        raise UsageError(f"{folder} holds a model of kind {config.model.kind}, not one from outside; leave out model=")


def find_model(folder: Path) -> Path:
    """The model directory at this path, in a run directory, or in an archive.

    An archive, a published folder, or the best checkpoint of a run without a model becomes a model directory in a
    temporary folder.
    """
    if (folder / "model.json").is_file():
        return folder
    if (folder / "model" / "model.json").is_file():
        return folder / "model"
    if not folder.exists():
        # owner/name is how the hub names a model.
        is_hub_name = len(folder.parts) == 2 and not folder.is_absolute() and not folder.parent.exists()
        remedy = "; models are not downloaded, give the folder of one that is on disk" if is_hub_name else ""
        raise UsageError(f"{folder}: model directory not found{remedy}")
    if is_published(folder):
        return opened_published(folder)
    if is_adapter(folder):
        raise ModelError(
            f"{folder} is an adapter, not a model; merge it with its base: seqloom merge {folder} --out MODEL"
        )
    if (folder / "adapter_config.json").is_file():
        raise ModelError(
            f"{folder} is an adapter of PEFT, not a model; merge it with its base: "
            f"seqloom merge {folder} --base BASE --out MODEL"
        )
    if is_archive(folder):
        return find_model(unpacked(folder, check=check_archived))
    if folder.is_file() and is_published(folder.parent):
        raise ModelError(f"{folder} is a file of a published model; give its folder: {folder.parent}")
    if folder.is_file():
        raise ModelError(
            f"{folder} is a file, and a model is a folder or a .zip archive of one. Pickled checkpoints (.pt, .bin, "
            ".ckpt, .pkl) can carry code and are never opened"
        )
    if _is_run(folder):
        return _from_checkpoint(folder)
    if (holder := holder_of(folder)) is not None:
        raise ModelError(f"{folder} is in use by {holder}, which prepares a run there; it has no model yet")
    snapshots = sorted(each for each in folder.glob("snapshots/*") if is_published(each))
    if snapshots:  # the cache of the hub
        raise ModelError(f"{folder} keeps published models in folders below; give one of them: {snapshots[-1]}")
    raise ModelError(
        f"{folder} is not a model directory: model.json is missing, and so is the config.json of a published model"
    )


def _from_checkpoint(run: Path) -> Path:
    """A temporary model directory made of the best checkpoint of a run that has no model yet, with a SeqloomWarning.

    Nothing in the run is changed, which may be training.
    """
    for _ in range(_MAX_ATTEMPTS):
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
            trained_on, model = read_part(folder / "model.json")["trained_on"], read_settings(folder).model
            where = f"step {trained_on['steps']:,} of {trained_on['unfinished']['steps']:,}"
            loss = f" (dev loss {trained_on['dev_loss']:.4f})" if trained_on.get("dev_loss") else ""
            used = f"using its {'best' if step == best else 'newest'} checkpoint, {where}{loss}."
            skipped = f" Not used: {'; '.join(damages)}." if damages else ""
            how = f"seqloom train --resume {run}"
            if isinstance(model, OutsideConfig):
                how = f"seqloom.resume({str(run)!r}, model={model.in_words()})"
            if (holder := holder_of(run)) is None:
                warn(f"{run} has not finished: {used}{skipped} Finish it with: {how}")
            else:
                warn(f"{run} is still training ({holder}): {used}{skipped} Its model will be in {run / 'model'}")
            return folder
        if checkpoint_steps(run) == steps:
            break
    if damages:
        raise ModelError(f"no checkpoint of {run} can be read: {'; '.join(damages)}; restore one from a copy")
    state, remedy = "has not finished", f"resume it with: seqloom train --resume {run}"
    if (holder := holder_of(run)) is not None:
        state, remedy = f"is in use by {holder}", "wait for the first"
    raise ModelError(f"{run} {state} and has no checkpoint yet, so it has no model; {remedy}")


def _model_at(run: Path, step: int) -> Path:
    """The model directory made of a checkpoint, whose files are verified."""
    checkpoint = checkpoint_folder(run, step)
    try:
        version = (step, *(path.stat().st_mtime_ns for path in (checkpoint / "manifest.json", run / "config.yaml")))
    except OSError as error:
        raise ModelError(f"{error.filename} cannot be read: {error.strerror}") from error

    def make(folder: Path) -> None:
        config = read_settings(run)
        tokenizers = stored_tokenizers(run, config)
        folder.parent.mkdir(parents=True, exist_ok=True)
        weights = folder.parent / "model.safetensors"
        state = copy_weights(checkpoint, weights)
        try:
            progress = Progress.from_json(state["progress"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{checkpoint} does not record the progress of its run ({error})") from error
        try:
            recorded = parse_card(read_part(run / CARD), run / CARD)
        except ModelError:  # runs of earlier versions have no card.json
            source = config.data.source if config.purpose == "translator" else None
            parameters = sum(map(math.prod, shapes_of(weights).values()))
            recorded = Card(source, config.data.target, parameters, trained_on={"files": list(config.data.train)})
        best = progress.best
        is_best = best.step == progress.step
        reached = {
            "steps": progress.step,
            counted_name(config): progress.tokens,
            "seconds": round(progress.seconds, 1),
            "best_dev_loss": best.loss,
            "weights": "the best checkpoint" if is_best else "a checkpoint",
            **({"dev_loss": best.loss} if is_best else {}),
            "unfinished": {"run": str(run), "step": progress.step, "steps": config.training.steps},
        }
        card = replace(recorded, trained_on={**recorded.trained_on, **reached})
        merged: dict[str, Tensor] = {}
        if config.training.lora is not None:  # whose checkpoints hold adapters alone
            expected = Base.recorded(recorded.trained_on, of=run)
            merged = merged_weights(config, tokenizers, read_weights(weights), origin=run, expected=expected)
            card = replace(card, parameters=sum(tensor.numel() for tensor in merged.values()))

        def write(path: Path) -> None:
            if merged:
                save_file(merged, path)
            else:
                weights.replace(path)
            if (run / PUBLISHED).is_dir():
                shutil.copytree(run / PUBLISHED, path.with_name(PUBLISHED))

        write_model(folder, config, tokenizers=tokenizers, card=card, write=write)

    return temporary_folder(run, version=version, make=make)


def merged_weights(
    config: RunConfig,
    tokenizers: Tokenizers,
    adapter: Mapping[str, Tensor],
    *,
    origin: Path,
    expected: str,
    base: Path | None = None,
) -> dict[str, Tensor]:
    """The weights of a model that `training.lora` adapts, from its base and the tensors of its adapter.

    The base is that of training.start_from, unless another place is given; `expected` is the SHA-256 of its weights.
    """
    place = Path(config.training.start_from or "") if base is None else base
    if not place.exists():
        raise UsageError(f"{origin} adapts {place}, which was not found; put the base back there")
    home = find_model(place)
    read_card(home)
    Base.of(str(place), home).require(expected, of=origin)
    settings = config.model
    if not isinstance(settings, BuildsModel):
        raise ModelError(f"{origin} cannot be merged: only Python can build its model")
    model = build_within(home / "model.safetensors", lambda: build_model(settings, tokenizers, seed=config.seed))
    add_adapters(model, config, new=load_start(model, config, home, listener=ignore))
    load_weights(model, adapter, origin=str(origin))
    merge_adapters(model)
    return weights_of(model)


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir() or (folder / "run.json").is_file()


def check_archived(archive: Path, folder: Path, names: Sequence[str]) -> None:
    """Refuse the contents of an archive if they are not a model, contradict its manifest, or include other files."""
    places = [Path(name).parent for name in names if Path(name).name == "model.json"]
    if len(places) == 1 and places[0].as_posix() not in (".", "model"):
        raise ModelError(
            f"{archive} is not a model archive: its files are in {places[0].as_posix()}/ inside it; "
            "create it with seqloom pack"
        )
    try:
        home = find_model(folder)
        read_card(home)
        above = home.relative_to(folder)
        wanted = {(above / name).as_posix() for name in ("manifest.json", *listed_files(home))}
    except ModelError as error:
        # The folder has a temporary name, which means nothing to the user.
        raise ModelError(
            f"{archive} does not hold a complete model: {str(error).replace(str(folder), archive.name)}"
        ) from error
    if unknown := sorted(set(names) - wanted):
        raise ModelError(
            f"{archive} was not unpacked: its manifest does not list {', '.join(unknown[:3])}; "
            "download it again, or have it packed again with seqloom pack"
        )


def build_within(weights: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model whose weights are in a file; settings that need far more than the file holds are refused.

    Otherwise a width of 1000000000 in a config file would fill the memory before the missing weights are noticed.
    """
    shapes = shapes_of(weights)
    numbers, tensors = sum(map(math.prod, shapes.values())), len(shapes)
    message = (
        f"{weights.parent} is inconsistent: its settings describe a model far larger than the {numbers:,} numbers "
        f"in {weights.name}; {AGAIN}"
    )
    factor, constant = MAX_NUMBERS
    per_tensor, more_tensors = MAX_TENSORS
    try:
        with _Allowance(factor * numbers + constant, per_tensor * tensors + more_tensors, message=message):
            return build()
    except (OverflowError, TypeError, RuntimeError) as error:
        if "overflow" in str(error).lower():  # torch's word for a number that no tensor can have for a size
            raise ModelError(message) from error
        raise


class _Allowance(TorchDispatchMode):
    """Counts tensors before they are allocated, and stops building a model that needs too many.

    Weights are not drawn: that would take longer than reading them.
    """

    def __init__(self, numbers: int, tensors: int, *, message: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._numbers, self._tensors, self._message = numbers, tensors, message

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _MAKERS:
            self._tensors -= 1
            self._numbers -= math.prod(args[0])
            if self._numbers < 0 or self._tensors < 0:
                raise ModelError(self._message)
        if func._schema.name in _FILLERS:
            return args[0]
        return func(*args, **(kwargs or {}))


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
    if isinstance(tokenizers, NoTokenizers):
        return NO_SYMBOLS
    source, target = tokenizers.source, tokenizers.target
    return Symbols(source.size, target.size, is_shared=tokenizers.is_shared, pieces=target.vocabulary)


def require_loaded(first: Any, others: Any, *, caller: str) -> list[Any]:
    """The models that are used together with the first; anything but loaded models is refused."""
    if isinstance(others, Loaded | str | bytes) or not isinstance(others, Iterable):
        raise UsageError(f"{caller} takes further models as a list, such as [seqloom.load(…)]; got {shown(others)}")
    further = list(others)
    for each in (first, *further):
        if not isinstance(each, Loaded):
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


def require_device(name: str) -> torch.device:
    """The device of this name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device {name!r} is unknown; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError("no GPU found; use device=cpu")
    return device


def require_translator(folder: Path, config: RunConfig) -> None:
    """Refuse a model that does not translate, with what can be done with it."""
    if config.purpose != "translator":
        by_examples = ""
        if config.purpose == "language model":
            by_examples = "; to translate from examples: seqloom translate MODEL --shots pairs.tsv"
        raise UsageError(by_origin(f"{folder} does not translate: {in_words(config)}{by_examples}"))


def require_trained(folder: Path, config: RunConfig, *, what: str) -> None:
    """Refuse a model that was fitted by a loop of its own."""
    if config.model.is_fitted:
        raise UsageError(f"{folder} was not trained by gradient descent, so {what}: {in_words(config)}")


def require_finished(model: Path) -> None:
    """Refuse a run that has not finished, or a published folder, where something is to be added to a model."""
    if model.is_dir() and is_published(model):
        raise UsageError(
            f"nothing is added to {model}, a published folder; import it first: seqloom import {model} --out MODEL"
        )
    if _is_run(model) and not (model / "model" / "model.json").is_file():
        raise UsageError(
            f"{model} has not finished, so it has no model folder, and nothing is added to a checkpoint; finish it "
            f"with: seqloom train --resume {model}"
        )


def in_words(config: RunConfig) -> str:
    """What a model is and what can be done with it, for messages."""
    commands = {
        "translator": "seqloom translate",
        "language model": "seqloom perplexity and seqloom generate",
        "word vectors": "seqloom vectors",
        "encoder": "seqloom embed, retrieve or serve, or seqloom.Encoder from Python",
        "classifier": "seqloom classify",
        "tagger": "seqloom tag",
        "forecaster": "seqloom forecast",
        "transcriber": "seqloom transcribe",
        "captioner": "seqloom caption",
        "summariser": "seqloom summarise",
        "aligner": "seqloom align --model",
        "denoiser": "seqloom train training.start_from=MODEL",
    }
    purpose = config.purpose
    article = {"word vectors": "it holds", "encoder": "it is an", "aligner": "it is an"}.get(purpose, "it is a")
    return f"{article} {purpose} of kind {config.model.kind}; use {commands[purpose]}"
