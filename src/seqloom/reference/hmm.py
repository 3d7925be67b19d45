"""Hidden Markov models (Rabiner, 1989) in log space, with loops over states and steps.

    P(x, z) = π(z_1) b(x_1 ∣ z_1) Π_t a(z_t ∣ z_(t−1)) b(x_t ∣ z_t)        hidden states z, observations x

    α_t(j) = b_j(x_t) Σ_i α_(t−1)(i) a_ij      α_1(j) = π_j b_j(x_1)       P(x_1 … x_t, z_t = j)
    β_t(i) = Σ_j a_ij b_j(x_(t+1)) β_(t+1)(j)  β_T(i) = 1                  P(x_(t+1) … x_T ∣ z_t = i)
    P(x)   = Σ_j α_T(j)
    γ_t(i) = α_t(i) β_t(i) / P(x)                                          P(z_t = i ∣ x)
    ξ_t(i, j) = α_t(i) a_ij b_j(x_(t+1)) β_(t+1)(j) / P(x)                 P(z_t = i, z_(t+1) = j ∣ x)
    δ_t(j) = b_j(x_t) max_i δ_(t−1)(i) a_ij                                the best path that ends in j (Viterbi)

    Baum-Welch (EM): the counts that γ and ξ expect become the new probabilities; P(x) never falls
    π_i ∝ Σ_x γ_1(i)      a_ij ∝ Σ_x Σ_t ξ_t(i, j)      b_j(v) ∝ Σ_x Σ_(t: x_t = v) γ_t(j)

The fast version, with scaling, compiled loops and Gaussian emissions, is `seqloom.classical.hmm`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Row = list[float]
Table = list[list[float]]


def log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def log_sum(terms: Sequence[float]) -> float:
    """log Σ exp(term), without leaving log space."""
    highest = max(terms)
    if highest == -math.inf:
        return -math.inf
    return highest + math.log(sum(math.exp(term - highest) for term in terms))


@dataclass(frozen=True)
class Model:
    """Probabilities of starts [states], transitions [states, states] and symbols [states, symbols]."""

    start: Row
    transitions: Table
    emissions: Table

    @property
    def states(self) -> range:
        return range(len(self.start))


def forward(model: Model, x: Sequence[int]) -> Table:
    """log α_t(j), a row for each step."""
    alpha = [[log(model.start[j]) + log(model.emissions[j][x[0]]) for j in model.states]]
    for symbol in x[1:]:
        alpha.append(
            [
                log(model.emissions[j][symbol])
                + log_sum([alpha[-1][i] + log(model.transitions[i][j]) for i in model.states])
                for j in model.states
            ]
        )
    return alpha


def backward(model: Model, x: Sequence[int]) -> Table:
    """log β_t(i), a row for each step."""
    beta = [[0.0 for _ in model.states]]
    for symbol in reversed(x[1:]):
        after = beta[0]
        beta.insert(
            0,
            [
                log_sum(
                    [log(model.transitions[i][j]) + log(model.emissions[j][symbol]) + after[j] for j in model.states]
                )
                for i in model.states
            ],
        )
    return beta


def log_likelihood(model: Model, x: Sequence[int]) -> float:
    """log P(x)."""
    return log_sum(forward(model, x)[-1])


def posteriors(model: Model, x: Sequence[int]) -> Table:
    """γ_t(i), a row for each step."""
    alpha, beta, total = forward(model, x), backward(model, x), log_likelihood(model, x)
    return [[math.exp(alpha[t][i] + beta[t][i] - total) for i in model.states] for t in range(len(x))]


def viterbi(model: Model, x: Sequence[int]) -> tuple[list[int], float]:
    """The best path, and log P of it with x."""
    delta = [log(model.start[j]) + log(model.emissions[j][x[0]]) for j in model.states]
    pointers: list[list[int]] = []
    for symbol in x[1:]:
        best = [
            max(model.states, key=lambda i, j=j: delta[i] + log(model.transitions[i][j]))  # type: ignore[misc]
            for j in model.states
        ]
        delta = [
            delta[best[j]] + log(model.transitions[best[j]][j]) + log(model.emissions[j][symbol]) for j in model.states
        ]
        pointers.append(best)
    path = [max(model.states, key=lambda j: delta[j])]
    for best in reversed(pointers):
        path.insert(0, best[path[0]])
    return path, max(delta)


def em_step(model: Model, data: Sequence[Sequence[int]]) -> Model:
    """One step of Baum-Welch."""
    starts = [0.0 for _ in model.states]
    pairs = [[0.0 for _ in model.states] for _ in model.states]
    emitted = [[0.0 for _ in row] for row in model.emissions]
    for x in data:
        alpha, beta, gamma, total = (
            forward(model, x),
            backward(model, x),
            posteriors(model, x),
            log_likelihood(model, x),
        )
        for i in model.states:
            starts[i] += gamma[0][i]
            for t, symbol in enumerate(x):
                emitted[i][symbol] += gamma[t][i]
            for t, symbol in enumerate(x[1:]):
                for j in model.states:
                    move = log(model.transitions[i][j]) + log(model.emissions[j][symbol])
                    pairs[i][j] += math.exp(alpha[t][i] + move + beta[t + 1][j] - total)
    return Model(normalise(starts), [normalise(row) for row in pairs], [normalise(row) for row in emitted])


def normalise(counts: Row) -> Row:
    """Counts as probabilities."""
    return [count / sum(counts) for count in counts]
