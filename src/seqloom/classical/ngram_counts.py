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
from contextlib import ExitStack
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
    counts = _count_words(ids, symbols)
    words = np.arange(symbols, dtype=np.int32)
    levels = [Grams(np.zeros(symbols, np.int64), words, np.zeros(symbols, np.int64), counts)]
    with ExitStack() as stack:
        room = _Room(stack, folder, is_small=BYTES_PER_TOKEN * (len(ids) + int(counts[END])) <= memory)
        tokens = room.empty(len(ids) + int(counts[END]), np.int32)
        add_begins(ids, tokens, BEGIN, END)
        if room.is_small:
            listener(Event("progress", {"what": "counting n-grams", "done": 0, "all": 1}))
            return levels + [Grams(*fields) for fields in sorted_grams(tokens, order, symbols=symbols)]
        counter = _Counter(tokens, room, symbols=symbols, run=max(1, memory // BYTES_PER_TOKEN))
        for length in range(2, order + 1):
            listener(Event("progress", {"what": f"counting {length}-grams", "done": length - 2, "all": order - 1}))
            levels.append(counter.count(length, known=len(levels[-1])))
    return levels


def _count_words(ids: Integer[np.ndarray, " tokens"], symbols: int) -> Int64[np.ndarray, " symbols"]:
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
    return counts


class _Room:
    """Allocates arrays: in memory, or in files of a temporary folder."""

    def __init__(self, stack: ExitStack, folder: Path | None, *, is_small: bool) -> None:
        self.is_small = is_small
        self._folder = None if is_small else Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        self._numbers = count()

    def empty(self, length: int, dtype: type[np.generic]) -> np.ndarray:
        """An uninitialised array."""
        if self._folder is None or length == 0:
            return np.empty(length, dtype)
        name = self._folder / str(next(self._numbers))
        _reserve(name, length * np.dtype(dtype).itemsize)
        # The compiled loops take plain arrays; the file stays mapped as long as its view lives.
        array: np.ndarray = np.asarray(np.memmap(name, dtype, mode="r+", shape=(length,)))
        name.unlink()  # the disk space is freed when the array is
        return array

    def keep(self, array: np.ndarray) -> np.ndarray:
        """A copy of the array, in a file if memory is short."""
        kept = self.empty(len(array), array.dtype.type)
        kept[:] = array
        return kept


def _reserve(path: Path, size: int) -> None:
    """Make a file of this size now: writing to a mapped file on a full disk would kill the process."""
    try:
        with path.open("xb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
    except OSError as error:
        free = shutil.disk_usage(path.parent).free
        raise SeqloomError(
            f"counting n-grams needs {size:,} more bytes in {path.parent.parent}, where {free:,} bytes are free "
            f"({error.strerror or error}); free some, set TMPDIR to a larger disk, or raise model.memory"
        ) from error


@dataclass(frozen=True, eq=False)
class _CountRun:
    """Different keys in rising order, and how often each occurred."""

    keys: Int64[np.ndarray, " keys"]
    counts: Int64[np.ndarray, " keys"]


@dataclass(frozen=True, eq=False)
class _SortedRun(_CountRun):
    """A run with the places of its keys: token `places[i]` begins the n-gram `keys[numbers[i]]`."""

    begin: int
    places: Int64[np.ndarray, " grams"]
    numbers: Int64[np.ndarray, " grams"]


class _Counter:
    """Counts one length after the other: each needs the numbers of the previous length at every place of the text."""

    def __init__(self, tokens: Int32[np.ndarray, " padded"], room: _Room, *, symbols: int, run: int) -> None:
        self._tokens, self._room, self._symbols, self._run = tokens, room, symbols, run
        self._numbers = room.empty(len(tokens), np.int64)
        self._numbers[:] = tokens

    def count(self, length: int, *, known: int) -> Grams:
        """The n-grams of the next length; `known` are those that are one shorter."""
        if known > np.iinfo(np.int64).max // self._symbols:
            raise DataError(f"{known:,} {length - 1}-grams are more than can be numbered; lower the order")
        merged = self._merge(length)
        suffixes = np.empty(len(merged.keys), np.int64)
        for run in self._sorted_runs(length):
            found = np.searchsorted(merged.keys, run.keys)[run.numbers]
            suffixes[found] = self._numbers[run.places + 1]
            part = self._numbers[run.begin : run.begin + self._run]
            part[:] = -1
            part[run.places - run.begin] = found
        contexts, words = np.divmod(merged.keys, self._symbols)
        return Grams(contexts, words.astype(np.int32), suffixes, np.array(merged.counts))

    def _merge(self, length: int) -> _CountRun:
        """All keys of one length. A run is merged with one of about its size, so each key is copied log times."""
        waiting: list[_CountRun] = []
        for run in self._sorted_runs(length):
            waiting.append(_CountRun(self._room.keep(run.keys), self._room.keep(run.counts)))
            while len(waiting) > 1 and len(waiting[-2].keys) <= 2 * len(waiting[-1].keys):
                waiting.append(self._merged(waiting.pop(), waiting.pop()))
        while len(waiting) > 1:
            waiting.append(self._merged(waiting.pop(), waiting.pop()))
        return waiting[0]

    def _sorted_runs(self, length: int) -> Iterator[_SortedRun]:
        for begin in range(0, len(self._tokens), self._run):
            places, keys = self._keys(begin, length)
            different, numbers, counts = np.unique(keys, return_inverse=True, return_counts=True)
            yield _SortedRun(different, counts.astype(np.int64), begin, places, numbers)

    def _merged(self, one: _CountRun, other: _CountRun) -> _CountRun:
        most = len(one.keys) + len(other.keys)
        keys, counts = self._room.empty(most, np.int64), self._room.empty(most, np.int64)
        size = merge_runs(one.keys, one.counts, other.keys, other.counts, keys, counts)
        return _CountRun(keys[:size], counts[:size])

    def _keys(self, begin: int, length: int) -> tuple[Int64[np.ndarray, " grams"], Int64[np.ndarray, " grams"]]:
        """Where the n-grams begin that start in this run, and their keys."""
        numbers = self._numbers[begin : begin + self._run]
        places = np.flatnonzero(numbers >= 0) + begin
        # An n-gram can be extended where it is complete and does not end its sentence.
        places = places[self._tokens[places + length - 2] != END]
        return places, self._numbers[places] * self._symbols + self._tokens[places + length - 1]


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
