"""Align: which word of a sentence translates which word of its partner, learned from the text itself."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seqloom.classical.alignment import Bitext, Model1Config, Symmetrisation, WordAligner, fit_aligner
from seqloom.core.config import Config
from seqloom.core.errors import DataError, Problem
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.symbols import RESERVED
from seqloom.data.corpus import ParallelCorpus
from seqloom.text.formats.pharaoh import GoldLinks, Link, read_pharaoh
from seqloom.text.kinds import Segmentation, word_cutter
from seqloom.text.normalise import Normaliser

TOLD_EVERY = 1000
"""Lines between two reports of progress."""


class AlignConfig(Config):
    """How words are found and linked."""

    model: Model1Config = Model1Config()
    """How the model of each direction is fitted."""
    symmetrise: Symmetrisation = "grow-diag-final-and"
    """Which links are kept: those of one direction (forward, backward), of both (intersection), of either (union), or
    the intersection grown into the union (grow-diag, grow-diag-final-and)."""
    segmentation: Segmentation = "words"
    """`words` parts words from punctuation; `spaces` takes what stands between spaces, for text that is cut already."""
    lowercase: bool = True
    """Whether capital letters and small ones are the same while words are counted."""


@dataclass(frozen=True, eq=False)
class WordText:
    """A parallel text as ids of words; ids stand for the words of `source_words` and `target_words`."""

    bitext: Bitext
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]


@dataclass
class _Words:
    """The words of one side while it is read: an id for each by its first place, after the reserved ones."""

    known: dict[str, int] = field(default_factory=lambda: {word: number for number, word in enumerate(RESERVED)})
    ids: "array[int]" = field(default_factory=lambda: array("i"))
    ends: "array[int]" = field(default_factory=lambda: array("q", [0]))

    def add(self, words: list[str]) -> None:
        # A word that is written like a reserved symbol must not become one.
        self.ids.extend(
            self.known.setdefault(f"{word} " if word in RESERVED else word, len(self.known)) for word in words
        )
        self.ends.append(len(self.ids))

    def words(self) -> tuple[str, ...]:
        return tuple(word.removesuffix(" ") for word in self.known)


def read_words(corpus: ParallelCorpus, config: AlignConfig, *, listener: Listener = ignore) -> WordText:
    """Cut every line of a corpus into words."""
    normalise, cut = Normaliser(lowercase=config.lowercase), word_cutter(config.segmentation)
    source, target = _Words(), _Words()
    for line in corpus:
        source.add(cut(normalise(line.source)))
        target.add(cut(normalise(line.target)))
        _tell(listener, "reading", line.number, len(corpus))
    arrays = [
        np.array(part, kind)
        for side in (source, target)
        for part, kind in ((side.ids, np.int32), (side.ends, np.int64))
    ]
    return WordText(Bitext(*arrays), source.words(), target.words())


def fit_words(text: WordText, config: AlignConfig, *, threads: int = 1, listener: Listener = ignore) -> WordAligner:
    """Fit both directions; the threads change nothing but the time it takes."""
    rounds = 2 * config.model.iterations
    what = "learning alignments, rounds"
    listener(Event("progress", {"what": what, "done": 0, "all": rounds}))

    def tell(done: int) -> None:
        listener(Event("progress", {"what": what, "done": done, "all": rounds}))

    return fit_aligner(text.bitext, config.model, threads=threads, progress=tell)


def link_words(
    text: WordText,
    aligner: WordAligner,
    config: AlignConfig,
    *,
    first: int = 0,
    threads: int = 1,
    listener: Listener = ignore,
) -> Iterator[list[Link]]:
    """The links of each pair from the pair `first` on, sorted; a pair with a blank side has none."""
    wanted = text.bitext.after(first)
    found = aligner.align(wanted, symmetrise=config.symmetrise, threads=threads)
    for number, links in enumerate(found, start=1):
        yield links
        _tell(listener, "linking words", number, len(wanted))


def read_reference(path: Path, text: WordText, *, first: int = 0) -> list[GoldLinks]:
    """Gold alignments of the pairs from the pair `first` on; each link must lie inside its sentences."""
    gold = read_pharaoh(path)
    wanted = text.bitext.after(first)
    if len(gold) != len(wanted):
        message = f"{len(gold):,} lines, but {len(wanted):,} sentence pairs are aligned; each line needs its partner"
        raise DataError(problems=[Problem(message, str(path))])
    lengths = zip(np.diff(wanted.source_starts), np.diff(wanted.target_starts), strict=True)
    problems = []
    for number, (links, (source, target)) in enumerate(zip(gold, lengths, strict=True), start=1):
        outside = sorted(link for link in links.possible if link[0] >= source or link[1] >= target)
        if outside:
            message = f"link {outside[0][0]}-{outside[0][1]}, but the sentences have {source} and {target} words"
            problems.append(Problem(message, str(path), number))
    if problems:
        hint = "are the words cut as they were for the annotators? segmentation=spaces takes them as they stand"
        raise DataError(hint, problems=problems)
    return gold


def _tell(listener: Listener, what: str, done: int, everything: int) -> None:
    if done % TOLD_EVERY == 0 or done == everything:
        listener(Event("progress", {"what": what, "done": done, "all": everything}))
