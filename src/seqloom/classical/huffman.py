"""Huffman codes: a binary tree in which frequent words are near the root, for the hierarchical softmax.

    P(w) = Π over the inner nodes n on the way to w  σ(±h · v_n)        + where the way goes to the left (code 0)

The probabilities of all words add up to 1, and one word costs about log₂ V products instead of V.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8, Int32, Int64, Integer

from seqloom.classical.word2vec_tables import Lists
from seqloom.core.errors import DataError


@dataclass(frozen=True, eq=False)
class HuffmanCodes:
    """The way to each word from the root: that of word w lies from `starts[w]` up to `starts[w + 1]`."""

    starts: Int64[np.ndarray, " words_and_one"]
    nodes: Int32[np.ndarray, " steps"]
    """The inner nodes passed, the root first; there is one node less than there are words."""
    turns: Int8[np.ndarray, " steps"]
    """0 to the left, 1 to the right."""

    @property
    def longest(self) -> int:
        """The steps to the rarest word."""
        return int(np.diff(self.starts).max())

    def as_lists(self) -> Lists:
        """For the compiled loops."""
        return Lists(self.starts, self.nodes, self.turns)


def huffman_codes(counts: Integer[np.ndarray, " words"]) -> HuffmanCodes:
    """Join the two rarest until one is left; of equal counts the one that came first."""
    words = len(counts)
    if words < 2:
        raise DataError(f"a tree of codes needs at least 2 words, and there is {words}; give more text")
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
    return HuffmanCodes(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.array([node for path in paths[:words] for node in path], np.int32),
        np.array([code for path in turns[:words] for code in path], np.int8),
    )
