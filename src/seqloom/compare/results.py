"""What is measured of each rung: quality with intervals, by length and by word frequency, time, speed and size."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from seqloom.metrics.scoring import Bootstrap, CorpusScore, Metric, paired_bootstrap, score
from seqloom.metrics.translation import Bleu, Chrf, tokenize_for
from seqloom.text.marks import split_words

LENGTH_BORDERS = (5, 10, 15, 20, 30)
"""Source words at which a new class of lengths begins; classes of few lines are joined to their neighbours."""

FREQUENCY_BORDERS = (1, 6, 51)
"""Classes of target words by how often the training text has them: never, 1 to 5, 6 to 50, more."""

MIN_CLASS_LINES = 20


@dataclass(frozen=True)
class Score:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float

    @staticmethod
    def of(found: CorpusScore) -> "Score":
        """From a score with a bootstrap."""
        low, high = found.interval or (found.value, found.value)
        return Score(found.value, low, high)


@dataclass(frozen=True)
class Scale:
    """How the main score of a comparison is named and shown."""

    name: str
    decimals: int = 1
    is_error: bool = False
    """Whether less is better."""
    least_top: float = 0.0
    """The least value at the right end of a picture of bars."""

    def shown(self, value: float) -> str:
        return f"{value:.{self.decimals}f}"

    def with_interval(self, score: Score) -> str:
        return f"{self.shown(score.value)} [{self.shown(score.low)},\N{NO-BREAK SPACE}{self.shown(score.high)}]"


BLEU = Scale("BLEU", least_top=10.0)


class Result(Protocol):
    """What any rung reached on the test set."""

    @property
    def name(self) -> str: ...

    @property
    def main(self) -> Score:
        """The score by which rungs are compared."""
        ...

    @property
    def minutes(self) -> float:
        """Of training or fitting."""
        ...

    @property
    def is_improving(self) -> bool:
        """Whether its dev loss was still falling when its minutes were over."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TaskResult:
    """What a rung reached on the test set of a task other than translation."""

    name: str
    scores: Mapping[str, Score]
    """The main one first."""
    minutes: float
    per_second: float
    """Words, texts or forecasts per second."""
    megabytes: float
    parameters: int
    """0 of rules without any."""
    is_improving: bool
    signatures: Mapping[str, str]

    @property
    def main(self) -> Score:
        return next(iter(self.scores.values()))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "TaskResult":
        """What `to_json` gave. A TypeError or KeyError if something is missing."""
        return TaskResult(**{**values, "scores": {name: Score(**each) for name, each in values["scores"].items()}})


@dataclass(frozen=True)
class RungResult:
    """What a translator reached on the test set."""

    name: str
    bleu: Score
    chrf: Score
    minutes: float
    """Of training or fitting."""
    sentences_per_second: float
    megabytes: float
    parameters: int
    is_improving: bool
    """Whether its dev loss was still falling when its minutes were over."""
    signatures: Mapping[str, str]
    by_length: Mapping[str, float]
    """BLEU of the lines with so many source words."""
    by_frequency: Mapping[str, float]
    """F₁ of the target words that the training text has so often."""

    @property
    def main(self) -> Score:
        return self.bleu

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "RungResult":
        """What `to_json` gave. A TypeError or KeyError if something is missing."""
        return RungResult(**{**values, "bleu": Score(**values["bleu"]), "chrf": Score(**values["chrf"])})


@dataclass(frozen=True)
class Step:
    """The test between a rung and the one before it."""

    lower: str
    upper: str
    difference: float
    low: float
    high: float
    p_value: float


def bleu_of(language: str | None) -> Bleu:
    """BLEU as it suits a target language."""
    return Bleu(tokenize=tokenize_for(language))


def score_lines(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str | None, seed: int = 1, resamples: int = 1000
) -> tuple[Score, Score, dict[str, str]]:
    """BLEU and chrF with intervals, and their signatures."""
    bootstrap = Bootstrap(seed, resamples)
    found = [
        score(metric, hypotheses, references=references, bootstrap=bootstrap) for metric in (bleu_of(language), Chrf())
    ]
    return Score.of(found[0]), Score.of(found[1]), {each.name: each.signature for each in found}


def compare_neighbours(
    translations: Mapping[str, Sequence[str]], references: Sequence[str], *, language: str | None, seed: int = 1
) -> list[Step]:
    """A paired bootstrap of BLEU between neighbours, in the order of the rungs."""
    return [
        compare_two(lower, upper, translations, references, language=language, seed=seed)
        for lower, upper in pairwise(translations)
    ]


def compare_two(
    lower: str,
    upper: str,
    translations: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    language: str | None,
    seed: int = 1,
) -> Step:
    """A paired bootstrap of BLEU between two rungs."""
    return difference(bleu_of(language), lower, upper, translations, references, seed=seed)


def difference(
    metric: Metric,
    lower: str,
    upper: str,
    outputs: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    seed: int,
) -> Step:
    """A paired bootstrap of a metric between two rungs."""
    found = paired_bootstrap(metric, references, baseline=outputs[lower], system=outputs[upper], seed=seed)
    low, high = found.interval or (found.difference, found.difference)
    return Step(lower, upper, found.difference, low, high, found.p_value)


def bleu_by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], *, language: str | None
) -> dict[str, float]:
    """BLEU of the lines in each class of source lengths."""
    lengths = np.array([len(split_words(line)) for line in sources])
    metric = bleu_of(language)
    found = {}
    for low, high in _classes(lengths):
        chosen = np.flatnonzero((lengths >= low) & (lengths < high)).tolist()
        label = f"{low}+" if high == math.inf else f"{low}–{int(high) - 1}" if high - low > 1 else f"{low}"
        lines = [[side[at] for at in chosen] for side in (hypotheses, references)]
        found[label] = score(metric, lines[0], references=lines[1]).value
    return found


def _classes(lengths: np.ndarray) -> list[tuple[int, float]]:
    """Classes of lengths that have enough lines each."""
    borders = [1]
    for border in LENGTH_BORDERS:
        below = ((lengths >= borders[-1]) & (lengths < border)).sum()
        if below >= MIN_CLASS_LINES and (lengths >= border).sum() >= MIN_CLASS_LINES:
            borders.append(border)
    return list(zip(borders, [*map(float, borders[1:]), math.inf], strict=True))


def words_by_frequency(
    hypotheses: Sequence[str], references: Sequence[str], *, known: Mapping[str, int]
) -> dict[str, float]:
    """F₁ of target words, lower-cased, by how often the training text has them.

    matched = Σ over lines and words  min(count in the hypothesis, count in the reference)
    F₁      = 2 · matched / (words of the hypotheses + words of the references)
    """
    classes = len(FREQUENCY_BORDERS) + 1
    matched, total = np.zeros(classes), np.zeros(classes)
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        one, other = (Counter(split_words(line.lower())) for line in (hypothesis, reference))
        for word in one.keys() | other.keys():
            at = int(np.searchsorted(FREQUENCY_BORDERS, known.get(word, 0), side="right"))
            matched[at] += min(one[word], other[word])
            total[at] += one[word] + other[word]
    labels = ["never", "1 to 5", "6 to 50", "more than 50"]
    return {label: float(2 * matched[at] / total[at]) for at, label in enumerate(labels) if total[at]}


def word_counts(lines: Sequence[str]) -> Counter[str]:
    """How often each word occurs, lower-cased."""
    return Counter(word for line in lines for word in split_words(line.lower()))
