"""What word2vec takes from a text: its words, their subsampling, the noise distribution and the Huffman tree.

Random numbers are drawn inside compiled loops (SplitMix64).
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from seqloom.core.errors import DataError
from seqloom.core.jit import compiled
from seqloom.core.symbols import END, RESERVED
from seqloom.text.tokenizer import EncodedText

Array = Any
"""numba infers types and shapes."""

SENTENCE_END, LEFT_OUT = -1, -2
"""In place of the row of a word: a sentence ends here, or the word is too rare."""

CHUNK = 10_000
"""Tokens that a thread takes at a time; a longer sentence is divided, as in other programs."""

ONE = 1 << 32
"""A chance of 1, in the units of the thresholds."""

FAST_MATH = ("reassoc", "contract", "nsz", "arcp")
"""Sums may be reordered and products fused with sums; infinities and NaN keep their meaning."""


class IndexedText(NamedTuple):
    """Ids, the row of each symbol (or SENTENCE_END, LEFT_OUT), and the chance of each row to stay, in units of 2⁻³²."""

    ids: Array
    row_of: Array
    keep: Array


class AliasTable(NamedTuple):
    """Entry e is drawn with a chance of thresholds[e] · 2⁻³², else aliases[e]."""

    thresholds: Array
    aliases: Array


class Lists(NamedTuple):
    """A list for each word, from `starts[word]` up to `starts[word + 1]`: nodes of its path, or rows of its parts."""

    starts: Array
    members: Array
    codes: Array
    """Of a path: which way it goes at each node; empty for parts."""


NO_LISTS = Lists(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8))


def choose_words(
    text: EncodedText, *, minimum_count: int
) -> tuple[Int64[np.ndarray, " words"], Int64[np.ndarray, " words"]]:
    """The symbols of words that are frequent enough, by falling count, and their counts."""
    counts = text.counts()
    counts[: len(RESERVED)] = 0
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    symbols = order[counts[order] >= minimum_count]
    if not len(symbols):
        most = int(order[0]) if len(order) else 0
        if not counts.any():
            raise DataError(f"there are no words to learn: all {len(text.ids):,} tokens are line ends or unknown words")
        raise DataError(
            f"no word occurs {minimum_count} times; the most frequent one, {text.vocabulary[most]!r}, occurs "
            f"{counts[most]} times; give more text, or set model.minimum_count={counts[most]}"
        )
    if len(symbols) == 1:
        only = int(symbols[0])
        raise DataError(
            f"only one word, {text.vocabulary[only]!r}, occurs {minimum_count} times or more, so no window has "
            "two words; give more text, or lower model.minimum_count"
        )
    return symbols, counts[symbols]


def keep_chances(counts: Int64[np.ndarray, " words"], subsampling: float) -> Int64[np.ndarray, " words"]:
    """P(keep w) = √(t / f) + t / f for words with a share f of the text above t, in units of 2⁻³²."""
    if subsampling == 0:
        return np.full(len(counts), ONE, np.int64)
    ratio = subsampling * counts.sum() / counts
    chances: Int64[np.ndarray, " words"] = (np.minimum(1.0, np.sqrt(ratio) + ratio) * ONE).astype(np.int64)
    return chances


def chunk_borders(text: EncodedText) -> tuple[int, ...]:
    """Borders of chunks, which end where a sentence ends, unless it is longer than a chunk."""
    borders, tokens = [0], len(text.ids)
    while borders[-1] < tokens:
        begin = borders[-1]
        end = min(begin + CHUNK, tokens)
        if end < tokens:
            ends = np.flatnonzero(text.ids[begin:end] == END)
            end = begin + int(ends[-1]) + 1 if len(ends) else end
        borders.append(end)
    return tuple(borders)


# --- negatives --------------------------------------------------------------------------------------------------------


def noise_distribution(counts: Integer[np.ndarray, " words"], power: float) -> Float64[np.ndarray, " words"]:
    """q(w) ∝ count(w)^power: 0 is uniform, 1 the unigram distribution, 0.75 lifts rare words (Mikolov et al., 2013)."""
    weights = np.asarray(counts, np.float64) ** power
    shares: Float64[np.ndarray, " words"] = weights / weights.sum()
    return shares


def alias_table(probabilities: Float64[np.ndarray, " words"]) -> AliasTable:
    """A table that draws words in constant time (Walker, 1977; Vose, 1991).

    The distribution is divided into as many equal columns as there are words, each filled by at most two of them:
    column e holds word e up to its threshold and its alias above. To draw, take a column at random, then one of its
    two words: the two halves of one random number, whatever the size of the vocabulary.
    """
    words = len(probabilities)
    heights = np.asarray(probabilities, np.float64) * words
    thresholds: Int64[np.ndarray, " words"] = np.full(words, ONE, np.int64)
    aliases: Int32[np.ndarray, " words"] = np.arange(words, dtype=np.int32)
    short = [word for word in range(words) if heights[word] < 1]
    tall = [word for word in range(words) if heights[word] >= 1]
    while short and tall:
        small, large = short.pop(), tall[-1]
        thresholds[small], aliases[small] = round(heights[small] * ONE), large
        heights[large] -= 1 - heights[small]
        if heights[large] < 1:
            short.append(tall.pop())
    return AliasTable(thresholds, aliases)


@compiled(fast=FAST_MATH, is_inlined=True)
def draw(random: Array) -> int:
    """64 random bits (SplitMix64): a counter with large steps, its bits mixed."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[no-any-return]


@compiled(fast=FAST_MATH, is_inlined=True)
def draw_below(random: Array, limit: int) -> int:
    """A whole number from 0 to limit − 1; a limit far below 2³² leaves no bias that could be measured."""
    return np.int64(((draw(random) >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))  # type: ignore[return-value]


@compiled(fast=FAST_MATH, is_inlined=True)
def draw_noise(random: Array, noise: AliasTable) -> int:
    """A row from the alias table: the upper half of the bits chooses the entry, the lower half decides."""
    bits = draw(random)
    entry = np.int64(((bits >> np.uint64(32)) * np.uint64(len(noise.aliases))) >> np.uint64(32))
    is_itself = np.int64(bits & np.uint64(0xFFFFFFFF)) < noise.thresholds[entry]
    return entry if is_itself else np.int64(noise.aliases[entry])  # type: ignore[return-value]


@compiled(fast=FAST_MATH)
def draw_many(seed: int, noise: AliasTable, out: Array) -> None:
    """Rows from the alias table."""
    random = np.array([seed], np.uint64)
    for place in range(len(out)):
        out[place] = draw_noise(random, noise)


# --- the tree of the hierarchical softmax -----------------------------------------------------------------------------


def huffman_codes(counts: Integer[np.ndarray, " words"]) -> Lists:
    """The path to each word in a binary tree where frequent words are near the root: its inner nodes and turns.

        P(w) = Π over the inner nodes n on the path to w  σ(±h · v_n)        + where the path turns left (code 0)

    The probabilities of all words add up to 1, and one word costs about log₂ V products instead of V. The two rarest
    are joined until one is left; of equal counts the first. The root is node 0; there is one node less than words.
    """
    words = len(counts)
    heap = [(int(count), word) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    parent, turn = np.zeros(2 * words - 1, np.int64), np.zeros(2 * words - 1, np.int8)
    for node in range(words, 2 * words - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        parent[left[1]] = parent[right[1]] = node
        turn[right[1]] = 1
        heapq.heappush(heap, (left[0] + right[0], node))
    root = 2 * words - 2
    # Parents have higher numbers than their children, so from the root down each parent is ready before them.
    paths: list[tuple[int, ...]] = [()] * (2 * words - 1)
    turns: list[tuple[int, ...]] = [()] * (2 * words - 1)
    for node in range(root - 1, -1, -1):
        above = int(parent[node])
        paths[node] = (*paths[above], root - above)  # the root is inner node 0
        turns[node] = (*turns[above], int(turn[node]))
    lengths = np.array([len(path) for path in paths[:words]], np.int64)
    return Lists(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.array([node for path in paths[:words] for node in path], np.int32),
        np.array([code for path in turns[:words] for code in path], np.int8),
    )
