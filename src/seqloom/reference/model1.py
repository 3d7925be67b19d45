"""IBM model 1 (Brown et al., 1993), by expectation and maximisation, with dictionaries.

    P(y_j ∣ x) = Σ_i a_ij t(y_j ∣ x_i)              each target word comes from one source word, or from the null word
    expect       c(x, y) = Σ a_ij t(y_j ∣ x_i) / P(y_j ∣ x)           over all places where x_i = x and y_j = y
    maximise     t(y ∣ x) = c(x, y) / Σ_y' c(x, y')
                 t(y ∣ x) = exp(ψ(c(x, y) + α) − ψ(Σ_y' (c(x, y') + α)))      with a Dirichlet prior α

    a_ij = 1 / (n + 1) in model 1. With `null_rate` p the null word has p, and with `tension` λ words near the diagonal
    have more of the rest (Dyer et al., 2013): a_ij ∝ exp(−λ |i/n − j/m|)

The fast version, with compiled loops and Viterbi links, is `seqloom.classical.alignment`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

NULL = -1
"""The null word, and its position."""

Table = dict[tuple[int, int], float]
"""t(y ∣ x) by x and y."""


def fit_model1(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    iterations: int,
    null_rate: float | None = None,
    tension: float = 0.0,
    dirichlet_alpha: float = 0.0,
) -> tuple[Table, list[float]]:
    """The table, and the log-likelihood at the beginning of each iteration. Empty sentences are left out."""
    pairs = [(x, y) for x, y in zip(sources, targets, strict=True) if x and y]
    target_words = {word for _, y in pairs for word in y}
    table: Table = defaultdict(lambda: 1 / len(target_words))
    history = []
    for _ in range(iterations):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        log_likelihood = 0.0
        for x, y in pairs:
            for j, word in enumerate(y):
                a = weights(len(x), len(y), j, null_rate=null_rate, tension=tension)
                terms = {i: a[i] * table[x[i] if i != NULL else NULL, word] for i in a if a[i] > 0}
                probability = sum(terms.values())
                log_likelihood += math.log(probability)
                for i, term in terms.items():
                    counts[x[i] if i != NULL else NULL][word] += term / probability
        history.append(log_likelihood)
        table = {
            (word, other): estimate(count, row, alpha=dirichlet_alpha)
            for word, row in counts.items()
            for other, count in row.items()
        }
    return table, history


def weights(n: int, m: int, j: int, *, null_rate: float | None, tension: float) -> dict[int, float]:
    """a_ij by source position i, for place j of m target words."""
    null = 1 / (n + 1) if null_rate is None else null_rate
    near = [math.exp(-tension * abs((i + 1) / n - (j + 1) / m)) for i in range(n)]
    return {NULL: null, **{i: (1 - null) * near[i] / sum(near) for i in range(n)}}


def estimate(count: float, row: dict[int, float], *, alpha: float) -> float:
    """t(y ∣ x) from the counts of x."""
    total = sum(each + alpha for each in row.values())
    if alpha == 0:
        return count / total
    psi = torch.digamma(torch.tensor([count + alpha, total], dtype=torch.float64)).tolist()
    return math.exp(psi[0] - psi[1])
