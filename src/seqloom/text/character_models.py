"""Character n-gram models, each order interpolated with the one below.

    p_0(c) = 1 / 2¹²
    p_n(c ∣ h) = (n(h c) + α p_{n−1}(c ∣ h')) / (n(h) + α)     h are the n − 1 characters before, h' all but the first

Counts are hashed into tables of fixed size, so memory does not grow with the text. For a line that the model was
trained on, its own counts are subtracted first (n − 1 for n): otherwise every line would look like its side.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float64, Int64, UInt32, UInt64

ORDER = 4
ALPHA = 4.0
BITS = 20
MAX_LINE_CHARACTERS = 300
"""Maximum number of characters used of a line."""

_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_FLOOR = 1 / 4096
_MIX, _GOLDEN = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


class CharacterModel:
    """Counts of one language."""

    def __init__(self) -> None:
        self._counts = np.zeros((ORDER, 1 << BITS), np.uint32)
        self._total = 0

    def learn(self, lines: Sequence[str]) -> None:
        """Count the n-grams of some lines."""
        codes, _ = encode(lines)
        for order, places in enumerate(ngram_places(codes)):
            self._counts[order] += np.bincount(places, minlength=1 << BITS).astype(np.uint32)
        self._total += len(codes)

    def log_probs(
        self, codes: UInt32[np.ndarray, " codes"], *, own: Int64[np.ndarray, " codes"]
    ) -> Float64[np.ndarray, " codes"]:
        """log p of each character, in the layout of `encode`; `own` is 1 if the model was trained on its line."""
        seen = (
            np.maximum(counts[places].astype(np.float64) - own, 0.0)
            for counts, places in zip(self._counts, ngram_places(codes), strict=True)
        )
        return interpolate(seen, np.full(len(codes), float(self._total)) - own)

    def counts(self) -> tuple[UInt32[np.ndarray, " ngrams"], UInt32[np.ndarray, " ngrams"], int]:
        """The keys `(n − 1) << BITS | place` of all n-grams in rising order, their counts, and the characters."""
        flat = self._counts.reshape(-1)
        keys = np.flatnonzero(flat)
        return keys.astype(np.uint32), flat[keys], self._total


def interpolate(
    seen: Iterable[Float64[np.ndarray, "codes ..."]], total: Float64[np.ndarray, "codes ..."]
) -> Float64[np.ndarray, "codes ..."]:
    """log p of each character from the counts of the n-grams that end there, n = 1 … ORDER, and of all characters."""
    probability, context = np.full(total.shape, _FLOOR), total
    for counts in seen:
        # Hash collisions may inflate a count; it never exceeds that of its context.
        probability = (np.minimum(counts, context) + ALPHA * probability) / (np.maximum(context, 0.0) + ALPHA)
        context = np.concatenate([np.zeros_like(counts[:1]), counts[:-1]])
    log_probs: Float64[np.ndarray, "codes ..."] = np.log(probability)
    return log_probs


def encode(lines: Sequence[str]) -> tuple[UInt32[np.ndarray, " codes"], Int64[np.ndarray, " lines"]]:
    """Characters of all lines one after another, each line after ORDER − 1 line ends; and where the lines begin."""
    before = "\n" * (ORDER - 1)
    texts = [before + line[:MAX_LINE_CHARACTERS].lower() for line in lines]
    joined = "".join(texts)
    if not joined.isascii():
        # Treat all kinds of spaces equally.
        for space in _SPACES:
            joined = joined.replace(space, " ")
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.array([len(text) for text in texts], np.int64)
    return codes, np.cumsum(lengths) - lengths


def ngram_places(codes: UInt32[np.ndarray, " codes"]) -> Iterator[Int64[np.ndarray, " codes"]]:
    """The table index of the n-gram that ends at each position, for n = 1 … ORDER."""
    own: UInt64[np.ndarray, " codes"] = (codes.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    hashes = own
    for _ in range(ORDER):
        yield (((hashes ^ (hashes >> np.uint64(29))) * _GOLDEN) >> np.uint64(64 - BITS)).astype(np.int64)
        hashes = np.concatenate([own[:1], hashes[:-1]]) * _MIX + own
