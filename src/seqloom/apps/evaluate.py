"""Evaluate: scores of translations with confidence intervals, and significance tests between two systems."""

from collections.abc import Sequence
from typing import Literal

from seqloom.metrics.significance import Comparison, approximate_randomisation, paired_bootstrap
from seqloom.metrics.translation import Bootstrap, Score, metrics_for, score

Test = Literal["bootstrap", "randomisation"]
"""Paired bootstrap, or approximate randomisation."""


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[Score, ...]:
    """BLEU, chrF and TER, of short references also exact match, with signatures and 95% bootstrap intervals."""
    bootstrap = Bootstrap(seed=seed, resamples=resamples)
    metrics = metrics_for(language, lowercase=lowercase, references=references)
    return tuple(score(metric, hypotheses, references=references, bootstrap=bootstrap) for metric in metrics)


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    test: Test = "bootstrap",
    resamples: int = 1000,
    trials: int = 10_000,
    seed: int = 1,
) -> tuple[Comparison, ...]:
    """A test between two systems on the same references, for each metric; the bootstrap also gives an interval."""
    metrics = metrics_for(language, lowercase=lowercase, references=references)
    systems = {"baseline": baseline, "system": system}
    if test == "randomisation":
        return tuple(
            approximate_randomisation(metric, references, **systems, seed=seed, trials=trials) for metric in metrics
        )
    return tuple(paired_bootstrap(metric, references, **systems, seed=seed, resamples=resamples) for metric in metrics)
