"""The score of a translation with its interval, and whether one system is really better than another.

A corpus score is a function of sums over the lines, its sufficient statistics. They are extracted once; a bootstrap
then needs sums only, so a thousand resamples cost one matrix product (`Metric.values`).

Two tests compare two systems on the same lines and give the probability p of so large a difference by chance alone:

    paired bootstrap            draws lines with replacement, the same for both systems (Koehn, 2004)
    approximate randomisation   swaps the two outputs of a line by the toss of a coin (Riezler and Maxwell, 2005)

    p = (1 + number of trials at least as extreme as what was observed) / (1 + trials)

A trial that equals the observed difference counts as extreme, so a system compared with itself has p = 1. (sacrebleu,
whose p is the same otherwise, leaves such trials out.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float

from seqloom.core.errors import DataError, UsageError


@dataclass(frozen=True)
class CorpusScore:
    """A metric's value on one test set. `signature` says how it was computed; `interval` holds 95% of resamples."""

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Bootstrap:
    """How an interval is found: the lines are drawn with replacement, `resamples` times."""

    seed: int
    resamples: int = 1000


@dataclass(frozen=True)
class Statistics:
    """What a metric keeps of each line, and what it makes of their sum over all lines."""

    name: str
    value: float
    signature: str
    lines: Float[np.ndarray, "lines parts"]


class Metric(Protocol):
    """A corpus metric that depends on the lines only through a sum over them."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        """The parts of each line, with the score and signature of the whole."""
        ...

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        """The score of each corpus, given the sum of its lines' parts."""
        ...


def score(
    metric: Metric, hypotheses: Sequence[str], *, references: Sequence[str], bootstrap: Bootstrap | None = None
) -> CorpusScore:
    """The value of a metric, with the interval that holds 95% of bootstrap resamples if one is requested."""
    check_counts(hypotheses, references)
    found = metric.statistics(hypotheses, references)
    if bootstrap is None:
        return CorpusScore(found.name, found.value, found.signature)
    values = metric.values(resampled_sums(found.lines, bootstrap))
    signature = f"{found.signature}|bs:{bootstrap.resamples}|seed:{bootstrap.seed}"
    return CorpusScore(found.name, found.value, signature, middle(values))


def resampled_sums(
    lines: Float[np.ndarray, "lines parts"], bootstrap: Bootstrap
) -> Float[np.ndarray, "resamples parts"]:
    """The sum over each resample of the lines: how often each line was drawn, times its parts."""
    if bootstrap.resamples < 40:
        raise UsageError(f"{bootstrap.resamples} resamples cannot show 2.5% at either side; give 40 or more, best 1000")
    generator = np.random.default_rng(bootstrap.seed)
    count = len(lines)
    at_once = max(1, 2_000_000 // count)  # bounds the memory for large test sets
    sums = []
    for first in range(0, bootstrap.resamples, at_once):
        rows = min(at_once, bootstrap.resamples - first)
        drawn = generator.integers(0, count, size=(rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        sums.append(times.astype(np.float64) @ lines)
    return np.concatenate(sums)


def middle(values: Float[np.ndarray, " resamples"]) -> tuple[float, float]:
    """The interval that leaves out one fortieth of the values at either side."""
    ordered = np.sort(values)
    outside = len(ordered) // 40
    return float(ordered[outside]), float(ordered[-1 - outside])


def check_counts(hypotheses: Sequence[str], references: Sequence[str], *, system: str | None = None) -> None:
    """Refuse what cannot be compared line by line; `system` names the hypotheses in the message."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise UsageError(f"{name} must be a list of lines, but one string was given: {lines[:40]!r}")
    place = "" if system is None else f"{system}: "
    if len(hypotheses) != len(references):
        raise DataError(
            f"{place}{len(hypotheses)} hypotheses cannot be compared with {len(references)} references: "
            "each line needs its own reference; check for lines that were dropped, joined or split"
        )
    if not hypotheses:
        raise DataError(f"{place}there is nothing to score: 0 hypotheses and 0 references were given")


@dataclass(frozen=True)
class Comparison:
    """Two systems by one metric. `difference` is system − baseline; its `interval` holds 95% of bootstrap resamples."""

    name: str
    baseline: float
    system: float
    p_value: float
    signature: str
    interval: tuple[float, float] | None = None

    @property
    def difference(self) -> float:
        return self.system - self.baseline


def paired_bootstrap(
    metric: Metric,
    references: Sequence[str],
    *,
    baseline: Sequence[str],
    system: Sequence[str],
    seed: int,
    resamples: int = 1000,
) -> Comparison:
    """Resample the lines, the same for both systems.

    d_b = |score of system − score of baseline| on resample b
    p   = P(d_b − mean(d) ≥ observed difference)       centred: under chance alone the difference is 0
    """
    first, second = _both(metric, references, baseline=baseline, system=system)
    bootstrap = Bootstrap(seed, resamples)
    scores = [metric.values(resampled_sums(found.lines, bootstrap)) for found in (first, second)]
    differences = scores[1] - scores[0]
    sizes = np.abs(differences)
    p_value = _p_value(sizes - sizes.mean(), metric, first, second)
    signature = f"{first.signature}|bs:{resamples}|seed:{seed}"
    return Comparison(first.name, first.value, second.value, p_value, signature, middle(differences))


def approximate_randomisation(
    metric: Metric,
    references: Sequence[str],
    *,
    baseline: Sequence[str],
    system: Sequence[str],
    seed: int,
    trials: int = 10_000,
) -> Comparison:
    """Swap the outputs of each line with probability ½; if the systems are equal, that changes little.

    p = P(|difference after swapping| ≥ |observed difference|)
    """
    if trials < 1:
        raise UsageError(f"{trials} trials give no probability; give 1 or more, best 10000")
    first, second = _both(metric, references, baseline=baseline, system=system)
    generator = np.random.default_rng(seed)
    count = len(first.lines)
    total = first.lines.sum(axis=0) + second.lines.sum(axis=0)
    gap = first.lines - second.lines
    # Bounds the memory. A multiple of 32: the generator draws that many coins at a time and drops what is left over.
    at_once = max(32, 2_000_000 // count // 32 * 32)
    sizes = []
    for start in range(0, trials, at_once):
        is_kept = generator.integers(2, size=(min(at_once, trials - start), count), dtype=bool)
        left = is_kept.astype(np.float64) @ gap + second.lines.sum(axis=0)
        sizes.append(np.abs(metric.values(left) - metric.values(total - left)))
    p_value = _p_value(np.concatenate(sizes), metric, first, second)
    return Comparison(first.name, first.value, second.value, p_value, f"{first.signature}|ar:{trials}|seed:{seed}")


def _both(
    metric: Metric, references: Sequence[str], *, baseline: Sequence[str], system: Sequence[str]
) -> tuple[Statistics, Statistics]:
    check_counts(baseline, references, system="baseline")
    check_counts(system, references, system="system")
    return metric.statistics(baseline, references), metric.statistics(system, references)


def _p_value(trials: Float[np.ndarray, " trials"], metric: Metric, first: Statistics, second: Statistics) -> float:
    """The observed difference is computed as those of the trials are, so that equal ones compare as equal."""
    one, other = metric.values(np.stack([first.lines.sum(axis=0), second.lines.sum(axis=0)]))
    return float((np.count_nonzero(trials >= abs(other - one)) + 1) / (len(trials) + 1))
