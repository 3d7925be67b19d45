"""The best of each row, compiled: one pass over the numbers. `seqloom.search.top` is the only one who calls."""

from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""

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
