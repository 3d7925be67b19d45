"""Evaluate: how good translations are, how sure that is, and whether one system beats another."""

from collections.abc import Sequence

from seqloom.metrics.significance import Comparison, paired_bootstrap
from seqloom.metrics.translation import Bootstrap, Score, metrics_for, score


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
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[Comparison, ...]:
    """The paired bootstrap test between two systems on the same references, for each metric."""
    return tuple(
        paired_bootstrap(metric, references, baseline=baseline, system=system, seed=seed, resamples=resamples)
        for metric in metrics_for(language, lowercase=lowercase, references=references)
    )
