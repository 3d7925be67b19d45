"""Is one system really better than another, or was it the choice of test sentences?

Both tests compare two systems on the same lines and give the probability p of so large a difference by chance alone:

    paired bootstrap            draws lines with replacement, the same for both systems (Koehn, 2004)
    approximate randomisation   swaps the two outputs of a line by the toss of a coin (Riezler and Maxwell, 2005)

    p = (1 + number of trials at least as extreme as what was observed) / (1 + trials)

A trial that equals the observed difference counts as extreme, so a system compared with itself has p = 1. (sacrebleu,
whose p is the same otherwise, leaves such trials out.)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from seqloom.core.errors import DataError, UsageError
from seqloom.metrics.translation import Bootstrap, Metric, Statistics, check_counts, middle, resampled_sums


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
    p_value = _p_value(sizes - sizes.mean(), _observed(metric, first, second))
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
    """Swap the outputs of each line with probability ½; if the systems are alike, that changes little.

    p = P(|difference after swapping| ≥ |observed difference|)
    """
    if trials < 1:
        raise UsageError(f"{trials} trials give no probability; give 1 or more, best 10000")
    first, second = _both(metric, references, baseline=baseline, system=system)
    generator = np.random.default_rng(seed)
    count = len(references)
    total = first.lines.sum(axis=0) + second.lines.sum(axis=0)
    gap = first.lines - second.lines
    # Bounds the memory. A multiple of 32: the generator draws that many coins at a time and drops what is left over.
    at_once = max(32, 2_000_000 // count // 32 * 32)
    sizes = []
    for start in range(0, trials, at_once):
        is_kept = generator.integers(2, size=(min(at_once, trials - start), count), dtype=bool)
        left = is_kept.astype(np.float64) @ gap + second.lines.sum(axis=0)
        sizes.append(np.abs(metric.values(left) - metric.values(total - left)))
    p_value = _p_value(np.concatenate(sizes), _observed(metric, first, second))
    return Comparison(first.name, first.value, second.value, p_value, f"{first.signature}|ar:{trials}|seed:{seed}")


def _both(
    metric: Metric, references: Sequence[str], *, baseline: Sequence[str], system: Sequence[str]
) -> tuple[Statistics, Statistics]:
    for name, lines in (("baseline", baseline), ("system", system)):
        try:
            check_counts(lines, references)
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
    return metric.statistics(baseline, references), metric.statistics(system, references)


def _observed(metric: Metric, first: Statistics, second: Statistics) -> float:
    """The size of the difference, computed as that of the trials is, so that equal ones compare as equal."""
    sums = np.stack([first.lines.sum(axis=0), second.lines.sum(axis=0)])
    values = metric.values(sums)
    return float(abs(values[1] - values[0]))


def _p_value(trials: Float[np.ndarray, " trials"], observed: float) -> float:
    return float((np.count_nonzero(trials >= observed) + 1) / (len(trials) + 1))
