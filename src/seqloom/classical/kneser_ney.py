"""From counts to probabilities: maximum likelihood, Laplace and Kneser-Ney, each in back-off form.

    log P(w ∣ h) = log_prob(h w)                      where the n-gram h w is kept
                 = backoff(h) + log P(w ∣ h')         elsewhere; h' is h without its first word

The three differ in what they write into this form, and a reader of it need not know which it was. A context that never
occurred has no back-off weight: P(w ∣ h) = P(w ∣ h'). All logarithms here have base 10, as in ARPA files.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from seqloom.classical.ngram_counts import Grams
from seqloom.core.errors import DataError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.symbols import BEGIN, PAD

Discounts = tuple[float, float, float]
"""What is taken from n-grams that were counted once, twice, and more often."""

FALLBACK: Discounts = (0.5, 1.0, 1.5)
"""Discounts for texts that are too small to estimate them."""


@dataclass(frozen=True, eq=False)
class Level:
    """What a smoothing writes for the n-grams of one length."""

    log_probs: Float64[np.ndarray, " grams"]
    backoffs: Float64[np.ndarray, " grams"]
    """0 where no kept n-gram continues this one."""
    is_kept: Bool[np.ndarray, " grams"]


def maximum_likelihood(levels: Sequence[Grams]) -> list[Level]:
    """P(w ∣ h) = c(h w) / c(h); what never followed h is impossible after it."""
    result = []
    for length, grams in enumerate(levels, 1):
        counts = _predicted(grams.counts, length)
        totals = _totals(grams, counts)
        has_more = _continued(levels, length)
        with np.errstate(divide="ignore"):
            log_probs = np.log10(counts / totals[grams.contexts])
        result.append(Level(log_probs, np.where(has_more, -np.inf, 0.0), np.ones(len(grams), np.bool_)))
    return result


def laplace(levels: Sequence[Grams], *, alpha: float) -> list[Level]:
    """P(w ∣ h) = (c(h w) + α) / (c(h) + α V), after a context that never occurred 1 / V.

    V counts all that can be predicted. A context is the last N − 1 symbols, or all from the beginning of the sentence.
    In back-off form everything below these contexts is uniform, and γ(h) = α V / (c(h) + α V).
    """
    outcomes = len(levels[0]) - 2  # V: all symbols but the two that are never predicted
    result: list[Level] = []
    begins = np.arange(len(levels[0])) == BEGIN
    for length, grams in enumerate(levels, 1):
        if length > 1:
            begins = begins[grams.contexts]
        follows_context = (begins & (length > 1)) | (length == len(levels))
        counts = _predicted(grams.counts, length)
        added = _totals(grams, counts) + alpha * outcomes
        share = np.where(follows_context, (counts + alpha) / added[grams.contexts], 1 / outcomes)
        is_context = (begins | (length == len(levels) - 1)) & _continued(levels, length)
        backoffs = np.zeros(len(grams))
        if length < len(levels):
            below = _totals(levels[length], levels[length].counts, size=len(grams))
            backoffs[is_context] = np.log10(alpha * outcomes / (below[is_context] + alpha * outcomes))
        result.append(Level(_log10(_possible(share, length)), backoffs, np.ones(len(grams), np.bool_)))
    return result


def kneser_ney(
    levels: Sequence[Grams],
    *,
    prune: Sequence[int] = (),
    fallback: Discounts | None = FALLBACK,
    listener: Listener = ignore,
) -> list[Level]:
    """Interpolated modified Kneser-Ney (Chen and Goodman, 1998), as lmplz computes it.

        P(w ∣ h) = (a(h w) − D(a(h w))) / Σ_v a(h v) + γ(h) P(w ∣ h')
        γ(h)     = Σ_v D(a(h v)) / Σ_v a(h v)
        P(w)     = (a(w) − D(a(w))) / Σ_v a(v) + γ / V           the share that unknown words live on
        a(g)     = how often g occurs, where g has the highest order or begins a sentence
                 = how many different words come before g, elsewhere
        D(a)     = a − (a + 1) y n_(a+1) / n_a for a = 1, 2, 3; y = n_1 / (n_1 + 2 n_2); D(a) = D(3) above 3
        n_a      = the number of n-grams g of this length with a(g) = a

    `prune[n − 1]` is the count up to which n-grams of length n are left out, and the last number holds for all longer
    ones; what they had goes to γ(h). Without a fallback, a text too small to estimate a discount is an error.
    """
    thresholds = [prune[min(length, len(prune) - 1)] if prune else 0 for length in range(len(levels))]
    begins = np.arange(len(levels[0])) == BEGIN
    probabilities = np.full(1, 1 / (len(levels[0]) - 2))  # all symbols but the two that are never predicted
    result: list[Level] = []
    for length, grams in enumerate(levels, 1):
        begins = begins if length == 1 else begins[grams.contexts]
        adjusted = grams.counts
        if length < len(levels):
            adjusted = np.where(begins, adjusted, np.bincount(levels[length].suffixes, minlength=len(grams)))
        adjusted = _predicted(adjusted, length)
        discounts = _discounts(adjusted, length, fallback=fallback, listener=listener)
        taken = np.array([0.0, *discounts])[np.minimum(adjusted, 3)]
        is_kept = (grams.counts > thresholds[length - 1]) | (length == 1)
        totals = _totals(grams, adjusted, size=len(probabilities))
        given = _totals(grams, np.where(is_kept, taken, adjusted), size=len(probabilities))
        with np.errstate(invalid="ignore"):
            shares = given / totals  # γ of each context that is one shorter; NaN where nothing follows
        if length > 1:
            has_kept = np.zeros(len(totals), np.bool_)
            has_kept[grams.contexts[is_kept]] = True
            result[-1].backoffs[has_kept] = _log10(shares[has_kept])
        lower = probabilities[grams.suffixes]
        probabilities = (adjusted - taken) / totals[grams.contexts] + shares[grams.contexts] * lower
        probabilities = _possible(probabilities, length)
        result.append(Level(_log10(probabilities), np.zeros(len(grams)), is_kept))
    return result


def _discounts(
    adjusted: Int64[np.ndarray, " grams"], length: int, *, fallback: Discounts | None, listener: Listener
) -> Discounts:
    if not len(adjusted):
        return FALLBACK  # no sentence is as long as that, and there is nothing to take it from
    found = np.bincount(np.minimum(adjusted, 5), minlength=6)
    if found[1:4].all():
        y = found[1] / (found[1] + 2 * found[2])
        one, two, three = (float(a - (a + 1) * y * found[a + 1] / found[a]) for a in (1, 2, 3))
        if 0 <= one <= 1 and 0 <= two <= 2 and 0 <= three <= 3:
            return one, two, three
    seen = ", ".join(f"{found[a]:,} with count {a}" for a in (1, 2, 3, 4))
    what = f"the text is too small or too regular to estimate the discounts of {length}-grams ({seen})"
    if fallback is None:
        raise DataError(f"{what}; give more text, or allow fixed ones with model.discount_fallback=[0.5, 1.0, 1.5]")
    notice(listener, f"{what}; they are set to {fallback[0]:g}, {fallback[1]:g} and {fallback[2]:g}")
    return fallback


def _predicted(counts: Int64[np.ndarray, " grams"], length: int) -> Int64[np.ndarray, " grams"]:
    """Counts as outcomes: the begin of a sentence is given, not predicted."""
    return np.where(np.arange(len(counts)) == BEGIN, 0, counts) if length == 1 else counts


def _possible(probabilities: Float64[np.ndarray, " grams"], length: int) -> Float64[np.ndarray, " grams"]:
    """Nothing for the symbols that are never predicted."""
    if length == 1:
        probabilities[[PAD, BEGIN]] = 0.0
    return probabilities


def _totals(grams: Grams, values: np.ndarray, *, size: int = 0) -> Float64[np.ndarray, " contexts"]:
    """The sum over each context; at least `size` of them."""
    # Without any n-gram numpy gives whole numbers.
    return np.bincount(grams.contexts, weights=values, minlength=size).astype(np.float64)


def _continued(levels: Sequence[Grams], length: int) -> Bool[np.ndarray, " grams"]:
    """Whether something follows each n-gram of this length in the text."""
    has_more = np.zeros(len(levels[length - 1]), np.bool_)
    if length < len(levels):
        has_more[levels[length].contexts] = True
    return has_more


def _log10(probabilities: Float64[np.ndarray, " grams"]) -> Float64[np.ndarray, " grams"]:
    with np.errstate(divide="ignore"):
        logarithms: np.ndarray = np.log10(probabilities)
    return logarithms
