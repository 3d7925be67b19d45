"""The end of a step as compiled loops: log-probabilities, the best of each row, the best candidates of each sentence.

A row or sentence depends on its own numbers alone, to the last bit, and ties are decided.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from seqloom.core.jit import compiled
from seqloom.nn.fast.beam_attention import powers
from seqloom.nn.fast.threads import parts_of, share

Array = Any
"""numba infers types and shapes."""


def log_softmax_by_loops(scores: Float[Tensor, "rows symbols"]) -> Float[Tensor, "rows symbols"]:
    """log softmax in the place of the scores, by the loops of a compiled step."""
    if not len(scores):
        return scores
    rows, columns = scores.shape
    numbers = scores.view(-1).numpy()
    parts = parts_of(PASSES * rows * columns, most=rows)
    borders = [rows * part // parts for part in range(parts + 1)]

    def compute(part: int) -> None:
        first, last = borders[part], borders[part + 1]
        log_softmax_rows(numbers[first * columns : last * columns], last - first, columns)

    share(parts, compute)
    return scores


PASSES = 8
"""About how many products and sums the log softmax of a number is."""


@compiled(fast={"contract", "reassoc"})
def log_softmax_rows(scores: Array, rows: Any, columns: Any) -> None:
    """log softmax of each row in its place; rows may be longer than their columns, by −∞ at their end."""
    stride, width = np.uint64(scores.shape[0] // rows), np.uint64(columns)
    exponents, base = np.empty(width, np.float32), np.float32(math.log2(math.e))
    for r in range(rows):
        first = np.uint64(r) * stride
        highest = np.float32(-np.inf)
        for c in range(width):
            highest = max(highest, scores[first + c])
        for c in range(width):
            exponents[c] = (scores[first + c] - highest) * base
        powers(exponents, width)
        total = np.float32(0.0)
        for c in range(width):
            total += exponents[c]
        highest += np.log(total)
        for c in range(width):
            scores[first + c] -= highest


@compiled()
def merge(
    values: Array,
    so_far: Array,
    sizes: Array,
    found: Array,
    rows: Array,
    columns: Array,
) -> None:
    """The best of so_far[row] + values[row, column] for the rows of each sentence, whose values fall to the right.

    The next best is always the first that is left of some row. What is not there has a value of −∞, in a last row.
    """
    best = found.shape[1]
    first, last = 0, values.shape[0] - 1
    taken = np.zeros(values.shape[0], np.int64)
    for s in range(sizes.shape[0]):
        for b in range(best):
            highest, at = -np.inf, np.int64(-1)
            for row in range(first, first + sizes[s]):
                if taken[row] < values.shape[1]:
                    value = so_far[row] + np.float64(values[row, taken[row]])
                    if value > highest:
                        highest, at = value, np.int64(row)
            found[s, b] = highest
            rows[s, b] = at if at >= 0 else last
            columns[s, b] = taken[at] if at >= 0 else 0
            if at >= 0:
                taken[at] += 1
        first += sizes[s]


BLOCK = np.uint64(32)


@compiled()
def best_columns(table: Array, columns: int, found: Array, places: Array) -> int:
    """The highest numbers of each row of a flat table in falling order, and their columns; of equal ones the first.

    Returns the first row with a NaN, or −1. A block of numbers is first compared with the lowest of those found so far,
    eight at a time, and passed over if none is higher; NaN is not lower than anything, so its block is looked into.
    """
    best = found.shape[1]
    for r in range(found.shape[0]):
        start, width = np.uint64(r * columns), np.uint64(columns)
        values, where = found[r], places[r]
        values[:] = -np.inf
        where[:] = 0
        first = np.uint64(0)
        lowest, count = values[best - 1], 0
        while first < width:
            last = min(first + BLOCK, width)
            hits = 0
            for c in range(start + first, start + last):
                hits += not table[c] <= lowest
            if hits or count < best:
                for c in range(first, last):
                    value = table[start + c]
                    if value != value:
                        return r
                    if value > lowest or count < best:
                        at = min(count, best - 1)
                        while at > 0 and values[at - 1] < value:
                            values[at], where[at] = values[at - 1], where[at - 1]
                            at -= 1
                        values[at], where[at] = value, c
                        count += count < best
                        lowest = values[best - 1] if count == best else lowest
            first = last
    return -1
