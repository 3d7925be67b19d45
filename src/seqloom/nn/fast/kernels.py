"""The attention of a decoding step, compiled: single precision, on the processor.

A step has one query for each row and few keys, so products of matrices spend their time on being called: hundreds of
them with a handful of rows each. Here one call does all rows, and a row reads its own keys only, by its ancestors.
numba compiles these functions when they are first called, which takes a few seconds, and keeps the result beside this
file. Arguments are given by place: that is how compiled code is called quickly. `seqloom.nn.fast.beam_attention` is the
only one who calls. A row of the result depends on nothing but its own numbers, to the last bit.
"""

from typing import Any

import numpy as np

from seqloom.core.jit import compiled

# Layer norms, compiled: a row is read from memory once. `seqloom.nn.fast.norms` is the only one who calls.

Array = Any
"""numba finds out types and shapes by itself. Tables are flat, and a row is as long as the weight."""


@compiled(fast={"contract", "reassoc"}, is_inlined=True)
def normalise_row(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any, start: Any) -> None:
    """The same for the row that begins at `start`."""
    width = np.uint64(weight.shape[0])
    share = np.float32(1) / np.float32(weight.shape[0])
    total, squares = np.float32(0), np.float32(0)
    for k in range(width):
        total += x[start + k]
    mean = total * share
    for k in range(width):
        apart = x[start + k] - mean
        squares += apart * apart
    scale = np.float32(1) / np.sqrt(squares * share + epsilon)
    for k in range(width):
        out[start + k] = (x[start + k] - mean) * scale * weight[k] + bias[k]


@compiled(fast={"contract", "reassoc"})
def add_and_normalise(x: Array, branch: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """x = x + branch, out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        for k in range(start, start + width):
            x[k] += branch[k]
        normalise_row(x, weight, bias, out, epsilon, start)


@compiled(fast={"contract", "reassoc"})
def normalise(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any) -> None:
    """out = (x − mean) / √(variance + ε) · weight + bias, row by row."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        normalise_row(x, weight, bias, out, epsilon, start)


# Rows in eight bits, compiled: one pass for the largest number, one to round. `seqloom.nn.fast.int8` is the only
# caller.


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


# Scores of the symbols offered to each sentence, compiled. `seqloom.nn.fast.shortlist` is the only one who calls.
#
# A product needs the rows of the output that belong to a sentence side by side, a copy of them for every sentence.
# Here they are read where they are. What a sentence gets depends on nothing but its own rows, to the last bit.


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


# 2^f = Σ_i C_i f^i to 3e-9 for 0 ≤ f < 1, fitted by least squares on the relative error at Chebyshev's places.
LOWEST = np.float32(-120.0)
C0, C1, C2 = np.float32(1.0000000018154933), np.float32(0.6931469870574706), np.float32(0.24022979581429327)
C3, C4 = np.float32(0.05548352472375446), np.float32(0.00967847255490023)
C5, C6 = np.float32(0.001244308150400659), np.float32(0.0002169060918639303)


@compiled(fast={"contract", "reassoc"})
def powers(exponents: Array, count: int) -> None:
    """2^exponent in its place, for the first `count` exponents, none of which is above 0."""
    bits = exponents.view(np.int32)
    for p in range(count):
        power = max(exponents[p], LOWEST)
        whole = np.floor(power)
        f = power - whole
        exponents[p] = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
        bits[p] += np.int32(whole) << 23  # one more in the exponent is a factor of 2


@compiled(fast={"contract", "reassoc"})
def mix(
    query: Array, keys: Array, values: Array, places: Array, count: Any, heads: Any, stride: Any, scores: Array
) -> None:
    """query_h = Σ_p softmax_p(query_h · keys_h[p]) values_h[p] for each head, in the place of the query.

    The numbers of head h at position p begin at places[p] + h · stride. The query comes multiplied by log₂ e / √size.
    Places and counts are unsigned: a number that may be negative is tested at every use, and loops stay slow.
    """
    size = np.uint64(query.shape[0]) // heads
    for p in range(count):
        for h in range(heads):
            at, own = places[p] + h * stride, h * size
            score = np.float32(0.0)
            for k in range(size):
                score += query[own + k] * keys[at + k]
            scores[h * count + p] = score
    for h in range(heads):
        first = h * count
        highest = np.float32(-np.inf)
        for p in range(count):
            highest = max(highest, scores[first + p])
        for p in range(count):
            scores[first + p] -= highest
    powers(scores, heads * count)
    for k in range(np.uint64(query.shape[0])):
        query[k] = np.float32(0.0)
    for h in range(heads):
        first = h * count
        total = np.float32(0.0)
        for p in range(count):
            total += scores[first + p]
        for p in range(count):
            scores[first + p] /= total
    for p in range(count):
        for h in range(heads):
            at, own, share = places[p] + h * stride, h * size, scores[h * count + p]
            for k in range(size):
                query[own + k] += share * values[at + k]


@compiled(fast={"contract", "reassoc"})
def look_back(
    joined: Array, keys: Array, values: Array, owners: Array, ancestors: Array, shape: Any, scale: Any, out: Array
) -> None:
    """Each row writes its key and value, then looks at its own way so far. Slots that nobody has become 0.

    `joined` holds query, key and value of a row, `shape` is (sentences, room, slots, heads), and all tables are flat.
    """
    sentences, room, slots, heads = shape
    rows, count = ancestors.shape
    width = np.uint64(out.shape[0] // rows)
    size = width // np.uint64(heads)
    places, query = np.empty(count, np.uint64), np.empty(width, np.float32)
    scores, taken = np.empty(count * heads, np.float32), np.zeros(sentences, np.int64)
    for r in range(rows):
        taken[owners[r]] += 1
        for p in range(count):
            places[p] = np.uint64((owners[r] * room + p) * slots + ancestors[r, p]) * width
        at, own, target = np.uint64(3 * r) * width, places[count - 1], np.uint64(r) * width
        for k in range(width):
            query[k] = scale * joined[at + k]
            keys[own + k] = joined[at + width + k]
            values[own + k] = joined[at + width + width + k]
        mix(query, keys, values, places, np.uint64(count), np.uint64(heads), size, scores)
        for k in range(width):
            out[target + k] = query[k]
    for s in range(sentences):
        first = (s * room + count - 1) * slots
        for free in range(np.uint64(first + taken[s]) * width, np.uint64(first + slots) * width):
            keys[free] = values[free] = np.float32(0.0)


@compiled(fast={"contract", "reassoc"})
def look_at(
    queries: Array, keys: Array, values: Array, owners: Array, lengths: Array, shape: Any, scale: Any, out: Array
) -> None:
    """Each row looks at the memory of its sentence, up to its length; `shape` is (heads, source), the tables flat."""
    heads, source = shape
    rows = owners.shape[0]
    width = np.uint64(out.shape[0] // rows)
    size = width // np.uint64(heads)
    stride = np.uint64(source) * size
    places, query = np.empty(source, np.uint64), np.empty(width, np.float32)
    scores = np.empty(source * heads, np.float32)
    for r in range(rows):
        count, first, target = lengths[owners[r]], owners[r] * heads * source, np.uint64(r) * width
        for p in range(count):
            places[p] = np.uint64(first + p) * size
        for k in range(width):
            query[k] = scale * queries[target + k]
        mix(query, keys, values, places, np.uint64(count), np.uint64(heads), stride, scores)
        for k in range(width):
            out[target + k] = query[k]
