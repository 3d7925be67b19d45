"""The weights of a published model, whatever files they are in: safetensors or `torch.save`, whole or in shards.

Opening a folder reads descriptions only. Each tensor is read when it is needed and belongs to the caller, so that a
model is converted in little more memory than its largest tensor takes.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.files import create, parse_json, read_json, unwritten
from seqloom.pretrained.pickles import (
    MAX_AXES,
    MAX_TENSORS,
    RefusedError,
    TensorPlace,
    is_tensor_name,
    pickled_tensors,
)

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"

_MAX_HEADER_BYTES = 1 << 24
"""Of a safetensors file: a hundred bytes or so for each tensor."""

_TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "F16": torch.float16,
    "BF16": torch.bfloat16, "I32": torch.int32, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64,
}  # fmt: skip
"""In the order in which the safetensors library sorts them, last first: so that all lie at multiples of their size."""
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_TYPES.values())}

_FOREIGN = {
    "tf_model.h5": "TensorFlow", "flax_model.msgpack": "Flax", "model.ckpt.index": "TensorFlow",
    "tf_model.h5.index.json": "TensorFlow", "flax_model.msgpack.index.json": "Flax",
}  # fmt: skip
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_LFS = b"version https://git-lfs"


class WeightFiles:
    """The tensors of a folder with a published model, read one at a time."""

    def __init__(self, places: Mapping[str, TensorPlace]) -> None:
        """See `open`."""
        self._places = dict(places)

    @staticmethod
    def open(folder: Path) -> "WeightFiles":
        """Find the weights of a folder: safetensors if there are any, else those of `torch.save`.

        A ModelError says in one sentence what is missing or wrong.
        """
        for name, read in ((SAFETENSORS, _stored_tensors), (PICKLED, pickled_tensors)):
            whole, index = folder / name, folder / f"{name}.index.json"
            if _is_there(whole):
                return WeightFiles(_checked(whole, read))
            if _is_there(index):
                return WeightFiles(_sharded(index, read))
        raise ModelError(_nothing_found(folder))

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tensors, in the order of the files."""
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """The sizes of a tensor, without reading it."""
        return self._places[name].shape

    def dtype(self, name: str) -> torch.dtype:
        """The type in which a tensor is stored."""
        return self._places[name].dtype

    def tensor(self, name: str) -> Tensor:
        """A tensor on the CPU, contiguous, in the type in which it is stored. It shares memory with nothing."""
        place = self._places[name]
        buffer = torch.empty(place.span * place.dtype.itemsize, dtype=torch.uint8)
        try:
            with place.file.open("rb") as file:
                file.seek(place.start)
                found = file.readinto(buffer.numpy().data)
        except OSError as error:
            raise ModelError(f"{place.file} cannot be read: {error.strerror or error}") from error
        if found != len(buffer):
            raise ModelError(f"{place.file} became shorter while it was read; retry when nothing is writing to it")
        # A byte that is neither 0 nor 1 is not a value of bool.
        flat = buffer != 0 if place.dtype == torch.bool else buffer.view(place.dtype)
        return flat.as_strided(place.shape, place.strides).contiguous()


def _is_there(path: Path) -> bool:
    """Whether a name is taken. Caches are full of links to files, which are followed."""
    return path.exists() or path.is_symlink()


def _checked(path: Path, read: Callable[[Path], dict[str, TensorPlace]]) -> dict[str, TensorPlace]:
    """The tensors of one file."""
    if not path.is_file():
        what = "links to a file that does not exist" if path.is_symlink() and not path.exists() else "is not a file"
        raise ModelError(f"{path} {what}; download the model again")
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_LFS))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    if beginning == _LFS:
        raise ModelError(f"{path} is a pointer of Git LFS, not the weights; run git lfs pull in its folder")
    places = read(path)
    if not places:
        raise ModelError(f"{path} holds no tensors; download the model again")
    return places


def _nothing_found(folder: Path) -> str:
    for name, framework in _FOREIGN.items():
        if _is_there(folder / name):
            return (
                f"{folder} has weights of {framework} only ({name}), which are not read; "
                "load it once with transformers and save it with save_pretrained"
            )
    for name in _ADAPTERS:
        if _is_there(folder / name):
            return f"{folder} has an adapter only ({name}); merge it with its model by PEFT's merge_and_unload first"
    if near := sorted(path.name for path in folder.glob("*.gguf")):
        return f"{folder} has quantised weights only ({near[0]}), which are not read; download the model in float types"
    return f"{folder} has no weights: neither {SAFETENSORS}, {PICKLED} nor an index of their shards (.index.json)"


# --- shards ----------------------------------------------------------------------------------------------------------

_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}", re.ASCII)
"""The name of a file in the same folder."""


def _sharded(index: Path, read: Callable[[Path], dict[str, TensorPlace]]) -> dict[str, TensorPlace]:
    """The tensors of all files that an index names, which must hold what it says."""
    try:
        content = read_json(index) if index.is_file() else None
    except (OSError, ValueError) as error:
        raise ModelError(f"{index} cannot be read: {str(error)[:100]}; download it again") from error
    listed = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(listed, dict) or not listed or len(listed) > MAX_TENSORS:
        raise ModelError(f"{index} has no valid weight_map of names of tensors to files; download it again")
    by_shard: dict[str, set[str]] = {}
    for name, shard in listed.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise ModelError(f"{index} names the file {_shown(shard)}, which is not a plain name in the same folder")
        by_shard.setdefault(shard, set()).add(name)
    for shard in by_shard:
        if not _is_there(index.parent / shard):
            raise ModelError(f"{index} names {shard}, which is missing; download the model again")
    places: dict[str, TensorPlace] = {}
    for shard, names in by_shard.items():
        found = _checked(index.parent / shard, read)
        if different := sorted(names ^ set(found)):
            one = different[0]
            where = "does not have" if one in names else "has too"
            raise ModelError(
                f"{index} does not fit {shard}: {len(different):,} tensors differ, {_shown(one)} is one that the file "
                f"{where}; download the model again"
            )
        places |= found
    return {name: places[name] for name in listed}


# --- safetensors -----------------------------------------------------------------------------------------------------


def _stored_tensors(path: Path) -> dict[str, TensorPlace]:
    """The tensors of a safetensors file by name."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise RefusedError(f"its header would have {length:,} bytes, and the file has {size:,}")
            if length > _MAX_HEADER_BYTES:
                raise RefusedError(f"its header has {length:,} bytes; at most {_MAX_HEADER_BYTES:,} are allowed")
            header = parse_json(file.read(length))
        if not isinstance(header, dict):
            raise RefusedError("its header is not an object")
        header.pop("__metadata__", None)
        if len(header) > MAX_TENSORS:
            raise RefusedError(f"it holds {len(header):,} tensors; at most {MAX_TENSORS:,} are allowed")
        places = {name: _place(path, name, entry, start=8 + length) for name, entry in header.items()}
        at = 8 + length
        for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].span)):
            if place.start != at:
                raise RefusedError(f"{_shown(name)} overlaps another tensor, or bytes before it belong to none")
            at += place.span * place.dtype.itemsize
        if at != size:
            raise RefusedError(f"its tensors end at byte {at:,}, and the file has {size:,}")
    except RefusedError as error:
        raise ModelError(f"{path} is not a complete safetensors file: {error}; download it again") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"its header is not JSON ({str(error)[:100]})"
        raise ModelError(f"{path} cannot be read: {reason}; download it again") from error
    return places


def _place(path: Path, name: str, entry: Any, *, start: int) -> TensorPlace:
    if not is_tensor_name(name):
        raise RefusedError(f"{_shown(name)} is not the name of a tensor")
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            pass
        case _:
            raise RefusedError(f"{_shown(name)} is described as {_shown(entry)}")
    if dtype not in _TYPES:
        raise ModelError(
            f"{path} holds {_shown(name)} in the type {_shown(dtype)}, which is not supported: weights must be "
            "F16, BF16, F32 or F64, not quantised"
        )
    if len(shape) > MAX_AXES or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise RefusedError(f"{_shown(name)} has the shape {_shown(shape)}")
    if not 0 <= begin <= end or end - begin != math.prod(shape) * _TYPES[dtype].itemsize:
        raise RefusedError(
            f"{_shown(name)} of shape {_shown(shape)} and type {dtype} lies at bytes {_shown(begin)} to {_shown(end)}"
        )
    return TensorPlace(path, start + begin, _TYPES[dtype], tuple(shape), contiguous_strides(shape))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index of each axis to the next, where the last axis runs fastest."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


WrittenTensor = tuple[str, tuple[int, ...], torch.dtype, Callable[[], Tensor]]
"""Name, shape and type of a tensor, and what reads it when it is its turn."""


def write_safetensors(
    path: Path, tensors: Iterable[WrittenTensor], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a new file, byte for byte as the safetensors library does, with one tensor in memory at a time."""
    ordered = sorted(tensors, key=lambda tensor: (-_RANKS[tensor[2]], tensor[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, shape, dtype, _ in ordered:
        end = at + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    try:
        with create(path, place=path) as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, shape, dtype, read in ordered:
                tensor = read().detach().cpu().contiguous()
                assert (tensor.shape, tensor.dtype) == (shape, dtype), name
                left = tensor.reshape(-1).view(torch.uint8).numpy().data
                del tensor  # or two would be in memory when the next one is read
                while left:  # the system writes at most two gigabytes at a time
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritten(path, error, need=8 + len(text) + at) from error
