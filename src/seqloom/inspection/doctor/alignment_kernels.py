"""The loops of the alignment examination, compiled. Arguments are given by place, as compiled code is called."""

import math
from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""


@compiled()
def score_pairs(
    lines: Array,
    partners: Array,
    folds: Array,
    sources: Array,
    source_starts: Array,
    targets: Array,
    target_starts: Array,
    tables: Array,
    shares: Array,
    background: float,
    scores: Array,
) -> None:
    """Σ_j log((t̄_j + β q_j) / ((1 + β) q_j)) / m of each wanted pair, where t̄_j = Σ_i t(y_j ∣ x_i) / n.

    `tables` holds starts, columns and probabilities of the table of each fold; `shares` are q, how frequent a word is.
    A pair with a side that has no known word scores NaN.
    """
    for at in range(len(lines)):
        first, last = source_starts[lines[at]], source_starts[lines[at] + 1]
        low, high = target_starts[partners[at]], target_starts[partners[at] + 1]
        if first == last or low == high:
            scores[at] = math.nan
            continue
        starts, columns, probabilities = tables[folds[at]]
        total = 0.0
        for token in range(low, high):
            word, found = targets[token], 0.0
            for place in range(first, last):
                source = sources[place]
                if source + 1 >= len(starts):
                    continue
                begin, end = starts[source], starts[source + 1]
                spot = begin + np.searchsorted(columns[begin:end], word)
                if spot < end and columns[spot] == word:
                    found += probabilities[spot]
            usual = shares[word]
            total += math.log((found / (last - first) + background * usual) / ((1.0 + background) * usual))
        scores[at] = total / (high - low)


@compiled()
def best_path(evidence: Array, switch: float, path: Array) -> None:
    """The states with the most evidence in all, where each change of state costs `switch` (Viterbi).

    `evidence` has a row for each line and a column for each state.
    """
    lines, states = evidence.shape
    back = np.empty((lines, states), np.int8)
    best = evidence[0].astype(np.float64)  # sums over a whole text, whatever the table is kept in
    for line in range(1, lines):
        top = 0
        for state in range(states):
            if best[state] > best[top]:
                top = state
        for state in range(states):
            stays = best[state] >= best[top] - switch
            back[line, state] = state if stays else top
        change = best[top] - switch
        for state in range(states):
            best[state] = max(best[state], change) + evidence[line, state]
    state = 0
    for other in range(states):
        if best[other] > best[state]:
            state = other
    for line in range(lines - 1, -1, -1):
        path[line] = state
        if line:
            state = back[line, state]
