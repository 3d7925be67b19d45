"""Scores of tags: accuracy, precision and recall of each tag, and of spans of words as conlleval counts them.

    precision = 100 · right / predicted          recall = 100 · right / expected
    F1        = 200 · right / (predicted + expected)

A span is right if its first word, its last word and its label are. Sums are over all sentences, so that each word, or
each span, counts the same.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from seqloom.core.errors import DataError
from seqloom.metrics.scoring import Bootstrap, CorpusScore, Metric, Statistics, middle, resampled_sums
from seqloom.text.spans import spans_of

Tags = Sequence[Sequence[str]]
"""The tags of the words of each sentence."""


@dataclass(frozen=True)
class FoundCounts:
    """How often something was predicted, expected, and both at the same place."""

    right: int
    predicted: int
    expected: int

    @property
    def precision(self) -> float:
        return 100 * self.right / max(1, self.predicted)

    @property
    def recall(self) -> float:
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        return 200 * self.right / max(1, self.predicted + self.expected)


def score_tags(hypotheses: Tags, references: Tags, *, bootstrap: Bootstrap | None = None) -> CorpusScore:
    """The share of words with the right tag; a bootstrap draws sentences."""
    _check(hypotheses, references)
    pairs = zip(hypotheses, references, strict=True)
    parts = [(sum(map(str.__eq__, one, other)), len(other)) for one, other in pairs]
    labels = len({tag for tags in references for tag in tags})
    return _share("accuracy", parts, signature=f"nrefs:1|labels:{labels}", bootstrap=bootstrap)


def score_spans(hypotheses: Tags, references: Tags, *, bootstrap: Bootstrap | None = None) -> CorpusScore:
    """F1 of spans, over all labels; a bootstrap draws sentences."""
    _check(hypotheses, references)
    parts = []
    for one, other in zip(hypotheses, references, strict=True):
        predicted, expected = {*spans_of(one)}, {*spans_of(other)}
        parts.append((2 * len(predicted & expected), len(predicted) + len(expected)))
    return _share("span F1", parts, signature="nrefs:1|spans:conlleval|average:micro", bootstrap=bootstrap)


def join_tags(tags: Sequence[str]) -> str:
    """The tags of a sentence as one line, as `TagAccuracy` and `SpanF1` read them."""
    return "\t".join(tags)


@dataclass(frozen=True)
class TagAccuracy:
    """`score_tags` of sentences that are one line of tags each, for tests between two systems."""

    column: str

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        parts, labels = [], set[str]()
        for one, other in zip(hypotheses, references, strict=True):
            tags = other.split("\t")
            labels.update(tags)
            parts.append((sum(map(str.__eq__, one.split("\t"), tags)), len(tags)))
        return _statistics(f"{self.column} accuracy", parts, f"nrefs:1|labels:{len(labels)}", self)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / np.maximum(1, sums[:, 1]))


@dataclass(frozen=True)
class SpanF1:
    """`score_spans` of the same lines."""

    column: str

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        parts = []
        for one, other in zip(hypotheses, references, strict=True):
            predicted, expected = ({*spans_of(line.split("\t"))} for line in (one, other))
            parts.append((2 * len(predicted & expected), len(predicted) + len(expected)))
        return _statistics(f"{self.column} span F1", parts, "nrefs:1|spans:conlleval|average:micro", self)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / np.maximum(1, sums[:, 1]))


def _statistics(name: str, parts: Sequence[tuple[int, int]], signature: str, metric: Metric) -> Statistics:
    lines = np.array(parts, np.float64)  # [sentences, 2]
    return Statistics(name, float(metric.values(lines.sum(axis=0)[None])[0]), signature, lines)


def count_tags(hypotheses: Tags, references: Tags) -> dict[str, FoundCounts]:
    """The counts of each tag, in the order of the tags."""
    _check(hypotheses, references)
    return _counts(
        [(place, word, tag) for place, tags in enumerate(each) for word, tag in enumerate(tags)]
        for each in (hypotheses, references)
    )


def count_spans(hypotheses: Tags, references: Tags) -> dict[str, FoundCounts]:
    """The counts of the spans of each label, in the order of the labels."""
    _check(hypotheses, references)
    return _counts(
        [(place, (begin, end), label) for place, tags in enumerate(each) for begin, end, label in spans_of(tags)]
        for each in (hypotheses, references)
    )


def total(counts: Mapping[str, FoundCounts]) -> FoundCounts:
    """The counts of all tags or labels together."""
    parts = [(each.right, each.predicted, each.expected) for each in counts.values()]
    right, predicted, expected = (sum(column) for column in zip(*parts, strict=True)) if parts else (0, 0, 0)
    return FoundCounts(right, predicted, expected)


def _counts(found: Iterable[Sequence[tuple[int, Hashable, str]]]) -> dict[str, FoundCounts]:
    """The counts of each label, given where it was predicted and where it is expected."""
    predicted, expected = found
    everywhere = [Counter(label for *_, label in each) for each in ({*predicted} & {*expected}, predicted, expected)]
    labels = sorted({*everywhere[1], *everywhere[2]})
    return {label: FoundCounts(*(each[label] for each in everywhere)) for label in labels}


def _check(hypotheses: Tags, references: Tags) -> None:
    """Refuse what cannot be compared word by word."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} tagged sentences cannot be compared with {len(references)} references")
    for number, (one, other) in enumerate(zip(hypotheses, references, strict=True), start=1):
        if len(one) != len(other):
            raise DataError(f"sentence {number} has {len(one)} tags, but its reference has {len(other)}")
    if not any(references):
        raise DataError("there is nothing to score: the references have no words")


def _share(name: str, parts: Sequence[tuple[int, int]], *, signature: str, bootstrap: Bootstrap | None) -> CorpusScore:
    """100 times the ratio of two sums over the sentences."""
    lines = np.array(parts, np.float64)  # [sentences, 2]

    def values(sums: Float[np.ndarray, "corpora 2"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / np.maximum(1, sums[:, 1]))

    value = float(values(lines.sum(axis=0)[None])[0])
    if bootstrap is None:
        return CorpusScore(name, value, signature)
    signature = f"{signature}|bs:{bootstrap.resamples}|seed:{bootstrap.seed}"
    return CorpusScore(name, value, signature, middle(values(resampled_sums(lines, bootstrap))))
