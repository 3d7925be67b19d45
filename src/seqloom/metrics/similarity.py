"""How well cosines of word vectors agree with people: rank correlation with their judgements (Spearman's ρ).

    ρ = the correlation of the ranks,   r = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)
    equal values share the mean of the ranks that they take up

Pairs with a word that has no vector are left out and counted; case is ignored. gensim's
`evaluate_word_pairs` does the same, so the numbers can be compared.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import DataError, Problems
from seqloom.core.files import read_lines


@dataclass(frozen=True)
class JudgedPair:
    """Two words and how similar people find them."""

    one: str
    other: str
    judgement: float


@dataclass(frozen=True)
class SimilarityScore:
    """Rank correlation and plain correlation over the pairs that could be compared."""

    spearman: float
    pearson: float
    pairs: int
    left_out: int

    def __str__(self) -> str:
        return (
            f"Spearman {self.spearman:.4f}, Pearson {self.pearson:.4f} "
            f"({self.pairs:,} of {self.pairs + self.left_out:,} pairs)"
        )


def read_judgements(path: Path) -> list[JudgedPair]:
    """A line per pair, word, word and number between tabs, as in WordSim-353; lines that begin with # are ignored."""
    pairs, problems = [], Problems()
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split("\t")
        try:
            one, other, judgement = parts[0].strip(), parts[1].strip(), float(parts[2])
            if not math.isfinite(judgement):
                raise ValueError
        except (IndexError, ValueError):
            what = f"{line[:60]!r} is not a word, a word and a number with tabs between"
            problems.add(what, path, number)
            continue
        pairs.append(JudgedPair(one, other, judgement))
    problems.require_none()
    if not pairs:
        raise DataError(f"{path} has no pairs; a line holds a word, a word and a number with tabs between")
    return pairs


def score_similarity(pairs: Iterable[JudgedPair], similarity: Callable[[str, str], float | None]) -> SimilarityScore:
    """Compare with what people say; `similarity` gives None for a pair with an unknown word."""
    found: list[tuple[float, float]] = []
    left_out = 0
    for pair in pairs:
        value = similarity(pair.one, pair.other)
        if value is None:
            left_out += 1
        else:
            found.append((value, pair.judgement))
    if len(found) < 2:
        raise DataError(
            f"{len(found)} of {len(found) + left_out} pairs have vectors for both words, and a correlation needs 2"
        )
    ours, theirs = np.array(found, np.float64).T
    for values, what in ((ours, "cosines"), (theirs, "judgements")):
        if (values == values[0]).all():
            raise DataError(
                f"the {what} of all {len(found)} pairs are {values[0]:g}; a correlation needs values that differ"
            )
    return SimilarityScore(
        rank_correlation(ours, theirs), correlation(ours, theirs), pairs=len(found), left_out=left_out
    )


def rank_correlation(ours: Float64[np.ndarray, " values"], theirs: Float64[np.ndarray, " values"]) -> float:
    """Spearman's ρ of values that belong together pair by pair."""
    return correlation(ranks(ours), ranks(theirs))


def ranks(values: Float64[np.ndarray, " values"]) -> Float64[np.ndarray, " values"]:
    """1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: Float64[np.ndarray, " values"] = (last - (counts - 1) / 2)[inverse].astype(np.float64)
    return shared


def correlation(ours: Float64[np.ndarray, " values"], theirs: Float64[np.ndarray, " values"]) -> float:
    """Pearson's r; NaN where one side is the same everywhere, since then there is nothing to agree with."""
    x, y = ours - ours.mean(), theirs - theirs.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else float("nan")
