"""LoRA adapters of PEFT for imported models: a folder with adapter_config.json and adapter_model.safetensors.

    W + s B A       s = lora_alpha / r, lora_alpha / √r with use_rslora
    names           base_model.model.PATH.lora_A.weight [r, inputs], base_model.model.PATH.lora_B.weight [outputs, r]

PATH is a layer of the published model, whose matrices the record of the import joins to ours (`pretrained/record.py`).
A matrix that is one there and has a pair for each part here (GPT-2) gets all pairs as one: A above A, B beside B.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.files import write_atomically
from seqloom.pretrained.convert import FAMILIES
from seqloom.pretrained.folder import read_settings_file
from seqloom.pretrained.mapping import Side, exported, imported
from seqloom.pretrained.record import RECORD, ConversionRecord
from seqloom.pretrained.renumbering import Renumbering
from seqloom.runs.adapters import adapter_tensors, read_adapter
from seqloom.runs.model_dir import PUBLISHED, read_settings, read_weights
from seqloom.training.weights import for_disk, weights_of

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_PREFIX = "base_model.model."
_PAIR = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")
_OWN_PAIR = re.compile(r"(.+)\.lora\.[^.]+")

_USED = frozenset(
    {"task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode"}
    | {"r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "lora_dropout", "fan_in_fan_out", "bias"}
    | {"target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern"}
    | {"init_lora_weights", "megatron_core", "qalora_group_size", "runtime_config"}
)
"""Settings that are read, or do not change what an adapter computes. Others must be unset."""

_STARTS = (None, True, False, "gaussian", "orthogonal", "eva")
"""First values of adapters that leave the weights of the base as they are."""

_TASKS = {"translator": "SEQ_2_SEQ_LM", "language model": "CAUSAL_LM", "encoder": "FEATURE_EXTRACTION"}
"""PEFT's names of what a model is for."""


_RANK, _ALPHA = ("r", "rank_pattern", 8), ("lora_alpha", "alpha_pattern", 8)
"""Settings that layers may have of their own, and PEFT's defaults."""


def is_peft(folder: Path) -> bool:
    """Whether a folder holds an adapter of PEFT."""
    return (folder / CONFIG).is_file()


# --- in --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeftAdapter:
    """A LoRA adapter of PEFT."""

    base: str | None
    """The name or path of its base."""
    pairs: Mapping[str, tuple[Tensor, Tensor, float]]
    """A, B and s of each layer that is adapted, by its path."""
    saved: Mapping[str, Tensor]
    """Tensors that were trained as a whole, by name."""


def read_peft(folder: Path) -> PeftAdapter:
    """Read the folder of an adapter; a ModelError says in one sentence what is not supported."""
    config = read_settings_file(folder / CONFIG)
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(f"{folder / CONFIG} has peft_type={_shown(kind)}, which is not supported; known: LORA")
    unknown = sorted(name for name, value in config.items() if value and name not in _USED)
    if unknown:
        raise ModelError(f"{folder / CONFIG} has {unknown[0]}={_shown(config[unknown[0]])}, which is not supported")
    if config.get("bias", "none") != "none":
        raise ModelError(f"{folder / CONFIG} has bias={_shown(config['bias'])}; trained biases are not supported")
    if (start := config.get("init_lora_weights")) not in _STARTS:
        raise ModelError(f"{folder / CONFIG} has init_lora_weights={_shown(start)}, which may change the base")
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"{folder} has no {WEIGHTS}; save the adapter as safetensors")
    halves: dict[str, dict[str, Tensor]] = {}
    saved: dict[str, Tensor] = {}
    for name, tensor in read_weights(folder / WEIGHTS).items():
        own = name.removeprefix(_PREFIX)
        if found := _PAIR.fullmatch(own):
            halves.setdefault(found[1], {})[found[2]] = tensor.float()
        elif ".lora_" in own or own == name:
            raise ModelError(f"{folder / WEIGHTS} holds {name[:120]}, which is not supported")
        else:
            saved[own] = tensor.float()
    pairs = {}
    for path, half in halves.items():
        shapes = [list(half[side].shape) if side in half else None for side in "AB"]
        if None in shapes or any(each.dim() != 2 for each in half.values()) or half["A"].shape[0] != half["B"].shape[1]:
            raise ModelError(f"{folder / WEIGHTS}: lora_A and lora_B of {path[:120]} have the shapes {shapes}")
        rank, alpha = (_of_layer(config, path, *names, place=folder / CONFIG) for names in (_RANK, _ALPHA))
        if rank != len(half["A"]) or rank < 1:
            raise ModelError(
                f"{folder / CONFIG} has the rank {rank:g} for {path[:120]}, but its lora_A has {len(half['A'])} rows"
            )
        pairs[path] = half["A"], half["B"], alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    if not pairs and not saved:
        raise ModelError(f"{folder / WEIGHTS} holds no tensors; save the adapter again")
    targets = config.get("target_modules")
    if isinstance(targets, list):  # or a pattern, which PEFT has applied when it wrote the tensors
        for path in pairs:
            if not any(path == each or path.endswith(f".{each}") for each in targets):
                raise ModelError(
                    f"{folder / CONFIG} has target_modules={_shown(targets)}, without {path[:120]}, for which "
                    f"{WEIGHTS} has tensors: PEFT would not use them"
                )
    base = config.get("base_model_name_or_path")
    return PeftAdapter(base if isinstance(base, str) else None, pairs, saved)


def _of_layer(config: Mapping[str, Any], path: str, name: str, by_layer: str, default: int, *, place: Path) -> float:
    """A setting of a layer: that of the first pattern which ends its path, or that of all."""
    patterns = config.get(by_layer) or {}
    found = config.get(name, default)
    if not isinstance(patterns, dict):
        raise ModelError(f"{place} has {by_layer}={_shown(patterns)}, which is not a table")
    for pattern, value in reversed(patterns.items()):
        word = str(pattern).removeprefix("^")
        if not re.fullmatch(r"[\w.-]+", word):
            raise ModelError(f"{place} has the {by_layer} {_shown(pattern)}; only plain names are supported")
        if path == word or path.endswith(f".{word}"):
            found = value
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ModelError(f"{place} has {name}={_shown(found)}, which is not a number")
    return float(found)


def add_peft(model: nn.Module, adapter: PeftAdapter, record: ConversionRecord) -> dict[str, Tensor]:
    """The weights of a model with what an adapter adds to them, or puts in their place.

    It is added to the tensors as they were published, which are made of ours and become ours again.
    """
    rename, merged = _renaming(record), weights_of(model)
    uses = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    shared = {name for name, each in model.named_parameters() if uses[id(each)] > 1}
    pairs = {rename(f"{path}.weight"): pair for path, pair in adapter.pairs.items()}
    saved = {rename(name): tensor for name, tensor in adapter.saved.items()}
    known = {rename(name) for each in record.tensors for name in each.theirs}
    if missing := sorted({*pairs, *saved} - known):
        raise ModelError(f"the adapter is for {missing[0][:120]}, which the base does not have")
    numbers: dict[Side, Renumbering] = {"source": record.source.renumbering, "target": record.target.renumbering}
    for each in record.tensors:
        names = [rename(name) for name in each.theirs]
        if not any(name in pairs or name in saved for name in names):
            continue
        if each.ours in shared:
            raise ModelError(
                f"the adapter is for {names[0]}, which the base uses twice, as embeddings and output; PEFT changes one "
                "of them, which is not supported"
            )
        parts = exported(each.map, merged[each.ours], numbers, each.rows)
        for at, name in enumerate(names):
            if name in pairs:
                down, up, scale = pairs[name]
                added = (up @ down) * scale  # [outputs, inputs]
                added = added.t() if each.is_transposed else added
                _require_shape(name, added, parts[at])
                parts[at] = parts[at] + added
            if name in saved:
                _require_shape(name, saved[name], parts[at])
                parts[at] = saved[name]
        merged[each.ours] = imported(each.map, dict(zip(each.theirs, parts, strict=True)).__getitem__, numbers)
    return merged


def _require_shape(name: str, found: Tensor, wanted: Tensor) -> None:
    if found.shape != wanted.shape:
        raise ModelError(
            f"the adapter has the shape {list(found.shape)} for {name}, which has {list(wanted.shape)} in the base; it "
            "belongs to another model"
        )


# --- out -------------------------------------------------------------------------------------------------------------


def write_peft(folder: Path, adapter: Path) -> None:
    """Write an adapter directory of ours, whose base was imported, as a folder of PEFT, which exists."""
    own, config = read_adapter(adapter), read_settings(adapter)
    if not (adapter / PUBLISHED / RECORD).is_file():
        raise UsageError(
            f"{adapter} cannot be exported to peft: its base was not imported from a published model, whose names PEFT "
            "needs; merge it with seqloom merge, and export the model"
        )
    record = ConversionRecord.read(adapter / PUBLISHED)
    rename = _renaming(record)
    tensors = adapter_tensors(adapter)
    by_ours = {each.ours: each for each in record.tensors}
    pieces: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    sizes: dict[str, int] = {}
    for name, (first, rows) in own.rows.items():
        found = _OWN_PAIR.fullmatch(name)
        each = None if found is None else by_ours.get(f"{found[1]}.weight")
        if each is None or f"{name}.A" not in tensors or f"{name}.B" not in tensors:
            raise ModelError(f"{adapter} adapts {name}, which its base does not have")
        down, up, start = tensors.pop(f"{name}.A"), tensors.pop(f"{name}.B"), 0
        if down.dim() != 2 or up.shape != (rows, len(down)):
            raise ModelError(f"{adapter}: A and B of {name} have the shapes {list(down.shape)} and {list(up.shape)}")
        for theirs, size in zip(each.theirs, each.rows, strict=True):
            begin, end = max(first, start), min(first + rows, start + size)
            if begin < end:
                sizes[theirs] = size
                pieces.setdefault(theirs, []).append((begin - start, down, up[begin - first : end - first]))
            start += size
    if tensors:
        raise UsageError(
            f"{adapter} cannot be exported to peft: it holds {sorted(tensors)[0]} as well, which the published model "
            "does not have; merge it with seqloom merge"
        )
    written: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    for theirs, some in pieces.items():
        # Files may lack the first words of today's names (GPT-2); or these depend on the class of the model (BERT).
        path = max(theirs, rename(theirs), key=len).removesuffix(".weight")
        down = torch.cat([part for _, part, _ in some])  # [ranks, inputs]
        up = down.new_zeros(sizes[theirs], len(down))  # [outputs, ranks]
        at = 0
        for first, _, part in some:
            up[first : first + len(part), at : at + part.shape[1]] = part
            at += part.shape[1]
        ranks[path] = len(down)
        written |= {f"{_PREFIX}{path}.lora_A.weight": for_disk(down), f"{_PREFIX}{path}.lora_B.weight": for_disk(up)}
    lora = own.lora
    others = {path: rank for path, rank in ranks.items() if rank != lora.rank}
    settings = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(config.purpose),
        "base_model_name_or_path": own.base.path,
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.rslora,
        "target_modules": sorted(ranks),
        "rank_pattern": others,
        "alpha_pattern": {
            path: lora.scale * (math.sqrt(rank) if lora.rslora else rank) for path, rank in others.items()
        },
        "fan_in_fan_out": any(each.is_transposed for each in record.tensors if {*each.theirs} & {*pieces}),
        "bias": "none",
        "init_lora_weights": True,
        "use_dora": False,
        "modules_to_save": None,
    }
    write_atomically(folder / CONFIG, json.dumps(settings, indent=2) + "\n")
    save_file(written, folder / WEIGHTS, metadata={"format": "pt"})


def _renaming(record: ConversionRecord) -> Callable[[str], str]:
    """From names in published files to today's names, by the family of a model."""
    family = next((each for each in FAMILIES if each.model_type == record.model_type), None)
    return str if family is None else family.rename


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
