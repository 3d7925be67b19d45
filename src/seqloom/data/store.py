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

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import read_lines
from seqloom.core.symbols import PAD

FORMAT = 1
HEADER = "store.json"

Ids = UInt[np.ndarray, " tokens"]

BLOCK = 64
"""Sentences from one landmark to the next."""


LAYOUT = ArrayLayout(
    "store of examples",
    HEADER,
    FORMAT,
    lambda ids: {
        "source.ids": ids,
        "target.ids": ids,
        "source.lengths": "<u4",
        "target.lengths": "<u4",
        "lines": "<i8",
    },
)


@dataclass(frozen=True)
class Sentences:
    """Sentences of one side in stored form: their ids one after another, END after each, and their lengths."""

    ids: Integer[np.ndarray, " tokens"]
    lengths: Int64[np.ndarray, " examples"]

    @staticmethod
    def of(rows: Sequence[Sequence[int]]) -> "Sentences":
        """From the ids of each sentence."""
        lengths = np.array([len(ids) for ids in rows], dtype=np.int64)
        return Sentences(np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum())), lengths)

    def padded(self) -> Int64[np.ndarray, "examples longest"]:
        """As a matrix, with PAD after each sentence."""
        is_token = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        matrix = np.full(is_token.shape, PAD, dtype=np.int64)
        matrix[is_token] = self.ids
        return matrix


class StoreWriter:
    """Appends examples to a new store, in bounded memory. The folder appears when all of it is on disk.

    with StoreWriter(folder, symbols=8000) as writer:
        writer.append([[5, 2]], [[7, 8, 2]], [1])
    """

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = ArrayFolderWriter(folder, LAYOUT, symbols=symbols)
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

    Where every 64th begins is held in memory, and the lengths give the others: so a store of
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
        """The sum of the lengths."""
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
        """The ids of a sentence, as a view."""
        begin, end = self.borders(index, index + 1)
        return self.ids[begin:end]

    def picked(self, indices: Integer[np.ndarray, " batch"]) -> Sentences:
        """These sentences, one after another."""
        lengths = self.lengths[indices].astype(np.int64)
        positions = np.arange(lengths.max(initial=0))
        is_token = positions < lengths[:, None]
        return Sentences(self.ids[(self.starts(indices)[:, None] + positions)[is_token]], lengths)


class Store:
    """The examples of a folder that a StoreWriter has made."""

    def __init__(
        self, source: Side, target: Side, lines: Int64[np.ndarray, " examples"], *, folder: ArrayFolder
    ) -> None:
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

    def line(self, index: int) -> int:
        """The number of the line that an example comes from."""
        return int(self._lines[index])

    def lines(self, indices: Integer[np.ndarray, " batch"]) -> Int64[np.ndarray, " batch"]:
        """The numbers of the lines that these examples come from."""
        lines: np.ndarray = self._lines[indices]
        return lines

    def drop_pages(self) -> None:
        """Release the pages in memory: with each sentence the system maps many around it."""
        self._folder.drop_pages()

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()


def read_stored_lines(path: Path, count: int) -> list[str]:
    """Lines of text that were stored with ids, one for each of `count` examples."""
    try:
        lines = list(read_lines(path))
    except (UsageError, DataError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    if len(lines) != count:
        raise DataError(f"{path} is damaged: it has {len(lines):,} lines, not {count:,}")
    return lines
