"""The attention of a decoding step, compiled: single precision, on the processor.

A step has one query for each row and few keys, so products of matrices spend their time on being called: hundreds of
them with a handful of rows each. Here one call does all rows, and a row reads its own keys only, by its ancestors.
numba compiles these functions when they are first called, which takes a few seconds, and keeps the result beside this
file. Arguments are given by place: that is how compiled code is called quickly. `seqloom.nn.beam_attention` is the only
one who calls. A row of the result depends on nothing but its own numbers, to the last bit.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

Array = Any
"""numba finds out types and shapes by itself."""
F = TypeVar("F", bound=Callable[..., Any])

# 2^f = Σ_i C_i f^i to 3e-9 for 0 ≤ f < 1, fitted by least squares on the relative error at Chebyshev's places.
LOG2_E, LOWEST = np.float32(1.4426950408889634), np.float32(-120.0)
C0, C1, C2 = np.float32(1.0000000018154933), np.float32(0.6931469870574706), np.float32(0.24022979581429327)
C3, C4 = np.float32(0.05548352472375446), np.float32(0.00967847255490023)
C5, C6 = np.float32(0.001244308150400659), np.float32(0.0002169060918639303)


def compiled(function: F) -> F:
    """The function as machine code, kept on disk if there is a place for it. Sums may be taken eight at a time."""
    plain = inspect.unwrap(function)  # as it was written: the test run wraps type checks round it
    options: dict[str, Any] = {"fastmath": {"contract", "reassoc"}, "error_model": "numpy", "nogil": True}
    try:
        return cast("F", numba.njit(plain, cache=True, **options))
    except RuntimeError:  # no folder that can be written to
        return cast("F", numba.njit(plain, **options))


@compiled
def mix(query: Array, keys: Array, values: Array, count: int, scale: Any, scores: Array, out: Array) -> None:
    """out = Σ_p softmax_p(scale · query · keys[p]) values[p] over the first `count` positions."""
    bits = scores.view(np.int32)
    highest = np.float32(-np.inf)
    for p in range(count):
        score = np.float32(0.0)
        for k in range(query.shape[0]):
            score += query[k] * keys[p, k]
        score *= scale
        scores[p] = score
        highest = max(highest, score)
    for p in range(count):
        power = max((scores[p] - highest) * LOG2_E, LOWEST)
        whole = np.floor(power)
        f = power - whole
        scores[p] = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
        bits[p] += np.int32(whole) << 23  # one more in the exponent is a factor of 2
    total = np.float32(0.0)
    for p in range(count):
        total += scores[p]
    for k in range(out.shape[0]):
        out[k] = np.float32(0.0)
    for p in range(count):
        share = scores[p] / total
        for k in range(out.shape[0]):
            out[k] += share * values[p, k]


@compiled
def write(joined: Array, keys: Array, values: Array, owners: Array, slots: Array, position: int) -> None:
    """Put down the keys and values of all rows at a position, and 0 in slots that nobody has."""
    _, heads, _, _, size = keys.shape
    keys[:, :, position] = np.float32(0.0)
    values[:, :, position] = np.float32(0.0)
    width = heads * size
    for r in range(joined.shape[0]):
        for h in range(heads):
            at = h * size
            keys[owners[r], h, position, slots[r]] = joined[r, width + at : width + at + size]
            values[owners[r], h, position, slots[r]] = joined[r, 2 * width + at : 2 * width + at + size]


@compiled
def look_back(
    joined: Array, keys: Array, values: Array, owners: Array, ancestors: Array, position: int, scale: Any, out: Array
) -> None:
    """Each row looks at its own way so far; `joined` begins with its queries.

    What it looks at is copied together first: a loop over rows that lie side by side is several times as fast.
    """
    heads, size, count = keys.shape[1], keys.shape[4], position + 1
    scores = np.empty(count, np.float32)
    own_keys, own_values = np.empty((count, size), np.float32), np.empty((count, size), np.float32)
    for r in range(joined.shape[0]):
        for h in range(heads):
            at = h * size
            for p in range(count):
                kept, seen = keys[owners[r], h, p, ancestors[r, p]], values[owners[r], h, p, ancestors[r, p]]
                for k in range(size):
                    own_keys[p, k] = kept[k]
                    own_values[p, k] = seen[k]
            mix(joined[r, at : at + size], own_keys, own_values, count, scale, scores, out[r, at : at + size])


@compiled
def look_at(query: Array, keys: Array, values: Array, owners: Array, lengths: Array, scale: Any, out: Array) -> None:
    """Each row looks at the memory of its sentence."""
    heads, size = keys.shape[1], keys.shape[3]
    scores = np.empty(keys.shape[2], np.float32)
    for r in range(query.shape[0]):
        s = owners[r]
        for h in range(heads):
            at = h * size
            mix(query[r, at : at + size], keys[s, h], values[s, h], lengths[s], scale, scores, out[r, at : at + size])
