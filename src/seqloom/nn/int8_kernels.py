"""Rows in eight bits, compiled: one pass for the largest number, one to round. `seqloom.nn.int8` is the only caller."""

from typing import Any

import numpy as np

from seqloom.core.compiling import compiled

Array = Any
"""numba finds out types and shapes by itself."""


@compiled()
def round_rows(x: Array, columns: int, share: Any, least: Any, shift: Any, rounded: Array, scales: Array) -> None:
    """scale = max(least, share · max |x|) and round(x / scale) + shift of each row; tables are flat.

    The largest number is found by its bits, which rise with it: whole numbers are compared eight at a time, and floats
    are not, because of NaN. A NaN has higher bits than any number, and its row comes out as its scale does, NaN.
    """
    bits = x.view(np.uint32)
    for r in range(scales.shape[0]):
        start = np.uint64(r * columns)
        highest = np.uint32(0)
        for k in range(start, start + np.uint64(columns)):
            highest = max(highest, bits[k] & np.uint32(0x7FFFFFFF))
        scales[r] = np.array([highest], np.uint32).view(np.float32)[0] * share
        if scales[r] < least:
            scales[r] = least
        for k in range(start, start + np.uint64(columns)):
            rounded[k] = np.uint8(np.int32(np.rint(x[k] / scales[r])) + shift)
