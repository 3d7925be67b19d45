"""Scores of the symbols offered to each sentence, compiled. `seqloom.nn.shortlist` is the only one who calls.

A product needs the rows of the output that belong to a sentence side by side, a copy of them for every sentence. Here
they are read where they are. What a sentence gets depends on nothing but its own rows, to the last bit.
"""

from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""


@compiled(fast={"contract", "reassoc"})
def score(features: Array, weight: Array, symbols: Array, bias: Array, owners: Array, out: Array) -> None:
    """out[r, c] = features[r] · weight[y] + bias[s, c], where y = symbols[s, c] and s = owners[r].

    Features and weight are flat; their places are unsigned, because a number that may be negative is tested at every
    use. Rows of one sentence that follow each other share the rows of the weight, four at a time.
    """
    rows, columns = out.shape
    width = np.uint64(features.shape[0] // max(rows, 1))
    begin = 0
    while begin < rows:
        s, end = owners[begin], begin + 1
        while end < rows and owners[end] == s:
            end += 1
        fours = begin + (end - begin) // 4 * 4
        for c in range(columns):
            at = np.uint64(symbols[s, c]) * width
            for r in range(begin, fours, 4):
                first = np.uint64(r) * width
                second, third, fourth = first + width, first + width + width, first + width + width + width
                a = b = d = e = np.float32(0.0)
                for k in range(width):
                    number = weight[at + k]
                    a += features[first + k] * number
                    b += features[second + k] * number
                    d += features[third + k] * number
                    e += features[fourth + k] * number
                out[r, c], out[r + 1, c] = a + bias[s, c], b + bias[s, c]
                out[r + 2, c], out[r + 3, c] = d + bias[s, c], e + bias[s, c]
            for r in range(fours, end):
                row, total = np.uint64(r) * width, np.float32(0.0)
                for k in range(width):
                    total += features[row + k] * weight[at + k]
                out[r, c] = total + bias[s, c]
        begin = end
