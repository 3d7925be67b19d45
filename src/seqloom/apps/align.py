"""Align: which word of a sentence translates which word of its partner, learned from the text itself."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
from jaxtyping import Int64

from seqloom.classical.alignment import Bitext, Model1Config, Symmetrisation, WordAligner, fit_aligner
from seqloom.core.config import Config
from seqloom.core.errors import DataError, Problem
from seqloom.core.events import Listener, ignore, notice, progress
from seqloom.core.symbols import RESERVED
from seqloom.data.corpus import ParallelCorpus
from seqloom.text.formats.pharaoh import GoldFile, GoldLinks, Link, read_gold
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import Segmentation, word_cutter

PROGRESS_LINES = 1000
"""Lines between two reports of progress."""

WordCounts = dict[Segmentation, Int64[np.ndarray, "pairs 2"]]
"""How many words both sentences of each pair have, by segmentation."""


class AlignConfig(Config):
    """How words are found and linked."""

    model: Model1Config = Model1Config()
    """How the model of each direction is fitted."""
    symmetrise: Symmetrisation = "grow-diag-final-and"
    """Which links are kept: those of one direction (forward, backward), of both (intersection), of either (union), or
    the intersection grown into the union (grow-diag, grow-diag-final-and)."""
    segmentation: Segmentation = "words"
    """`words` separates words from punctuation; `spaces` splits at spaces only, for tokenised text."""
    lowercase: bool = True
    """Whether words are lower-cased before they are counted."""


@dataclass(frozen=True, eq=False)
class WordText:
    """A parallel text as ids of words; ids index `source_words` and `target_words`."""

    bitext: Bitext
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]


@dataclass
class _WordIds:
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
    """Split every line of a corpus into words."""
    normalise, cut = Normaliser(lowercase=config.lowercase), word_cutter(config.segmentation)
    source, target = _WordIds(), _WordIds()
    for line in corpus:
        source.add(cut(normalise(line.source)))
        target.add(cut(normalise(line.target)))
        _report(listener, "reading", line.number, len(corpus))
    arrays = [
        np.array(part, kind)
        for side in (source, target)
        for part, kind in ((side.ids, np.int32), (side.ends, np.int64))
    ]
    return WordText(Bitext(*arrays), source.words(), target.words())


def fit_words(text: WordText, config: AlignConfig, *, threads: int = 1, listener: Listener = ignore) -> WordAligner:
    """Fit both directions; the number of threads does not change the result."""
    report = partial(progress, listener, "learning alignments, rounds", total=2 * config.model.iterations)
    report(0)
    return fit_aligner(text.bitext, config.model, threads=threads, progress=report)


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
        _report(listener, "linking words", number, wanted.pairs)


def read_reference(
    path: Path, corpus: ParallelCorpus, config: AlignConfig, *, listener: Listener = ignore
) -> list[GoldLinks]:
    """Gold alignments of a corpus, one for each pair; each link must lie inside its sentences.

    Gold links count the words that the annotators saw. If another segmentation fits them better, a notice says so.
    """
    gold = read_gold(path, len(corpus))
    normalise = Normaliser(lowercase=config.lowercase)
    texts = [(normalise(line.source), normalise(line.target)) for line in corpus]
    counts: WordCounts = {}  # by segmentation: [pair, side]
    for segmentation in get_args(Segmentation):
        cut = word_cutter(segmentation)
        lengths = [[len(cut(text)) for text in pair] for pair in texts]
        counts[segmentation] = np.array(lengths, np.int64).reshape(-1, 2)
    # How many words both sentences must have at least.
    least = [[max((link[side] + 1 for link in links.possible), default=0) for side in (0, 1)] for links in gold.links]
    ends = np.array(least, np.int64).reshape(-1, 2)  # [pair, side]
    _require_inside(path, gold, ends, counts, chosen=config.segmentation)
    if gold.null_links:
        notice(listener, f"{path}: {gold.null_links:,} links to the null word (position 0) are left out")
    unlinked = sum(not links.possible for links in gold.links)
    if gold.form == "wa" and unlinked:
        notice(
            listener,
            f"{path}: {unlinked:,} of {len(corpus):,} sentence pairs have no gold links; links found in them count "
            "against the precision",
        )
    if sentence := _mismatch(ends, counts, config.segmentation):
        notice(listener, f"{path}: {sentence}")
    return gold.links


def _require_inside(
    path: Path, gold: GoldFile, ends: Int64[np.ndarray, "pairs 2"], counts: WordCounts, *, chosen: Segmentation
) -> None:
    """Refuse links outside their sentences, and say what to change so that all lie inside."""
    problems, base = [], 1 if gold.form == "wa" else 0
    for number, (links, (source, target)) in enumerate(zip(gold.links, counts[chosen], strict=True), start=1):
        outside = [link for link in links.possible if link[0] >= source or link[1] >= target]
        if outside:
            first, second = min(outside)
            message = f"link {first + base}-{second + base}, but the sentences have {source} and {target} words"
            if gold.form == "wa":
                problems.append(Problem(f"sentence {number}: {message} (counted from 1)", str(path)))
            else:
                problems.append(Problem(message, str(path), number))
    if not problems:
        return
    fitting = "are these the gold links of this text, with the same tokens? segmentation=spaces splits at spaces only"
    if inside := [each for each, count in counts.items() if (ends <= count).all()]:
        fitting = f"all links fit with segmentation={inside[0]}"
    elif swapped := [each for each, count in counts.items() if (ends[:, ::-1] <= count).all()]:
        fitting = (
            f"all links fit the other way round, with segmentation={swapped[0]}: the first position of a link belongs "
            "to the source; give the two files in the other order"
        )
    raise DataError(f"gold links lie outside their sentences; {fitting}", problems=problems)


def _mismatch(ends: Int64[np.ndarray, "pairs 2"], counts: WordCounts, chosen: Segmentation) -> str | None:
    """A sentence if the links seem to count the words of another segmentation than the chosen one.

    Annotators link most last words, which are full stops as a rule. So of the sentences that two segmentations cut
    into different numbers of words, the right one has more whose last word is linked.
    """
    for other, count in counts.items():
        differs = (count != counts[chosen]) & (ends > 0)
        last, chosen_last = ((differs & (ends == each)).sum() for each in (count, counts[chosen]))
        if (ends <= count).all() and last > chosen_last:
            return (
                f"the gold links seem to count other words than segmentation={chosen} finds: of {differs.sum():,} "
                f"sentences with different numbers of words, the last linked position is the last word of "
                f"{last:,} with segmentation={other}, but of {chosen_last:,} with segmentation={chosen}. The error "
                f"rate is wrong if so; use segmentation={other}"
            )
    return None


def _report(listener: Listener, what: str, done: int, everything: int) -> None:
    if done % PROGRESS_LINES == 0 or done == everything:
        progress(listener, what, done, everything)
