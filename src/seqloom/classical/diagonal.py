"""Word alignment that keeps to the diagonal as far as the text does (Dyer et al., 2013), fitted by EM.

    a_ij = p₀                                            null word
    a_ij = (1 − p₀) exp(−λ d_ij) / Σ_i' exp(−λ d_i'j)    d_ij = ∣(i + 1)/n − (j + 1)/m∣

It is IBM model 1 with another prior a_ij, and the tension λ is learned with the table. The M step finds the λ whose
expected distance is the one that the E step found, by Newton's method:

    Σ_j r_j E_λ[d_ij] = Σ_ij q_ij d_ij                   q_ij = P(y_j comes from x_i), r_j = Σ_i q_ij
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from seqloom.classical.bitext import Array, Bitext, first_not_below, in_ranges
from seqloom.classical.model1 import (
    Fit,
    Model1,
    Model1Config,
    base_weight,
    begin_fit,
    explain,
    nearness,
    prior_of,
    reestimate,
)
from seqloom.core.config import Config
from seqloom.core.jit import compiled

MAX_TENSION = 40.0
"""Beyond it, links further away than a twentieth of the sentence have no weight."""


class DiagonalConfig(Config):
    """How the diagonal model is fitted."""

    kind: Literal["diagonal"] = "diagonal"
    iterations: int = Field(default=5, ge=1)
    """How often all probabilities are re-estimated."""
    null_rate: float = Field(default=0.08, ge=0, lt=1)
    """The share of target words that come from no source word, before they are looked at; 0 leaves it out."""
    dirichlet_alpha: float = Field(default=0.01, ge=0)
    """The Dirichlet prior on each word's translations; 0 is maximum likelihood."""
    tension: float = Field(default=4.0, gt=0, le=MAX_TENSION)
    """How strongly links keep to the diagonal in the first iteration; the others learn it."""


def fit_diagonal(
    bitext: Bitext,
    config: DiagonalConfig | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> Model1:
    """Model 1 with the table and the tension that fit a text; its config has the tension.

    Pairs with a blank side teach nothing and are left out. `progress` receives how many iterations are done. The
    threads change no bit of the result.
    """
    config = config or DiagonalConfig()
    plain = as_model1(config)
    fit, of_words, of_sentences = begin_fit(bitext, plain, threads=threads)
    tokens = len(fit.pairs.targets)
    sums, linked, log_likelihoods, history = np.empty(tokens), np.empty(tokens), np.empty(fit.pairs.pairs), []
    distances = np.empty(fit.pairs.pairs)
    for iteration in range(config.iterations):
        in_ranges(threads, explain, of_sentences, fit, sums, log_likelihoods)
        in_ranges(threads, measure_links, of_sentences, fit, sums, linked, distances)
        in_ranges(threads, reestimate, of_words, fit, sums, config.dirichlet_alpha)
        tension = solve_tension(
            fit.pairs.source_starts, fit.pairs.target_starts, linked, float(distances.sum()), plain.tension
        )
        plain = plain.model_copy(update={"tension": tension})
        fit = fit._replace(prior=prior_of(plain, fit.pairs))
        history.append(float(log_likelihoods.sum()))
        progress(iteration + 1)
    return Model1(plain, fit.table, tuple(history))


def as_model1(config: DiagonalConfig) -> Model1Config:
    """The same settings for model 1."""
    return Model1Config(**config.model_dump(exclude={"kind"}))


@compiled()
def measure_links(first: int, last: int, fit: Fit, inverse: Array, linked: Array, distances: Array) -> None:
    """r_j of the tokens of these sentences, and Σ q_ij d_ij of each sentence, from 1 / z_j of every token."""
    places, pairs, symbols, table, prior = fit
    row = np.zeros(symbols)
    linked[pairs.target_starts[first] : pairs.target_starts[last]] = 0.0
    distances[first:last] = 0.0
    for word in range(len(places.starts) - 2):  # all but the null word
        end = places.starts[word + 1]
        begin = first_not_below(places.sentences, places.starts[word], end, first)
        if begin == end or places.sentences[begin] >= last:
            continue
        for entry in range(table.starts[word], table.starts[word + 1]):
            row[table.columns[entry]] = table.probabilities[entry]
        for place in range(begin, end):
            k, i = places.sentences[place], places.positions[place]
            if k >= last:
                break
            n = pairs.source_starts[k + 1] - pairs.source_starts[k]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            weight = base_weight(i, n, prior.null_rate)
            for token in range(low, high):
                near = nearness(i, n, token - low, high - low, prior.tension) * prior.shares[token]
                share = weight * near * row[pairs.targets[token]] * inverse[token]
                linked[token] += share
                distances[k] += share * abs((i + 1) / n - (token - low + 1) / (high - low))


@compiled()
def solve_tension(source_starts: Array, target_starts: Array, linked: Array, distance: float, tension: float) -> float:
    """The λ whose expected distance of all links is the given one, from 0.1 to 40."""
    for _ in range(8):
        expected, variance = 0.0, 0.0
        for k in range(len(source_starts) - 1):
            n, m = source_starts[k + 1] - source_starts[k], target_starts[k + 1] - target_starts[k]
            for j in range(m):
                total, first, second = 0.0, 0.0, 0.0
                for i in range(n):
                    away, near = abs((i + 1) / n - (j + 1) / m), nearness(i, n, j, m, tension)
                    total += near
                    first += near * away
                    second += near * away * away
                mean = first / total
                expected += linked[target_starts[k] + j] * mean
                variance += linked[target_starts[k] + j] * (second / total - mean * mean)
        if variance <= 0.0:  # sentences of one word say nothing about it
            return tension
        step = (expected - distance) / variance
        # Newton's step is too long where the tension is far too high: not more than double or half at a time.
        found = min(MAX_TENSION, max(0.1, min(2.0 * tension, max(0.5 * tension, tension + step))))
        if abs(found - tension) < 1e-6:
            return found
        tension = found
    return tension
