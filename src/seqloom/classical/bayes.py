"""A classifier by counting: naive Bayes over the n-grams of a text (McCallum and Nigam, 1998; Wang and Manning, 2012).

    c = argmax log P(c) + Σ_g log P(g ∣ c)          g: the different words and pairs of neighbours of the text

    P(c)     = texts of class c / texts
    P(g ∣ c) = (n(g, c) + α) / (Σ_g' n(g', c) + α V)     n(g, c): texts of class c that have g; V: different n-grams

An n-gram counts once in a text, which suits short texts better than its frequency. Those that the training text does
not have are left out. scikit-learn's MultinomialNB computes the same from a matrix of zeros and ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import DataError
from seqloom.text.marks import split_characters
from seqloom.text.normalise import collapse_spaces

MAX_CELLS = 50_000_000
"""Numbers of the table, classes times n-grams; beyond it, the rarest n-grams are left out."""

Gram = tuple[str, ...]


def words_of(texts: Sequence[str]) -> list[str]:
    """The words of a text, or pair, in lower case; those of the second text are marked, and differ from the first."""
    words: list[str] = []
    for place, text in enumerate(texts):
        cut = split_characters(collapse_spaces(text.lower()))
        words += cut if not place else [f"{place}\t", *(f"{place}\t{word}" for word in cut)]
    return words


def grams_of(words: Sequence[str], *, order: int) -> set[Gram]:
    """The different n-grams of a text, from single words to `order` neighbours."""
    return {tuple(words[at : at + size]) for size in range(1, order + 1) for at in range(len(words) - size + 1)}


@dataclass(frozen=True, eq=False)
class NaiveBayes:
    """Counts of n-grams, made into logarithms of probabilities."""

    labels: tuple[str, ...]
    grams: Mapping[Gram, int]
    """The column of each n-gram."""
    log_priors: Float64[np.ndarray, " classes"]
    log_likelihoods: Float64[np.ndarray, "classes grams"]
    order: int

    @staticmethod
    def fit(
        texts: Iterable[Sequence[str]], labels: Iterable[str], *, order: int = 2, alpha: float = 1.0
    ) -> "NaiveBayes":
        """Count the n-grams of texts, which are words, by the labels of the texts."""
        found = [(grams_of(words, order=order), label) for words, label in zip(texts, labels, strict=True)]
        if not found:
            raise DataError("there is no text to count")
        known = tuple(sorted({label for _, label in found}))
        counts = Counter(gram for grams, _ in found for gram in grams)
        least = 1
        kept = counts
        while len(kept) * len(known) > MAX_CELLS:
            least += 1
            kept = Counter({gram: count for gram, count in counts.items() if count >= least})
        column = {gram: at for at, gram in enumerate(kept)}
        row = {label: at for at, label in enumerate(known)}
        table = np.full((len(known), len(column)), alpha)
        for grams, label in found:
            table[row[label], [column[gram] for gram in grams if gram in column]] += 1
        priors = np.bincount([row[label] for _, label in found], minlength=len(known)) / len(found)
        likelihoods = np.log(table) - np.log(table.sum(axis=1, keepdims=True))
        return NaiveBayes(known, column, np.log(priors), likelihoods, order)

    def log_joint(self, texts: Iterable[Sequence[str]]) -> Float64[np.ndarray, "texts classes"]:
        """log P(c) + Σ_g log P(g ∣ c) for each text and class."""
        rows = []
        for words in texts:
            known = [self.grams[gram] for gram in grams_of(words, order=self.order) if gram in self.grams]
            rows.append(self.log_priors + self.log_likelihoods[:, known].sum(axis=1))
        return np.array(rows).reshape(-1, len(self.labels))

    def classify(self, texts: Iterable[Sequence[str]]) -> list[str]:
        """The likeliest label of each text."""
        return [self.labels[at] for at in self.log_joint(texts).argmax(axis=1).tolist()]


def majority_label(labels: Iterable[str]) -> str:
    """The most frequent label; of several the first in their order."""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))
