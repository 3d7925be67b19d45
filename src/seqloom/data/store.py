"""The store: the ids of a corpus on disk, mapped into memory, so that its size is bounded by the disk.

A folder with raw little-endian arrays and a header:

    source.ids, target.ids            all ids, sentence after sentence (uint16 where the vocabulary allows, or uint32)
    source.lengths, target.lengths    tokens of each sentence (uint32)
    lines                             the line of the corpus that each example comes from (int64)
    store.json                        format number, counts, size and SHA-256 of each file
"""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.core.files import FileRecord, check_manifest, fsync_directory, write_atomically
from seqloom.core.symbols import PAD

FORMAT = 1
HEADER = "store.json"

Ids = UInt[np.ndarray, " tokens"]


class StoreWriter:
    """Appends examples to a new store, in bounded memory. The folder appears when all of it is on disk.

    with StoreWriter(folder, symbols=8000) as writer:
        writer.append([[5, 2]], [[7, 8, 2]], [1])
    """

    def __init__(self, folder: Path, *, symbols: int) -> None:
        if folder.exists():
            raise UsageError(f"{folder} exists already; remove it or name another folder")
        self._folder, self._symbols = folder, symbols
        self._ids = np.dtype("<u2" if symbols < 1 << 16 else "<u4")
        self._partial = folder.with_name(f"{folder.name}.partial-{secrets.token_hex(4)}")
        self._partial.mkdir(parents=True)
        self._files = {name: _HashedFile(self._partial / name) for name in _arrays(self._ids)}
        self._examples = 0

    def append(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
        """Add examples: the ids of both sides and the line that each comes from."""
        assert len(sources) == len(targets) == len(lines)
        try:
            for side, sentences in (("source", sources), ("target", targets)):
                self._files[f"{side}.ids"].write(self._checked(sentences))
                self._files[f"{side}.lengths"].write(np.array([len(ids) for ids in sentences], dtype="<u4"))
            self._files["lines"].write(np.array(lines, dtype="<i8"))
        except OSError as error:
            raise SeqloomError(f"cannot write {self._partial}: {error.strerror or error}") from error
        self._examples += len(lines)

    def _checked(self, sentences: Sequence[Sequence[int]]) -> np.ndarray:
        ids = np.fromiter(chain.from_iterable(sentences), dtype=np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._symbols:
            wrong = ids[(ids < 0) | (ids >= self._symbols)][0]
            raise ModelError(f"id {wrong} lies outside the vocabulary of {self._symbols} symbols; wrong tokenizer?")
        return ids.astype(self._ids)

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as problem:
            raise SeqloomError(f"cannot write {self._folder}: {problem.strerror or problem}") from problem
        finally:
            for file in self._files.values():
                file.close()
            shutil.rmtree(self._partial, ignore_errors=True)

    def _finish(self) -> None:
        if self._examples == 0:
            raise DataError("no example is left to store")
        header = {"format": FORMAT, "examples": self._examples, "symbols": self._symbols, "ids": self._ids.str}
        records = {name: file.finish() for name, file in self._files.items()}
        write_atomically(self._partial / HEADER, json.dumps({**header, "files": records}, indent=2))
        self._partial.rename(self._folder)
        fsync_directory(self._folder.parent)


@dataclass(frozen=True)
class Side:
    """The sentences of one side: sentence i is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: Ids
    lengths: UInt[np.ndarray, " examples"]
    offsets: Int64[np.ndarray, " borders"]

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def padded(
        self, indices: Integer[np.ndarray, " batch"]
    ) -> tuple[Int64[np.ndarray, "batch longest"], Int64[np.ndarray, " batch"]]:
        """These sentences as a matrix with PAD after each, and their lengths."""
        lengths = self.lengths[indices].astype(np.int64)
        positions = np.arange(lengths.max(initial=0))
        is_token = positions < lengths[:, None]
        matrix = np.full(is_token.shape, PAD, dtype=np.int64)
        matrix[is_token] = self.ids[(self.offsets[indices][:, None] + positions)[is_token]]
        return matrix, lengths


class Store:
    """The examples of a folder that a StoreWriter has made."""

    def __init__(
        self, source: Side, target: Side, lines: Int64[np.ndarray, " examples"], header: dict[str, Any]
    ) -> None:
        self.sources, self.targets = source, target
        self._lines, self._header = lines, header

    @staticmethod
    def open(folder: Path, *, verify: bool = False) -> "Store":
        """Map a store into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        header = _read_header(folder)
        if verify and (problems := check_manifest(folder, header["files"])):
            raise _damaged(folder, problems[0])
        arrays = {
            name: np.memmap(folder / name, dtype=kind, mode="r").view(np.ndarray)
            for name, kind in _arrays(np.dtype(header["ids"])).items()
        }
        source = _side(arrays["source.ids"], arrays["source.lengths"])
        target = _side(arrays["target.ids"], arrays["target.lengths"])
        for side in (source, target):
            if side.offsets[-1] != len(side.ids) or len(side.lengths) != len(arrays["lines"]):
                raise _damaged(folder, f"{side.offsets[-1]:,} tokens are counted, and {len(side.ids):,} are there")
        return Store(source, target, arrays["lines"], header)

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def source_lengths(self) -> UInt[np.ndarray, " examples"]:
        return self.sources.lengths

    @property
    def target_lengths(self) -> UInt[np.ndarray, " examples"]:
        return self.targets.lengths

    def source(self, index: int) -> Ids:
        """The source ids of an example, as a view."""
        return self.sources[index]

    def target(self, index: int) -> Ids:
        """The target ids of an example, as a view."""
        return self.targets[index]

    def line(self, index: int) -> int:
        """The number of the line that an example comes from."""
        return int(self._lines[index])

    def lines(self, indices: Integer[np.ndarray, " batch"]) -> Int64[np.ndarray, " batch"]:
        """The numbers of the lines that these examples come from."""
        lines: np.ndarray = self._lines[indices]
        return lines

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        hashes = [record["sha256"] for _, record in sorted(self._header["files"].items())]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


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
        """Bring all of it to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return {"size": self._size, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        # What a full disk did not take is given up here; whoever cares has called `finish`.
        with contextlib.suppress(OSError):
            self._file.close()


def _arrays(ids: np.dtype[Any]) -> dict[str, Any]:
    return {"source.ids": ids, "target.ids": ids, "source.lengths": "<u4", "target.lengths": "<u4", "lines": "<i8"}


def _side(ids: Ids, lengths: UInt[np.ndarray, " examples"]) -> Side:
    return Side(ids, lengths, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]))


def _read_header(folder: Path) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise DataError(f"{folder} has format {header['format']}, this version reads {FORMAT}; make it again")
        if header["ids"] not in ("<u2", "<u4"):
            raise ValueError(f"{HEADER} names ids of type {header['ids']!r}")
        for name in _arrays(np.dtype(header["ids"])):
            size = (folder / name).stat().st_size
            if size != header["files"][name]["size"]:
                raise _damaged(folder, f"{name} has {size:,} bytes, not {header['files'][name]['size']:,}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, str(error)) from error
    return header


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{folder} is no complete store of examples ({reason}); remove that folder and resume: it will be made again"
    )
