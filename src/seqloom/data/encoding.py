"""From lines to examples: encode a corpus into a store, and report what was kept and what was dropped.

Block by block, each by itself, so that several processes can share the work and the store has the same bytes however
many there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from seqloom.core.errors import DataError
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data.corpus import Block, Lines
from seqloom.data.store import Sentences, StoreWriter
from seqloom.data.workers import in_order, processors
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import FlatIds

Encode = Callable[[list[str]], FlatIds]
"""Sentences to ids, without begin and end symbols."""

MAX_SHOWN_LINES = 5
"""Line numbers kept for each reason to drop a pair."""

MIN_LINES_FOR_WORKERS = 100_000
"""Lines from which other processes save time."""


@dataclass(frozen=True)
class Dropped:
    """Pairs left out for one reason, and the lines of the first few."""

    count: int = 0
    lines: tuple[int, ...] = ()

    @staticmethod
    def of(numbers: Sequence[int]) -> "Dropped":
        """The pairs of these lines."""
        return Dropped(len(numbers), tuple(numbers[:MAX_SHOWN_LINES]))

    def __add__(self, other: "Dropped") -> "Dropped":
        return Dropped(self.count + other.count, (*self.lines, *other.lines)[:MAX_SHOWN_LINES])


@dataclass(frozen=True)
class SideReport:
    """Tokens of one side, the end symbols among them, and how many the vocabulary does not know."""

    tokens: int = 0
    unknown: int = 0

    @staticmethod
    def of(sentences: Sentences) -> "SideReport":
        """Those of some sentences."""
        return SideReport(len(sentences.ids), int(np.count_nonzero(sentences.ids == UNKNOWN)))

    def __add__(self, other: "SideReport") -> "SideReport":
        return SideReport(self.tokens + other.tokens, self.unknown + other.unknown)

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / max(1, self.tokens)


@dataclass(frozen=True)
class EncodingReport:
    """What became of the lines of a corpus."""

    read: int = 0
    kept: int = 0
    empty: Dropped = Dropped()
    too_long: Dropped = Dropped()
    source: SideReport = SideReport()
    target: SideReport = SideReport()

    def __add__(self, other: "EncodingReport") -> "EncodingReport":
        return EncodingReport(
            self.read + other.read,
            self.kept + other.kept,
            self.empty + other.empty,
            self.too_long + other.too_long,
            self.source + other.source,
            self.target + other.target,
        )

    def sentences(self) -> list[str]:
        """What was dropped, a sentence for each reason that occurred."""
        reasons = (("an empty side", self.empty), ("a side that is too long", self.too_long))
        return [
            f"{dropped.count:,} of {self.read:,} pairs dropped for {reason} (lines {', '.join(map(str, dropped.lines))}"
            f"{' …' if dropped.count > len(dropped.lines) else ''})"
            for reason, dropped in reasons
            if dropped.count
        ]


@dataclass(frozen=True)
class Examples:
    """What became of a block: examples for the store, and the report."""

    sources: Sentences
    targets: Sentences
    lines: Int64[np.ndarray, " examples"]
    report: EncodingReport


@dataclass(frozen=True)
class PairEncoder:
    """Encodes blocks of lines, END after each sentence.

    Left out are pairs with a blank side and pairs with more than `longest` tokens on a side, END counted.
    """

    encode_source: Encode
    encode_target: Encode
    longest: int

    def __call__(self, block: Block) -> Examples:
        """The examples of a block."""
        lines = block.lines()
        # Nothing that cannot be seen reaches the tokenizer.
        visible = [line for line in lines if not (is_blank(line.source) or is_blank(line.target))]
        sources = self.encode_source([line.source for line in visible])
        targets = self.encode_target([line.target for line in visible])
        is_empty = (sources.lengths == 0) | (targets.lengths == 0)
        is_long = ~is_empty & (np.maximum(sources.lengths, targets.lengths) >= self.longest)
        is_kept = ~(is_empty | is_long)
        numbers = np.fromiter((line.number for line in visible), dtype=np.int64, count=len(visible))
        filled = set(numbers[~is_empty].tolist())
        kept = [_ended(side, is_kept) for side in (sources, targets)]
        report = EncodingReport(
            read=len(lines),
            kept=int(is_kept.sum()),
            empty=Dropped.of([line.number for line in lines if line.number not in filled]),
            too_long=Dropped.of(numbers[is_long].tolist()),
            source=SideReport.of(kept[0]),
            target=SideReport.of(kept[1]),
        )
        return Examples(kept[0], kept[1], numbers[is_kept], report)


def _ended(side: FlatIds, is_kept: Bool[np.ndarray, " texts"]) -> Sentences:
    """The kept sentences, END after each."""
    ids = side.ids[np.repeat(is_kept, side.lengths)]
    lengths = side.lengths[is_kept]
    return Sentences(np.insert(ids, np.cumsum(lengths), END), lengths + 1)


def encode_corpus(
    corpus: Lines,
    encoder: PairEncoder,
    folder: Path,
    *,
    symbols: int,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> EncodingReport:
    """Encode every pair into a new store at `folder`, and report what was dropped.

    `symbols` is the size of the larger vocabulary; `progress` gets the lines done and the total. `workers`
    are processes: one for each processor if it is None, and only this one for few lines.
    """
    count = workers or (processors() if len(corpus) >= MIN_LINES_FOR_WORKERS else 1)
    report = EncodingReport()
    with StoreWriter(folder, symbols=symbols) as writer:
        for examples in in_order(encoder, corpus.blocks(), workers=count):
            writer.append_flat(examples.sources, examples.targets, examples.lines)
            report += examples.report
            progress(report.read, len(corpus))
        if report.kept == 0:
            reasons = "; ".join(report.sentences())
            raise DataError(
                f"no pairs left to train on: {reasons}; at most {encoder.longest} tokens are allowed on a side"
            )
    return report
