"""Evaluate: scores of translations with confidence intervals, and significance tests between two systems."""

from collections.abc import Sequence
from typing import Literal

from seqloom.metrics.scoring import (
    Bootstrap,
    Comparison,
    CorpusScore,
    Metric,
    approximate_randomisation,
    paired_bootstrap,
    score,
)
from seqloom.metrics.translation import metrics_for

Test = Literal["bootstrap", "randomisation"]
"""Paired bootstrap, or approximate randomisation."""


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    metrics: Sequence[Metric] | None = None,
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[CorpusScore, ...]:
    """Scores with signatures and 95% bootstrap intervals.

    Without `metrics` they are BLEU, chrF and TER, and exact match too if the references are short.
    """
    bootstrap = Bootstrap(seed=seed, resamples=resamples)
    if metrics is None:
        metrics = metrics_for(language, lowercase=lowercase, references=references)
    return tuple(score(metric, hypotheses, references=references, bootstrap=bootstrap) for metric in metrics)


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    metrics: Sequence[Metric] | None = None,
    test: Test = "bootstrap",
    resamples: int = 1000,
    trials: int = 10_000,
    seed: int = 1,
) -> tuple[Comparison, ...]:
    """A test between two systems on the same references, for each metric; the bootstrap also gives an interval."""
    if metrics is None:
        metrics = metrics_for(language, lowercase=lowercase, references=references)
    systems = {"baseline": baseline, "system": system}
    if test == "randomisation":
        return tuple(
            approximate_randomisation(metric, references, **systems, seed=seed, trials=trials) for metric in metrics
        )
    return tuple(paired_bootstrap(metric, references, **systems, seed=seed, resamples=resamples) for metric in metrics)
