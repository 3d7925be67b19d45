"""Blocks: some lines of a corpus in a row, in a form that another process can take and read by itself.

Of two plain files a block is a range of bytes in each, so that the text never passes through a pipe. Of anything else
(compressed, tables of other programs, UTF-16) it is the text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from seqloom.core.errors import DataError
from seqloom.core.text_files import is_compressed

BLOCK = 2048
"""Lines in a block; fewer at the end of a file."""

_CHUNK = 1 << 24
"""Bytes read at a time while line ends are counted."""

_LF_ENCODINGS = frozenset({"utf-8", "utf8", "ascii", "us-ascii", "latin-1", "latin1", "iso-8859-1", "cp1252"})
"""Encodings in which the byte 0x0A is a line end and nothing else."""


class Line(NamedTuple):
    """A sentence pair; `number` counts from 1 over the whole corpus, `file` is the part it is in."""

    number: int
    file: int
    source: str
    target: str


class Block(Protocol):
    """Lines in a row."""

    def lines(self) -> list[Line]:
        """These lines, read now if they were not yet."""
        ...


@dataclass(frozen=True)
class TextBlock:
    """Lines that were read already."""

    given: tuple[Line, ...]

    def lines(self) -> list[Line]:
        return list(self.given)


@dataclass(frozen=True)
class RangeBlock:
    """Lines in these ranges of bytes of a source and a target file."""

    first: int
    """The number of the first line."""
    count: int
    file: int
    paths: tuple[Path, Path]
    ranges: tuple[tuple[int, int], tuple[int, int]]
    encoding: str

    def lines(self) -> list[Line]:
        sources, targets = (
            _lines_between(path, begin, end, self.encoding)
            for path, (begin, end) in zip(self.paths, self.ranges, strict=True)
        )
        if len(sources) != self.count or len(targets) != self.count:
            raise changed(self.paths)
        numbers = range(self.first, self.first + self.count)
        return [Line(number, self.file, *pair) for number, *pair in zip(numbers, sources, targets, strict=True)]


@dataclass(frozen=True)
class FilteredBlock:
    """The lines of a block that are among these numbers, or (`is_rest`) all the others."""

    block: Block
    numbers: frozenset[int]
    is_rest: bool

    def lines(self) -> list[Line]:
        return [line for line in self.block.lines() if (line.number in self.numbers) != self.is_rest]


def range_blocks(
    paths: tuple[Path, Path], *, count: int, before: int, file: int, encoding: str
) -> Iterator[RangeBlock]:
    """The blocks of two files of `count` lines each, of which the first has the number `before` + 1."""
    borders = [_line_borders(path) for path in paths]
    for at, first in enumerate(range(0, count, BLOCK)):
        if any(len(each) < at + 2 for each in borders):
            raise changed(paths)
        ranges = [(int(each[at]), int(each[at + 1])) for each in borders]
        yield RangeBlock(before + first + 1, min(BLOCK, count - first), file, paths, (ranges[0], ranges[1]), encoding)


def text_blocks(lines: Iterable[Line]) -> Iterator[TextBlock]:
    """Blocks of lines that can only be read one after another."""
    remaining = iter(lines)
    while block := tuple(islice(remaining, BLOCK)):
        yield TextBlock(block)


def changed(paths: Sequence[Path]) -> DataError:
    """The error for files that are not what they were a moment ago."""
    return DataError(
        f"{' or '.join(map(str, paths))} changed while it was being read; retry when nothing is writing to it"
    )


def has_ranges(path: Path, encoding: str) -> bool:
    """Whether lines of a file can be found by their bytes."""
    return not is_compressed(path) and encoding.lower().replace("_", "-") in _LF_ENCODINGS


def _line_borders(path: Path) -> np.ndarray:
    """Where each block of a file begins, in bytes, and at last where the file ends. A gigabyte takes a second."""
    borders, lines, place = [0], 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == 0x0A)
            wanted = ends[BLOCK - 1 - lines % BLOCK :: BLOCK]
            borders += (place + wanted + 1).tolist()
            lines, place = lines + len(ends), place + len(chunk)
    if borders[-1] != place:
        borders.append(place)
    return np.array(borders, dtype=np.int64)


def _lines_between(path: Path, begin: int, end: int, encoding: str) -> list[str]:
    """What `read_lines` gives there; it has read the file before, so all of it is known to be valid."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            text = file.read(end - begin).decode(encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise changed([path]) from error
    if begin == 0:
        text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n")
