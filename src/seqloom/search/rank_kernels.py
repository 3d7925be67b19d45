"""The best candidates of each sentence, compiled. `seqloom.search.ranking` is the only one who calls."""

from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""


@compiled()
def merge(values: Array, so_far: Array, sizes: Array, found: Array, rows: Array, places: Array, columns: Array) -> None:
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
            places[s, b] = at - first if at >= 0 else 0
            columns[s, b] = taken[at] if at >= 0 else 0
            if at >= 0:
                taken[at] += 1
        first += sizes[s]
