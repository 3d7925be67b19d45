"""Drawing words from a distribution in constant time, by the alias method (Walker, 1977; Vose, 1991).

The distribution is cut into as many equal columns as there are words, each filled by at most two of them. To draw,
take a column at random and then one of its two words: two random halves of one number, whatever the vocabulary.
"""

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from seqloom.classical.word2vec_tables import Noise

ONE = 1 << 32
"""A chance of 1, in the units of the thresholds."""


def noise_distribution(counts: Integer[np.ndarray, " words"], power: float) -> Float64[np.ndarray, " words"]:
    """q(w) ∝ count(w)^power: 0 is uniform, 1 the unigram distribution, 0.75 lifts rare words (Mikolov et al., 2013)."""
    weights = np.asarray(counts, np.float64) ** power
    shares: Float64[np.ndarray, " words"] = weights / weights.sum()
    return shares


def alias_table(probabilities: Float64[np.ndarray, " words"]) -> Noise:
    """The columns: column e holds word e up to its threshold and its alias above."""
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
    return Noise(thresholds, aliases)
