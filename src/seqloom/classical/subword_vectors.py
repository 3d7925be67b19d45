"""Character n-grams as parts of words (Bojanowski et al., 2017): unseen words get vectors too.

    <where>   →   <wh whe her ere re> <whe … here> and so on        n from `shortest` to `longest`
    v(word) = mean of its own vector and those of its n-grams       an unseen word has n-grams only

N-grams are hashed into a fixed number of buckets (FNV-1a on their UTF-8 bytes), so the table does not grow with the
text; n-grams that meet in a bucket share its vector.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float32, Int32, Int64
from pydantic import Field, model_validator

from seqloom.classical.word2vec_tables import Lists
from seqloom.core.config import Config

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


class SubwordConfig(Config):
    """Which character n-grams are parts of words."""

    shortest: int = Field(default=3, ge=1)
    """Characters of the shortest n-grams, the marks `<` and `>` at both ends of a word counted."""
    longest: int = Field(default=6, ge=1, le=1000)
    """Characters of the longest n-grams."""
    buckets: int = Field(default=200_000, ge=1, le=100_000_000)
    """Vectors that all n-grams share, found by a hash; each costs four bytes per number of the width."""

    @model_validator(mode="after")
    def _check(self) -> "SubwordConfig":
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}; give shortest 3, longest 6")
        return self


def ngrams_of(word: str, config: SubwordConfig) -> Iterator[str]:
    """The n-grams of a word between its marks, without the whole of it, which has a vector of its own."""
    marked = f"<{word}>"
    for begin in range(len(marked)):
        for length in range(config.shortest, config.longest + 1):
            if begin + length > len(marked):
                break
            if length < len(marked):
                yield marked[begin : begin + length]


def hash_of(ngram: str) -> int:
    """The 32 bits of FNV-1a: for each byte, exclusive or, then times a prime."""
    value = _OFFSET
    for byte in ngram.encode("utf-8"):
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def buckets_of(word: str, config: SubwordConfig) -> Int64[np.ndarray, " parts"]:
    """The buckets of the n-grams of a word."""
    return np.array([hash_of(ngram) % config.buckets for ngram in ngrams_of(word, config)], np.int64)


def parts_of_words(words: Sequence[str], config: SubwordConfig) -> Lists:
    """For the compiled loops: the input rows of each word, its own first; buckets come after all words."""
    lists = [np.append(row, len(words) + buckets_of(word, config)) for row, word in enumerate(words)]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(each) for each in lists], dtype=np.int64)])
    members: Int32[np.ndarray, " parts"] = np.concatenate(lists).astype(np.int32)
    return Lists(starts, members, np.zeros(0, np.int8))


def pooled_vectors(inputs: Float32[np.ndarray, "rows width"], parts: Lists) -> Float32[np.ndarray, "words width"]:
    """The mean of the parts of each word."""
    lengths = np.diff(parts.starts)
    vectors = np.empty((len(lengths), inputs.shape[1]), np.float32)
    for word, (begin, end) in enumerate(zip(parts.starts[:-1], parts.starts[1:], strict=True)):
        vectors[word] = inputs[parts.members[begin:end]].mean(axis=0)
    return vectors
