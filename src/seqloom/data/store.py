"""The store: the ids of a corpus on disk, mapped into memory, so that its size is bounded by the disk.

A folder with raw little-endian arrays and a header:

    source.ids, target.ids            all ids, sentence after sentence (uint16 where the vocabulary allows, or uint32)
    source.lengths, target.lengths    tokens of each sentence (uint32)
    lines                             the line of the corpus that each example comes from (int64)
    store.json                        format number, counts, size and SHA-256 of each file
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.symbols import PAD
from seqloom.data.arrays import Folder, FolderWriter, Layout, borders, damaged, open_folder

FORMAT = 1
HEADER = "store.json"

Ids = UInt[np.ndarray, " tokens"]


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

    def __init__(self, source: Side, target: Side, lines: Int64[np.ndarray, " examples"], *, folder: Folder) -> None:
        self.sources, self.targets = source, target
        self._lines, self._folder = lines, folder

    @staticmethod
    def open(folder: Path, *, verify: bool = False) -> "Store":
        """Map a store into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        found = open_folder(folder, LAYOUT, verify=verify)
        arrays = found.arrays
        source = _side(arrays["source.ids"], arrays["source.lengths"])
        target = _side(arrays["target.ids"], arrays["target.lengths"])
        for side in (source, target):
            if side.offsets[-1] != len(side.ids) or len(side.lengths) != len(arrays["lines"]):
                reason = f"{side.offsets[-1]:,} tokens are counted, and {len(side.ids):,} are there"
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


def _side(ids: Ids, lengths: UInt[np.ndarray, " examples"]) -> Side:
    return Side(ids, lengths, borders(lengths))
