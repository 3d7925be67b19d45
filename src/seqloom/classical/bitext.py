"""Sentence pairs as ids of words, tables of translation probabilities, and loops over ranges of them.

Compiled loops take a range of sentences or words. Each sentence and each word adds up in an order that does not depend
on where its range begins, so ranges may be shared among threads in any way, and every bit stays the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from seqloom.core.errors import DataError, ModelError
from seqloom.core.jit import compiled

Array = Any
"""numba infers types and shapes."""

Ids = Sequence[int] | Integer[np.ndarray, " _"]
"""The words of a sentence."""


class Bitext(NamedTuple):
    """Sentence pairs as ids, one after another: sentence k of a side lies between `starts[k]` and `starts[k + 1]`."""

    sources: Int32[np.ndarray, " source_tokens"]
    source_starts: Int64[np.ndarray, " borders"]
    targets: Int32[np.ndarray, " target_tokens"]
    target_starts: Int64[np.ndarray, " borders"]

    @staticmethod
    def from_sentences(sources: Iterable[Ids], targets: Iterable[Ids]) -> "Bitext":
        """Line n of one side translates line n of the other."""
        bitext = Bitext(*_flatten(sources, "source"), *_flatten(targets, "target"))
        one, other = len(bitext.source_starts) - 1, len(bitext.target_starts) - 1
        if one != other:
            raise DataError(f"{one:,} source sentences but {other:,} target sentences; each needs a partner")
        return bitext

    @property
    def pairs(self) -> int:
        """The number of sentence pairs."""
        return len(self.source_starts) - 1

    def turned(self) -> "Bitext":
        """The other direction."""
        return Bitext(self.targets, self.target_starts, self.sources, self.source_starts)

    def after(self, first: int) -> "Bitext":
        """The pairs from the pair `first` on."""
        return self.between(first, self.pairs)

    def between(self, first: int, last: int) -> "Bitext":
        """The pairs from `first` to `last`, the latter left out."""
        (begin, end), (low, high) = self.source_starts[[first, last]], self.target_starts[[first, last]]
        return Bitext(
            self.sources[begin:end],
            self.source_starts[first : last + 1] - begin,
            self.targets[low:high],
            self.target_starts[first : last + 1] - low,
        )

    def joined(self, other: "Bitext") -> "Bitext":
        """These pairs, and the others after them."""
        return Bitext(
            np.concatenate([self.sources, other.sources]),
            np.concatenate([self.source_starts, self.source_starts[-1] + other.source_starts[1:]]),
            np.concatenate([self.targets, other.targets]),
            np.concatenate([self.target_starts, self.target_starts[-1] + other.target_starts[1:]]),
        )

    def without_blanks(self) -> "Bitext":
        """The pairs that have words on both sides."""
        lengths = np.diff(self.source_starts), np.diff(self.target_starts)
        is_kept = (lengths[0] > 0) & (lengths[1] > 0)
        if is_kept.all():
            return self
        sources, targets = (
            ids[np.repeat(is_kept, length)] for ids, length in ((self.sources, lengths[0]), (self.targets, lengths[1]))
        )
        return Bitext(sources, starts_of(lengths[0][is_kept]), targets, starts_of(lengths[1][is_kept]))


class WordPositions(NamedTuple):
    """The positions of each source word, in the order of the text; the null word comes last, at position −1."""

    starts: Array
    sentences: Array
    positions: Array


class TranslationTable(NamedTuple):
    """t(y ∣ x) of the pairs of words that met: a row per source word, the last one for the null word.

    Row x lies between `starts[x]` and `starts[x + 1]`, by rising target id.
    """

    starts: Int64[np.ndarray, " rows_and_one"]
    columns: Int32[np.ndarray, " entries"]
    probabilities: Float64[np.ndarray, " entries"]

    @property
    def null(self) -> int:
        """The row of the null word."""
        return len(self.starts) - 2

    def row(self, source: int) -> tuple[Int32[np.ndarray, " partners"], Float64[np.ndarray, " partners"]]:
        """The target words that met a source word, and their probabilities."""
        inside = slice(*self.starts[source : source + 2]) if 0 <= source <= self.null else slice(0)
        return self.columns[inside], self.probabilities[inside]

    def probability(self, source: int, target: int) -> float:
        """t(target ∣ source); 0 where they never met."""
        return float(look_up(self, source, target))

    @staticmethod
    def restore(arrays: Mapping[str, np.ndarray]) -> "TranslationTable":
        """The table of saved arrays, if its parts fit each other."""
        try:
            starts, columns, probabilities = (arrays[name] for name in TranslationTable._fields)
            table = TranslationTable(
                starts.astype(np.int64, casting="equiv", copy=False),
                columns.astype(np.int32, casting="equiv", copy=False),
                probabilities.astype(np.float64, casting="equiv", copy=False),
            )
        except (KeyError, TypeError) as error:
            raise ModelError(f"the translation table is incomplete ({error}); fit the aligner again") from error
        is_whole = (
            all(array.ndim == 1 for array in table)
            and len(starts) >= 2
            and starts[0] == 0
            and starts[-1] == len(columns) == len(probabilities)
            and bool((starts[1:] >= starts[:-1]).all())
            and int(columns.min(initial=0)) >= 0
        )
        if not is_whole:
            raise ModelError(
                f"the translation table is damaged: {len(columns):,} words and {len(probabilities):,} probabilities do "
                f"not fit its {len(starts):,} borders; fit the aligner again"
            )
        return table


# --- the table -------------------------------------------------------------------------------------------------------


@compiled()
def list_partners(
    first: int, last: int, places: WordPositions, pairs: Bitext, symbols: int, lengths: Array, starts: Array, out: Array
) -> None:
    """How many different target words occur in the sentences of each of these source words.

    Once `starts` says where the row of each word begins, also which ones, sorted.
    """
    seen = np.full(symbols, -1, np.int64)
    is_listed = len(starts) > 0
    for word in range(first, last):
        count = 0
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
                if seen[pairs.targets[token]] != word:
                    seen[pairs.targets[token]] = word
                    if is_listed:
                        out[starts[word] + count] = pairs.targets[token]
                    count += 1
        lengths[word] = count
        if is_listed:
            out[starts[word] : starts[word] + count].sort()


@compiled()
def first_not_below(values: Array, low: int, high: int, wanted: int) -> int:
    """The first place from `low` to `high` whose value is the wanted one or more, in sorted values."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def look_up(table: TranslationTable, row: int, column: int) -> float:
    """t(column ∣ row), which is 0 where the two never met."""
    if row < 0 or row >= len(table.starts) - 1:
        return 0.0
    end = table.starts[row + 1]
    entry = first_not_below(table.columns, table.starts[row], end, column)
    return table.probabilities[entry] if entry < end and table.columns[entry] == column else 0.0


def require_pairs(bitext: Bitext) -> Bitext:
    """The pairs that have words on both sides, of which there must be one."""
    taught = bitext.without_blanks()
    if taught.pairs == 0:
        raise DataError(f"there is nothing to align: none of {bitext.pairs:,} pairs has words on both sides")
    return taught


def cell_starts(bitext: Bitext) -> Int64[np.ndarray, " borders"]:
    """Where the cells of each pair begin, one for each of its source words with each of its target words."""
    return starts_of(np.diff(bitext.source_starts) * np.diff(bitext.target_starts))


def word_positions(bitext: Bitext, *, has_null: bool) -> WordPositions:
    """Where each source word occurs; the null word is in every sentence, if there is one."""
    order = np.argsort(bitext.sources, kind="stable")
    sentences = np.repeat(np.arange(bitext.pairs, dtype=np.int32), np.diff(bitext.source_starts))[order]
    nulls = bitext.pairs if has_null else 0
    return WordPositions(
        starts_of(np.append(np.bincount(bitext.sources), nulls)),
        np.concatenate([sentences, np.arange(nulls, dtype=np.int32)]),
        np.concatenate([(order - bitext.source_starts[sentences]).astype(np.int32), np.full(nulls, -1, np.int32)]),
    )


def partners(
    bitext: Bitext, places: WordPositions, *, borders: Sequence[int], threads: int
) -> tuple[Int64[np.ndarray, " rows_and_one"], Int32[np.ndarray, " entries"]]:
    """The target words that meet each source word, as the rows of a table; `borders` are those of ranges of words."""
    symbols = int(bitext.targets.max()) + 1
    lengths, nowhere = np.zeros(len(places.starts) - 1, np.int64), np.empty(0, np.int64)
    in_ranges(threads, list_partners, borders, places, bitext, symbols, lengths, nowhere, np.empty(0, np.int32))
    starts = starts_of(lengths)
    columns = np.empty(starts[-1], np.int32)
    in_ranges(threads, list_partners, borders, places, bitext, symbols, lengths, starts, columns)
    return starts, columns


# --- ranges and borders ----------------------------------------------------------------------------------------------

RANGES = 8
"""Ranges of words for each thread, so that none waits long for the last one."""


def in_ranges(threads: int, kernel: Callable[..., None], borders: Sequence[int], *arguments: object) -> None:
    """Call a compiled loop for each range, several at the same time; it lets other threads run."""
    ranges = list(pairwise(borders))
    if threads == 1 or len(ranges) == 1:  # one sentence takes less time than starting a thread
        for first, last in ranges:
            kernel(first, last, *arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(kernel, first, last, *arguments) for first, last in ranges]:
            each.result()


def borders_of(starts: Int64[np.ndarray, " borders"], ranges: int) -> list[int]:
    """Borders of ranges that hold about as many tokens each."""
    wanted = np.linspace(0, starts[-1], ranges + 1)[1:-1]
    inner = np.searchsorted(starts, wanted)
    return sorted({0, *inner.tolist(), len(starts) - 1})


def starts_of(lengths: Integer[np.ndarray, " parts"]) -> Int64[np.ndarray, " borders"]:
    """Where each part begins when they are concatenated, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _flatten(sentences: Iterable[Ids], side: str) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " borders"]]:
    kept = list(sentences)
    ids = np.fromiter(chain.from_iterable(kept), np.int64, count=sum(map(len, kept)))
    if len(ids) and not 0 <= ids.min() <= ids.max() < np.iinfo(np.int32).max:
        wrong = ids[(ids < 0) | (ids >= np.iinfo(np.int32).max)][0]
        raise DataError(f"{wrong} among the {side} ids is invalid; ids are whole numbers from 0")
    return ids.astype(np.int32), starts_of(np.array([len(ids) for ids in kept], np.int64))
