"""Adapting a trained model: what a run takes from it, and adapters as directories of their own.

    adapter.json           format number, settings of LoRA, and the base: its path and the SHA-256 of its weights
    adapter.safetensors    the pairs of matrices, and new weights such as a head
    config.yaml            the settings of the run
    card.json              the card of the merged model
    manifest.json          size and SHA-256 of every file
    calibration.json, languages.safetensors, pretrained/conversion.json    as in the merged model, if it has them

Base and adapter together are the model of the run, file by file: its tokenisers are those of the base.
"""

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom.core.config import Config
from seqloom.core.errors import ModelError, SeqloomError, UsageError
from seqloom.core.events import Listener, notice
from seqloom.core.files import (
    check_manifest,
    directory_manifest,
    fsync,
    partial_name,
    why_unwritten,
    write_atomically,
)
from seqloom.core.seeds import seed_for
from seqloom.models.bert import BertConfig
from seqloom.nn.init import seeded
from seqloom.nn.lora import adapt
from seqloom.pretrained.encoder_only import write_sentence_modules
from seqloom.pretrained.record import RECORD, UNUSED, ConversionRecord
from seqloom.pretrained.weights import WeightFiles
from seqloom.runs.config import OutsideConfig, RunConfig
from seqloom.runs.model_dir import (
    AGAIN,
    CALIBRATION,
    CARD,
    PUBLISHED,
    TABLES,
    read_card,
    read_part,
    read_settings,
    read_weights,
    require_exact_weights,
)
from seqloom.tasks.settings import ClassificationConfig, ContrastiveConfig, FullConfig, UnsupervisedConfig
from seqloom.training.settings import LoraConfig
from seqloom.training.weights import average_weights, for_disk, load_trunk, load_weights
from seqloom.version import __version__

ADAPTER, WEIGHTS = "adapter.json", "adapter.safetensors"

FOLDER = "adapter"
"""The adapter in the directory of its run."""

FORMAT = 1
"""The version of this layout; newer ones are refused."""

SHOWN_HASH = 12
"""Digits of a hash that a message shows."""


# --- starting from another model -------------------------------------------------------------------------------------


def is_same_task(config: RunConfig, start: RunConfig) -> bool:
    """Whether a model can have all weights of another one: both are for the same task, and the same labels."""
    one, other = config.task, start.task
    if isinstance(one, ClassificationConfig) and isinstance(other, ClassificationConfig):
        return one.labels == other.labels
    return one.kind == other.kind


def load_start(model: nn.Module, config: RunConfig, folder: Path, *, listener: Listener) -> tuple[str, ...]:
    """Give a model the weights of the model directory that its run starts from; the names of weights that are new.

    For another task, or other labels, the trunk must fit, and what else has the same name and shape is taken too.
    """
    require_exact_weights(folder, read_card(folder))
    weights: dict[str, Tensor] = average_weights([folder])
    bad = [name for name, each in weights.items() if each.is_floating_point() and not bool(torch.isfinite(each).all())]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise ModelError(f"{folder} cannot be the start of a run: {bad[0]}{more} has NaN or infinite numbers; {AGAIN}")
    if not is_same_task(config, start := read_settings(folder)):
        taken = load_trunk(model, weights, trunk=config.model.trunk, head=config.model.head, origin=str(folder))
        one, other = start.task.kind, config.task.kind
        why = "other labels" if one == other else f"task {one} → {other}"
        for what, names in (("new", taken.new), ("not used", taken.unused)):
            if names:
                notice(listener, f"{what}: {', '.join(names)} ({why})")
        return taken.new
    remedy = (
        "Leave out the settings of model and text; they are then taken from that model: "
        f"seqloom train --train … --out … training.start_from={folder}"
    )
    with torch.no_grad():
        load_weights(model, weights, origin=str(folder), remedy=remedy)
    return ()


def keep_published(start: Path, out: Path, config: RunConfig, *, names: Collection[str]) -> None:
    """Write to `out`, a new folder, what leads back to the published form of the model that a run starts from.

    An encoder that learns vectors of sentences lacks the heads of other tasks: these are kept as they were published.
    `names` are those of its weights. For other changes of the task there is no way back, and nothing is written.
    """
    home = start / PUBLISHED
    if not home.is_dir():
        return
    if is_same_task(config, read_settings(start)):
        shutil.copytree(home, out)
    elif isinstance(config.task, ContrastiveConfig) and isinstance(config.model, BertConfig):
        record = ConversionRecord.read(home)
        shutil.copytree(home, out, ignore=shutil.ignore_patterns(RECORD, UNUSED))
        record.write_part(out, names, ours=WeightFiles.open(start), kept=home)
        write_sentence_modules(out, config.model)


# --- adapters of a model in training ---------------------------------------------------------------------------------


class Base(Config):
    """The model that an adapter belongs to."""

    path: Annotated[str, Field(min_length=1)]
    """As training.start_from named it."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Of the weights in its model directory."""

    @staticmethod
    def of(path: str, folder: Path) -> "Base":
        """The base in a model directory whose files were checked."""
        return Base(path=path, sha256=read_part(folder / "manifest.json")["files"]["model.safetensors"]["sha256"])

    @staticmethod
    def recorded(trained_on: Mapping[str, Any], *, of: Path) -> str:
        """The SHA-256 of the weights of the base, as the card of a run or of its model records it."""
        try:
            return Base.model_validate(trained_on["base"]).sha256
        except (KeyError, ValueError) as error:
            raise ModelError(f"the card of {of} does not record the base of its adapter; {AGAIN}") from error

    def require(self, expected: str, *, of: Path) -> None:
        """Refuse another model than the one that an adapter was trained with."""
        if self.sha256 != expected:
            raise ModelError(
                f"{of} was begun with another base: the weights of that base have the SHA-256 "
                f"{expected[:SHOWN_HASH]}…, and those of {self.path} {self.sha256[:SHOWN_HASH]}…; give the same base"
            )


def add_adapters(model: nn.Module, config: RunConfig, *, new: tuple[str, ...]) -> None:
    """Give a model that has its first weights the adapters of training.lora; all but these and `new` is frozen."""
    lora, task = config.training.lora, config.task
    assert lora is not None
    refused = "a model from outside" if isinstance(config.model, OutsideConfig) else None
    if isinstance(task, UnsupervisedConfig):
        refused = f"task.kind={task.kind}, which changes the vectors of words before the first step"
    elif not isinstance(getattr(task, "objective", FullConfig()), FullConfig):
        refused = "a task.objective other than full, which changes the output before the first step"
    if refused:
        raise UsageError(f"training.lora cannot be combined with {refused}; leave out training.lora")
    with seeded(seed_for(config.seed, "lora")):
        adapt(model, rank=lora.rank, scale=lora.scale, dropout=lora.dropout, targets=lora.targets, new=new)


# --- the directory ---------------------------------------------------------------------------------------------------


class AdapterRecord(Config):
    """What adapter.json holds."""

    format: Literal[1] = 1
    seqloom: str
    base: Base
    lora: LoraConfig
    rows: dict[str, tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]]
    """First row and number of rows of each pair in its matrix, by the beginning of the names of its tensors."""


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER).is_file()


def save_adapter(
    folder: Path,
    tensors: Mapping[str, Tensor],
    *,
    rows: Mapping[str, tuple[int, int]],
    model: Path,
    config: RunConfig,
    base: Base,
) -> None:
    """Write an adapter directory atomically; `model` is the directory of the merged model."""
    assert config.training.lora is not None
    partial = partial_name(folder, is_hidden=False)
    partial.mkdir(parents=True)
    try:
        record = AdapterRecord(seqloom=__version__, base=base, lora=config.training.lora, rows=dict(rows))
        write_atomically(partial / ADAPTER, record.model_dump_json(indent=2) + "\n")
        save_file({name: for_disk(tensor) for name, tensor in tensors.items()}, partial / WEIGHTS)
        conversion = f"{PUBLISHED}/{RECORD}"
        for name in ("config.yaml", "model.json", CALIBRATION, TABLES, conversion):
            if (model / name).is_file():
                place = partial / (CARD if name == "model.json" else name)
                place.parent.mkdir(exist_ok=True)
                shutil.copyfile(model / name, place)
        manifest = {"format": FORMAT, "files": directory_manifest(partial)}
        write_atomically(partial / "manifest.json", json.dumps(manifest, indent=2) + "\n")
        fsync(partial / WEIGHTS)
        shutil.rmtree(folder, ignore_errors=True)  # of the same run, before it was extended
        partial.replace(folder)
        fsync(folder.parent)
    except (OSError, SafetensorError) as error:
        reason = why_unwritten(error, folder.parent, need=None)
        raise SeqloomError(f"the adapter cannot be written to {folder}: {reason}; make room and try again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_adapter(folder: Path) -> AdapterRecord:
    """The record of an adapter directory, after all its files were verified."""
    manifest, values = read_part(folder / "manifest.json"), read_part(folder / ADAPTER)
    number = values.get("format")
    if type(number) is int and number > FORMAT:
        raise ModelError(
            f"{folder} has format {number}, and this Seqloom ({__version__}) reads up to {FORMAT}; use a newer version"
        )
    files: Any = manifest.get("files")
    needed = (ADAPTER, WEIGHTS, "config.yaml", CARD)
    unlisted = [name for name in needed if not isinstance(files, dict) or name not in files]
    if unlisted:
        raise ModelError(f"{folder} cannot be checked: its manifest.json does not list {', '.join(unlisted)}; {AGAIN}")
    if damage := check_manifest(folder, files):
        raise ModelError(f"{folder} is damaged: {'; '.join(damage[:3])}; {AGAIN}")
    try:
        return AdapterRecord.model_validate_json((folder / ADAPTER).read_bytes())
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{folder / ADAPTER} is not the record of an adapter: {reason}; {AGAIN}") from error


def adapter_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of an adapter directory whose files were verified."""
    return read_weights(folder / WEIGHTS)
