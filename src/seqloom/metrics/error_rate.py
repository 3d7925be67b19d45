"""Word, character and phone error rate of transcripts: how many edits turn the output into the reference.

    error rate = 100 · (S + D + I) / N            over all lines together; lower is better, and it may exceed 100

S words were substituted, D deleted (in the reference alone), I inserted (in the output alone), and N are the words of
the references. S + D + I is the Levenshtein distance. Several alignments may have it, with different S, D and I: the
one that is counted here is that of jiwer and rapidfuzz.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from seqloom.core.jit import compiled
from seqloom.metrics.scoring import Statistics

Array = np.ndarray
Unit = Literal["word", "character", "phone"]

DELETION, INSERTION, DIAGONAL = 0, 1, 2


@dataclass(frozen=True)
class EditCounts:
    """How one sequence becomes another. The error rate of several is that of their counts, added up."""

    substitutions: int
    deletions: int
    insertions: int
    length: int
    """Of the reference."""

    @property
    def edits(self) -> int:
        """The Levenshtein distance."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def hits(self) -> int:
        """What both have."""
        return self.length - self.substitutions - self.deletions


@dataclass(frozen=True)
class ErrorRate:
    """WER, of words between spaces, or CER, of characters with the spaces between words among them.

    PER, of phones, is the same as WER under another name: phones are separated by spaces. (Where pronunciations are
    judged, WER is the share of words with a wrong phone, 100 − exact match.) Spaces at the ends of a line do not count.
    Without any reference words, every inserted one counts as 100, as in jiwer. Parts: substitutions, deletions,
    insertions, length of the reference.
    """

    unit: Unit = "word"
    lowercase: bool = False

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        found = (self.counts(one, other) for one, other in zip(hypotheses, references, strict=True))
        parts = np.array([(each.substitutions, each.deletions, each.insertions, each.length) for each in found], float)
        name = {"word": "WER", "character": "CER", "phone": "PER"}[self.unit]
        signature = f"nrefs:1|case:{'lc' if self.lowercase else 'mixed'}|unit:{self.unit}"
        return Statistics(name, float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, :3].sum(axis=1) / np.maximum(sums[:, 3], 1))

    def counts(self, hypothesis: str, reference: str) -> EditCounts:
        """The edits of one line."""
        return count_edits(self._units(hypothesis), self._units(reference))

    def _units(self, line: str) -> Sequence[str]:
        line = line.lower() if self.lowercase else line
        return line.strip() if self.unit == "character" else line.split()


def count_edits(hypothesis: Sequence[str], reference: Sequence[str]) -> EditCounts:
    """The edits of a shortest way from the reference to the hypothesis, both of any units."""
    numbers: dict[str, int] = {}
    ours, theirs = (
        np.array([numbers.setdefault(unit, len(numbers)) for unit in units], np.int64)
        for units in (hypothesis, reference)
    )
    substitutions, deletions, insertions = _edits(ours, theirs)
    return EditCounts(int(substitutions), int(deletions), int(insertions), len(reference))


@compiled()
def _edits(hypothesis: Array, reference: Array) -> tuple[int, int, int]:
    """Substitutions, deletions and insertions, from a table of distances between beginnings.

        d(i, j) = min(d(i−1, j) + 1, d(i, j−1) + 1, d(i−1, j−1) + [r_i ≠ h_j])

    On the way back a deletion comes first, then an insertion where d(i, j−1) < d(i−1, j−1), then the diagonal: the
    choice of rapidfuzz, which leaves out what both have at their beginning and end as well.
    """
    first, rows, columns = 0, len(reference), len(hypothesis)
    while rows > first and columns > first and reference[rows - 1] == hypothesis[columns - 1]:
        rows, columns = rows - 1, columns - 1
    while first < rows and first < columns and reference[first] == hypothesis[first]:
        first += 1
    reference, hypothesis = reference[first:rows], hypothesis[first:columns]
    rows, columns = len(reference), len(hypothesis)

    moves = np.empty((rows, columns), np.uint8)
    before = np.arange(columns + 1)
    now = np.empty_like(before)
    for i in range(rows):
        now[0] = i + 1
        for j in range(columns):
            diagonal = before[j] + (reference[i] != hypothesis[j])
            now[j + 1] = min(diagonal, before[j + 1] + 1, now[j] + 1)
            if now[j + 1] == before[j + 1] + 1:
                moves[i, j] = DELETION
            elif now[j] < before[j]:
                moves[i, j] = INSERTION
            else:
                moves[i, j] = DIAGONAL
        before, now = now, before

    substitutions, deletions, insertions = 0, 0, 0
    i, j = rows, columns
    while i > 0 and j > 0:
        move = moves[i - 1, j - 1]
        if move == DELETION:
            deletions += 1
            i -= 1
        elif move == INSERTION:
            insertions += 1
            j -= 1
        else:
            substitutions += reference[i - 1] != hypothesis[j - 1]
            i, j = i - 1, j - 1
    return substitutions, deletions + i, insertions + j
