"""Hidden Markov models: a chain of hidden states, each of which emits an observation (Rabiner, 1989).

    P(x, z) = π(z_1) b(x_1 ∣ z_1) Π_t a(z_t ∣ z_(t−1)) b(x_t ∣ z_t)

    forward     α_t(j) = b_j(x_t) Σ_i α_(t−1)(i) a_ij               P(x) = Σ_j α_T(j)
    backward    β_t(i) = Σ_j a_ij b_j(x_(t+1)) β_(t+1)(j)           γ_t(i) = P(z_t = i ∣ x) ∝ α_t(i) β_t(i)
    Viterbi     δ_t(j) = log b_j(x_t) + max_i (δ_(t−1)(i) + log a_ij)
    Baum-Welch  π ∝ Σ γ_1,  a_ij ∝ Σ_t P(z_t = i, z_(t+1) = j ∣ x),  b from the observations weighted by γ

Emissions are categorical (one of so many symbols) or Gaussian (vectors; a variance for each number, or a full
covariance). A data set is a list of sequences of any lengths. `reference/hmm.py` is the readable edition.

Numbers. Viterbi adds logarithms. Forward and backward scale α_t to sum to one, so that the inner loops are products and
sums: log P(x) is the sum of the logarithms of the scales. Scaled numbers below FLUSH are set to zero. That is harmless
if every state can follow every other, because the others then dominate all later steps; otherwise such a state may
be the only one that explains the rest, and the sequence is computed again in log space. Memory is bounded: α is kept
for a block of a long sequence, and computed a second time from the beginning of each block.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer

from seqloom.classical.emissions import (
    CONTRACT,
    FLUSH,
    Array,
    CategoricalEmissions,
    Emissions,
    GaussianEmissions,
    Prior,
    Weights,
    joined_vectors,
    log_dirichlet,
    logarithms,
    padded,
    padded_size,
    require_rows,
    shares,
)
from seqloom.core.errors import DataError, UsageError
from seqloom.core.jit import compiled
from seqloom.core.seeds import seed_for

MIN_DENSE = 1e-100
"""If all transitions are at least this likely, what is flushed changes later numbers by less than 1e-49."""
MIN_SCALE = 1e-250
"""A smaller sum of a step may have lost digits, so that its sequence is computed in log space."""
BLOCK_NUMBERS = 1 << 20
"""Numbers of α that are kept at a time: eight megabytes."""

REORDER = ("contract", "reassoc")

Covariance = Literal["diagonal", "full"]


# --- compiled loops ---------------------------------------------------------------------------------------------------
#
# A row of weights b_j(x_t) is `rows[index[t]]`: a row of the emission table for categorical observations, a row of
# its own for a Gaussian one. Posteriors are added to `posteriors[index[t]]` in the same manner.


class Chain(NamedTuple):
    """π and a_ij, padded with zeros, and a_ij transposed, so that every inner loop reads contiguous numbers."""

    start: Array
    transitions: Array
    transposed: Array
    is_dense: Any
    """1 if each state can follow each other, so that flushed numbers are harmless; 0 if not; −1 if a transition is
    below FLUSH, so that only log space is safe."""


class Buffers(NamedTuple):
    """Room for one block of a sequence; row 0 of `alphas` is the step before the block."""

    alphas: Array
    ratios: Array
    scales: Array
    predicted: Array
    betas: Array
    checkpoints: Array


@compiled()
def copy(source: Array, target: Array) -> None:
    for j in range(len(source)):
        target[j] = source[j]


@compiled(fast=REORDER, is_inlined=True)
def multiply(matrix: Array, vector: Array, result: Array) -> None:
    """result_j = Σ_i matrix_ji vector_i, four rows at a time: sums stay in registers until they are complete."""
    states = len(vector)
    for j in range(0, states, 4):
        one = two = three = four = 0.0
        for i in range(states):
            one += matrix[j, i] * vector[i]
            two += matrix[j + 1, i] * vector[i]
            three += matrix[j + 2, i] * vector[i]
            four += matrix[j + 3, i] * vector[i]
        result[j], result[j + 1], result[j + 2], result[j + 3] = one, two, three, four


@compiled(fast=REORDER, is_inlined=True)
def weigh(predicted: Array, weights: Array, alpha: Array, chain: Chain) -> float:
    """α_t from what was predicted and the weights of the observation; its scale, or −1 if digits may be lost."""
    states, scale = len(predicted), 0.0
    for j in range(states):
        alpha[j] = predicted[j] * weights[j]
        scale += alpha[j]
    if not scale >= MIN_SCALE:
        return -1.0
    inverse, lost = 1.0 / scale, 0
    for j in range(states):
        value = alpha[j] * inverse
        is_small = value < FLUSH
        lost += is_small and predicted[j] > 0.0 and weights[j] > 0.0
        alpha[j] = 0.0 if is_small else value
    return -1.0 if lost > 0 and chain.is_dense == 0 else scale


@compiled(fast=CONTRACT)
def forward_block(chain: Chain, rows: Array, index: Array, begin: int, end: int, is_first: bool, space: Buffers) -> int:
    """α and the scales of the steps from `begin` to `end`; 0 if digits may be lost."""
    predicted = space.predicted
    if chain.is_dense < 0:
        return 0
    for t in range(begin, end):
        at = t - begin
        if is_first and at == 0:
            copy(chain.start, predicted)
        else:
            multiply(chain.transposed, space.alphas[at], predicted)
        scale = weigh(predicted, rows[index[t]], space.alphas[at + 1], chain)
        if scale < 0.0:
            return 0
        space.scales[at] = scale
    return 1


@compiled(fast=CONTRACT)
def forward_sequence(chain: Chain, rows: Array, index: Array, begin: int, end: int, space: Buffers) -> float:
    """log P of a sequence, whose blocks are remembered by the step before each; +∞ if digits may be lost."""
    room = len(space.scales)
    log_likelihood, product = 0.0, 1.0
    for first in range(begin, end, room):
        last = min(end, first + room)
        copy(space.alphas[0], space.checkpoints[(first - begin) // room])
        if forward_block(chain, rows, index, first, last, first == begin, space) == 0:
            return np.inf
        for at in range(last - first):  # a logarithm now and then, since it costs as much as a whole step
            if product < 1e-50 or product > 1e50:
                log_likelihood += math.log(product)
                product = 1.0
            product *= space.scales[at]
        if last < end:
            copy(space.alphas[last - first], space.alphas[0])
    return log_likelihood + math.log(product)


@compiled(fast=REORDER)
def backward_block(
    chain: Chain, rows: Array, index: Array, begin: int, end: int, space: Buffers, posteriors: Array
) -> None:
    """Add γ of the steps of a block, and write b_j β_t(j) / scale, what ξ consists of; β of the step before stays."""
    states, beta = len(space.betas), space.betas
    for t in range(end - 1, begin - 1, -1):
        at = t - begin
        row, alpha, ratio = index[t], space.alphas[at + 1], space.ratios[at]
        total = 0.0
        for j in range(states):
            total += alpha[j] * beta[j]
        inverse = 1.0 / total  # one, up to rounding, which would add up over a long sequence
        share = inverse / space.scales[at]
        for j in range(states):
            posteriors[row, j] += alpha[j] * beta[j] * inverse
            ratio[j] = rows[row, j] * beta[j] * share if alpha[j] > 0.0 else 0.0
        multiply(chain.transitions, ratio, beta)


@compiled(fast=CONTRACT)
def add_pairs(alphas: Array, ratios: Array, first: int, count: int, pairs: Array) -> None:
    """Σ_t α_(t−1)(i) ratio_t(j), four steps at a time; times a_ij they are the expected transitions."""
    states, t = ratios.shape[1], first
    while t + 4 <= count:
        for i in range(states):
            one, two, three, four = alphas[t, i], alphas[t + 1, i], alphas[t + 2, i], alphas[t + 3, i]
            for j in range(states):
                pairs[i, j] += (
                    one * ratios[t, j] + two * ratios[t + 1, j] + three * ratios[t + 2, j] + four * ratios[t + 3, j]
                )
        t += 4
    while t < count:
        for i in range(states):
            one = alphas[t, i]
            for j in range(states):
                pairs[i, j] += one * ratios[t, j]
        t += 1


@compiled(fast=CONTRACT)
def expect(
    chain: Chain,
    rows: Array,
    index: Array,
    borders: Array,
    space: Buffers,
    log_likelihoods: Array,
    starts: Array,
    pairs: Array,
    posteriors: Array,
) -> None:
    """The E-step for all sequences: log P (+∞ where digits may be lost, and nothing else is added), and the sums."""
    room, states = len(space.scales), len(space.predicted)
    for s in range(len(borders) - 1):
        begin, end = borders[s], borders[s + 1]
        log_likelihoods[s] = 0.0
        if begin == end:
            continue
        log_likelihoods[s] = forward_sequence(chain, rows, index, begin, end, space)
        if log_likelihoods[s] == np.inf:
            continue
        for j in range(states):
            space.betas[j] = 1.0
        blocks = (end - begin + room - 1) // room
        for block in range(blocks - 1, -1, -1):
            first, last = begin + block * room, min(end, begin + (block + 1) * room)
            if block < blocks - 1:  # the last one is still there
                copy(space.checkpoints[block], space.alphas[0])
                forward_block(chain, rows, index, first, last, block == 0, space)
            backward_block(chain, rows, index, first, last, space, posteriors)
            add_pairs(space.alphas, space.ratios, 1 if block == 0 else 0, last - first, pairs)
        for j in range(states):
            starts[j] += chain.start[j] * space.ratios[0, j]  # γ_1, since α_1 is π times the weights over the scale


@compiled(fast=CONTRACT)
def score_sequences(
    chain: Chain, rows: Array, index: Array, borders: Array, space: Buffers, log_likelihoods: Array, scales: Array
) -> None:
    """log P of each sequence, +∞ where digits may be lost; and the scale of each step if `scales` has room."""
    room = len(space.scales)
    for s in range(len(borders) - 1):
        begin, end = borders[s], borders[s + 1]
        if len(scales) == 0:
            log_likelihoods[s] = forward_sequence(chain, rows, index, begin, end, space) if begin < end else 0.0
            continue
        log_likelihoods[s] = 0.0
        for first in range(begin, end, room):
            last = min(end, first + room)
            if forward_block(chain, rows, index, first, last, first == begin, space) == 0:
                log_likelihoods[s] = np.inf
                break
            for t in range(first, last):
                scales[t] = space.scales[t - first]
            copy(space.alphas[last - first], space.alphas[0])


@compiled()
def log_sum(values: Array) -> float:
    """log Σ exp, −∞ for nothing."""
    highest = -np.inf
    for at in range(len(values)):
        highest = values[at] if values[at] > highest else highest
    if highest == -np.inf:
        return highest
    total = 0.0
    for at in range(len(values)):
        total += math.exp(values[at] - highest)
    return highest + math.log(total)


@compiled()
def forward_in_logs(
    log_start: Array, log_transitions: Array, log_rows: Array, index: Array, begin: int, end: int, alphas: Array
) -> float:
    """log α of a sequence, and log P of it."""
    states = len(log_start)
    terms = np.empty(states)
    for t in range(begin, end):
        for j in range(states):
            if t == begin:
                reached = log_start[j]
            else:
                for i in range(states):
                    terms[i] = alphas[t - begin - 1, i] + log_transitions[i, j]
                reached = log_sum(terms)
            alphas[t - begin, j] = reached + log_rows[index[t], j]
    return log_sum(alphas[end - begin - 1])


@compiled()
def expect_in_logs(
    log_start: Array,
    log_transitions: Array,
    log_rows: Array,
    index: Array,
    begin: int,
    end: int,
    starts: Array,
    transitions: Array,
    posteriors: Array,
) -> float:
    """The E-step of one sequence in log space: slow, and right for all numbers. Returns log P."""
    states, length = len(log_start), end - begin
    alphas = np.empty((length, states))
    log_likelihood = forward_in_logs(log_start, log_transitions, log_rows, index, begin, end, alphas)
    if log_likelihood == -np.inf:
        return log_likelihood
    beta, before, terms = np.zeros(states), np.zeros(states), np.empty(states)
    for t in range(end - 1, begin - 1, -1):
        at = t - begin
        for j in range(states):
            share = math.exp(alphas[at, j] + beta[j] - log_likelihood)
            posteriors[index[t], j] += share
            if at == 0:
                starts[j] += share
        if at == 0:
            break
        for i in range(states):
            for j in range(states):
                terms[j] = log_transitions[i, j] + log_rows[index[t], j] + beta[j]
                transitions[i, j] += math.exp(alphas[at - 1, i] + terms[j] - log_likelihood)
            before[i] = log_sum(terms)
        copy(before, beta)
    return log_likelihood


@compiled()
def maximise_block(
    log_start: Array,
    log_transitions: Array,
    log_rows: Array,
    index: Array,
    begin: int,
    end: int,
    is_first: bool,
    deltas: Array,
) -> None:
    """δ of the steps from `begin` to `end`; row 0 of `deltas` is the step before."""
    states = len(log_start)
    for t in range(begin, end):
        at = t - begin + 1
        before, now, weights = deltas[at - 1], deltas[at], log_rows[index[t]]
        if is_first and at == 1:
            for j in range(states):
                now[j] = log_start[j] + weights[j]
            continue
        for j in range(states):
            now[j] = -np.inf
        for i in range(0, states, 4):
            one, two, three, four = before[i], before[i + 1], before[i + 2], before[i + 3]
            for j in range(states):
                a, b = one + log_transitions[i, j], two + log_transitions[i + 1, j]
                c, d = three + log_transitions[i + 2, j], four + log_transitions[i + 3, j]
                a, c = (a if a > b else b), (c if c > d else d)
                a = a if a > c else c
                now[j] = a if a > now[j] else now[j]
        for j in range(states):
            now[j] += weights[j]


@compiled()
def best_path(
    log_start: Array,
    log_transitions: Array,
    transposed: Array,
    log_rows: Array,
    index: Array,
    begin: int,
    end: int,
    deltas: Array,
    checkpoints: Array,
    path: Array,
) -> float:
    """Viterbi for one sequence: writes the path, returns its log P.

    No pointers are stored: on the way back, the best predecessor of one state a step is found again.
    """
    room, states, block = len(deltas) - 1, len(log_start), 0
    for first in range(begin, end, room):
        last = min(end, first + room)
        copy(deltas[0], checkpoints[block])
        maximise_block(log_start, log_transitions, log_rows, index, first, last, first == begin, deltas)
        if last < end:
            copy(deltas[last - first], deltas[0])
        block += 1
    blocks = block
    last_row = end - (begin + (blocks - 1) * room)
    state = 0
    for j in range(1, states):
        if deltas[last_row, j] > deltas[last_row, state]:
            state = j
    log_prob = float(deltas[last_row, state])
    for block in range(blocks - 1, -1, -1):
        first, last = begin + block * room, min(end, begin + (block + 1) * room)
        if block < blocks - 1:
            copy(checkpoints[block], deltas[0])
            maximise_block(log_start, log_transitions, log_rows, index, first, last, block == 0, deltas)
        for t in range(last - 1, first - 1, -1):
            path[t] = state
            if t == begin:
                break
            before, into = deltas[t - first], transposed[state]
            best, state = -np.inf, 0
            for i in range(states):
                value = before[i] + into[i]
                if value > best:
                    best, state = value, i
    return log_prob


@compiled()
def best_paths(
    log_start: Array,
    log_transitions: Array,
    transposed: Array,
    log_rows: Array,
    index: Array,
    borders: Array,
    deltas: Array,
    checkpoints: Array,
    path: Array,
    log_probs: Array,
) -> None:
    """Viterbi for all sequences."""
    for s in range(len(borders) - 1):
        if borders[s] < borders[s + 1]:
            log_probs[s] = best_path(
                log_start,
                log_transitions,
                transposed,
                log_rows,
                index,
                borders[s],
                borders[s + 1],
                deltas,
                checkpoints,
                path,
            )


# --- the model --------------------------------------------------------------------------------------------------------


class StatePath(NamedTuple):
    """A path of hidden states, and log P of it together with the observations."""

    states: Int64[np.ndarray, " steps"]
    log_prob: float


class Observations(NamedTuple):
    """Sequences one after another, checked: sequence s is `values[borders[s]:borders[s + 1]]`."""

    values: np.ndarray
    borders: Int64[np.ndarray, " borders"]


Sequences = Sequence[np.ndarray] | Observations


class Expectation(NamedTuple):
    """What one pass over the data expects."""

    log_likelihood: float
    starts: Float64[np.ndarray, " states"]
    transitions: Float64[np.ndarray, "states states"]
    emissions: tuple[np.ndarray, ...]

    def plus(self, other: "Expectation") -> "Expectation":
        """What both expect of different sequences."""
        return Expectation(
            self.log_likelihood + other.log_likelihood,
            self.starts + other.starts,
            self.transitions + other.transitions,
            tuple(a + b for a, b in zip(self.emissions, other.emissions, strict=True)),
        )


@dataclass(frozen=True, eq=False)
class HiddenMarkovModel:
    """A chain of hidden states, and what they emit. Logarithms are natural ones."""

    start: Float64[np.ndarray, " states"]
    transitions: Float64[np.ndarray, "rows columns"]
    """Row i holds the probabilities of what follows state i."""
    emissions: Emissions

    def __post_init__(self) -> None:
        require_rows("start probabilities", self.start[None])
        require_rows("transitions", self.transitions)
        states = len(self.start)
        if self.transitions.shape != (states, states) or self.emissions.states != states:
            raise UsageError(
                f"{states} start probabilities, transitions of shape {list(self.transitions.shape)} and emissions of "
                f"{self.emissions.states} states do not fit together"
            )

    @property
    def states(self) -> int:
        """The number of hidden states."""
        return len(self.start)

    def log_likelihoods(self, sequences: Sequences) -> Float64[np.ndarray, " sequences"]:
        """log P(x) of each sequence; −∞ for one that is impossible, 0 for an empty one."""
        parts = []
        for _, values, borders in self._blocks(sequences):
            weights, result = self.emissions.weights(values), np.empty(len(borders) - 1)
            space = self._buffers(borders)
            score_sequences(self._chain(), weights.rows, weights.numbers, borders, space, result, np.empty(0))
            if weights.shifts is not None:
                result += sums_between(weights.shifts, borders)
            self._repeat_in_logs(result, values, borders)
            parts.append(result)
        return np.concatenate([*parts, np.empty(0)])

    def step_log_probs(self, sequences: Sequences) -> Float64[np.ndarray, " steps"]:
        """log P(x_t ∣ x_1 … x_(t−1)) of each observation of all sequences."""
        parts = []
        for _, values, borders in self._blocks(sequences):
            weights, result = self.emissions.weights(values), np.empty(len(borders) - 1)
            scales = np.empty(len(values))
            score_sequences(
                self._chain(), weights.rows, weights.numbers, borders, self._buffers(borders), result, scales
            )
            with np.errstate(divide="ignore"):
                steps = np.log(scales) + (0.0 if weights.shifts is None else weights.shifts)
            logs = self.emissions.log_weights(values)
            for at in np.flatnonzero(result == np.inf):
                begin, end = int(borders[at]), int(borders[at + 1])
                alphas = np.empty((end - begin, logs.rows.shape[1]))
                forward_in_logs(*self._log_chain()[:2], logs.rows, logs.numbers, begin, end, alphas)
                totals = np.logaddexp.reduce(alphas, 1)
                with np.errstate(invalid="ignore"):
                    steps[begin:end] = np.diff(totals, prepend=0.0)
                steps[begin:end][np.isneginf(totals)] = -np.inf
            parts.append(steps)
        return np.concatenate([*parts, np.empty(0)])

    def posteriors(self, sequence: np.ndarray) -> Float64[np.ndarray, "steps states"]:
        """P(z_t = j ∣ x) for each step."""
        values = self.emissions.joined([sequence])
        weights = self.emissions.weights(values)
        own = Weights(np.ascontiguousarray(weights.rows[weights.numbers]), np.arange(len(values)), weights.shifts)
        _, _, _, posteriors = self._expect(values, np.array([0, len(values)]), own)
        return posteriors

    def viterbi(self, sequence: np.ndarray) -> StatePath:
        """The likeliest path of hidden states; the lower state of equally likely ones."""
        return self.viterbi_all([sequence])[0]

    def viterbi_all(self, sequences: Sequences) -> list[StatePath]:
        """The likeliest path of each sequence."""
        log_start, log_transitions, transposed = self._log_chain()
        found = []
        for _, values, borders in self._blocks(sequences):
            logs, path = self.emissions.log_weights(values), np.empty(len(values), np.int64)
            longest = int(np.diff(borders).max(initial=1))
            room = block_steps(self.states, longest)
            deltas = np.empty((room + 1, len(log_start)))
            checkpoints = np.empty((-(-longest // room), len(log_start)))
            log_probs = np.zeros(len(borders) - 1)
            best_paths(
                *(log_start, log_transitions, transposed, logs.rows, logs.numbers, borders),
                *(deltas, checkpoints, path, log_probs),
            )
            ends = pairwise(borders.tolist())
            found += [StatePath(path[a:b], log_prob) for (a, b), log_prob in zip(ends, log_probs.tolist(), strict=True)]
        return found

    def decode_posterior(self, sequence: np.ndarray) -> Int64[np.ndarray, " steps"]:
        """The likeliest state of each step by itself: fewer wrong states on average, but maybe an impossible path."""
        states: np.ndarray = self.posteriors(sequence).argmax(1)
        return states

    def sample(self, length: int, generator: np.random.Generator) -> tuple[np.ndarray, Int64[np.ndarray, " steps"]]:
        """Observations drawn from the model, and the states behind them."""
        states = np.empty(length, np.int64)
        for t in range(length):
            row = self.start if t == 0 else self.transitions[states[t - 1]]
            states[t] = generator.choice(self.states, p=row)
        drawn = [self.emissions.draw(int(state), generator) for state in states]
        return np.array(drawn), states

    def expected(self, sequences: Sequences) -> Expectation:
        """The E-step: log P of all sequences, and how often everything is expected to happen."""
        total: Expectation | None = None
        for first, values, borders in self._blocks(sequences):
            weights = self.emissions.weights(values)
            found, starts, transitions, posteriors = self._expect(values, borders, weights)
            if np.isneginf(found).any():
                number = first + int(np.flatnonzero(np.isneginf(found))[0])
                raise DataError(
                    f"sequence {number} is impossible under this model: a probability is 0 for what it contains; "
                    "begin from probabilities above 0"
                )
            totals = self.emissions.totals(values, posteriors)
            more = Expectation(float(found.sum()), starts, transitions, totals)
            total = more if total is None else total.plus(more)
        if total is None:
            raise DataError("there are no sequences to learn from; give at least one")
        return total

    def estimated(self, expectation: Expectation, prior: Prior) -> "HiddenMarkovModel":
        """The M-step: the likeliest model for what was expected; rows without any expectation stay as they were."""
        start = shares(expectation.starts[None] + prior.starts, self.start[None])[0]
        transitions = shares(expectation.transitions + prior.transitions, self.transitions)
        return HiddenMarkovModel(start, transitions, self.emissions.estimated(expectation.emissions, prior))

    def log_prior(self, prior: Prior) -> float:
        """What a prior adds to log P(x), up to a constant."""
        own = log_dirichlet(self.start, prior.starts) + log_dirichlet(self.transitions, prior.transitions)
        return own + self.emissions.log_prior(prior)

    def _expect(
        self, values: np.ndarray, borders: Int64[np.ndarray, " borders"], weights: Weights
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """log P of each sequence, the expected starts and transitions, and the posteriors of each row of weights."""
        chain, space, size = self._chain(), self._buffers(borders), padded_size(self.states)
        result, starts, pairs = np.empty(len(borders) - 1), np.zeros(size), np.zeros((size, size))
        posteriors = np.zeros_like(weights.rows)
        expect(chain, weights.rows, weights.numbers, borders, space, result, starts, pairs, posteriors)
        transitions = pairs * chain.transitions
        if weights.shifts is not None:
            result += sums_between(weights.shifts, borders)
        lost = np.flatnonzero(result == np.inf)
        if len(lost):
            with np.errstate(divide="ignore"):
                rows = np.log(weights.rows)
            if weights.shifts is not None:
                rows = self.emissions.log_weights(values).rows
            log_start, log_transitions, _ = self._log_chain()
            for at in lost:
                result[at] = expect_in_logs(
                    *(log_start, log_transitions, rows, weights.numbers, int(borders[at]), int(borders[at + 1])),
                    *(starts, transitions, posteriors),
                )
        states = self.states
        return result, starts[:states], transitions[:states, :states], posteriors[:, :states]

    def _repeat_in_logs(self, result: np.ndarray, values: np.ndarray, borders: Int64[np.ndarray, " borders"]) -> None:
        """Compute log P in log space where digits may be lost."""
        lost = np.flatnonzero(result == np.inf)
        if not len(lost):
            return
        logs = self.emissions.log_weights(values)
        log_start, log_transitions, _ = self._log_chain()
        for at in lost:
            begin, end = int(borders[at]), int(borders[at + 1])
            alphas = np.empty((end - begin, len(log_start)))
            result[at] = forward_in_logs(log_start, log_transitions, logs.rows, logs.numbers, begin, end, alphas)

    def _chain(self) -> Chain:
        is_dense = int(self.transitions.min() >= MIN_DENSE)
        if not is_dense and ((self.transitions > 0) & (self.transitions < FLUSH)).any():
            is_dense = -1
        transitions = np.ascontiguousarray(padded(padded(self.transitions).T).T)
        return Chain(padded(self.start[None])[0], transitions, np.ascontiguousarray(transitions.T), is_dense)

    def _log_chain(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chain = self._chain()
        return logarithms(chain.start), logarithms(chain.transitions), logarithms(chain.transposed)

    def _buffers(self, borders: Int64[np.ndarray, " borders"]) -> Buffers:
        size, longest = padded_size(self.states), int(np.diff(borders).max(initial=1))
        room = block_steps(self.states, longest)
        return Buffers(
            alphas=np.zeros((room + 1, size)),
            ratios=np.zeros((room, size)),
            scales=np.zeros(room),
            predicted=np.zeros(size),
            betas=np.zeros(size),
            checkpoints=np.zeros((-(-longest // room), size)),
        )

    def observations(self, sequences: Sequences) -> Observations:
        """Sequences in one array; refuses those that this model cannot emit. For those that are read several times."""
        if isinstance(sequences, Observations):
            return sequences
        lengths = [len(sequence) for sequence in sequences]
        return Observations(self.emissions.joined(sequences), np.cumsum([0, *lengths]))

    def _blocks(self, sequences: Sequences) -> Iterator[tuple[int, np.ndarray, Int64[np.ndarray, " borders"]]]:
        """Some sequences at a time: the number of the first, their observations, and where each begins and ends."""
        values, borders = self.observations(sequences)
        begin, last = 0, len(borders) - 1
        while begin < last:
            room = int(borders[begin]) + self.emissions.observations_at_once
            end = max(begin + 1, int(np.searchsorted(borders, room, side="right")) - 1)
            own = borders[begin : end + 1]
            yield begin, values[own[0] : own[-1]], own - own[0]
            begin = end


# --- learning ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HmmFit:
    """A model that EM has improved."""

    model: HiddenMarkovModel
    history: tuple[float, ...]
    """log P(x), plus that of the prior if there is one, before each step: it never falls, up to rounding."""
    has_converged: bool


def improve(
    model: HiddenMarkovModel,
    sequences: Sequences,
    *,
    iterations: int = 100,
    tolerance: float | None = 1e-6,
    prior: Prior | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> HmmFit:
    """Baum-Welch: at most so many steps, fewer if one gains less than `tolerance` nats per observation; None: all."""
    prior = prior or Prior()
    data = model.observations(sequences)
    enough = 0.0 if tolerance is None else tolerance * len(data.values)
    history: list[float] = []
    for iteration in range(iterations):
        expectation = model.expected(data)
        history.append(expectation.log_likelihood + model.log_prior(prior))
        if progress is not None:
            progress(iteration, history[-1])
        model = model.estimated(expectation, prior)
        if tolerance is not None and iteration and history[-1] - history[-2] < enough:
            return HmmFit(model, tuple(history), has_converged=True)
    return HmmFit(model, tuple(history), has_converged=False)


def fit_categorical(
    sequences: Sequence[Integer[np.ndarray, " _"]],
    states: int,
    *,
    symbols: int | None = None,
    iterations: int = 100,
    tolerance: float | None = 1e-6,
    starts: int = 1,
    seed: int = 0,
    prior: Prior | None = None,
) -> HmmFit:
    """The best of `starts` models with random beginnings; `symbols` by default is one above the highest symbol."""
    require_enough(sequences, states)
    highest = max(int(np.max(sequence)) for sequence in sequences if len(sequence))
    size = highest + 1 if symbols is None else symbols

    def begin(generator: np.random.Generator) -> HiddenMarkovModel:
        emissions = CategoricalEmissions(generator.dirichlet(np.ones(size), states))
        return HiddenMarkovModel(*_random_chain(states, generator), emissions)

    return _best_fit(begin, sequences, starts, seed, iterations, tolerance, prior)


def fit_gaussian(
    sequences: Sequence[Float64[np.ndarray, "_ features"]],
    states: int,
    *,
    covariance: Covariance = "diagonal",
    minimum_variance: float = 1e-6,
    iterations: int = 100,
    tolerance: float | None = 1e-6,
    starts: int = 1,
    seed: int = 0,
) -> HmmFit:
    """The best of `starts` models. Each begins with means at observations far from each other (k-means++).

    `minimum_variance` is a share of the variance of each feature in all data, below which no state goes: a state
    that holds a single observation would otherwise have an infinite density.
    """
    require_enough(sequences, states)
    values = joined_vectors(sequences)
    variances = values.var(0)
    if not (variances > 0).all():
        constant = int(np.flatnonzero(~(variances > 0))[0])
        raise DataError(f"feature {constant} is {values[0, constant]:g} in all observations; leave it out")
    wide = np.tile(variances, (states, 1)) if covariance == "diagonal" else np.tile(np.diag(variances), (states, 1, 1))

    def begin(generator: np.random.Generator) -> HiddenMarkovModel:
        return HiddenMarkovModel(
            *_random_chain(states, generator),
            GaussianEmissions(distant_rows(values, states, variances, generator), wide),
        )

    prior = Prior(floors=minimum_variance * variances)
    return _best_fit(begin, sequences, starts, seed, iterations, tolerance, prior)


def _best_fit(
    begin: Callable[[np.random.Generator], HiddenMarkovModel],
    sequences: Sequence[np.ndarray],
    starts: int,
    seed: int,
    iterations: int,
    tolerance: float | None,
    prior: Prior | None,
) -> HmmFit:
    best: HmmFit | None = None
    for number in range(starts):
        model = begin(np.random.default_rng(seed_for(seed, "hmm start", number)))
        found = improve(model, sequences, iterations=iterations, tolerance=tolerance, prior=prior)
        if best is None or found.history[-1] > best.history[-1]:
            best = found
    if best is None or not best.history:
        raise UsageError(f"starts={starts} and iterations={iterations}: at least one of each is needed")
    return best


def _random_chain(states: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Start and transition probabilities, all of them likely enough to be learned from."""
    drawn = generator.dirichlet(np.full(states, 5.0), states + 1)
    return drawn[0], drawn[1:]


def distant_rows(
    values: Float64[np.ndarray, "steps features"],
    count: int,
    variances: Float64[np.ndarray, " features"],
    generator: np.random.Generator,
) -> Float64[np.ndarray, "count features"]:
    """Observations drawn one by one, by their squared distance from the nearest drawn before (k-means++)."""
    chosen = [int(generator.integers(len(values)))]
    nearest = np.full(len(values), np.inf)
    for _ in range(count - 1):
        nearest = np.minimum(nearest, ((values - values[chosen[-1]]) ** 2 / variances).sum(1))
        total = nearest.sum()
        shares_of = nearest / total if total > 0 else None  # as many different observations as states at most
        chosen.append(int(generator.choice(len(values), p=shares_of)))
    return values[chosen]


def block_steps(states: int, longest: int) -> int:
    """Steps of a sequence that are kept at a time."""
    return max(1, min(longest, BLOCK_NUMBERS // padded_size(states)))


def sums_between(values: Float64[np.ndarray, " steps"], borders: Int64[np.ndarray, " borders"]) -> np.ndarray:
    """The sum of each sequence."""
    numbers = np.repeat(np.arange(len(borders) - 1), np.diff(borders))
    return np.bincount(numbers, weights=values, minlength=len(borders) - 1)


def require_enough(sequences: Sequence[np.ndarray], states: int) -> None:
    """Refuse data from which so many states cannot be learned."""
    observations = sum(len(sequence) for sequence in sequences)
    if states < 1 or observations < states:
        raise DataError(
            f"{observations} observations are too few for {states} states; give more sequences, or fewer states"
        )
