"""Evaluate: scores of translations with confidence intervals, and significance tests between two systems."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from seqloom.core.errors import UsageError
from seqloom.metrics.scoring import (
    Bootstrap,
    Comparison,
    CorpusScore,
    Metric,
    approximate_randomisation,
    paired_bootstrap,
    score,
)
from seqloom.metrics.translation import MetricName, metric_named, metrics_for, names_for, score_named

Test = Literal["bootstrap", "randomisation"]
"""Paired bootstrap, or approximate randomisation."""


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    metrics: Sequence[Metric] | None = None,
    names: Sequence[MetricName] = (),
    sources: Sequence[str] = (),
    resamples: int = 1000,
    seed: int = 1,
) -> tuple[CorpusScore, ...]:
    """Scores with signatures and 95% bootstrap intervals.

    Without `metrics` and their `names`, they suit the references: BLEU, chrF and TER for sentences. With `sources`, the
    references of lines with the same source are answers of which the best counts, but in BLEU, chrF and TER.
    """
    bootstrap = Bootstrap(seed=seed, resamples=resamples)
    if metrics is None:
        return score_named(
            names or names_for(references, sources),
            hypotheses,
            references=references,
            sources=sources,
            language=language,
            lowercase=lowercase,
            bootstrap=bootstrap,
        )
    return tuple(score(metric, hypotheses, references=references, bootstrap=bootstrap) for metric in metrics)


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    language: str | None,
    lowercase: bool = False,
    metrics: Sequence[Metric] | None = None,
    names: Sequence[MetricName] = (),
    sources: Sequence[str] = (),
    test: Test = "bootstrap",
    resamples: int = 1000,
    trials: int = 10_000,
    seed: int = 1,
) -> tuple[Comparison, ...]:
    """A test between two systems on the same references, for each metric; the bootstrap also gives an interval.

    The metrics are those of `evaluate`; distinct-n, which is no sum over lines, is not compared.
    """
    if metrics is None:
        given: dict[str, Any] = {"lowercase": lowercase, "references": references, "sources": sources}
        compared = [name for name in names if name != "distinct-1" and name != "distinct-2"]
        metrics = [metric_named(name, language=language, **given) for name in compared]
        metrics = metrics if names else metrics_for(language, **given)
    systems = {"baseline": baseline, "system": system}
    if test == "randomisation":
        return tuple(
            approximate_randomisation(metric, references, **systems, seed=seed, trials=trials) for metric in metrics
        )
    return tuple(paired_bootstrap(metric, references, **systems, seed=seed, resamples=resamples) for metric in metrics)


def parse_metrics(names: Sequence[str]) -> tuple[MetricName, ...]:
    """Names of metrics as they are typed. An unknown one is a UsageError that has all of them."""
    known = {name: name for literal in get_args(MetricName) for name in (get_args(literal) or (literal,))}
    for name in names:
        if name not in known:
            raise UsageError(f"unknown metric {name!r}; the metrics are {', '.join(known)}")
    return tuple(known[name] for name in names)
