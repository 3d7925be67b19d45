"""The stream: the ids of a text on disk, line after line, mapped into memory, so that its size is bounded by the disk.

A folder with raw little-endian arrays and a header, written as `data.store` writes its own:

    ids            all ids, END after each line (uint16 where the vocabulary allows, or uint32)
    lengths        tokens of each line, END counted (uint32)
    lines          the line of the corpus that each comes from (int64)
    stream.json    format number, counts, size and SHA-256 of each file
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt

from seqloom.core.errors import DataError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data.arrays import Folder, FolderWriter, Layout, borders, damaged, open_folder
from seqloom.data.text import TextLine, TextLines

FORMAT = 1
HEADER = "stream.json"

CHUNK = 4096
"""Lines encoded at a time."""

COUNTED = 1 << 24
"""Ids whose occurrences are counted at a time."""

Encode = Callable[[list[str]], list[list[int]]]
"""Lines to ids, without begin and end symbols."""


def _arrays(ids: np.dtype[Any]) -> dict[str, Any]:
    return {"ids": ids, "lengths": "<u4", "lines": "<i8"}


LAYOUT = Layout("stream of text", HEADER, FORMAT, _arrays)


class StreamWriter:
    """Appends lines to a new stream, in bounded memory. The folder appears when all of it is on disk.

    with StreamWriter(folder, symbols=8000) as writer:
        writer.append([[5, 9], [7]], [1, 2])        # ids without END, which is added
    """

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = FolderWriter(folder, LAYOUT, symbols=symbols)
        self._lines = 0

    def append(self, sentences: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
        """Add lines: their ids, without END, and their numbers in the corpus. An empty one leaves its END alone."""
        assert len(sentences) == len(lines)
        ended = [[*ids, END] for ids in sentences]
        self._writer.append(
            {
                "ids": self._writer.ids(ended),
                "lengths": np.array([len(ids) for ids in ended], dtype=np.int64),
                "lines": np.array(lines, dtype=np.int64),
            }
        )
        self._lines += len(lines)

    def __enter__(self) -> "StreamWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.end(self._lines, is_good=kind is None, nothing="the text has no line that could be stored")


class Stream:
    """The text of a folder that a StreamWriter has made: line i is `ids[offsets[i] : offsets[i + 1]]`, its END too."""

    ids: UInt[np.ndarray, " tokens"]
    lengths: UInt[np.ndarray, " lines"]
    offsets: Int64[np.ndarray, " borders"]
    lines: Int64[np.ndarray, " lines"]
    """The number in the corpus of each line."""

    def __init__(self, folder: Folder) -> None:
        self.ids, self.lengths, self.lines = (folder.arrays[name] for name in ("ids", "lengths", "lines"))
        self.offsets = borders(self.lengths)
        self.symbols = folder.symbols
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, verify: bool = False) -> "Stream":
        """Map a stream into memory. Sizes are always compared with the header, hashes if `verify` is set."""
        stream = Stream(open_folder(folder, LAYOUT, verify=verify))
        if stream.offsets[-1] != len(stream.ids) or len(stream.lengths) != len(stream.lines):
            reason = f"{stream.offsets[-1]:,} tokens are counted, and {len(stream.ids):,} are there"
            raise damaged(folder, LAYOUT, reason)
        return stream

    def __len__(self) -> int:
        """The number of lines."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """The number of tokens, each END counted."""
        return len(self.ids)

    def line(self, index: int) -> UInt[np.ndarray, " tokens"]:
        """The ids of a line, as a view."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def line_of(self, token: int) -> int:
        """The number in the corpus of the line that a token stands in."""
        return int(self.lines[np.searchsorted(self.offsets, token, side="right") - 1])

    def counts(self) -> Int64[np.ndarray, " symbols"]:
        """How often each symbol occurs."""
        counts = np.zeros(self.symbols, dtype=np.int64)
        for begin in range(0, len(self.ids), COUNTED):
            counts += np.bincount(self.ids[begin : begin + COUNTED], minlength=self.symbols)
        return counts

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()


@dataclass(frozen=True)
class TextReport:
    """What became of the lines of a text."""

    lines: int
    """Lines stored."""
    empty: int
    """Lines without tokens; they are stored as a lone END, or left out."""
    tokens: int
    """Tokens stored, each END counted."""
    unknown: int
    """Tokens among them that the vocabulary does not know."""

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / max(1, self.tokens)


def encode_text(
    corpus: TextLines,
    encode: Encode,
    folder: Path,
    *,
    symbols: int,
    keep_empty: bool = True,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> TextReport:
    """Encode every line into a new stream at `folder`, END after each, and say what was found.

    A line without tokens is a lone END (a model that reads on over the ends of lines then knows paragraphs), or is left
    out. `progress` is told the lines done and the lines in all.
    """
    read = stored = empty = tokens = unknown = 0
    with StreamWriter(folder, symbols=symbols) as writer:
        for lines in _chunks(corpus, CHUNK):
            pairs = list(zip(lines, encode([line.text for line in lines]), strict=True))
            read, empty = read + len(lines), empty + sum(not ids for _, ids in pairs)
            kept = [(line, ids) for line, ids in pairs if ids or keep_empty]
            writer.append([ids for _, ids in kept], [line.number for line, _ in kept])
            stored, tokens = stored + len(kept), tokens + sum(len(ids) + 1 for _, ids in kept)
            unknown += sum(ids.count(UNKNOWN) for _, ids in kept)
            progress(read, len(corpus))
        if empty == read:
            raise DataError(
                f"the text holds nothing to learn from: {read:,} lines were read, and all of them are empty"
            )
    return TextReport(stored, empty, tokens, unknown)


def _chunks(lines: Iterable[TextLine], size: int) -> Iterator[list[TextLine]]:
    remaining = iter(lines)
    while chunk := list(islice(remaining, size)):
        yield chunk
