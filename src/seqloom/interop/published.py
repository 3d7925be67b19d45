"""Imported models in their published form again: the same files, names and numbers, or those of a fine-tuned model.

Tensors are read and written one at a time, in the type in which the model directory holds them: that of the published
folder, or float32 after training.
"""

import shutil
from collections import Counter
from pathlib import Path

import torch

from seqloom.core.errors import ModelError
from seqloom.core.files import fsync
from seqloom.interop.huggingface import write_json
from seqloom.pretrained.folder import kept_files, read_settings_file
from seqloom.pretrained.record import RECORD, UNUSED, ConversionRecord
from seqloom.pretrained.weights import SAFETENSORS, WeightFiles, WrittenTensor, write_safetensors
from seqloom.runs.model_dir import PUBLISHED, has_file


def is_imported(model: Path) -> bool:
    """Whether a model directory records the published model from which it comes."""
    return has_file(model, f"{PUBLISHED}/{RECORD}")


def write_published(folder: Path, model: Path) -> None:
    """Write the published form of a model directory, whose files were checked, into an existing folder."""
    kept = model / PUBLISHED
    tensors = list(ConversionRecord.read(kept).published(WeightFiles.open(model), kept))
    parts = [place.name for place in kept.iterdir() if place.is_dir() and place.name != UNUSED]
    for name, file in kept_files(kept, parts).items():
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, folder / name)
        fsync(folder / name)
    by_part: dict[str, list[WrittenTensor]] = {}
    for name, shape, dtype, read in tensors:
        part, _, own = name.rpartition("/")
        by_part.setdefault(part, []).append((own, shape, dtype, read))
    for part, some in by_part.items():
        if not (folder / part / "config.json").is_file():
            raise ModelError(f"{kept} has no {part}/config.json, which belongs to its tensors; import the model again")
        types = Counter(dtype for _, _, dtype, _ in some if dtype.is_floating_point)
        _name_type(folder / part / "config.json", max(types, key=lambda dtype: types[dtype]))
        write_safetensors(folder / part / SAFETENSORS, some, metadata={"format": "pt"})


def _name_type(path: Path, dtype: torch.dtype) -> None:
    """Name the type of most tensors in config.json; as they were, if it is the same."""
    config, name = read_settings_file(path), str(dtype).removeprefix("torch.")
    stale = [key for key in ("dtype", "torch_dtype") if config.get(key, name) != name]
    if stale:
        write_json(path, {**config, **dict.fromkeys(stale, name)})
