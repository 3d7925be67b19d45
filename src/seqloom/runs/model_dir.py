"""The format of a model directory: writing, reading and verifying it.

    config.yaml            the complete settings it was trained with
    model.safetensors      its weights, or the arrays of a model that was fitted
    text/                  its tokenisers; a model that reads no text has none
    model.json             format number, languages, sizes, what it was trained on, its scores
    manifest.json          size and SHA-256 of every file
    forecasts.safetensors  of a forecaster: what its bands and its drift are computed with
    languages.safetensors  character n-grams of its languages, by which `auto` recognises them
    lexicon.safetensors    what source symbols translate to, if `seqloom shortlist` added it
    pretrained/            of an imported model: its published files without the weights, and how to write it again

It is written under a temporary name and renamed, and every file is checked on load.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqloom.core.config import resolve, to_yaml
from seqloom.core.errors import ModelError, SeqloomError, UsageError
from seqloom.core.files import (
    check_manifest,
    directory_manifest,
    fsync,
    partial_name,
    read_json,
    sha256_of,
    why_unwritten,
    write_atomically,
)
from seqloom.metrics.calibration import Calibration
from seqloom.metrics.scoring import CorpusScore
from seqloom.nn.fast.int8 import Int8Weight, kept_scales
from seqloom.runs.config import RunConfig
from seqloom.runs.languages import split_choice, with_languages
from seqloom.runs.twins import unbeaten
from seqloom.search.settings import OutputLimit
from seqloom.text.detection import LanguageTable, read_tables, save_tables
from seqloom.text.tokenizer import DESCRIPTION, NoTokenizers, Tokenizers
from seqloom.training.weights import for_disk, weights_of
from seqloom.version import __version__

FORMAT = 1
"""The version of this layout; newer ones are refused."""

INT8_FORMAT = 2
"""The same with large matrices rounded to eight bits, each with a scale per row: `NAME` and `NAME.scales`."""

CARD = "card.json"
"""The card of the model of a run, written when training begins."""

CALIBRATION = "calibration.json"
"""What the confidence of translations is computed with, if the model was calibrated."""

TABLES = "languages.safetensors"
"""What is known of the languages of a model. Models of earlier versions, and unfinished ones, do not have it."""

FORECASTS = "forecasts.safetensors"
"""What the bands and the drift of a forecaster are computed with."""

PUBLISHED = "pretrained"
"""The folder of a model that was imported, or trained from such a one, with what leads back to the published form."""

AGAIN = "copy the model directory again from where it was made"

_COUNTED = (
    *("pairs", "lines", "images", "tokens", "steps", "target_tokens", "tokens_read", "hidden_tokens", "texts_read"),
    *("pairs_read", "images_read", "tags_read", "values_read", "rows", "series", "samples", "frames", "symbols_read"),
    *("seconds", "dev_loss", "temperature", "calibration_error"),
)


def counted_name(config: RunConfig) -> str:
    """The name on a card of what training has counted: what its loss is a sum over."""
    names = {"encoder": "hidden_tokens", "translator": "target_tokens", "denoiser": "target_tokens"}
    return names.get(config.purpose, "tokens_read") if config.unit == "tokens" else f"{config.unit}_read"


@dataclass(frozen=True)
class Card:
    """The description of a model, in its model.json."""

    source: str | None
    """Source language."""
    target: str | None
    """Target language."""
    parameters: int
    """Numbers in its weights."""
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Pairs, tokens, steps, hashes of the data; `unbeaten` says which count-based twins it does not beat."""
    scores: tuple[Mapping[str, Any], ...] = ()
    """Scores with their signatures and the data they were measured on."""
    version: str = __version__
    """The version of Seqloom that wrote it."""
    format: int = FORMAT

    @property
    def output_limit(self) -> OutputLimit:
        """The maximum output length that fits its training data."""
        measured = self.trained_on.get("output_limit")
        return OutputLimit(**measured) if measured else OutputLimit()

    @property
    def is_rounded(self) -> bool:
        """Whether its large matrices were rounded to eight bits when it was packed."""
        return self.format == INT8_FORMAT

    @property
    def measured(self) -> tuple[CorpusScore, ...]:
        """Its scores, as `with_scores` was given them."""
        return tuple(
            CorpusScore(
                each["name"],
                math.inf if each["value"] is None else each["value"],
                each["signature"],
                tuple(each["interval"]) if each.get("interval") else None,
            )
            for each in self.scores
        )

    def with_scores(self, scores: Sequence[CorpusScore], *, lines: int) -> "Card":
        """The same with scores on so many lines of dev text. JSON knows no infinity: that value is null."""
        records = [{**asdict(each), "data": "dev", "lines": lines} for each in scores]
        measured = (each if math.isfinite(each["value"]) else {**each, "value": None} for each in records)
        trained_on = {name: value for name, value in self.trained_on.items() if name != "unbeaten"}
        if (sentence := unbeaten(scores)) is not None:
            trained_on["unbeaten"] = sentence
        return replace(self, scores=tuple(measured), trained_on=trained_on)


@dataclass(frozen=True)
class DevResult:
    """What was measured on dev text."""

    scores: tuple[CorpusScore, ...]
    lines: int
    calibration: Calibration | None = None
    """Of a translator, if there were enough lines."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Of a forecaster: what its bands and its drift are computed with."""
    learned: Mapping[str, float] = field(default_factory=dict)
    """What else was fitted to the dev text, such as the temperature of a classifier; the model card has it."""


def shapes_of(path: Path) -> dict[str, Sequence[int]]:
    """The shapes of the tensors in a safetensors file, from its header alone."""
    with _reading(path), safe_open(str(path), framework="pt") as reader:
        return {name: reader.get_slice(name).get_shape() for name in reader.keys()}  # noqa: SIM118


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Its sizes are compared with its header before memory is given for them."""
    with _reading(path):
        return load_file(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns the error of a library that cannot read a file into a ModelError."""
    try:
        yield
    # For types that torch does not have, it is a bare KeyError or TypeError.
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ModelError(f"{path} cannot be read as safetensors: {error}; {AGAIN}") from error


def fault_of_card(values: Mapping[str, Any]) -> str | None:
    """The first value of a card that has a wrong type, in words; None if all are valid."""
    for name in ("source", "target"):
        if not isinstance(values.get(name), str | None):
            return f"{name} is not a language"
    if type(values.get("parameters")) is not int or not isinstance(values.get("version", ""), str):
        return "parameters or version is invalid"
    if type(values.get("format", 1)) is not int:
        return "format is not a number"
    if not isinstance(trained_on := values.get("trained_on", {}), dict):
        return "trained_on is not a table"
    for name in _COUNTED:
        if name in trained_on and not _is_number(trained_on[name]):
            return f"trained_on.{name} is not a number"
    for name in ("files", "averaged"):
        if not isinstance(trained_on.get(name, []), list):
            return f"trained_on.{name} is not a list"
    limit = trained_on.get("output_limit", {"factor": 1.0, "constant": 1})
    factor, constant = (limit.get("factor", 0), limit.get("constant", 0)) if isinstance(limit, dict) else (0, 0)
    is_limit = _is_number(factor) and 0 <= factor <= 100 and type(constant) is int and 0 < constant <= 10_000
    if not is_limit or len(limit) != 2:
        return f"trained_on.output_limit is {str(limit)[:40]!r}, not a factor and a constant"
    unfinished = trained_on.get("unfinished", {"step": 0, "steps": 0})
    if not isinstance(unfinished, dict) or not all(_is_number(unfinished.get(name)) for name in ("step", "steps")):
        return "trained_on.unfinished lacks step or steps"
    scores = values.get("scores", [])
    if not isinstance(scores, list) or not all(map(_is_score, scores)):
        return "scores is not a list of names, values and signatures"
    return None


def _is_score(score: Any) -> bool:
    if not isinstance(score, dict) or not isinstance(score.get("name"), str):
        return False
    interval = score.get("interval")
    is_pair = interval is None or (isinstance(interval, list) and len(interval) == 2 and all(map(_is_number, interval)))
    is_measured = score.get("value") is None or _is_number(score["value"])
    return is_pair and is_measured and isinstance(score.get("signature"), str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


Tables = Mapping[str, LanguageTable]
"""What is known of some languages, by their codes."""


def save_model(
    folder: Path,
    config: RunConfig,
    *,
    tokenizers: Tokenizers,
    weights: Mapping[str, Tensor],
    card: Card,
    calibration: Calibration | None = None,
    forecasts: Mapping[str, np.ndarray] | None = None,
    tables: Tables | None = None,
    published: Path | None = None,
) -> None:
    """Write a model directory atomically; an older one at the same place is replaced.

    `published` is a folder `pretrained/` to include, if it exists.
    """
    tensors = {name: for_disk(tensor) for name, tensor in weights.items()}

    def write(path: Path) -> None:
        save_file(tensors, path)
        if calibration is not None:
            write_calibration(path.with_name(CALIBRATION), calibration)
        if forecasts:
            save_arrays(
                {name: np.ascontiguousarray(each) for name, each in forecasts.items()}, path.with_name(FORECASTS)
            )
        if tables:
            save_tables(tables, path.with_name(TABLES))
        if published is not None and published.is_dir():
            shutil.copytree(published, path.with_name(PUBLISHED))

    write_model(folder, config, tokenizers=tokenizers, card=card, write=write)


def save_fitted(
    folder: Path,
    config: RunConfig,
    *,
    tokenizers: Tokenizers,
    arrays: Mapping[str, np.ndarray],
    card: Card,
    calibration: Calibration | None = None,
    tables: Tables | None = None,
) -> None:
    """The same for a fitted model."""
    tidy = {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def write(path: Path) -> None:
        save_arrays(tidy, path)
        if calibration is not None:
            write_calibration(path.with_name(CALIBRATION), calibration)
        if tables:
            save_tables(tables, path.with_name(TABLES))

    write_model(folder, config, tokenizers=tokenizers, card=card, write=write)


def write_model(
    folder: Path, config: RunConfig, *, tokenizers: Tokenizers, card: Card, write: Callable[[Path], object]
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
        old = None
        if folder.exists():
            old = partial_name(folder, mark="before", is_hidden=False)  # `remove_leftovers` can put it back
            folder.replace(old)
        partial.replace(folder)
        fsync(folder.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        reason = why_unwritten(error, folder.parent, need=None)
        raise SeqloomError(f"the model cannot be written to {folder}: {reason}; make room and try again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone already where all went well


def add_file(folder: Path, name: str, *, write: Callable[[Path], object]) -> None:
    """Add a file to a model directory, or replace it. A crash in between leaves a valid model without that file."""
    path, manifest = folder / name, read_part(folder / "manifest.json")
    if manifest["files"].pop(name, None) is not None:
        _write_manifest(folder, manifest)
    write(path)
    manifest["files"][name] = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    _write_manifest(folder, manifest)


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write what confidences are computed with; `add_file` adds it to a model that exists."""
    write_atomically(path, json.dumps(calibration.to_json(), indent=2) + "\n")


def read_calibration(folder: Path) -> Calibration | None:
    """The calibration of a model directory that was checked before, if it has one."""
    if not has_file(folder, CALIBRATION):
        return None
    try:
        return Calibration.from_json(read_part(folder / CALIBRATION))
    except ValueError as error:
        raise ModelError(
            f"{folder / CALIBRATION} is invalid: {error}; {AGAIN}, or calibrate it again with seqloom evaluate"
        ) from error


def stored_tokenizers(folder: Path, config: RunConfig) -> Tokenizers:
    """The tokenisers of a model directory or a run with these settings; a model without a vocabulary has none."""
    return Tokenizers.load(folder / "text") if config.model.has_vocabulary else NoTokenizers()


def has_file(folder: Path, name: str) -> bool:
    """Whether a model directory lists this file, which `load` has then checked."""
    return name in read_part(folder / "manifest.json")["files"]


def stored_tables(folder: Path) -> dict[str, LanguageTable]:
    """What a model directory holds of its languages; nothing where it was written without."""
    return read_tables(folder / TABLES) if has_file(folder, TABLES) else {}


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_atomically(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of a model as its directory holds them: rounded ones in eight bits, with their scales."""
    weights = weights_of(model)
    for name, scales in kept_scales(model).items():
        rounded = Int8Weight(weights[name], None, scales=scales.cpu()).rounded
        weights |= {name: rounded, f"{name}.scales": for_disk(scales)}
    return weights


def require_exact_weights(folder: Path, card: Card) -> None:
    """Refuse a model with rounded weights as the start of training."""
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


def read_settings(folder: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The settings that a model was trained with, and others laid over them; languages are chosen among its own."""
    choice, others = split_choice(overrides)
    try:
        config = resolve(RunConfig, file=folder / "config.yaml")
    except UsageError as error:  # the user did not write these settings: the model is at fault
        raise ModelError(f"the settings of the model cannot be read: {error}. {AGAIN.capitalize()}") from error
    config = resolve(RunConfig, file=folder / "config.yaml", overrides=others) if others else config
    return with_languages(config, choice)


def read_card(folder: Path) -> Card:
    """The card of a model, after all its files were verified."""
    manifest = read_part(folder / "manifest.json")
    if not isinstance(manifest.get("format"), int) or not isinstance(manifest.get("files"), dict):
        raise ModelError(f"{folder} has an invalid manifest.json: format or files is missing; {_again(folder)}")
    _require_known_format(folder, manifest["format"])
    # The files that `load` reads. The description of a tokeniser names the hash of its other file.
    sides: tuple[str, ...] = ("shared",) if (folder / "text" / "shared").is_dir() else ("source", "target")
    if not (folder / "text").exists() and not any(name.startswith("text/") for name in manifest["files"]):
        sides = ()  # as of a model that reads images; `stored_tokenizers` misses those of any other
    needed = ["config.yaml", "model.json", "model.safetensors", *(f"text/{side}/{DESCRIPTION}" for side in sides)]
    if unlisted := ", ".join(name for name in needed if name not in manifest["files"]):
        raise ModelError(f"{folder} cannot be checked: its manifest.json does not list {unlisted}; {_again(folder)}")
    if damage := check_manifest(folder, manifest["files"]):
        raise ModelError(f"{folder} is damaged: {'; '.join(damage[:3])}; {_again(folder)}")
    values = read_part(folder / "model.json")
    if type(values.get("format")) is int:  # first of all: what a newer format holds is unknown here
        _require_known_format(folder / "model.json", values["format"])
    return parse_card(values, folder / "model.json")


def parse_card(values: Mapping[str, Any], path: Path) -> Card:
    known = {name: value for name, value in values.items() if name in Card.__dataclass_fields__}
    missing = (f"{name} is missing" for name in ("source", "target", "parameters") if name not in known)
    fault = fault_of_card(known) or next(missing, None)
    if fault:
        raise ModelError(f"{path} is not a valid model card: {fault}; {_again(path.parent)}")
    return Card(**{**known, "scores": tuple(known.get("scores", ()))})


def write_card(path: Path, card: Card) -> None:
    """Write the card of a model to a file."""
    write_atomically(path, json.dumps(asdict(card), indent=2, ensure_ascii=False) + "\n")


def _require_known_format(place: Path, number: int) -> None:
    if number > INT8_FORMAT:
        raise ModelError(
            f"{place} has format {number}, and this Seqloom ({__version__}) reads up to {INT8_FORMAT}; use a newer "
            "version"
        )


def _again(folder: Path) -> str:
    """How to get a valid model: a run with checkpoints can write its own again."""
    run = folder.parent
    if folder.name == "model" and any((run / "checkpoints").glob("step-*")):
        return f"{AGAIN}, or let its run write it again: seqloom train --resume {run}"
    return AGAIN


def listed_files(folder: Path) -> list[str]:
    """The files that the manifest of a model lists, which `read_card` has then checked."""
    return sorted(read_part(folder / "manifest.json")["files"])


def read_part(path: Path) -> dict[str, Any]:
    try:
        values = read_json(path)
    except FileNotFoundError:
        raise ModelError(f"{path.parent} is incomplete: {path.name} is missing; {_again(path.parent)}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return values
