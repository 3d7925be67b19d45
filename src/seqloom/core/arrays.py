"""Arrays of a safetensors file, mapped: they are read from the disk when they are looked at, and never all at once."""

import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.core.errors import ModelError
from seqloom.core.files import parse_json, require_file

_LENGTH = 8
"""Bytes at the beginning of a file that say how long its header is."""

_LONGEST = 100_000_000
"""Bytes of a header, as in the library that writes these files; it is read as a whole."""

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def map_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, read-only. The file must stay as it is while one of them lives."""
    require_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, _LONGEST):
            raise _damaged(path, f"its header would have {length:,} bytes, and the file has {size:,}")
        header = _read_header(path, file.read(length))
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {name: _mapped(path, data, name, entry, _LENGTH + length) for name, entry in header.items()}


def _read_header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _damaged(path, f"its header is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no table")
    header.pop("__metadata__", None)
    return header


def _mapped(path: Path, data: mmap.mmap, name: str, entry: Any, start: int) -> np.ndarray:
    try:
        kind, shape, (begin, end) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(figure) is int and figure >= 0 for figure in (*shape, begin, end)):
            raise ValueError
        items = math.prod(shape)  # in whole numbers of Python, which do not run over
        whole = np.dtype(kind).itemsize * items
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"array {name!r} is described as {_shown(entry)}") from error
    if end - begin != whole or start + end > len(data):
        raise _damaged(path, f"array {name!r} of shape {list(shape)} lies at bytes {begin} to {end}")
    try:
        return np.frombuffer(data, kind, count=items, offset=start + begin).reshape(shape)
    except ValueError as error:  # a hundred axes, or one without end beside one of length 0
        raise _damaged(path, f"array {name!r} is said to be of shape {str(list(shape))[:60]}") from error


def _shown(entry: Any) -> str:
    return str(dict(entry) if isinstance(entry, Mapping) else entry)[:100]


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} is no whole safetensors file: {what}; fetch or train the model again")
