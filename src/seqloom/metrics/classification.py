"""Scores of predicted classes: accuracy, macro-F1 and the counts of confusions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from seqloom.metrics.scoring import Bootstrap, CorpusScore, Statistics, check_counts, score


@dataclass(frozen=True)
class Accuracy:
    """The share of lines with the right label.

        accuracy = 100 · matches / lines

    Parts: matches, lines.
    """

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        pairs = zip(hypotheses, references, strict=True)
        parts = np.array([(float(one == other), 1.0) for one, other in pairs])
        signature = f"nrefs:1|labels:{len({*references})}"
        return Statistics("accuracy", float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / sums[:, 1])


@dataclass(frozen=True)
class MacroF1:
    """The mean F1 of all labels that occur in references or hypotheses, rare ones counting as much as frequent ones.

        F1 of a label = 2 · matches / (times it was predicted + times it is right)
        macro-F1      = 100 · mean over the labels

    Parts: matches of each label, then the sums of its two counts.
    """

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        labels = sorted({*hypotheses, *references})
        predicted, right = one_hot(hypotheses, labels), one_hot(references, labels)
        parts = np.concatenate([predicted * right, predicted + right], axis=1)  # [lines, 2 · labels]
        signature = f"nrefs:1|labels:{len({*references})}|average:macro"
        return Statistics("macro-F1", float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        matches, counts = np.split(sums, 2, axis=1)  # [corpora, labels]
        scores = np.divide(2 * matches, counts, out=np.zeros_like(counts), where=counts > 0)
        return np.asarray(100 * scores.sum(axis=1) / np.maximum(1, (counts > 0).sum(axis=1)))


def one_hot(given: Sequence[str], labels: Sequence[str]) -> Float[np.ndarray, "lines labels"]:
    """1 in the column of the label of each line, 0 elsewhere."""
    column = {label: at for at, label in enumerate(labels)}
    table = np.zeros((len(given), len(labels)))
    table[np.arange(len(given)), [column[label] for label in given]] = 1
    return table


def score_labels(
    hypotheses: Sequence[str], references: Sequence[str], *, bootstrap: Bootstrap | None = None
) -> tuple[CorpusScore, CorpusScore]:
    """Accuracy and macro-F1, with the intervals that hold 95% of bootstrap resamples if they are requested."""
    accuracy, macro_f1 = (
        score(metric, hypotheses, references=references, bootstrap=bootstrap) for metric in (Accuracy(), MacroF1())
    )
    return accuracy, macro_f1


def confusion_counts(
    hypotheses: Sequence[str], references: Sequence[str], *, labels: Sequence[str]
) -> Int64[np.ndarray, "right predicted"]:
    """How often each label (row) was predicted as each label (column)."""
    check_counts(hypotheses, references)
    counts: np.ndarray = (one_hot(references, labels).T @ one_hot(hypotheses, labels)).astype(np.int64)
    return counts
