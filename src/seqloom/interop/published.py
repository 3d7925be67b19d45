"""Imported models in their published form again: the same files, names and numbers, or those of a fine-tuned model.

Tensors are read and written one at a time, in the type in which the model directory holds them: that of the published
folder, or float32 after training.
"""

import shutil
from collections import Counter
from pathlib import Path

import torch

from seqloom.core.files import fsync
from seqloom.interop.huggingface import write_json
from seqloom.pretrained.folder import KEPT_FILES, read_settings_file
from seqloom.pretrained.record import RECORD, ConversionRecord
from seqloom.pretrained.weights import SAFETENSORS, WeightFiles, write_safetensors
from seqloom.runs.model_dir import PUBLISHED, has_file


def is_imported(model: Path) -> bool:
    """Whether a model directory records the published model from which it comes."""
    return has_file(model, f"{PUBLISHED}/{RECORD}")


def write_published(folder: Path, model: Path) -> None:
    """Write the published form of a model directory, whose files were checked, into an existing folder."""
    kept = model / PUBLISHED
    tensors = list(ConversionRecord.read(kept).published(WeightFiles.open(model), kept))
    for name in KEPT_FILES:
        if (kept / name).is_file():
            shutil.copyfile(kept / name, folder / name)
            fsync(folder / name)
    types = Counter(dtype for _, _, dtype, _ in tensors if dtype.is_floating_point)
    _name_type(folder / "config.json", max(types, key=lambda dtype: types[dtype]))
    write_safetensors(folder / SAFETENSORS, tensors, metadata={"format": "pt"})


def _name_type(path: Path, dtype: torch.dtype) -> None:
    """Name the type of most tensors in config.json; as they were, if it is the same."""
    config, name = read_settings_file(path), str(dtype).removeprefix("torch.")
    stale = [key for key in ("dtype", "torch_dtype") if config.get(key, name) != name]
    if stale:
        write_json(path, {**config, **dict.fromkeys(stale, name)})
