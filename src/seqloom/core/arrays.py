"""Arrays on disk, mapped into memory: read when they are used, and never all at once.

    a folder            written array by array as the data comes, for corpora beyond memory
    a safetensors file  written at once, for fitted models

Why there are two: docs/decisions/012-arrays-on-disk.md.
"""

import contextlib
import hashlib
import json
import math
import mmap
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.files import (
    FileRecord,
    check_manifest,
    fsync,
    parse_json,
    partial_name,
    require_file,
    unwritten,
    write_atomically,
)

# --- folders of arrays -----------------------------------------------------------------------------------------------
#
# Raw little-endian files and a header with the size and hash of each. A folder appears when it is complete.

Kinds = Mapping[str, Any]
"""The type of the numbers in each file, by its name."""


_IDS_PER_CHECK = 1 << 23
"""Ids that are checked at a time."""


@dataclass(frozen=True)
class ArrayLayout:
    """What a folder of one kind holds."""

    what: str
    """Its name in messages."""
    header: str
    """The name of the header file."""
    format: int
    """Version of the layout; another one is refused."""
    arrays: Callable[[np.dtype[Any]], Kinds]
    """The files, for a type of ids."""


class ArrayFolderWriter:
    """Writes the arrays of a new folder, in bounded memory. The folder appears when all of it is on disk."""

    def __init__(self, folder: Path, layout: ArrayLayout, *, symbols: int) -> None:
        if folder.exists():
            raise UsageError(f"{folder} exists already; remove it or name another folder")
        self._folder, self._layout, self._symbols = folder, layout, symbols
        self._ids = np.dtype(_type_of_ids(symbols))
        self._kinds = layout.arrays(self._ids)
        self._partial = partial_name(folder, is_hidden=False)
        self._partial.mkdir(parents=True)
        self._files = {name: _HashedFile(self._partial / name) for name in self._kinds}

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Add numbers to the ends of these files."""
        try:
            for name, array in arrays.items():
                self._files[name].write(array.astype(self._kinds[name], copy=False))
        except OSError as error:
            raise unwritten(self._folder, error) from error

    def ids(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        """The ids of sentences, one after the other."""
        return self.known(np.fromiter(chain.from_iterable(sentences), dtype=np.int64))

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Ids, checked to be in the vocabulary."""
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._symbols:
            wrong = ids[(ids < 0) | (ids >= self._symbols)][0]
            raise ModelError(f"id {wrong} is outside the vocabulary of {self._symbols} symbols; wrong tokenizer?")
        return ids.astype(self._ids)

    def finish(self, examples: int) -> None:
        """Sync everything, the header last, and rename the folder."""
        header = {"format": self._layout.format, "examples": examples, "symbols": self._symbols, "ids": self._ids.str}
        try:
            records = {name: file.finish() for name, file in self._files.items()}
            write_atomically(self._partial / self._layout.header, json.dumps({**header, "files": records}, indent=2))
            self._partial.rename(self._folder)
            fsync(self._folder.parent)
        except OSError as error:
            raise unwritten(self._folder, error) from error

    def end(self, examples: int, *, is_good: bool, nothing: str) -> None:
        """Finish the folder if all went well, with `nothing` as the error for an empty one; close it in any case."""
        try:
            if is_good:
                if examples == 0:
                    raise DataError(nothing)
                self.finish(examples)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files, and remove a folder that was not finished."""
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._partial, ignore_errors=True)


class _HashedFile:
    """A file whose hash is known when it is closed, without reading it again."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def finish(self) -> FileRecord:
        """Sync and close: Windows cannot rename a folder with open files."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"size": self._size, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        # A full disk was reported by `finish`.
        with contextlib.suppress(OSError):
            self._file.close()


@dataclass(frozen=True)
class ArrayFolder:
    """The arrays of a folder, mapped into memory, and its header."""

    arrays: Mapping[str, np.ndarray]
    header: Mapping[str, Any]
    maps: tuple[mmap.mmap, ...] = ()

    def drop_pages(self) -> None:
        """Release the pages in memory; they are read again when needed."""
        for each in self.maps:
            if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
                each.madvise(mmap.MADV_DONTNEED)

    @property
    def symbols(self) -> int:
        """The size of the vocabulary."""
        return int(self.header["symbols"])

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        hashes = [record["sha256"] for _, record in sorted(self.header["files"].items())]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def open_folder(folder: Path, layout: ArrayLayout, *, verify: bool) -> ArrayFolder:
    """Map a folder into memory. Sizes are always compared with the header, hashes if `verify` is set."""
    header = _read_header(folder, layout)
    if verify and (problems := check_manifest(folder, header["files"])):
        raise damaged(folder, layout, problems[0])
    kinds = layout.arrays(np.dtype(header["ids"]))
    maps = {}
    for name in kinds:
        with (folder / name).open("rb") as file:
            maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {name: np.frombuffer(maps[name], dtype=kind) for name, kind in kinds.items()}
    found = ArrayFolder(arrays, header, tuple(maps.values()))
    for name in kinds if verify else ():
        if not name.endswith("ids"):
            continue
        highest = 0
        for begin in range(0, len(arrays[name]), _IDS_PER_CHECK):  # in parts: memory must not grow with the corpus
            highest = max(highest, int(arrays[name][begin : begin + _IDS_PER_CHECK].max()))
            found.drop_pages()
        if highest >= header["symbols"]:
            raise damaged(folder, layout, f"{name} goes up to {highest}, of {header['symbols']} symbols")
    return found


def _type_of_ids(symbols: int) -> str:
    return "<u2" if symbols < 1 << 16 else "<u4"


def borders(lengths: np.ndarray) -> np.ndarray:
    """Where each sentence begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def damaged(folder: Path, layout: ArrayLayout, reason: str) -> DataError:
    """The error for an invalid folder; a run encodes its text again."""
    return DataError(f"{folder} is not a complete {layout.what} ({reason})")


def _read_header(folder: Path, layout: ArrayLayout) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads((folder / layout.header).read_text(encoding="utf-8"))
        if header["format"] != layout.format:
            raise DataError(
                f"{folder} has format {header['format']}, this version reads {layout.format}; encode the text again"
            )
        if type(header["symbols"]) is not int or not 0 < header["symbols"] <= 1 << 32:
            raise ValueError(f"{layout.header} names a vocabulary of size {str(header['symbols'])[:40]}")
        if header["ids"] != _type_of_ids(header["symbols"]):
            raise ValueError(f"{layout.header} names ids of type {str(header['ids'])[:40]!r}")
        for name, kind in layout.arrays(np.dtype(header["ids"])).items():
            size, record = (folder / name).stat().st_size, header["files"][name]
            if not isinstance(record["sha256"], str):
                raise ValueError(f"{layout.header} has no hash of {name}")
            if size != record["size"]:
                raise damaged(folder, layout, f"{name} has {size:,} bytes, not {record['size']:,}")
            if size == 0 or size % np.dtype(kind).itemsize:
                raise damaged(folder, layout, f"{name} has {size:,} bytes, which is not a whole number of items")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(folder, layout, str(error)) from error
    return header


# --- safetensors files -----------------------------------------------------------------------------------------------

_LENGTH = 8
"""Bytes at the beginning of a file with the length of its header."""

_MAX_HEADER = 100_000_000
"""Bytes of a header, as in the library that writes these files; it is read as a whole."""

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def map_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, read-only. The file must not change while one of them is in use."""
    require_file(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, _MAX_HEADER):
            raise _damaged_file(path, f"its header would have {length:,} bytes, and the file has {size:,}")
        try:
            header = parse_json(file.read(length))
        except ValueError as error:
            raise _damaged_file(path, f"its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise _damaged_file(path, "its header is not an object")
        header.pop("__metadata__", None)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {name: _mapped(path, data, name, entry, _LENGTH + length) for name, entry in header.items()}


def _mapped(path: Path, data: mmap.mmap, name: str, entry: Any, start: int) -> np.ndarray:
    try:
        kind, shape, (begin, end) = _TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(figure) is int and figure >= 0 for figure in (*shape, begin, end)):
            raise ValueError
        items = math.prod(shape)  # in whole numbers of Python, which do not run over
        whole = np.dtype(kind).itemsize * items
    except (KeyError, TypeError, ValueError) as error:
        described = str(dict(entry) if isinstance(entry, Mapping) else entry)[:100]
        raise _damaged_file(path, f"array {name!r} is described as {described}") from error
    if end - begin != whole or start + end > len(data):
        raise _damaged_file(path, f"array {name!r} of shape {list(shape)} lies at bytes {begin} to {end}")
    try:
        return np.frombuffer(data, kind, count=items, offset=start + begin).reshape(shape)
    except ValueError as error:  # a hundred axes, or one without end beside one of length 0
        raise _damaged_file(path, f"array {name!r} has the invalid shape {str(list(shape))[:60]}") from error


def _damaged_file(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} is not a complete safetensors file: {what}; download or train the model again")
