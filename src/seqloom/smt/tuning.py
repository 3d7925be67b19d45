"""Weights of features that make BLEU on held-out pairs high: batch MIRA on n-best lists (Cherry and Foster, 2012).

    round:     translate the dev sentences with the weights w, keep all candidates that any round found
    epoch:     for each sentence in random order
                   hope = argmax_e w·h(e) + g(e)          good, and near to what the model would choose
                   fear = argmax_e w·h(e) − g(e)          bad, and near to it
                   loss = g(hope) − g(fear) − w·(h(hope) − h(fear))
                   w ← w + min(C, loss / ‖h(hope) − h(fear)‖²) (h(hope) − h(fear))      if loss > 0
    g(e):      the BLEU points that e adds to those of the sentences before, in words (Chiang, 2012)

Each epoch ends with the mean of its weights; the epoch with the highest BLEU on the candidates starts the next round.
A round that lowers BLEU on the dev sentences is no loss: the weights of the best round are kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32

from seqloom.core.jit import compiled

ORDERS = 4
"""The longest n-grams of BLEU."""

PARTS = 2 + 2 * ORDERS
"""Lengths of candidate and reference, matches and totals of each order."""

PATIENCE = 3
"""Rounds without a better BLEU after which tuning ends."""

DECAY = 0.999
"""What remains of the statistics of earlier sentences after each sentence."""

Array = Any
"""numba infers types and shapes."""


class Candidates(NamedTuple):
    """What a search found for one sentence, best first."""

    outputs: Sequence[tuple[int, ...]]
    features: Float64[np.ndarray, "candidates features"]


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best weights, and BLEU of each round with its own."""

    weights: Float64[np.ndarray, " features"]
    scores: tuple[float, ...]


def tune(
    translate: Callable[[Float64[np.ndarray, " features"]], Sequence[Candidates]],
    references: Sequence[Int32[np.ndarray, " _"]],
    start: Float64[np.ndarray, " features"],
    *,
    is_free: Bool[np.ndarray, " features"],
    seed: int,
    rounds: int = 12,
    epochs: int = 40,
    step: float = 0.01,
    progress: Callable[[int, float], None] = lambda _done, _score: None,
) -> Tuned:
    """Weights from `start` on; those that are not free stay. `progress` gets rounds that are done, and their BLEU."""
    generator = np.random.default_rng(seed)
    pools = [_Pool() for _ in references]
    weights, best, scores = start.copy(), start.copy(), []
    for number in range(rounds):
        found = translate(weights)
        sums = np.zeros(PARTS)
        for pool, candidates, reference in zip(pools, found, references, strict=True):
            sums += pool.add(candidates, reference)
        scores.append(100 * float(bleu(sums)))
        progress(number + 1, scores[-1])
        if scores[-1] == max(scores):
            best = weights.copy()
        if number + 1 == rounds or number - int(np.argmax(scores)) >= PATIENCE:
            break
        starts = np.cumsum([0, *(len(pool.rows) for pool in pools)])
        features = np.array([row for pool in pools for row in pool.rows]).reshape(-1, len(start))
        statistics = np.array([row for pool in pools for row in pool.statistics]).reshape(-1, PARTS)
        orders = np.array([generator.permutation(len(pools)) for _ in range(epochs)])
        weights = mira(features, statistics, starts, orders, weights.copy(), is_free, step)
    return Tuned(best, tuple(scores))


class _Pool:
    """All different candidates of a sentence."""

    def __init__(self) -> None:
        self.rows: list[Float64[np.ndarray, " features"]] = []
        self.statistics: list[Float64[np.ndarray, " parts"]] = []
        self.seen: set[tuple[tuple[int, ...], bytes]] = set()

    def add(self, candidates: Candidates, reference: Int32[np.ndarray, " words"]) -> Float64[np.ndarray, " parts"]:
        """Add those that are new; the statistics of the best one are returned."""
        first = np.zeros(PARTS)
        for rank, (output, row) in enumerate(zip(candidates.outputs, candidates.features, strict=True)):
            parts = np.zeros(PARTS)
            if rank == 0 or (output, row.tobytes()) not in self.seen:
                count_matches(np.array(output, np.int32), reference, parts)
            if rank == 0:
                first = parts
            if (output, row.tobytes()) not in self.seen:
                self.seen.add((output, row.tobytes()))
                self.rows.append(row)
                self.statistics.append(parts)
        return first


def corpus_bleu(outputs: Sequence[Sequence[int]], references: Sequence[Int32[np.ndarray, " _"]]) -> float:
    """BLEU of ids, from 0 to 100."""
    sums = np.zeros(PARTS)
    for output, reference in zip(outputs, references, strict=True):
        count_matches(np.array(output, np.int32), reference, sums)
    return 100 * float(bleu(sums))


# --- compiled loops --------------------------------------------------------------------------------------------------


@compiled()
def is_same(one: Array, at: int, other: Array, place: int, size: int) -> bool:
    """Whether the same `size` words begin at two places."""
    same = 0
    while same < size and one[at + same] == other[place + same]:
        same += 1
    return same == size


@compiled()
def count_matches(output: Array, reference: Array, parts: Array) -> None:
    """Add the statistics of BLEU: an n-gram matches as often as the reference has it."""
    parts[0] += len(output)
    parts[1] += len(reference)
    for size in range(1, ORDERS + 1):
        for at in range(len(output) - size + 1):
            before = 0
            for place in range(at):
                before += is_same(output, at, output, place, size)
            for place in range(len(reference) - size + 1):
                if is_same(output, at, reference, place, size):
                    before -= 1
            parts[1 + size] += before < 0
            parts[1 + ORDERS + size] += 1


@compiled()
def bleu(sums: Array) -> float:
    """BLEU of statistics, from 0 to 1; 0 where an order has no match."""
    total = 0.0
    for order in range(ORDERS):
        if sums[2 + order] <= 0.0 or sums[2 + ORDERS + order] <= 0.0:
            return 0.0
        total += math.log(sums[2 + order] / sums[2 + ORDERS + order])
    return math.exp(total / ORDERS + min(0.0, 1.0 - sums[1] / sums[0]))


@compiled()
def mira(
    features: Array, statistics: Array, starts: Array, orders: Array, weights: Array, is_free: Array, step: float
) -> Array:
    """The weights of the best epoch."""
    background = np.ones(PARTS)
    total = len(weights)
    best, highest = weights.copy(), -1.0
    candidate = np.empty(PARTS)
    for epoch in range(len(orders)):
        mean, seen = np.zeros(total), 0
        for sentence in orders[epoch]:
            begin, end = starts[sentence], starts[sentence + 1]
            if begin == end:
                continue
            size = background[1] + statistics[begin, 1]
            hope = fear = begin
            high, low, hope_gain, fear_gain = -np.inf, -np.inf, 0.0, 0.0
            for row in range(begin, end):
                model = 0.0
                for column in range(total):
                    model += weights[column] * features[row, column]
                for part in range(PARTS):
                    candidate[part] = background[part] + statistics[row, part]
                gain = size * bleu(candidate)
                if model + gain > high:
                    high, hope, hope_gain = model + gain, row, gain
                if model - gain > low:
                    low, fear, fear_gain = model - gain, row, gain
            loss, length = hope_gain - fear_gain, 0.0
            for column in range(total):
                if is_free[column]:
                    length += (features[hope, column] - features[fear, column]) ** 2
                loss -= weights[column] * (features[hope, column] - features[fear, column])
            if loss > 0.0 and length > 0.0:
                rate = min(step, loss / length)
                for column in range(total):
                    if is_free[column]:
                        weights[column] += rate * (features[hope, column] - features[fear, column])
            for part in range(PARTS):
                background[part] = DECAY * background[part] + statistics[hope, part]
            mean += weights
            seen += 1
        mean /= max(1, seen)
        found = pool_bleu(features, statistics, starts, mean)
        if found > highest:
            best, highest = mean, found
    return best


@compiled()
def pool_bleu(features: Array, statistics: Array, starts: Array, weights: Array) -> float:
    """BLEU of the candidates that these weights choose."""
    sums = np.zeros(PARTS)
    for sentence in range(len(starts) - 1):
        chosen, highest = -1, -np.inf
        for row in range(starts[sentence], starts[sentence + 1]):
            model = 0.0
            for column in range(len(weights)):
                model += weights[column] * features[row, column]
            if model > highest:
                chosen, highest = row, model
        if chosen >= 0:
            sums += statistics[chosen]
    return bleu(sums)
