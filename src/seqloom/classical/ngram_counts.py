"""How often each n-gram occurs, for all n up to an order, by sorting.

Each sentence is read with the begin symbol before it and the end symbol after it; no n-gram reaches across its ends.
The n-grams of one length are numbered in lexicographic order. An n-gram is then known by two numbers, whatever n and
the vocabulary are:

    key(w_1 … w_n) = number(w_1 … w_(n−1)) · V + w_n      sorted keys are again in lexicographic order

A text that fits into memory is sorted once, for all lengths (`sorted_grams`). A larger one is counted in runs: as many
tokens as the memory allows are sorted, counted and written to disk. Sorted runs are merged in pairs, which reads and
writes them sequentially. The result depends neither on where runs begin nor on which of the two was used.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64, Integer

from seqloom.core.errors import DataError, SeqloomError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.jit import compiled
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED

Array = Any
"""numba infers types and shapes."""

# --- in memory --------------------------------------------------------------------------------------------------------


def sorted_grams(
    tokens: Int32[np.ndarray, " padded"], order: int, *, symbols: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Contexts, words, suffixes and counts of the n-grams of length 2 … order; each sentence begins with BEGIN.

    Places are sorted by their N-th word, then by the one before, and so on to the first (a radix sort whose digits are
    words). Afterwards the same n-grams of every length are neighbours, in lexicographic order, and one pass over the
    sorted places counts and numbers them all.
    """
    lengths = np.empty(len(tokens), np.int32)
    measure(tokens, END, order, lengths)
    places = np.flatnonzero(lengths > 1).astype(np.int32 if len(tokens) < 1 << 31 else np.int64)
    for column in range(order - 1, -1, -1):
        ordered = np.empty_like(places)
        sort_by_column(tokens, lengths, places, column, np.zeros(symbols + 1, np.int64), ordered)
        places = ordered
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
    """The length of the longest n-gram that begins at each place: to the end of its sentence, at most `order`."""
    room = 0
    for place in range(len(tokens) - 1, -1, -1):
        room = 1 if tokens[place] == end else min(order, room + 1)
        lengths[place] = room


@compiled()
def sort_by_column(tokens: Array, lengths: Array, places: Array, column: int, starts: Array, ordered: Array) -> None:
    """Sort places stably by the word `column` words later; places without one come first."""
    for place in places:
        word = tokens[place + column] + 1 if column < lengths[place] else 0
        if word < len(starts) - 1:
            starts[word + 1] += 1
    for word in range(1, len(starts)):
        starts[word] += starts[word - 1]
    for place in places:
        word = tokens[place + column] + 1 if column < lengths[place] else 0
        ordered[starts[word]] = place
        starts[word] += 1


@compiled()
def measure_shared(tokens: Array, lengths: Array, places: Array, shared: Array) -> None:
    """How many words each place has in common with the previous one in sorted order."""
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


# --- counting ---------------------------------------------------------------------------------------------------------

BYTES_PER_TOKEN = 64
"""Memory for sorting and numbering one token of a run: a key, its place, both again in sorted order, and a number."""


@dataclass(frozen=True, eq=False)
class Grams:
    """The different n-grams of one length in lexicographic order."""

    contexts: Int64[np.ndarray, " grams"]
    """The number of w_1 … w_(n−1) among the grams that are one shorter; 0 for single words."""
    words: Int32[np.ndarray, " grams"]
    """w_n."""
    suffixes: Int64[np.ndarray, " grams"]
    """The number of w_2 … w_n among the grams that are one shorter; 0 for single words."""
    counts: Int64[np.ndarray, " grams"]
    """How often each occurs. The single words are the whole vocabulary, so some counts may be 0."""

    def __len__(self) -> int:
        return len(self.words)


def count_ngrams(
    ids: Integer[np.ndarray, " tokens"],
    order: int,
    *,
    symbols: int,
    memory: int = 1 << 30,
    folder: Path | None = None,
    listener: Listener = ignore,
) -> list[Grams]:
    """The n-grams of a text for n = 1 … order; sentences end with END and hold no BEGIN.

    Sorting uses about `memory` bytes at a time; the rest is in files that are deleted at the end, in `folder` or the
    system's temporary directory. The result itself takes 28 bytes for each different n-gram.
    """
    if not len(ids) or ids[-1] != END:
        raise DataError(f"the text must have at least one sentence and end with id {END} ({RESERVED[END]})")
    counts = np.zeros(symbols, np.int64)
    for begin in range(0, len(ids), 1 << 24):
        part = ids[begin : begin + (1 << 24)]
        if part.min() < 0 or part.max() >= symbols:
            raise DataError(f"ids run from {part.min()} to {part.max()}, but the vocabulary has {symbols:,} symbols")
        counts += np.bincount(part, minlength=symbols)
    for id in (PAD, BEGIN):
        if counts[id]:
            raise DataError(f"the text contains {RESERVED[id]} {counts[id]:,} times; pass sentences without it")
    counts[BEGIN] = counts[END]
    words = np.arange(symbols, dtype=np.int32)
    levels = [Grams(np.zeros(symbols, np.int64), words, np.zeros(symbols, np.int64), counts)]
    padded = len(ids) + int(counts[END])
    if BYTES_PER_TOKEN * padded <= memory:
        listener(Event("progress", {"what": "counting n-grams", "done": 0, "all": 1}))
        tokens = np.empty(padded, np.int32)
        add_begins(ids, tokens, BEGIN, END)
        return levels + [Grams(*fields) for fields in sorted_grams(tokens, order, symbols=symbols)]
    with tempfile.TemporaryDirectory(dir=folder) as made:
        disk = _Disk(Path(made))
        tokens = disk.empty(padded, np.int32)
        add_begins(ids, tokens, BEGIN, END)
        numbers = disk.empty(padded, np.int64)
        numbers[:] = tokens
        for length in range(2, order + 1):
            listener(Event("progress", {"what": f"counting {length}-grams", "done": length - 2, "all": order - 1}))
            known, run = len(levels[-1]), max(1, memory // BYTES_PER_TOKEN)
            levels.append(_count_in_runs(tokens, numbers, length, known=known, symbols=symbols, run=run, disk=disk))
    return levels


class _Disk:
    """Allocates arrays in files of a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()

    def empty(self, length: int, dtype: type[np.generic]) -> np.ndarray:
        """An uninitialised array."""
        if length == 0:
            return np.empty(length, dtype)
        path, size = self._folder / str(next(self._numbers)), length * np.dtype(dtype).itemsize
        try:  # to reserve the space now: writing to a mapped file on a full disk would kill the process
            with path.open("xb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
        except OSError as error:
            free = shutil.disk_usage(self._folder).free
            raise SeqloomError(
                f"counting n-grams needs {size:,} more bytes in {self._folder.parent}, where {free:,} bytes are free "
                f"({error.strerror or error}); free some, set TMPDIR to a larger disk, or raise model.memory"
            ) from error
        # The compiled loops take plain arrays; the file stays mapped as long as its view lives.
        array: np.ndarray = np.asarray(np.memmap(path, dtype, mode="r+", shape=(length,)))
        path.unlink()  # the disk space is freed when the array is
        return array

    def keep(self, array: np.ndarray) -> np.ndarray:
        """A copy of an array."""
        kept = self.empty(len(array), array.dtype.type)
        kept[:] = array
        return kept


def _count_in_runs(
    tokens: Int32[np.ndarray, " padded"],
    numbers: Int64[np.ndarray, " padded"],
    length: int,
    *,
    known: int,
    symbols: int,
    run: int,
    disk: _Disk,
) -> Grams:
    """The n-grams of one length, from `run` tokens at a time.

    `numbers` says which of the `known` n-grams that are one shorter begins at each place (−1 for none), and says the
    same of the new ones afterwards.
    """
    if known > np.iinfo(np.int64).max // symbols:
        raise DataError(f"{known:,} {length - 1}-grams are more than can be numbered; lower the order")

    def runs() -> Iterator[tuple[int, Int64[np.ndarray, " grams"], Int64[np.ndarray, " grams"]]]:
        """Where each run begins, the places where its n-grams begin, and their keys."""
        for begin in range(0, len(tokens), run):
            places = np.flatnonzero(numbers[begin : begin + run] >= 0) + begin
            # An n-gram can be extended where it is complete and does not end its sentence.
            places = places[tokens[places + length - 2] != END]
            yield begin, places, numbers[places] * symbols + tokens[places + length - 1]

    # Different keys in rising order and how often each occurs, run by run; two are merged if they are of about the same
    # size, so each key is copied log times.
    waiting: list[tuple[np.ndarray, np.ndarray]] = []
    last_run = (len(tokens) - 1) // run * run
    for begin, _, found in runs():
        keys, counts = np.unique(found, return_counts=True)
        waiting.append((disk.keep(keys), disk.keep(counts)))
        while len(waiting) > 1 and (begin == last_run or len(waiting[-2][0]) <= 2 * len(waiting[-1][0])):
            one, other = waiting.pop(), waiting.pop()
            most = len(one[0]) + len(other[0])
            keys, counts = disk.empty(most, np.int64), disk.empty(most, np.int64)
            size = merge_runs(*one, *other, keys, counts)
            waiting.append((keys[:size], counts[:size]))
    keys, counts = waiting[0]
    suffixes = np.empty(len(keys), np.int64)
    for begin, places, found in runs():
        different, inverse = np.unique(found, return_inverse=True)
        rows = np.searchsorted(keys, different)[inverse]
        suffixes[rows] = numbers[places + 1]
        part = numbers[begin : begin + run]
        part[:] = -1
        part[places - begin] = rows
    contexts, words = np.divmod(keys, symbols)
    return Grams(contexts, words.astype(np.int32), suffixes, np.array(counts))


@compiled()
def add_begins(ids: Array, tokens: Array, begin: int, end: int) -> int:
    """Copy a text, with the symbol `begin` before each sentence; returns the length of the copy."""
    place = 0
    starts = True
    for id in ids:
        if starts:
            tokens[place] = begin
            place += 1
        tokens[place] = id
        place += 1
        starts = id == end
    return place


@compiled()
def merge_runs(
    one_keys: Array, one_counts: Array, other_keys: Array, other_counts: Array, keys: Array, counts: Array
) -> int:
    """Join two sorted runs; counts of the same key are added. Returns the length of the result."""
    i = j = size = 0
    while i < len(one_keys) or j < len(other_keys):
        takes_one = j == len(other_keys) or (i < len(one_keys) and one_keys[i] <= other_keys[j])
        takes_other = i == len(one_keys) or (j < len(other_keys) and other_keys[j] <= one_keys[i])
        key, total = np.int64(0), np.int64(0)
        if takes_one:
            key, total = one_keys[i], total + one_counts[i]
            i += 1
        if takes_other:
            key, total = other_keys[j], total + other_counts[j]
            j += 1
        keys[size], counts[size] = key, total
        size += 1
    return size
