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
import mmap
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.files import (
    FileRecord,
    check_manifest,
    fsync_directory,
    partial_name,
    read_lines,
    unwritten,
    write_atomically,
)
from seqloom.core.symbols import PAD

# Folders of arrays: raw little-endian files and a header with the size and hash of each, whole or not there at all.

Kinds = Mapping[str, Any]
"""The type of the numbers in each file, by its name."""


_PART = 1 << 23
"""Ids that are looked at together."""


@dataclass(frozen=True)
class Layout:
    """What a folder of one sort holds."""

    what: str
    """Its name in messages."""
    header: str
    """The name of the header file."""
    format: int
    """Version of the layout; another one is refused."""
    arrays: Callable[[np.dtype[Any]], Kinds]
    """The files, for a type of ids."""


class FolderWriter:
    """Writes the arrays of a new folder, in bounded memory. The folder appears when all of it is on disk."""

    def __init__(self, folder: Path, layout: Layout, *, symbols: int) -> None:
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
        """Ids, once it is sure that the vocabulary has them."""
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._symbols:
            wrong = ids[(ids < 0) | (ids >= self._symbols)][0]
            raise ModelError(f"id {wrong} lies outside the vocabulary of {self._symbols} symbols; wrong tokenizer?")
        return ids.astype(self._ids)

    def finish(self, examples: int) -> None:
        """Bring all to the disk, header last, and give the folder its name."""
        header = {"format": self._layout.format, "examples": examples, "symbols": self._symbols, "ids": self._ids.str}
        try:
            records = {name: file.finish() for name, file in self._files.items()}
            write_atomically(self._partial / self._layout.header, json.dumps({**header, "files": records}, indent=2))
            self._partial.rename(self._folder)
            fsync_directory(self._folder.parent)
        except OSError as error:
            raise unwritten(self._folder, error) from error

    def end(self, examples: int, *, is_good: bool, nothing: str) -> None:
        """Finish the folder where all went well, and refuse to have `nothing` in it; let go of it in any case."""
        try:
            if is_good:
                if examples == 0:
                    raise DataError(nothing)
                self.finish(examples)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the files, and remove what has not got its name."""
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
        """Bring all of it to the disk, and let go of it: Windows renames no folder with files that are open."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"size": self._size, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        # What a full disk did not take is given up here; whoever cares has called `finish`.
        with contextlib.suppress(OSError):
            self._file.close()


@dataclass(frozen=True)
class Folder:
    """The arrays of a folder, mapped into memory, and its header."""

    arrays: Mapping[str, np.ndarray]
    header: Mapping[str, Any]
    maps: tuple[mmap.mmap, ...] = ()

    def let_go(self) -> None:
        """Give back the pages that were looked at. The system may keep them; they are read again when needed."""
        for each in self.maps:
            if hasattr(mmap, "MADV_DONTNEED"):  # Windows has it not
                each.madvise(mmap.MADV_DONTNEED)

    @property
    def symbols(self) -> int:
        """The size of the vocabulary."""
        return int(self.header["symbols"])

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        hashes = [record["sha256"] for _, record in sorted(self.header["files"].items())]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def open_folder(folder: Path, layout: Layout, *, verify: bool) -> Folder:
    """Map a folder into memory. Sizes are always compared with the header, hashes if `verify` is set."""
    header = _read_header(folder, layout)
    if verify and (problems := check_manifest(folder, header["files"])):
        raise damaged(folder, layout, problems[0])
    kinds = layout.arrays(np.dtype(header["ids"]))
    maps = {name: _map(folder / name) for name in kinds}
    arrays = {name: np.frombuffer(maps[name], dtype=kind) for name, kind in kinds.items()}
    found = Folder(arrays, header, tuple(maps.values()))
    for name in kinds if verify else ():
        if name.endswith("ids") and (highest := _highest(arrays[name], found)) >= header["symbols"]:
            raise damaged(folder, layout, f"{name} goes up to {highest}, of {header['symbols']} symbols")
    return found


def _highest(ids: np.ndarray, folder: Folder) -> int:
    """The highest id, looked for in parts: what was looked at is given back, so that memory does not grow with it."""
    highest = 0
    for begin in range(0, len(ids), _PART):
        highest = max(highest, int(ids[begin : begin + _PART].max()))
        folder.let_go()
    return highest


def _type_of_ids(symbols: int) -> str:
    return "<u2" if symbols < 1 << 16 else "<u4"


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def borders(lengths: np.ndarray) -> np.ndarray:
    """Where each sentence begins, and at last where the text ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def damaged(folder: Path, layout: Layout, reason: str) -> DataError:
    """The error for a folder that is not what it should be. Whoever has the text makes it again without being told."""
    return DataError(f"{folder} is no complete {layout.what} ({reason})")


def _read_header(folder: Path, layout: Layout) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads((folder / layout.header).read_text(encoding="utf-8"))
        if header["format"] != layout.format:
            raise DataError(
                f"{folder} has format {header['format']}, this version reads {layout.format}; make it again"
            )
        if type(header["symbols"]) is not int or not 0 < header["symbols"] <= 1 << 32:
            raise ValueError(f"{layout.header} names a vocabulary of size {str(header['symbols'])[:40]}")
        if header["ids"] != _type_of_ids(header["symbols"]):
            raise ValueError(f"{layout.header} names ids of type {str(header['ids'])[:40]!r}")
        for name, kind in layout.arrays(np.dtype(header["ids"])).items():
            size, record = (folder / name).stat().st_size, header["files"][name]
            if not isinstance(record["sha256"], str):
                raise ValueError(f"{layout.header} holds no hash of {name}")
            if size != record["size"]:
                raise damaged(folder, layout, f"{name} has {size:,} bytes, not {record['size']:,}")
            if size == 0 or size % np.dtype(kind).itemsize:
                raise damaged(folder, layout, f"{name} has {size:,} bytes, which are no whole numbers")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(folder, layout, str(error)) from error
    return header


FORMAT = 1
HEADER = "store.json"

Ids = UInt[np.ndarray, " tokens"]

BLOCK = 64
"""Sentences from one landmark to the next."""


def _arrays(ids: np.dtype[Any]) -> dict[str, Any]:
    return {"source.ids": ids, "target.ids": ids, "source.lengths": "<u4", "target.lengths": "<u4", "lines": "<i8"}


LAYOUT = Layout("store of examples", HEADER, FORMAT, _arrays)


@dataclass(frozen=True)
class Sentences:
    """Sentences of one side as they are stored: their ids one after another, END after each, and their lengths."""

    ids: Integer[np.ndarray, " tokens"]
    lengths: Int64[np.ndarray, " examples"]

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> "Sentences":
        """From the ids of each sentence."""
        lengths = np.array([len(ids) for ids in rows], dtype=np.int64)
        return Sentences(np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths)


class StoreWriter:
    """Appends examples to a new store, in bounded memory. The folder appears when all of it is on disk.

    with StoreWriter(folder, symbols=8000) as writer:
        writer.append([[5, 2]], [[7, 8, 2]], [1])
    """

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = FolderWriter(folder, LAYOUT, symbols=symbols)
        self._examples = 0

    def append(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
        """Add examples: the ids of both sides and the line that each comes from."""
        self.append_flat(Sentences.of(sources), Sentences.of(targets), np.array(lines, dtype=np.int64))

    def append_flat(self, sources: Sentences, targets: Sentences, lines: Int64[np.ndarray, " examples"]) -> None:
        """Add many examples, in arrays."""
        assert len(sources.lengths) == len(targets.lengths) == len(lines)
        arrays = {"lines": lines}
        for side, sentences in (("source", sources), ("target", targets)):
            arrays[f"{side}.ids"] = self._writer.known(sentences.ids)
            arrays[f"{side}.lengths"] = sentences.lengths
        self._writer.append(arrays)
        self._examples += len(lines)

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.end(self._examples, is_good=kind is None, nothing="no example is left to store")


@dataclass(frozen=True)
class Side:
    """The sentences of one side, one after another.

    Where every 64th begins is held in memory, and the lengths from there on tell where the others do: so a store of
    any size is open at once.
    """

    ids: Ids
    lengths: UInt[np.ndarray, " examples"]
    landmarks: Int64[np.ndarray, " blocks"]
    """Where each block of sentences begins, and at last where the text ends."""

    @staticmethod
    def of(ids: Ids, lengths: UInt[np.ndarray, " examples"]) -> "Side":
        """From what is stored."""
        sums = np.add.reduceat(lengths, np.arange(0, len(lengths), BLOCK), dtype=np.int64)
        return Side(ids, lengths, np.concatenate([np.zeros(1, np.int64), np.cumsum(sums)]))

    @property
    def tokens(self) -> int:
        """How many ids the lengths tell of."""
        return int(self.landmarks[-1])

    def starts(self, indices: Integer[np.ndarray, " batch"]) -> Int64[np.ndarray, " batch"]:
        """Where these sentences begin: the last landmark, and the lengths since."""
        blocks, since = np.divmod(indices.astype(np.int64), BLOCK)
        places = np.arange(BLOCK)
        window = np.minimum(blocks[:, None] * BLOCK + places, len(self.lengths) - 1)
        lengths = np.where(places < since[:, None], self.lengths[window], 0)
        starts: np.ndarray = self.landmarks[blocks] + lengths.sum(axis=1, dtype=np.int64)
        return starts

    def borders(self, begin: int, end: int) -> Int64[np.ndarray, " borders"]:
        """Where each sentence of a run begins, and at last where the run ends."""
        block = begin // BLOCK
        first = int(self.landmarks[block]) + int(self.lengths[block * BLOCK : begin].sum(dtype=np.int64))
        found: np.ndarray = first + borders(self.lengths[begin:end])
        return found

    def __getitem__(self, index: int) -> Ids:
        begin, end = self.borders(index, index + 1)
        return self.ids[begin:end]

    def padded(
        self, indices: Integer[np.ndarray, " batch"]
    ) -> tuple[Int64[np.ndarray, "batch longest"], Int64[np.ndarray, " batch"]]:
        """These sentences as a matrix with PAD after each, and their lengths."""
        lengths = self.lengths[indices].astype(np.int64)
        positions = np.arange(lengths.max(initial=0))
        is_token = positions < lengths[:, None]
        matrix = np.full(is_token.shape, PAD, dtype=np.int64)
        matrix[is_token] = self.ids[(self.starts(indices)[:, None] + positions)[is_token]]
        return matrix, lengths


class Store:
    """The examples of a folder that a StoreWriter has made."""

    def __init__(self, source: Side, target: Side, lines: Int64[np.ndarray, " examples"], *, folder: Folder) -> None:
        self.sources, self.targets = source, target
        self._lines, self._folder = lines, folder

    @staticmethod
    def open(folder: Path, *, verify: bool = False) -> "Store":
        """Map a store into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        found = open_folder(folder, LAYOUT, verify=verify)
        arrays = found.arrays
        source = Side.of(arrays["source.ids"], arrays["source.lengths"])
        target = Side.of(arrays["target.ids"], arrays["target.lengths"])
        for side in (source, target):
            if side.tokens != len(side.ids) or len(side.lengths) != len(arrays["lines"]):
                reason = f"{side.tokens:,} tokens are counted, and {len(side.ids):,} are there"
                raise damaged(folder, LAYOUT, reason)
        return Store(source, target, arrays["lines"], folder=found)

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

    def let_go(self) -> None:
        """Give back the pages that were looked at: with each sentence the system maps many around it."""
        self._folder.let_go()

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()


def read_stored_lines(path: Path, count: int) -> list[str]:
    """Lines of text that were stored beside ids, one for each of `count` examples."""
    try:
        lines = list(read_lines(path))
    except (UsageError, DataError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    if len(lines) != count:
        raise DataError(f"{path} is damaged: it has {len(lines):,} lines, not {count:,}")
    return lines
