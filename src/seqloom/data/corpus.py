"""Parallel corpora: restartable readers over pairs of files, tables and translators' files, checked before all else."""

import hashlib
import math
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Num

from seqloom.core.errors import DataError, Problem, Problems
from seqloom.core.files import LineReader
from seqloom.core.seeds import seed_for
from seqloom.core.text_files import OnBad, is_compressed
from seqloom.data.corpus_files import Part, parts_of
from seqloom.text.formats.readers import (
    FORMATS,
    PairReader,
    column_problem,
    format_of,
    languages_of,
    skipped_notice,
)
from seqloom.text.formats.segments import Format, Languages
from seqloom.text.formats.tmx import is_language

_SETTLED = 2_000_000_000
"""Nanoseconds without a change after which the time of a file identifies its content."""

_BREAKS = ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\r")

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


# --- blocks ----------------------------------------------------------------------------------------------------------
#
# Some lines in a row, in a form that another process can take and read by itself. Of two plain files a block is a range
# of bytes in each, so that the text never passes through a pipe. Of anything else (compressed, tables of other
# programs, UTF-16) it is the text.


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


# --- corpora ---------------------------------------------------------------------------------------------------------


class Lines(Protocol):
    """Sentence pairs that can be read repeatedly."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Line]: ...

    def blocks(self) -> Iterator[Block]:
        """The same lines in blocks, which can be read elsewhere, or not at all."""
        ...


@dataclass(frozen=True)
class Selection:
    """The lines of a corpus with these numbers, or (`is_rest`) all the others."""

    corpus: Lines
    numbers: frozenset[int]
    is_rest: bool = False

    def __len__(self) -> int:
        return len(self.corpus) - len(self.numbers) if self.is_rest else len(self.numbers)

    def __iter__(self) -> Iterator[Line]:
        return (line for line in self.corpus if (line.number in self.numbers) != self.is_rest)

    def blocks(self) -> Iterator[Block]:
        return (FilteredBlock(block, self.numbers, self.is_rest) for block in self.corpus.blocks())


@dataclass(frozen=True)
class HeldOut:
    """A corpus in two: what is trained on, and what is held out for validation."""

    rest: Selection
    held: Selection
    sources: int | None = None
    """Different sources among the pairs held out, none of which is in the rest; None where pairs were drawn one by
    one, so that the rest may have the same sources."""
    shared_targets: int = 0
    """Pairs held out whose target is also in the rest, under another source."""


def hold_out_pairs(corpus: Lines, count: int, *, seed: int) -> HeldOut:
    """Hold out `count` pairs drawn at random, whatever they share with the rest."""
    chosen = np.random.default_rng(seed_for(seed, "held out")).choice(len(corpus), size=count, replace=False)
    numbers = frozenset(int(place) + 1 for place in chosen)
    return HeldOut(Selection(corpus, numbers, is_rest=True), Selection(corpus, numbers))


def hold_out(corpus: Lines, count: int, *, seed: int) -> HeldOut:
    """Hold out up to `count` pairs: all pairs of some sources drawn at random, so that no source is on both sides.

    Sources whose targets occur nowhere else come first; others are taken only if these are too few. Pairs with a blank
    side are never held out. Where each source has more than `count` pairs, pairs are drawn one by one instead.
    """
    sources, targets = array("q"), array("q")
    for line in corpus:
        source, target = " ".join(line.source.split()), " ".join(line.target.split())
        # Hashes serve to compare only: which of them are equal is the same in every process.
        sources.append(hash(source) if source and target else 0)
        targets.append(hash(target))
    source_keys, target_keys = np.frombuffer(sources, np.int64), np.frombuffer(targets, np.int64)
    keys, first, group_of, sizes = np.unique(source_keys, return_index=True, return_inverse=True, return_counts=True)
    # Groups in the order of their first lines, then shuffled: which are drawn must not depend on the hashes.
    order = np.random.default_rng(seed_for(seed, "held out")).permutation(np.argsort(first))
    order = order[(sizes[order] <= count) & (keys[order] != 0)]
    # A target is shared if the groups of its pairs are not all the same.
    _, target_of, counts = np.unique(target_keys, return_inverse=True, return_counts=True)
    lowest, highest = np.full(len(counts), len(group_of)), np.full(len(counts), -1)
    np.minimum.at(lowest, target_of, group_of)
    np.maximum.at(highest, target_of, group_of)
    has_shared = np.zeros(len(sizes), dtype=bool)
    has_shared[group_of[(lowest != highest)[target_of]]] = True
    order = np.concatenate([order[~has_shared[order]], order[has_shared[order]]])
    room, chosen = count, list[int]()
    for group in order:
        if sizes[group] <= room:
            chosen.append(int(group))
            room -= int(sizes[group])
        if room == 0:
            break
    if not chosen:
        return hold_out_pairs(corpus, count, seed=seed)
    is_held = np.isin(group_of, chosen)
    numbers = frozenset((np.flatnonzero(is_held) + 1).tolist())
    in_rest = np.isin(target_keys, target_keys[~is_held])
    return HeldOut(
        Selection(corpus, numbers, is_rest=True),
        Selection(corpus, numbers),
        sources=len(chosen),
        shared_targets=int(np.count_nonzero(is_held & in_rest)),
    )


def hold_out_end(corpus: Lines, count: int) -> HeldOut:
    """Hold out the last `count` pairs: of a dialogue, in which the reply of a pair is the source of the next one."""
    numbers = frozenset(range(len(corpus) - count + 1, len(corpus) + 1))
    return HeldOut(Selection(corpus, numbers, is_rest=True), Selection(corpus, numbers))


def sample_lines(corpus: Lines, count: int, *, seed: int) -> Iterator[Line]:
    """About `count` lines of a corpus, in order: all of them if there are no more, else blocks at equal distances.

    Where plain files are read, nothing else of them is.
    """
    if len(corpus) <= count:
        yield from corpus
        return
    share = count / len(corpus)
    begin = np.random.default_rng(seed_for(seed, "sampled lines")).random()
    for at, block in enumerate(corpus.blocks()):
        if math.floor(begin + at * share) < math.floor(begin + (at + 1) * share):
            yield from block.lines()


def open_corpus(
    paths: Sequence[Path],
    *,
    encoding: str = "utf-8",
    languages: Languages = (None, None),
    on_bad: OnBad = "error",
    formats: Sequence[Format] = FORMATS,
) -> "ParallelCorpus":
    """The corpus of `[a.de, a.en]`, of several such pairs one after another, or of files that hold both sides.

    A name may be a pattern (`*.tmx`); of two patterns, the files are paired in their order. `languages` choose among
    those of a translation memory. `on_bad` says what becomes of lines with invalid bytes: one that is skipped is read
    as an empty one, whose pair is never learnt from. `formats` are the file formats, by the endings of their names.
    """
    return ParallelCorpus(parts_of(paths, formats), CorpusReading(encoding, languages, on_bad, tuple(formats)))


@dataclass(frozen=True)
class CorpusReading:
    """How the files of a corpus are read."""

    encoding: str = "utf-8"
    languages: Languages = (None, None)
    on_bad: OnBad = "error"
    formats: tuple[Format, ...] = FORMATS

    def format_of(self, part: Part) -> Format | None:
        """The format of one file with both sides; None for a table or two files."""
        return format_of(part[0], self.formats) if len(part) == 1 else None

    def lines(self, part: Part) -> list[LineReader]:
        """The files of a part; a line that is skipped still has the tab of a table."""
        blank = "\t" if len(part) == 1 else ""
        return [LineReader(path, self.encoding, on_bad=self.on_bad, blank=blank) for path in part]

    def pairs(self, path: Path) -> PairReader:
        return PairReader(path, languages=self.languages, encoding=self.encoding, formats=self.formats)


class ParallelCorpus:
    """Sentence pairs in files. Each iteration starts again at the first line.

    All files are read once when it is made: their lines are counted, their columns checked, their text hashed.
    """

    notices: tuple[str, ...]
    """What was changed while reading, a sentence each."""

    parts: tuple[Part, ...]
    """The files that are read; catalogues without a pair in these languages are left out, unless all are."""

    def __init__(self, parts: Sequence[Part], reading: CorpusReading) -> None:
        self._reading = reading
        checks: list[_PartCheck] = []
        empty: dict[Path, str] = {}
        problems: list[Problem] = []
        more = 0
        for part in parts:
            stamps = file_stamps(part)
            # Two changes within a tick of the clock leave the same time, so only files at rest are known by it.
            is_settled = all(time.time_ns() - changed_at > _SETTLED for _, changed_at in stamps.values())
            is_known = len(stamps) == len(part) and is_settled
            try:
                check = _check(part, reading, tuple(stamps.values()) if is_known else time.time_ns())
            except DataError as error:
                problems += error.problems or [Problem(str(error))]
                more += error.more
                continue
            if check.nothing:
                empty[part[0]] = check.nothing
            else:
                checks.append(check)
        if problems or not checks:
            problems += [Problem(reason, str(path)) for path, reason in empty.items()]
            raise DataError(problems=problems, more=more)
        self.parts = tuple(part for part in parts if part[0] not in empty)
        self._counts = [check.lines for check in checks]
        self._digest = hashlib.sha256(b"".join(check.digest for check in checks)).hexdigest()
        skipped = skipped_notice([f"{path}: {reason}" for path, reason in empty.items()], len(parts))
        self.notices = (*skipped, *(notice for check in checks for notice in check.notices))

    def __len__(self) -> int:
        """The number of lines."""
        return sum(self._counts)

    def __iter__(self) -> Iterator[Line]:
        before = 0
        for file, count in enumerate(self._counts):
            yield from self._lines_of(file, before=before)
            before += count

    def _lines_of(self, file: int, *, before: int) -> Iterator[Line]:
        """The lines of a part; `before` lines are in the parts before it."""
        last = before
        for last, (source, target) in enumerate(_pairs(self.parts[file], self._reading), start=before + 1):
            yield Line(last, file, source, target)
        if last != before + self._counts[file]:
            raise changed(self.parts[file])

    def blocks(self) -> Iterator[Block]:
        """All lines in blocks: where two plain files are read, none of their text is read here."""
        before = 0
        for file, (part, count) in enumerate(zip(self.parts, self._counts, strict=True)):
            encoding, is_strict = self._reading.encoding, self._reading.on_bad == "error"
            if len(part) == 2 and is_strict and all(has_ranges(path, encoding) for path in part):
                both = part[0], part[1]
                yield from range_blocks(both, count=count, before=before, file=file, encoding=encoding)
            else:
                yield from text_blocks(self._lines_of(file, before=before))
            before += count

    def place(self, number: int) -> str:
        """The place of a line, for messages: `train.de:17`, or `memory.tmx, pair 17`."""
        for part, count in zip(self.parts, self._counts, strict=True):
            if number <= count:
                is_plain = self._reading.format_of(part) is None
                return f"{part[0]}:{number}" if is_plain else f"{part[0]}, pair {number}"
            number -= count
        raise IndexError(f"the corpus has only {len(self)} lines")

    def fingerprint(self) -> str:
        """A hash of the text of both sides: the same whether it is compressed or not, in pairs or tables."""
        return self._digest


@dataclass(frozen=True)
class _PartCheck:
    lines: int
    digest: bytes
    notices: tuple[str, ...]
    nothing: str = ""
    """Why a catalogue has no pair, where it has none."""


def _pairs(part: Part, reading: CorpusReading) -> Iterator[tuple[str, str]]:
    try:
        if reading.format_of(part) is not None:
            for pair in reading.pairs(part[0]):
                yield pair.source, pair.target
        elif len(part) == 1:
            for line in reading.lines(part)[0]:
                source, target = line.split("\t")
                yield source, target
        else:
            yield from zip(*reading.lines(part), strict=True)
    except ValueError as error:
        raise changed(part) from error


def file_stamps(paths: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Size and time of change, in nanoseconds, of those files that are there."""
    found = {str(path): path.stat() for path in paths if path.is_file()}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


@lru_cache(maxsize=32)
def _check(part: Part, reading: CorpusReading, _key: object) -> _PartCheck:
    """What is found in the files of a part; remembered for the same key, which changes with the files."""
    if reading.format_of(part) is not None:
        return _check_catalogue(reading.pairs(part[0]))
    readers = reading.lines(part)
    digest, problems, lengths = hashlib.sha256(), Problems(), (array("I"), array("I"))
    if len(part) == 1:
        for number, line in enumerate(readers[0], start=1):
            if problem := column_problem(line):
                problems.add(problem, part[0], number)
            digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
        problems.require_none()
    else:
        for source, target in _side_by_side(readers):
            if source is not None and target is not None:
                digest.update(f"{source}\t{target}\n".encode("utf-8", "surrogatepass"))
                lengths[0].append(len(source))
                lengths[1].append(len(target))
    counts = [reader.lines for reader in readers]
    if 0 in counts:
        raise DataError(problems=[Problem("empty, expected at least one line", str(part[counts.index(0)]))])
    if counts[0] != counts[-1]:
        drift = _drift(np.array(lengths[0], dtype=float), np.array(lengths[1], dtype=float))
        again = [LineReader(path, reading.encoding, on_bad="replace") for path in part]
        breaks = [sum(line.count(mark) for line in lines for mark in _BREAKS) for lines in again]
        raise _unequal(part, (counts[0], counts[1]), drift, breaks)
    return _PartCheck(counts[0], digest.digest(), tuple(notice for reader in readers for notice in reader.notices()))


_CHOSEN = "data.source and data.target choose the languages, and where they are not given the first file does"


def _check_catalogue(reader: PairReader) -> _PartCheck:
    requested = " and ".join(language or "any" for language in reader.languages)
    named = languages_of(reader.path, (reader.format,)) if reader.format.settle is None else (None, None)
    both = zip(named, reader.languages, strict=True)
    if not all(has is None or wanted is None or is_language(has, wanted) for has, wanted in both):
        foreign = " and ".join(language or "any" for language in named)
        return _PartCheck(0, b"", (), f"its languages are {foreign}, not {requested}; {_CHOSEN}")
    in_languages = f" in {requested}; {_CHOSEN}" if any(reader.languages) else ""
    digest = hashlib.sha256()
    for pair in reader:
        digest.update(f"{pair.source}\t{pair.target}\n".encode("utf-8", "surrogatepass"))
    if reader.pairs == 0:
        message = f"no pair to learn from among {reader.left_out:,} segments, expected at least one{in_languages}"
        return _PartCheck(0, b"", (), message)
    return _PartCheck(reader.pairs, digest.digest(), tuple(reader.notices()))


def _side_by_side(readers: Sequence[LineReader]) -> Iterator[tuple[str | None, str | None]]:
    """The lines of two files; the problems of both are reported at once."""
    try:
        yield from zip_longest(*readers)
    except DataError as error:
        problems, more = list(error.problems), error.more
        for reader in readers:
            try:
                deque(reader, maxlen=0)
            except DataError as other:
                if other.problems != error.problems:
                    problems, more = problems + list(other.problems), more + other.more
        if len(problems) == len(error.problems):
            raise
        raise DataError(problems=problems, more=more) from error


def unequal(part: tuple[Path, Path], source: Sequence[str], target: Sequence[str]) -> DataError:
    """The error for two files that should have as many lines, and where they part."""
    count = min(len(source), len(target))
    lengths = (np.array([len(line) for line in side[:count]], dtype=float) for side in (source, target))
    breaks = [sum(line.count(mark) for line in side for mark in _BREAKS) for side in (source, target)]
    return _unequal(part, (len(source), len(target)), _drift(*lengths), breaks)


def _unequal(part: Part, counts: tuple[int, int], drift: int | None, breaks: Sequence[int]) -> DataError:
    sentences = [
        f"{part[0]} has {counts[0]:,} lines, but {part[1]} has {counts[1]:,}; line n of one must translate line n"
    ]
    if drift is not None:
        sentences.append(f"the lengths stop matching near line {drift:,}: look for a line too many or too few there")
    else:
        longer = part[0] if counts[0] > counts[1] else part[1]
        sentences.append(f"the lengths match up to line {min(counts):,}: {longer} seems to have more lines at its end")
    for path, count in zip(part, breaks, strict=True):
        if count:
            sentences.append(
                f"{path} holds {count:,} characters such as U+2028 that some tools read as line ends; only LF is one"
            )
    return DataError(problems=[Problem("; ".join(sentences))])


def _drift(source: Num[np.ndarray, " lines"], target: Num[np.ndarray, " lines"]) -> int | None:
    """The line after which lengths no longer match, by the lowest point of a cumulative sum; None if they always do.

    r_i = log((source_i + 1) / (target_i + 1)), d_i = |r_i − median r|, S_k = Σ_{i≤k} (d_i − mean d)
    """
    ratios = np.log((source + 1) / (target + 1))
    distances = np.abs(ratios - np.median(ratios))
    last = int(np.argmin(np.cumsum(distances - distances.mean())))
    before, after = distances[: last + 1], distances[last + 1 :]
    is_clear = len(after) >= 5 and after.mean() > 1.5 * before.mean() + 0.05
    return last + 2 if is_clear else None
