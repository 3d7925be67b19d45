"""Parallel corpora: restartable readers over pairs of files, tables and translators' files, checked before all else."""

import hashlib
import math
import re
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Int64, Num

from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import LineReader, matching_files
from seqloom.core.seeds import seed_for
from seqloom.core.text_files import OnBad, bare_name
from seqloom.data.blocks import Block, FilteredBlock, Line, changed, has_ranges, range_blocks, text_blocks
from seqloom.text.formats.readers import (
    FORMATS,
    PairReader,
    column_problem,
    format_of,
    holds_both_sides,
    languages_of,
    skipped_notice,
)
from seqloom.text.formats.segments import Format, Languages
from seqloom.text.formats.tmx import is_language
from seqloom.text.languages import LANGUAGES

Part = tuple[Path, ...]
"""A source file and a target file, or one file with both: TSV, JSONL, TMX, PO, MO or XLIFF."""

_SETTLED = 2_000_000_000
"""Nanoseconds without a change after which the time of a file identifies its content."""

_BREAKS = ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\r")
_LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z0-9]+)*")
_TWO_LANGUAGES = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
_NO_LANGUAGE = frozenset({"txt", "raw", "tok", "bpe", "spm", "csv", "src", "trg", "tgt", "ref", "hyp", "out"})


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
    has_shared = np.zeros(len(sizes), dtype=bool)
    has_shared[group_of[_is_shared(target_keys, group_of)]] = True
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


def _is_shared(targets: Int64[np.ndarray, " lines"], groups: Int64[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """True where a target also occurs in a pair of another group."""
    _, target_of, counts = np.unique(targets, return_inverse=True, return_counts=True)
    lowest, highest = np.full(len(counts), len(groups)), np.full(len(counts), -1)
    np.minimum.at(lowest, target_of, groups)
    np.maximum.at(highest, target_of, groups)
    return np.asarray((lowest != highest)[target_of])


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
    return ParallelCorpus(
        parts_of(paths, formats), encoding=encoding, languages=languages, on_bad=on_bad, formats=formats
    )


def parts_of(paths: Sequence[Path], formats: Sequence[Format] = FORMATS) -> list[Part]:
    """The files that belong together among those of a corpus: one with both sides, or two; none is opened."""
    paths = _expanded(paths, formats)
    tables = [path for path in paths if holds_both_sides(path, formats)]
    if paths and len(tables) == len(paths):
        return [(path,) for path in paths]
    if tables:
        raise UsageError(f"{tables[0]} is a table of both sides; give either tables or pairs of files, not both")
    if len(paths) == 0 or len(paths) % 2:
        names = ", ".join(map(str, paths)) or "nothing"
        raise UsageError(
            f"a source file and a target file are needed, or one file with both (.tsv, .tmx …); given: {names}"
        )
    pairs: list[Part] = list(zip(paths[::2], paths[1::2], strict=True))
    for source, target in pairs:
        if source.exists() and target.exists() and source.samefile(target):
            raise UsageError(f"{source} is given as source and as target; name the file in the other language")
    return pairs


def _expanded(paths: Sequence[Path], formats: Sequence[Format]) -> list[Path]:
    lists = [matching_files(path) for path in paths]
    is_paired = len(lists) % 2 == 0 and not all(holds_both_sides(path, formats) for path in paths)
    if not is_paired or all(len(each) == 1 for each in lists):
        return list(chain.from_iterable(lists))
    for at in range(0, len(lists), 2):
        if len(lists[at]) != len(lists[at + 1]):
            raise UsageError(
                f"{paths[at]} matches {len(lists[at])} files, but {paths[at + 1]} for {len(lists[at + 1])}; "
                "each source file needs its target file"
            )
    pairs = (zip(one, other, strict=True) for one, other in zip(lists[::2], lists[1::2], strict=True))
    return [path for some in pairs for pair in some for path in pair]


def languages_from(paths: Sequence[Path], formats: Sequence[Format] = FORMATS) -> tuple[str, str] | None:
    """Source and target language by the names of the files: `train.de.gz train.en.gz` or `train.de-en.tsv`.

    Translators' files name them inside. None where nothing does, or two parts disagree.
    """
    paths = _expanded(paths, formats)
    names = [bare_name(path) for path in paths]
    found: set[tuple[str, str] | None] = set()
    if paths and all(format_of(path, formats) is not None for path in paths):
        source, target = languages_of(paths[0], formats)
        found.add((source, target) if source and target else _two_languages(Path(names[0]).stem))
    elif all(name.endswith(".tsv") for name in names):
        for name in names:
            found.add(_two_languages(name.removesuffix(".tsv")))
    elif len(names) % 2 == 0:
        for source, target in zip(names[::2], names[1::2], strict=True):
            one, other = _language(source), _language(target)
            found.add((one, other) if one and other else None)
    return found.pop() if len(found) == 1 else None


def _two_languages(stem: str) -> tuple[str, str] | None:
    both = _TWO_LANGUAGES.fullmatch(stem.rpartition(".")[2])
    return (both[1], both[2]) if both else None


def _language(name: str) -> str | None:
    stem, _, ending = name.removesuffix(".txt").rpartition(".")
    if not stem and ending not in LANGUAGES:
        return None  # old and new are not languages in old.txt and new.txt, de and en are
    is_code = "." in name and _LANGUAGE.fullmatch(ending) and ending not in _NO_LANGUAGE
    return ending if is_code else None


class ParallelCorpus:
    """Sentence pairs in files. Each iteration starts again at the first line.

    All files are read once when it is made: their lines are counted, their columns checked, their text hashed.
    """

    notices: tuple[str, ...]
    """What was changed while reading, a sentence each."""

    parts: tuple[Part, ...]
    """The files that are read; catalogues without a pair in these languages are left out, unless all are."""

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        encoding: str = "utf-8",
        languages: Languages = (None, None),
        on_bad: OnBad = "error",
        formats: Sequence[Format] = FORMATS,
    ) -> None:
        self.parts = tuple(parts)
        self._reading = _Reading(encoding, languages, on_bad, tuple(formats))
        checks: list[_PartCheck] = []
        empty: dict[Path, str] = {}
        problems: list[Problem] = []
        more = 0
        for part in self.parts:
            try:
                check = _check_once(part, self._reading)
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
        self.parts = tuple(part for part in self.parts if part[0] not in empty)
        self._counts = [check.lines for check in checks]
        self._digest = hashlib.sha256(b"".join(check.digest for check in checks)).hexdigest()
        skipped = skipped_notice([f"{path}: {reason}" for path, reason in empty.items()], len(parts))
        self.notices = (*skipped, *(notice for check in checks for notice in check.notices))

    def __len__(self) -> int:
        """The number of lines."""
        return sum(self._counts)

    def __iter__(self) -> Iterator[Line]:
        return self.seek(1)

    def seek(self, number: int) -> Iterator[Line]:
        """The lines from this number on."""
        before = 0
        for file, count in enumerate(self._counts):
            skipped = max(0, number - 1 - before)
            if skipped < count:
                yield from self._lines_of(file, before=before, skipped=skipped)
            before += count

    def _lines_of(self, file: int, *, before: int, skipped: int = 0) -> Iterator[Line]:
        """The lines of a part but for those skipped; `before` lines are in the parts before it."""
        pairs = islice(_pairs(self.parts[file], self._reading), skipped, None)
        last = before + skipped
        for last, (source, target) in enumerate(pairs, start=before + skipped + 1):
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
class _Reading:
    """How the files of a corpus are read."""

    encoding: str
    languages: Languages
    on_bad: OnBad
    formats: tuple[Format, ...]

    def format_of(self, part: Part) -> Format | None:
        """The format of one file with both sides; None for a table or two files."""
        return format_of(part[0], self.formats) if len(part) == 1 else None

    def lines(self, part: Part) -> list[LineReader]:
        """The files of a part; a line that is skipped still has the tab of a table."""
        blank = "\t" if len(part) == 1 else ""
        return [LineReader(path, self.encoding, on_bad=self.on_bad, blank=blank) for path in part]

    def pairs(self, path: Path) -> PairReader:
        return PairReader(path, languages=self.languages, encoding=self.encoding, formats=self.formats)


@dataclass(frozen=True)
class _PartCheck:
    lines: int
    digest: bytes
    notices: tuple[str, ...]
    nothing: str = ""
    """Why a catalogue has no pair, where it has none."""


def _pairs(part: Part, reading: _Reading) -> Iterator[tuple[str, str]]:
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


def _check_once(part: Part, reading: _Reading) -> _PartCheck:
    """What is known of files that were checked before and have the same size and time since."""
    stamps = file_stamps(part)
    # Two changes within a tick of the clock leave the same time, so only what has rested for a while is known by it.
    is_settled = all(time.time_ns() - changed_at > _SETTLED for _, changed_at in stamps.values())
    if len(stamps) == len(part) and is_settled:
        return _check_remembered(part, reading, tuple(stamps.values()))
    return _check(part, reading)


@lru_cache(maxsize=32)
def _check_remembered(part: Part, reading: _Reading, _stamps: tuple[tuple[int, int], ...]) -> _PartCheck:
    return _check(part, reading)


def file_stamps(paths: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Size and time of change, in nanoseconds, of those files that are there."""
    found = {str(path): path.stat() for path in paths if path.is_file()}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def _check(part: Part, reading: _Reading) -> _PartCheck:
    if reading.format_of(part) is not None:
        return _check_catalogue(reading.pairs(part[0]))
    readers = reading.lines(part)
    if len(part) == 1:
        lines, digest = _check_table(readers[0], part[0])
    else:
        lines, digest = _check_pair(readers, part, reading.encoding)
    return _PartCheck(lines, digest, tuple(notice for reader in readers for notice in reader.notices()))


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


def _check_table(reader: LineReader, path: Path) -> tuple[int, bytes]:
    digest, problems = hashlib.sha256(), Problems()
    for number, line in enumerate(reader, start=1):
        if problem := column_problem(line):
            problems.add(problem, path, number)
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    problems.require_none()
    if reader.lines == 0:
        raise _empty(path)
    return reader.lines, digest.digest()


def _check_pair(readers: Sequence[LineReader], part: Part, encoding: str) -> tuple[int, bytes]:
    digest, lengths = hashlib.sha256(), (array("I"), array("I"))
    for source, target in _side_by_side(readers):
        if source is not None and target is not None:
            digest.update(f"{source}\t{target}\n".encode("utf-8", "surrogatepass"))
            lengths[0].append(len(source))
            lengths[1].append(len(target))
    for reader, path in zip(readers, part, strict=True):
        if reader.lines == 0:
            raise _empty(path)
    one, other = (reader.lines for reader in readers)
    if one != other:
        drift = _drift(np.array(lengths[0], dtype=float), np.array(lengths[1], dtype=float))
        again = [LineReader(path, encoding, on_bad="replace") for path in part]
        breaks = [sum(line.count(mark) for line in lines for mark in _BREAKS) for lines in again]
        raise _unequal(part, (one, other), drift, breaks)
    return one, digest.digest()


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


def _empty(path: Path) -> DataError:
    return DataError(problems=[Problem("empty, expected at least one line", str(path))])


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
