"""An aligner as a model: fitted to sentence pairs once, it links the words of new pairs.

Words are compared as the settings say (lower-cased by default), whatever the tokenisers keep. A word that the aligner
has never seen has no probabilities of its own:

    written alike on both sides     linked to its copy, the one nearest to the diagonal: names, numbers, marks
    otherwise                       linked by what the model says of positions, if it says anything
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int32
from pydantic import Field

from seqloom.classical.alignment import (
    DEFAULT_ALIGNMENT,
    LINK_THRESHOLD,
    AlignmentModelConfig,
    Bitext,
    Symmetrisation,
    TranslationTable,
    WordAligner,
    fit_aligner,
    rounds,
)
from seqloom.core.declaration import ModelSettings, Pieces, Purpose, TaskKind
from seqloom.core.errors import ModelError
from seqloom.core.events import Listener, ignore, progress
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.data.workers import processors
from seqloom.smt.pairs import EncodedPairs
from seqloom.text.formats.pharaoh import Link
from seqloom.text.tokenizer import Tokenizer, Tokenizers, word_cutter

Words = Sequence[str]
"""The words of a sentence."""


class AlignerConfig(ModelSettings):
    """An aligner of words."""

    purpose: ClassVar[Purpose] = "aligner"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["aligner"] = "aligner"
    """Which model this is."""
    alignment: AlignmentModelConfig = DEFAULT_ALIGNMENT
    """How the model of each direction is fitted."""
    symmetrise: Symmetrisation | None = None
    """Which links are kept: those that both directions together find likely (posterior), those of one direction
    (forward, backward), of both (intersection), of either (union), or the intersection grown into the union (grow-diag,
    grow-diag-final-and). By default grow-diag-final-and for kind model1, and posterior for the others."""
    threshold: float = Field(default=LINK_THRESHOLD, gt=0, lt=1)
    """Links of the rule posterior are likelier than this: a lower one gives more links."""
    lowercase: bool = True
    """Whether words are lower-cased before they are compared."""

    def fit_pairs(self, pairs: EncodedPairs, *, seed: int, listener: Listener = ignore) -> "FittedAligner":  # noqa: ARG002
        """The aligner of sentence pairs; nothing about it is random."""
        return self.fit_words(pairs.train, pairs.tokenizers, threads=processors(), listener=listener)

    def fit_words(
        self, bitext: Bitext, tokenizers: Tokenizers, *, threads: int = 1, listener: Listener = ignore
    ) -> "FittedAligner":
        """The same with so many threads, whose number does not change the result."""
        source, target = self._words(tokenizers)
        sources, targets = source.folds[bitext.sources], target.folds[bitext.targets]
        folded = Bitext(sources, bitext.source_starts, targets, bitext.target_starts)
        report = partial(progress, listener, "learning alignments, rounds", total=rounds(self.alignment))
        report(0)
        aligner = fit_aligner(folded, self.alignment, threads=threads, progress=report)
        return FittedAligner(self, aligner, source, target)

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> "FittedAligner":
        """The aligner whose `arrays` these are; a ModelError says what does not fit."""
        source, target = self._words(tokenizers)
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not (np.isfinite(array) & (array >= 0)).all():
                raise ModelError(f"the aligner is damaged: {name} has negative or infinite numbers")
        # Copies: arrays that are mapped cannot be written, and all loops would be compiled a second time for such ones.
        aligner = WordAligner.restore(self.alignment, {name: np.array(array) for name, array in arrays.items()})
        for name, table, rows, columns in (
            ("forward", aligner.forward.table, source, target),
            ("backward", aligner.backward.table, target, source),
        ):
            _require_fits(name, table, rows=len(rows.folds), columns=len(columns.folds))
        return FittedAligner(self, aligner, source, target)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, str]:
        """How many pairs of words each direction knows."""
        sizes = {side: arrays[f"{side}.probabilities"].size for side in ("forward", "backward")}
        return {"Tables": ", ".join(f"{size:,} pairs of words {side}" for side, size in sizes.items())}

    def _words(self, tokenizers: Tokenizers) -> tuple["WordIds", "WordIds"]:
        of = partial(WordIds.of, lowercase=self.lowercase)
        return of(tokenizers.source), of(tokenizers.target)


def _require_fits(name: str, table: TranslationTable, *, rows: int, columns: int) -> None:
    """Refuse a table of other words, or one whose numbers are not probabilities."""
    highest = int(table.columns.max(initial=0))
    if table.null > rows or highest >= columns:
        raise ModelError(
            f"the {name} table has {table.null:,} rows and words up to {highest:,}, but the vocabularies have {rows:,} "
            f"and {columns:,} words"
        )
    if table.probabilities.max(initial=0.0) > 1 + 1e-9:
        raise ModelError(f"the {name} table is damaged: not all of its numbers are probabilities")


@dataclass(frozen=True, eq=False)
class WordIds:
    """The words of one side as an aligner knows them, and their ids."""

    ids: Mapping[str, int]
    folds: Int32[np.ndarray, " vocabulary"]
    """From an id of the vocabulary to the id of the word that it is compared as."""
    lowercase: bool

    @staticmethod
    def of(tokenizer: Tokenizer, *, lowercase: bool) -> "WordIds":
        """Those of a vocabulary: of the words that fold into one, the id of the first."""
        ids: dict[str, int] = {}
        folds = np.arange(tokenizer.size, dtype=np.int32)
        for number, word in enumerate(tokenizer.vocabulary[len(RESERVED) :], start=len(RESERVED)):
            folds[number] = ids.setdefault(word.lower() if lowercase else word, number)
        return WordIds(ids, folds, lowercase)

    def fold(self, words: Words) -> list[str]:
        """Words as they are compared."""
        return [word.lower() for word in words] if self.lowercase else list(words)

    def encode(self, folded: Words) -> list[int]:
        """The ids of words as they are compared."""
        return [self.ids.get(word, UNKNOWN) for word in folded]


@dataclass(frozen=True, eq=False)
class FittedAligner:
    """Links words of two languages."""

    config: AlignerConfig
    aligner: WordAligner
    """Of ids."""
    source: WordIds
    target: WordIds

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it consists of, beside the vocabularies."""
        return self.aligner.arrays()

    def align(
        self,
        sources: Sequence[Words],
        targets: Sequence[Words],
        *,
        symmetrise: Symmetrisation | None = None,
        threshold: float | None = None,
        threads: int = 1,
    ) -> Iterator[list[Link]]:
        """The links of each pair, sorted; rule and threshold are those of the settings unless given."""
        pairs = [self._encode(*pair) for pair in zip(sources, targets, strict=True)]
        bitext = Bitext.from_sentences([pair.source for pair in pairs], [pair.target for pair in pairs])
        found = self.aligner.align(
            bitext,
            symmetrise=symmetrise or self.config.symmetrise,
            threshold=self.config.threshold if threshold is None else threshold,
            threads=threads,
        )
        for pair, links in zip(pairs, found, strict=True):
            if pair.copies:
                rows, columns = (set(side) for side in zip(*pair.copies, strict=True))
                kept = [(i, j) for i, j in links if i not in rows and j not in columns]
                yield sorted([*kept, *pair.copies])
            else:
                yield links

    def probabilities(self, source: Words, target: Words) -> Float64[np.ndarray, "source target"]:
        """The probability of each link, from both directions. A word and its unknown copy are linked for certain."""
        if not source or not target:
            return np.zeros((len(source), len(target)))
        pair = self._encode(source, target)
        found = self.aligner.probabilities(pair.source, pair.target)
        for i, j in pair.copies:
            found[i, :] = found[:, j] = 0.0
            found[i, j] = 1.0
        return found

    def _encode(self, source: Words, target: Words) -> "_EncodedPair":
        sources, targets = self.source.fold(source), self.target.fold(target)
        source_ids, target_ids = self.source.encode(sources), self.target.encode(targets)
        has_unknown = UNKNOWN in source_ids or UNKNOWN in target_ids
        copies = _copies(sources, targets, source_ids, target_ids) if has_unknown else []
        return _EncodedPair(source_ids, target_ids, copies)


@dataclass(frozen=True)
class _EncodedPair:
    source: list[int]
    target: list[int]
    copies: list[Link]
    """Words that are written alike, one of which is unknown."""


def _copies(source: Words, target: Words, source_ids: Sequence[int], target_ids: Sequence[int]) -> list[Link]:
    """Links between equal words, one of which is unknown; each word once, those near the diagonal first."""
    n, m = len(source), len(target)
    places: dict[str, list[int]] = {}
    for j, word in enumerate(target):
        places.setdefault(word, []).append(j)
    candidates = sorted(
        (abs((i + 1) / n - (j + 1) / m), i, j)
        for i, word in enumerate(source)
        for j in places.get(word, ())
        if UNKNOWN in (source_ids[i], target_ids[j])
    )
    rows: set[int] = set()
    columns: set[int] = set()
    found = []
    for _, i, j in candidates:
        if i not in rows and j not in columns:
            rows.add(i)
            columns.add(j)
            found.append((i, j))
    return found


def cut_words(tokenizer: Tokenizer, line: str) -> list[str]:
    """The words of a line, also those that the vocabulary lacks."""
    return word_cutter(tokenizer.config.segmentation)(tokenizer.normaliser(line))
