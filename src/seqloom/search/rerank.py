"""Re-ranking: choose again among what a search has found.

    agreement     u(c) = Σ_r w_r · similarity(c, r) / Σ_r w_r       the most expected similarity (minimum Bayes risk)
    duplicates    of hypotheses that read the same, the first stays

A most probable sequence may have little in common with all the others; the one that agrees most with them is where
most of the probability lies (Kumar and Byrne, 2004; Eikema and Aziz, 2020). What similarity means comes in from
outside, as a function of a candidate and a reference.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from seqloom.core.errors import UsageError
from seqloom.search.hypothesis import Hypothesis

Similarity = Callable[[str, str], float]
"""The similarity of a candidate (first) to a reference (second); higher is better."""


@dataclass(frozen=True)
class Agreement:
    """The candidate that agrees most with all (by its number), and the expected similarity of each of them."""

    best: int
    expected: tuple[float, ...]


def most_agreeing(
    candidates: Sequence[Sequence[str]], similarity: Similarity, *, weights: Sequence[Sequence[float]] | None = None
) -> list[Agreement]:
    """For each sentence, the candidate of highest expected similarity; of equal ones the earliest.

        u(c) = Σ_r w_r · similarity(c, r) / Σ_r w_r        r runs over all candidates of the sentence, c itself included

    Without weights all count the same. That is right for samples, which come as often as they are probable; for an
    n-best list give `posteriors`. Candidates that read the same are compared once and count together: k different
    ones take k² comparisons.
    """
    if weights is not None and len(weights) != len(candidates):
        raise UsageError(
            f"got weights for {len(weights)} sentences and candidates for {len(candidates)}; give each sentence its own"
        )
    for number, texts in enumerate(candidates):
        if isinstance(texts, str):  # a sequence of strings too, one for each character
            raise UsageError(
                f"sentence {number} has one string for its candidates, {texts[:40]!r}; give a list of them"
            )
    counted = [[1.0] * len(texts) for texts in candidates] if weights is None else weights
    return [
        _agreement(texts, similarity, weights=_checked(parts, len(texts), number), number=number)
        for number, (texts, parts) in enumerate(zip(candidates, counted, strict=True))
    ]


def posteriors(hypotheses: Sequence[Hypothesis], *, scale: float = 1.0) -> list[float]:
    """How probable each is among them: w_i = P(y_i∣x)^scale / Σ_j P(y_j∣x)^scale, as weights for `most_agreeing`.

    A scale below 1 evens them out; 0 makes them equal.
    """
    if not 0 <= scale < math.inf:
        raise UsageError(f"the scale {scale} of the posteriors is out of range; give 0 (all equal) or more, 1 for P")
    if not hypotheses:
        return []
    best = max(hypothesis.log_prob for hypothesis in hypotheses)
    if best == -math.inf:
        raise UsageError(f"none of {len(hypotheses)} hypotheses is possible: each has log-probability −∞")
    parts = [
        math.exp(scale * (hypothesis.log_prob - best)) if hypothesis.log_prob > -math.inf else 0.0
        for hypothesis in hypotheses
    ]
    total = sum(parts)
    return [part / total for part in parts]


def without_duplicates(
    hypotheses: Sequence[Hypothesis], *, text: Callable[[Hypothesis], Hashable] | None = None
) -> list[Hypothesis]:
    """Of hypotheses that read the same, the first: by their symbols, or by what `text` makes of them.

    Different symbols may spell one text, as subwords do, so what users read is best compared as text.
    """
    seen: set[Hashable] = set()
    kept: list[Hypothesis] = []
    for hypothesis in hypotheses:
        reading: Hashable = hypothesis.symbols if text is None else text(hypothesis)
        if reading not in seen:
            seen.add(reading)
            kept.append(hypothesis)
    return kept


def _agreement(texts: Sequence[str], similarity: Similarity, *, weights: Sequence[float], number: int) -> Agreement:
    if not texts:
        raise UsageError(f"sentence {number} has no candidates to choose from; give each sentence one or more")
    shares: dict[str, float] = dict.fromkeys(texts, 0.0)
    for text, weight in zip(texts, weights, strict=True):
        shares[text] += weight
    total = sum(shares.values())
    expected: dict[str, float] = {}
    for text in shares:
        weighted = [share * similarity(text, other) for other, share in shares.items() if share > 0]
        expected[text] = sum(weighted) / total
        if not math.isfinite(expected[text]):
            raise UsageError(
                f"sentence {number}: the similarity of {text[:40]!r} to the other candidates is {expected[text]}; give "
                "a function with finite values"
            )
    best = max(shares, key=lambda text: expected[text])  # the first of equal ones, in the order of the candidates
    return Agreement(texts.index(best), tuple(expected[text] for text in texts))


def _checked(weights: Sequence[float], candidates: int, number: int) -> Sequence[float]:
    if len(weights) != candidates:
        raise UsageError(
            f"sentence {number} has {len(weights)} weights for {candidates} candidates; each candidate needs one"
        )
    if candidates and not (all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0):
        raise UsageError(
            f"sentence {number} has the weights {[round(weight, 4) for weight in weights]}; give 0 or more for each, "
            "and more than 0 for one"
        )
    return weights
