"""Phrase pairs that are consistent with word links (Koehn et al., 2003), with their counts.

A phrase is a run of words. Source words [a, b) and target words [c, d) are a phrase pair if at least one link joins
them and no link joins a word inside to a word outside:

    ∃ (i, j) ∈ links: a ≤ i < b and c ≤ j < d
    ∀ (i, j) ∈ links: a ≤ i < b  ⇔  c ≤ j < d

Words without links may be at the edges of either side. The orientation of a pair says where the pair before it on the
target side (or the one after it) is on the source side:

    monotone          it ends where this one begins                   …  previous | this
    swap              it begins where this one ends                   …  this | previous
    discontinuous     neither

Phrases are numbered exactly, without hashing: the number of a phrase comes from that of its first words and from its
last word, so the numbers of one length are found by sorting. A pair of numbers is one 64-bit key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt8

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import DataError
from seqloom.core.jit import compiled

MAX_PHRASE_WORDS = 8
"""Source words of a phrase whose links fit into a byte for each target word."""

MONOTONE, SWAP, DISCONTINUOUS = 0, 1, 2

Array = Any
"""numba infers types and shapes."""


class WordLinks(NamedTuple):
    """The links of sentence pairs, one pair after another: those of pair k are between `starts[k]` and `[k + 1]`."""

    sources: Int32[np.ndarray, " links"]
    targets: Int32[np.ndarray, " links"]
    starts: Int64[np.ndarray, " borders"]

    @staticmethod
    def of(links: Iterable[Sequence[tuple[int, int]]]) -> "WordLinks":
        """From the links of each pair, as an aligner gives them."""
        parts = [np.array(each, np.int32).reshape(-1, 2) for each in links]
        joined = np.concatenate([np.empty((0, 2), np.int32), *parts])
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(part) for part in parts], dtype=np.int64)])
        return WordLinks(np.ascontiguousarray(joined[:, 0]), np.ascontiguousarray(joined[:, 1]), starts)


@dataclass(frozen=True, eq=False)
class PhraseNumbers:
    """The numbers of all runs of up to so many words of one side of a text.

    Shorter phrases have lower numbers, and those of one length are ordered by their words.
    """

    at: Int32[np.ndarray, "lengths tokens"]
    """The number of the phrase of length + 1 words that begins at a token; −1 where the sentence is too short."""
    borders: Int64[np.ndarray, " borders"]
    """Where the numbers of each length begin."""
    parents: Int32[np.ndarray, " phrases"]
    """The phrase without its last word; −1 for single words."""
    words: Int32[np.ndarray, " phrases"]
    """The last word."""

    @staticmethod
    def of(ids: Int32[np.ndarray, " tokens"], starts: Int64[np.ndarray, " borders"], longest: int) -> "PhraseNumbers":
        """Number the phrases of up to `longest` words."""
        ends = np.repeat(starts[1:], np.diff(starts))
        places = np.arange(len(ids))
        at = np.full((longest, len(ids)), -1, np.int32)
        parents, words, borders = [], [], [0]
        width = int(ids.max(initial=0)) + 1
        for length in range(longest):
            inside = places[places + length < ends]
            last = ids[inside + length].astype(np.int64)
            before = at[length - 1, inside].astype(np.int64) if length else np.full(len(inside), -1, np.int64)
            keys, numbers = np.unique((before + 1) * width + last, return_inverse=True)
            at[length, inside] = borders[-1] + numbers
            parents.append((keys // width - 1).astype(np.int32))
            words.append((keys % width).astype(np.int32))
            borders.append(borders[-1] + len(keys))
        return PhraseNumbers(at, np.array(borders, np.int64), np.concatenate(parents), np.concatenate(words))

    def lengths(self, numbers: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " some"]:
        """The number of words of phrases."""
        return np.searchsorted(self.borders, numbers, side="right").astype(np.int64)

    def text(self, number: int) -> tuple[int, ...]:
        """The words of a phrase."""
        found: list[int] = []
        while number >= 0:
            found.append(int(self.words[number]))
            number = int(self.parents[number])
        return tuple(reversed(found))


@dataclass(frozen=True, eq=False)
class PhrasePairs:
    """All phrase pairs of a text, by rising source and target number."""

    sources: PhraseNumbers
    targets: PhraseNumbers
    source: Int64[np.ndarray, " pairs"]
    """The number of the source phrase."""
    target: Int64[np.ndarray, " pairs"]
    """The number of the target phrase."""
    counts: Int64[np.ndarray, " pairs"]
    orientations: Int32[np.ndarray, "pairs six"]
    """How often it was monotone, swapped and discontinuous with the phrase before, then with the phrase after."""
    link_starts: Int64[np.ndarray, " borders"]
    links: UInt8[np.ndarray, " words"]
    """For each target word of a pair the source words that it is linked to, one bit each, as where it first occurs."""


# --- compiled loops --------------------------------------------------------------------------------------------------


@compiled()
def find_spans(n: int, m: int, sources: Array, targets: Array, longest: int, spans: Array) -> int:
    """Write a, b, c, d of all consistent phrase pairs of one sentence pair; returns their number."""
    first_target, last_target = np.full(n, m, np.int64), np.full(n, -1, np.int64)
    first_source, last_source = np.full(m, n, np.int64), np.full(m, -1, np.int64)
    for link in range(len(sources)):
        i, j = np.int64(sources[link]), np.int64(targets[link])
        first_target[i], last_target[i] = min(first_target[i], j), max(last_target[i], j)
        first_source[j], last_source[j] = min(first_source[j], i), max(last_source[j], i)
    size = 0
    for a in range(n):
        low, high = np.int64(m), np.int64(-1)
        for b in range(a + 1, min(n, a + longest) + 1):
            low, high = min(low, first_target[b - 1]), max(high, last_target[b - 1])
            if high < 0:
                continue
            if high - low >= longest:
                break
            is_consistent = True
            for place in range(low, high + 1):
                if last_source[place] >= 0 and (first_source[place] < a or last_source[place] >= b):
                    is_consistent = False
                    break
            if not is_consistent:
                continue
            c = low
            while c >= 0 and (c == low or last_source[c] < 0) and high - c < longest:
                d = high
                while d < m and (d == high or last_source[d] < 0) and d - c < longest:
                    spans[size, 0], spans[size, 1], spans[size, 2], spans[size, 3] = a, b, c, d + 1
                    size += 1
                    d += 1
                c -= 1
    return size


@compiled()
def longest_sentence(starts: Array) -> int:
    """Words of the longest sentence."""
    longest = 0
    for k in range(len(starts) - 1):
        longest = max(longest, starts[k + 1] - starts[k])
    return longest


@compiled()
def list_keys(
    pairs: Bitext, links: WordLinks, longest: int, source_numbers: Array, target_numbers: Array, keys: Array
) -> int:
    """The key of each phrase pair of the text where it occurs, if there is room; returns their number."""
    widest = longest_sentence(pairs.source_starts) * longest * longest * (longest + 1) // 2
    spans = np.empty((widest, 4), np.int64)
    size, has_room = 0, len(keys) > 0
    for k in range(len(pairs.source_starts) - 1):
        begin, low = pairs.source_starts[k], pairs.target_starts[k]
        some = slice(links.starts[k], links.starts[k + 1])
        n, m = pairs.source_starts[k + 1] - begin, pairs.target_starts[k + 1] - low
        found = find_spans(n, m, links.sources[some], links.targets[some], longest, spans)
        if has_room:
            for row in range(found):
                a, b, c, d = spans[row]
                source, target = source_numbers[b - a - 1, begin + a], target_numbers[d - c - 1, low + c]
                keys[size + row] = (np.int64(source) << 32) | np.int64(target)
        size += found
    return size


@compiled()
def describe_pairs(
    pairs: Bitext,
    links: WordLinks,
    longest: int,
    source_numbers: Array,
    target_numbers: Array,
    keys: Array,
    orientations: Array,
    mask_starts: Array,
    masks: Array,
) -> None:
    """Count the orientations of each phrase pair, and note its links where it first occurs."""
    widest = longest_sentence(pairs.source_starts) * longest * longest * (longest + 1) // 2
    spans = np.empty((widest, 4), np.int64)
    is_described = np.zeros(len(keys), np.bool_)
    for k in range(len(pairs.source_starts) - 1):
        begin, low = pairs.source_starts[k], pairs.target_starts[k]
        some = slice(links.starts[k], links.starts[k + 1])
        sources, targets = links.sources[some], links.targets[some]
        n, m = pairs.source_starts[k + 1] - begin, pairs.target_starts[k + 1] - low
        found = find_spans(n, m, sources, targets, longest, spans)
        # Whether a phrase pair has this corner: first or last on the source side × first or last on the target side.
        corners = np.zeros((2, 2, n + 1, m + 1), np.bool_)
        corners[1, 1, 0, 0] = corners[0, 0, n, m] = True  # the sentence begins and ends in order
        for row in range(found):
            a, b, c, d = spans[row]
            corners[0, 0, a, c] = corners[1, 1, b, d] = corners[0, 1, a, d] = corners[1, 0, b, c] = True
        for row in range(found):
            a, b, c, d = spans[row]
            source, target = source_numbers[b - a - 1, begin + a], target_numbers[d - c - 1, low + c]
            entry = np.searchsorted(keys, (np.int64(source) << 32) | np.int64(target))
            before = MONOTONE if corners[1, 1, a, c] else SWAP if corners[0, 1, b, c] else DISCONTINUOUS
            after = MONOTONE if corners[0, 0, b, d] else SWAP if corners[1, 0, a, d] else DISCONTINUOUS
            orientations[entry, before] += 1
            orientations[entry, 3 + after] += 1
            if is_described[entry]:
                continue
            is_described[entry] = True
            for link in range(len(sources)):
                if c <= targets[link] < d:
                    masks[mask_starts[entry] + targets[link] - c] |= np.uint8(1 << (sources[link] - a))


# --- extraction ------------------------------------------------------------------------------------------------------


def extract_phrases(bitext: Bitext, links: WordLinks, *, longest: int = 7) -> PhrasePairs:
    """All consistent phrase pairs with up to `longest` words on each side."""
    if not 1 <= longest <= MAX_PHRASE_WORDS:
        raise DataError(f"phrases of up to {longest} words are not supported; use 1 to {MAX_PHRASE_WORDS}")
    if len(links.starts) != bitext.pairs + 1:
        raise DataError(f"{len(links.starts) - 1:,} lines of links for {bitext.pairs:,} sentence pairs")
    sources = PhraseNumbers.of(bitext.sources, bitext.source_starts, longest)
    targets = PhraseNumbers.of(bitext.targets, bitext.target_starts, longest)
    text = (bitext, links, longest, sources.at, targets.at)
    keys = np.empty(list_keys(*text, np.empty(0, np.int64)), np.int64)
    list_keys(*text, keys)
    keys.sort()
    is_first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    unique, counts = keys[firsts], np.diff(np.append(firsts, len(keys)))
    del keys, is_first, firsts
    source, target = unique >> 32, unique & 0xFFFFFFFF
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(targets.lengths(target))])
    orientations = np.zeros((len(unique), 6), np.int32)
    masks = np.zeros(int(starts[-1]), np.uint8)
    describe_pairs(*text, unique, orientations, starts, masks)
    return PhrasePairs(sources, targets, source, target, counts, orientations, starts, masks)
