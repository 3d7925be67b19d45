"""The n-grams of a model as one array of nodes and a hash table: 32 bytes each, ready to be memory-mapped.

`seqloom.classical.ngram_kernels` says what a node holds and how questions walk along nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int32, Int64

from seqloom.classical import ngram_kernels as kernels
from seqloom.classical.ngram_counts import Grams
from seqloom.classical.ngram_kernels import NODE, Trie
from seqloom.classical.smoothing import Level
from seqloom.core.errors import DataError, ModelError

MOST = np.iinfo(np.uint32).max
"""Nodes that four bytes can number."""

HIGHEST_BACKOFF = 100.0
"""log10 of a weight, far above those of any text: beyond it sums of logarithms give no numbers."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The n-grams of one length as a model keeps them, by rising context and word."""

    contexts: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its last word, in the layer before."""
    words: Int32[np.ndarray, " grams"]
    log_probs: Float[np.ndarray, " grams"]
    """log10 P(last word ∣ the words before)."""
    backoffs: Float[np.ndarray, " grams"]
    """log10 γ; 0 in the last layer."""
    suffixes: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its first word, in the layer before."""


def layers_of(levels: Sequence[Grams], smoothed: Sequence[Level]) -> Iterator[Layer]:
    """What is kept of counted n-grams, numbered anew. Whatever ends or begins a kept n-gram is kept too."""
    numbers: np.ndarray | None = None  # of each counted n-gram among the kept ones; None where all are kept
    for grams, level in zip(levels, smoothed, strict=True):
        rows = slice(None) if level.is_kept.all() else np.flatnonzero(level.is_kept)
        contexts, suffixes = grams.contexts[rows], grams.suffixes[rows]
        yield Layer(
            contexts if numbers is None else numbers[contexts],
            grams.words[rows],
            level.log_probs[rows],
            level.backoffs[rows],
            suffixes if numbers is None else numbers[suffixes],
        )
        numbers = None if isinstance(rows, slice) else np.cumsum(level.is_kept) - 1


def build_trie(layers: Sequence[Layer]) -> tuple[Trie, Int64[np.ndarray, " borders"]]:
    """The trie, and where the nodes of each length begin; the last border is their number."""
    borders = np.cumsum([0, *(len(layer.words) for layer in layers)])
    if borders[-1] > MOST:
        raise DataError(f"{borders[-1]:,} n-grams are more than {MOST:,}; lower model.order or raise model.prune")
    nodes = np.zeros(int(borders[-1]) + 1, NODE)
    for layer, (begin, end) in zip(layers, pairwise(borders), strict=True):
        part = nodes[begin:end]
        part["word"], part["log_prob"], part["backoff"] = layer.words, layer.log_probs, layer.backoffs
    _set_first_children(nodes, layers, borders)
    return Trie(nodes, _slots(layers, borders)), borders


def require_sound(trie: Trie, *, symbols: int) -> None:
    """Refuse a trie from a file that would lead the compiled loops astray: they trust every number in it.

    Words and nodes must be there, children must lie in order, and a table without an empty slot has no end.
    """
    nodes, slots = trie
    last = len(nodes) - 1
    wrong = {
        "words": ((nodes["word"] < 0) | (nodes["word"] >= symbols)).any(),
        "children": (nodes["first"][1:] < nodes["first"][:-1]).any() or nodes["first"][-1] != last,
        "slots": (slots & kernels.HALF).max() >= max(1, last) or (slots != 0).all(),
        "probabilities": not (nodes["log_prob"] <= 1).all(),  # 0 and what rounding adds; NaN is none either
        "back-off weights": not (nodes["backoff"] <= HIGHEST_BACKOFF).all(),
    }
    found = [name for name, is_wrong in wrong.items() if is_wrong]
    if found:
        raise ModelError(
            f"these are not the arrays of an n-gram model: {' and '.join(found)} out of range; fit it again"
        )


def _set_first_children(nodes: np.ndarray, layers: Sequence[Layer], borders: np.ndarray) -> None:
    nodes["first"] = borders[-1]
    for layer, (begin, end) in zip(layers[1:], pairwise(borders[:-1]), strict=True):
        children = np.bincount(layer.contexts, minlength=end - begin)
        nodes["first"][begin:end] = end + np.cumsum(children) - children


def _slots(layers: Sequence[Layer], borders: np.ndarray) -> Int64[np.ndarray, " slots"]:
    """A table that is half full, since most questions are for n-grams that are not there."""
    slots = np.zeros(int(2 * (borders[-1] - borders[1])) + 1, np.int64)
    first_words = layers[0].words
    hashes = first_words.astype(np.int64)
    for layer, begin in zip(layers[1:], borders[1:-1], strict=True):
        first_words = first_words[layer.contexts]
        longer = np.empty(len(layer.words), np.int64)
        kernels.hash_layer(hashes, layer.suffixes, first_words, longer)
        kernels.fill_slots(slots, longer, int(begin))
        hashes = longer
    return slots
