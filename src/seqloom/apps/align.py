"""Align: which word of a sentence translates which word of its partner, learned from the text itself."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import Field

from seqloom.apps.aligner import Aligner
from seqloom.classical.alignment import (
    DEFAULT_ALIGNMENT,
    LINK_THRESHOLD,
    AlignmentModelConfig,
    Bitext,
    Symmetrisation,
)
from seqloom.core.config import Config
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Listener, ignore, notice, progress
from seqloom.core.files import require_folders_above
from seqloom.core.symbols import RESERVED
from seqloom.data.corpus import ParallelCorpus
from seqloom.data.corpus_files import languages_from
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.model_dir import Card, save_fitted
from seqloom.smt.aligner import AlignerConfig, FittedAligner
from seqloom.text.formats.pharaoh import GoldFile, GoldLinks, Link, read_gold
from seqloom.text.formats.segments import Languages
from seqloom.text.marks import is_unsegmented
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import Segmentation, TextConfig, Tokenizer, Tokenizers, WordPieces, word_cutter
from seqloom.text.vocabulary import Vocabulary

PROGRESS_LINES = 1000
"""Lines between two reports of progress."""

LINES_AT_ONCE = 2000
"""Pairs that a saved aligner links together."""

SAMPLED_PAIRS = 2_000
"""Pairs that are looked at to find out how words are separated."""

WordCounts = dict[Segmentation, Int64[np.ndarray, "pairs 2"]]
"""How many words both sentences of each pair have, by segmentation."""


class AlignDataConfig(Config):
    """The languages of the text."""

    source: str | None = None
    """Source language, as a code such as de; by default the ending of the file name."""
    target: str | None = None
    """Target language, likewise."""


class AlignConfig(Config):
    """How words are found and linked."""

    data: AlignDataConfig = AlignDataConfig()
    """The languages of the text."""
    model: AlignmentModelConfig = DEFAULT_ALIGNMENT
    """How the model of each direction is fitted."""
    symmetrise: Symmetrisation | None = None
    """Which links are kept: those that both directions together find likely (posterior), those of one direction
    (forward, backward), of both (intersection), of either (union), or the intersection grown into the union (grow-diag,
    grow-diag-final-and). By default grow-diag-final-and for kind model1, and posterior for the others."""
    threshold: float = Field(default=LINK_THRESHOLD, gt=0, lt=1)
    """Links of the rule posterior are likelier than this: a lower one gives more links."""
    segmentation: Segmentation = "words"
    """`words` separates words from punctuation; `characters` does the same, and each character of a script without
    spaces between words is a word, which is the default for such text; `spaces` splits at spaces only, for tokenised
    text."""
    lowercase: bool = True
    """Whether words are lower-cased before they are counted."""

    @property
    def languages(self) -> Languages:
        return self.data.source, self.data.target

    @property
    def aligner(self) -> AlignerConfig:
        """The settings of the model that is fitted."""
        return AlignerConfig(
            alignment=self.model, symmetrise=self.symmetrise, threshold=self.threshold, lowercase=self.lowercase
        )


def for_text(config: AlignConfig, corpus: ParallelCorpus, *, listener: Listener = ignore) -> AlignConfig:
    """The settings, with a segmentation that suits a text if none was given."""
    sample = list(islice(corpus, SAMPLED_PAIRS))
    sides = [line.source for line in sample], [line.target for line in sample]
    if "segmentation" in config.model_fields_set or not any(map(is_unsegmented, sides)):
        return config
    notice(listener, "each character is a word where no spaces separate words (segmentation=characters)")
    return config.model_copy(update={"segmentation": "characters"})


def settings_of(aligner: Aligner) -> AlignConfig:
    """The settings with which a saved aligner was fitted."""
    model = aligner.fitted.config
    return AlignConfig(
        data=AlignDataConfig(source=aligner.card.source, target=aligner.card.target),
        model=model.alignment,
        symmetrise=model.symmetrise,
        threshold=model.threshold,
        segmentation=aligner.segmentation,
        lowercase=model.lowercase,
    )


def named_languages(paths: Sequence[Path], given: Languages) -> Languages:
    """The languages of a text by settings, or else by the names of its files."""
    source, target = languages_from(paths) or (None, None)
    return given[0] or source, given[1] or target


@dataclass(frozen=True, eq=False)
class WordText:
    """A parallel text as ids of words; ids index `source_words` and `target_words`."""

    bitext: Bitext
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]

    def tokenizers(self, config: AlignConfig) -> Tokenizers:
        """Tokenisers whose vocabularies are these words, with these ids."""

        def made(ids: np.ndarray, words: Sequence[str]) -> Tokenizer:
            counts = np.bincount(ids, minlength=len(words))[len(RESERVED) :].tolist()
            vocabulary = Vocabulary(tuple(words[len(RESERVED) :]), tuple(counts))
            text = TextConfig(
                kind="word",
                size=max(len(words), len(RESERVED) + 1),
                shared=False,
                segmentation=config.segmentation,
                lowercase=config.lowercase,
            )
            return Tokenizer(text, WordPieces(vocabulary, segmentation=config.segmentation))

        return Tokenizers(made(self.bitext.sources, self.source_words), made(self.bitext.targets, self.target_words))

    def words(self, pair: int) -> tuple[list[str], list[str]]:
        """The words of a pair."""
        bitext = self.bitext
        sources = bitext.sources[bitext.source_starts[pair] : bitext.source_starts[pair + 1]].tolist()
        targets = bitext.targets[bitext.target_starts[pair] : bitext.target_starts[pair + 1]].tolist()
        return [self.source_words[word] for word in sources], [self.target_words[word] for word in targets]


class LinkedPair(NamedTuple):
    """A sentence pair with its links."""

    source: list[str]
    """Its words; links count them from 0."""
    target: list[str]
    links: list[Link]
    probabilities: Float64[np.ndarray, "source target"] | None = None


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


@dataclass(frozen=True, eq=False)
class LearnedAligner:
    """An aligner with the text that it was fitted to."""

    fitted: FittedAligner
    text: WordText
    config: AlignConfig
    seconds: float = 0.0
    """How long the fitting took."""

    def link(
        self, *, first: int = 0, probabilities: int = 0, threads: int = 1, listener: Listener = ignore
    ) -> Iterator[LinkedPair]:
        """The pairs of the text from the pair `first` on; one with a blank side has no links.

        So many of them, from the first, have probabilities.
        """
        fitted, wanted = self.fitted, self.text.bitext.after(first)
        found = fitted.aligner.align(
            wanted,
            symmetrise=self.config.symmetrise,
            threshold=self.config.threshold,
            threads=threads,
        )
        for number, links in enumerate(found, start=1):
            source, target = self.text.words(first + number - 1)
            table = fitted.probabilities(source, target) if number <= probabilities else None
            yield LinkedPair(source, target, links, table)
            _report(listener, "linking words", number, wanted.pairs)

    def save(self, folder: Path, *, data: DataConfig, fingerprint: str) -> None:
        """Write the aligner as a model directory; `data` names the text, and `fingerprint` is its hash."""
        tokenizers, arrays = self.text.tokenizers(self.config), self.fitted.arrays()
        trained_on = {
            "files": list(data.train),
            "pairs": self.text.bitext.pairs,
            "data": fingerprint,
            "tokenizers": [tokenizers.source.fingerprint, tokenizers.target.fingerprint],
            "seconds": round(self.seconds, 1),
        }
        size = max(tokenizers.source.size, tokenizers.target.size)
        text = tokenizers.source.config.model_copy(update={"size": max(size, len(RESERVED) + 1)})
        settings = RunConfig(data=data, text=text, model=self.fitted.config)
        card = Card(data.source, data.target, sum(array.size for array in arrays.values()), trained_on)
        save_fitted(folder, settings, tokenizers=tokenizers, arrays=arrays, card=card)


def fit_words(text: WordText, config: AlignConfig, *, threads: int = 1, listener: Listener = ignore) -> LearnedAligner:
    """Fit both directions; the number of threads does not change the result."""
    began = monotonic()
    fitted = config.aligner.fit_words(text.bitext, text.tokenizers(config), threads=threads, listener=listener)
    return LearnedAligner(fitted, text, config, monotonic() - began)


def link_corpus(
    corpus: ParallelCorpus,
    aligner: Aligner,
    *,
    symmetrise: Symmetrisation | None = None,
    threshold: float | None = None,
    probabilities: int = 0,
    threads: int = 1,
    listener: Listener = ignore,
) -> Iterator[LinkedPair]:
    """The pairs of a corpus, linked by an aligner that was fitted before; so many of them have probabilities."""
    lines, done = iter(corpus), 0
    while some := list(islice(lines, LINES_AT_ONCE)):
        linked = link_pairs(
            [(line.source, line.target) for line in some],
            aligner,
            symmetrise=symmetrise,
            threshold=threshold,
            probabilities=probabilities - done,
            threads=threads,
        )
        for pair in linked:
            yield pair
            done += 1
            _report(listener, "linking words", done, len(corpus))


def link_pairs(
    pairs: Sequence[tuple[str, str]],
    aligner: Aligner,
    *,
    symmetrise: Symmetrisation | None = None,
    threshold: float | None = None,
    probabilities: int = 0,
    threads: int = 1,
) -> Iterator[LinkedPair]:
    """Sentence pairs, linked by an aligner that was fitted before; so many of them have probabilities."""
    words, fitted = [aligner.words(*pair) for pair in pairs], aligner.fitted
    sources, targets = [pair[0] for pair in words], [pair[1] for pair in words]
    found = fitted.align(sources, targets, symmetrise=symmetrise, threshold=threshold, threads=threads)
    for number, (source, target, links) in enumerate(zip(sources, targets, found, strict=True), start=1):
        table = fitted.probabilities(source, target) if number <= probabilities else None
        yield LinkedPair(source, target, links, table)


def require_new_folder(folder: Path) -> None:
    """Refuse to write a model where something is."""
    require_folders_above(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; name a new folder with --save")


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
