"""ROUGE of summaries (Lin, 2004), as the package rouge-score computes it without a stemmer.

    P = common / units of the output,  R = common / units of the reference,  F = 2 P R / (P + R)

where `common` are the n-grams that both have, each as often as both have it (ROUGE-1, ROUGE-2), or the length of the
longest common subsequence of words (ROUGE-L). The score of a corpus is the mean F of its lines.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from seqloom.core.jit import compiled
from seqloom.metrics.scoring import Statistics

Array = np.ndarray

Words = Literal["ascii", "unicode"]
"""What a word is, after lower-casing: a run of a–z and 0–9, as in rouge-score, where `été` is `t`; or a run of the
letters and digits of any script."""

MIN_ASCII_SHARE = 0.98
"""Letters that must be of a–z for words to be found as rouge-score finds them."""

_runs: dict[Words, re.Pattern[str]] = {"ascii": re.compile("[a-z0-9]+"), "unicode": re.compile(r"[^\W_]+")}


@dataclass(frozen=True)
class Rouge:
    """ROUGE-1, ROUGE-2 or ROUGE-L. Parts: the F of the line, 1."""

    unit: Literal["1", "2", "L"] = "1"
    words: Words = "ascii"

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        pairs = zip(hypotheses, references, strict=True)
        parts = np.array([(self.f_score(ours, theirs), 1.0) for ours, theirs in pairs])
        signature = f"nrefs:1|case:lc|words:{self.words}|stemmer:no|f:mean"
        return Statistics(f"ROUGE-{self.unit}", float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / sums[:, 1])

    def f_score(self, hypothesis: str, reference: str) -> float:
        """F of one line, from 0 to 1; 0 if a side has no words."""
        find = _runs[self.words].findall
        ours, theirs = find(hypothesis.lower()), find(reference.lower())
        if self.unit == "L":
            common, counts = _common_subsequence(ours, theirs), (len(ours), len(theirs))
        else:
            n = int(self.unit)
            first, second = (Counter(zip(*(words[at:] for at in range(n)), strict=False)) for words in (ours, theirs))
            common, counts = (first & second).total(), (first.total(), second.total())
        return 2 * common / sum(counts) if common else 0.0  # = 2 P R / (P + R)


def words_for(lines: Sequence[str]) -> Words:
    """As rouge-score finds words where nearly all letters are of a–z; else by the letters of any script."""
    letters = [letter for line in lines for letter in line.lower() if letter.isalpha()]
    return "ascii" if sum(letter.isascii() for letter in letters) >= MIN_ASCII_SHARE * len(letters) else "unicode"


def _common_subsequence(ours: Sequence[str], theirs: Sequence[str]) -> int:
    numbers: dict[str, int] = {}
    one, other = (
        np.array([numbers.setdefault(word, len(numbers)) for word in side], np.int64) for side in (ours, theirs)
    )
    return int(_longest(one, other))


@compiled()
def _longest(one: Array, other: Array) -> int:
    """The length of the longest common subsequence, from those of all beginnings."""
    before, now = np.zeros(len(other) + 1, np.int64), np.zeros(len(other) + 1, np.int64)
    for i in range(len(one)):
        for j in range(len(other)):
            now[j + 1] = before[j] + 1 if one[i] == other[j] else max(before[j + 1], now[j])
        before, now = now, before
    return int(before[len(other)])
