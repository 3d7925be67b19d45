"""From lines to examples: encode a corpus into a store, and report what was kept and what was dropped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data.corpus import Line, Lines
from seqloom.data.store import StoreWriter
from seqloom.text.normalise import is_blank

Encode = Callable[[list[str]], list[list[int]]]
"""Sentences to ids, without begin and end symbols."""

Encoded = tuple[Line, list[int], list[int]]

CHUNK = 4096
"""Lines encoded at a time."""

SHOWN = 5
"""Line numbers kept for each reason to drop a pair."""


@dataclass(frozen=True)
class Dropped:
    """Pairs left out for one reason, and the lines of the first few."""

    count: int = 0
    lines: tuple[int, ...] = ()

    def plus(self, number: int) -> "Dropped":
        """One more."""
        return Dropped(self.count + 1, (*self.lines, number) if len(self.lines) < SHOWN else self.lines)


@dataclass(frozen=True)
class SideReport:
    """Tokens of one side, the end symbols among them, and how many the vocabulary does not know."""

    tokens: int = 0
    unknown: int = 0

    def plus(self, sentences: Sequence[list[int]]) -> "SideReport":
        """These sentences more, whose end symbols are counted though they are not yet there."""
        unknown = sum(ids.count(UNKNOWN) for ids in sentences)
        return SideReport(self.tokens + sum(map(len, sentences)) + len(sentences), self.unknown + unknown)

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / max(1, self.tokens)


@dataclass(frozen=True)
class Report:
    """What became of the lines of a corpus."""

    read: int
    kept: int
    empty: Dropped
    too_long: Dropped
    source: SideReport
    target: SideReport

    def sentences(self) -> list[str]:
        """What was dropped, a sentence for each reason that occurred."""
        reasons = (("an empty side", self.empty), ("a side that is too long", self.too_long))
        return [
            f"{dropped.count:,} of {self.read:,} pairs dropped for {reason} (lines {', '.join(map(str, dropped.lines))}"
            f"{' …' if dropped.count > len(dropped.lines) else ''})"
            for reason, dropped in reasons
            if dropped.count
        ]


def encode_corpus(
    corpus: Lines,
    encode_source: Encode,
    encode_target: Encode,
    folder: Path,
    *,
    symbols: int,
    longest: int,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Report:
    """Encode every pair into a new store at `folder`, END after each sentence, and say what was dropped.

    Left out are pairs with a blank side and pairs with more than `longest` tokens on a side, END counted. `symbols` is
    the size of the larger vocabulary; `progress` is told the lines done and the lines in all.
    """
    tally = _Tally(longest)
    with StoreWriter(folder, symbols=symbols) as writer:
        for lines in _chunks(corpus, CHUNK):
            visible = tally.visible(lines)
            sources = encode_source([line.source for line in visible])
            targets = encode_target([line.target for line in visible])
            kept = tally.kept(zip(visible, sources, targets, strict=True))
            writer.append(
                [[*source, END] for _, source, _ in kept],
                [[*target, END] for _, _, target in kept],
                [line.number for line, _, _ in kept],
            )
            progress(tally.read, len(corpus))
        report = tally.report()
        if report.kept == 0:
            reasons = "; ".join(report.sentences())
            raise DataError(f"no pair is left to train on: {reasons}; at most {longest} tokens are allowed on a side")
    return report


class _Tally:
    """Counts while pairs pass."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self.read, self._kept = 0, 0
        self._empty, self._too_long = Dropped(), Dropped()
        self._source, self._target = SideReport(), SideReport()

    def visible(self, lines: list[Line]) -> list[Line]:
        """The lines whose sides both hold something, so that nothing else reaches the tokenizer."""
        self.read += len(lines)
        visible = []
        for line in lines:
            if is_blank(line.source) or is_blank(line.target):
                self._empty = self._empty.plus(line.number)
            else:
                visible.append(line)
        return visible

    def kept(self, pairs: Iterable[Encoded]) -> list[Encoded]:
        """The pairs that have tokens on both sides and not too many, the end symbol counted."""
        kept = []
        for line, source, target in pairs:
            if not source or not target:
                self._empty = self._empty.plus(line.number)
            elif max(len(source), len(target)) >= self._longest:
                self._too_long = self._too_long.plus(line.number)
            else:
                kept.append((line, source, target))
        self._kept += len(kept)
        self._source = self._source.plus([source for _, source, _ in kept])
        self._target = self._target.plus([target for _, _, target in kept])
        return kept

    def report(self) -> Report:
        return Report(self.read, self._kept, self._empty, self._too_long, self._source, self._target)


def _chunks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    remaining = iter(lines)
    while chunk := list(islice(remaining, size)):
        yield chunk
