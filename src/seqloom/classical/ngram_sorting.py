"""All n-grams of a text that fits into memory, by one sort: places by the words that follow, longest length at once.

Places are dealt into buckets by their N-th word, then by the one before, and so on to the first (a radix sort whose
digits are words). Afterwards the same n-grams of every length lie side by side, in lexicographic order, and one walk
along the sorted places counts and numbers them all. `seqloom.classical.ngram_counts` gives the same numbers by runs.
"""

import numpy as np
from jaxtyping import Int32

from seqloom.classical.ngram_kernels import Array
from seqloom.core.compiling import compiled
from seqloom.core.symbols import END


def sorted_grams(
    tokens: Int32[np.ndarray, " padded"], order: int, *, symbols: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Contexts, words, suffixes and counts of the n-grams of length 2 … order; each sentence begins with BEGIN."""
    lengths = np.empty(len(tokens), np.int32)
    measure(tokens, END, order, lengths)
    places = np.flatnonzero(lengths > 1).astype(np.int32 if len(tokens) < 1 << 31 else np.int64)
    for column in range(order - 1, -1, -1):
        dealt = np.empty_like(places)
        deal(tokens, lengths, places, column, np.zeros(symbols + 1, np.int64), dealt)
        places = dealt
    shared = np.empty(len(places), np.int32)
    measure_shared(tokens, lengths, places, shared)
    found = []
    numbers = tokens
    for length in range(2, order + 1):
        is_new = (shared < length) & (lengths[places] >= length)
        size = int(np.count_nonzero(is_new))
        contexts, suffixes, counts = (np.empty(size, np.int64) for _ in range(3))
        words, longer = np.empty(size, np.int32), np.full(len(tokens), -1, places.dtype)
        number_grams(tokens, lengths, places, shared, length, numbers, contexts, words, suffixes, counts, longer)
        found.append((contexts, words, suffixes, counts))
        numbers = longer
    return found


@compiled()
def measure(tokens: Array, end: int, order: int, lengths: Array) -> None:
    """How long an n-gram may be that begins at each place: to the end of its sentence, at most `order`."""
    room = 0
    for place in range(len(tokens) - 1, -1, -1):
        room = 1 if tokens[place] == end else min(order, room + 1)
        lengths[place] = room


@compiled()
def deal(tokens: Array, lengths: Array, places: Array, column: int, starts: Array, dealt: Array) -> None:
    """Sort places by the word so many columns on, leaving those of the same word as they stand; none comes first."""
    for place in places:
        word = tokens[place + column] + 1 if column < lengths[place] else 0
        if word < len(starts) - 1:
            starts[word + 1] += 1
    for word in range(1, len(starts)):
        starts[word] += starts[word - 1]
    for place in places:
        word = tokens[place + column] + 1 if column < lengths[place] else 0
        dealt[starts[word]] = place
        starts[word] += 1


@compiled()
def measure_shared(tokens: Array, lengths: Array, places: Array, shared: Array) -> None:
    """How many words each place has in common with the one before it in the order."""
    for row in range(len(places)):
        common = 0
        if row:
            one, other = places[row - 1], places[row]
            most = min(lengths[one], lengths[other])
            while common < most and tokens[one + common] == tokens[other + common]:
                common += 1
        shared[row] = common


@compiled()
def number_grams(
    tokens: Array, lengths: Array, places: Array, shared: Array, length: int, numbers: Array,
    contexts: Array, words: Array, suffixes: Array, counts: Array, longer: Array,
) -> None:  # fmt: skip
    """The n-grams of one length, given the numbers of those one shorter at each place; their own go into `longer`."""
    size = 0
    for row in range(len(places)):
        place = places[row]
        if lengths[place] < length:
            continue
        if shared[row] < length:
            contexts[size], suffixes[size] = numbers[place], numbers[place + 1]
            words[size], counts[size] = tokens[place + length - 1], 0
            size += 1
        counts[size - 1] += 1
        longer[place] = size - 1
