"""Word vectors and what they answer: neighbours, analogies, similarities.

cos(a, b) = a · b / (‖a‖ ‖b‖)
nearest            argmax_x cos(x, w)
a is to b as c is to …                                                          a, b, c are never the answer
    add (3CosAdd)  argmax_x cos(x, b − a + c), each scaled to length 1          Mikolov et al. (2013)
                   the same order as cos(x, b) − cos(x, a) + cos(x, c), whose scores can exceed 1
    mul (3CosMul)  argmax_x cos⁺(x, b) cos⁺(x, c) / (cos⁺(x, a) + 0.001)        Levy and Goldberg (2014),
                   cos⁺ = (1 + cos) / 2
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Float32, Int32, Int64, Integer
from pydantic import Field, model_validator

from seqloom.classical.word2vec_text import Lists
from seqloom.core.arguments import as_names, as_text, as_whole_number, require_choice, require_instance
from seqloom.core.config import Config
from seqloom.core.errors import DataError, UsageError

# Character n-grams as parts of words (Bojanowski et al., 2017): unseen words get vectors too.
#
#     <where>   →   <wh whe her ere re> <whe … here> and so on        n from `shortest` to `longest`
#     v(word) = mean of its own vector and those of its n-grams       an unseen word has n-grams only
#
# N-grams are hashed into a fixed number of buckets (FNV-1a on their UTF-8 bytes), so the table does not grow with the
# text; n-grams that meet in a bucket share its vector.

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


Method = Literal["add", "mul"]
"""How the three cosines of an analogy are joined."""

_EPSILON = 0.001
_LARGE = np.float32(1e15)
_MAX_COSINES = 1 << 25
"""Cosines in memory at the same time: 128 MB."""


@dataclass(frozen=True)
class Neighbour:
    """A word and how near it is: a cosine, or for an analogy by 3CosMul what it makes of three."""

    word: str
    score: float


@dataclass(frozen=True, eq=False)
class SubwordVectors:
    """The vectors of character n-grams, from which unseen words get theirs."""

    config: SubwordConfig
    buckets: Float32[np.ndarray, "buckets width"]

    def vector(self, word: str) -> Float32[np.ndarray, " width"]:
        """The mean of the n-grams of a word that was never seen."""
        rows = buckets_of(word, self.config)
        if not len(rows):
            raise UsageError(
                f"{word!r} is unknown and has no n-grams of {self.config.shortest} to {self.config.longest} "
                "characters; choose a longer word"
            )
        mean: Float32[np.ndarray, " width"] = self.buckets[rows].mean(axis=0)
        return mean


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A vector for each word, the most frequent word first."""

    words: tuple[str, ...]
    vectors: Float32[np.ndarray, "words width"]
    counts: Int64[np.ndarray, " words"]
    """How often each word was seen; zeros where that is not known."""
    symbols: Int64[np.ndarray, " words"] | None = None
    """The ids of the words in the vocabulary of the text that they were learned from."""
    outputs: Float32[np.ndarray, "outputs width"] | None = None
    """The other vectors that were learned: of words as what is predicted, or of the inner nodes of the tree."""
    subwords: SubwordVectors | None = None
    losses: tuple[float, ...] = ()
    """The mean loss per prediction of each epoch, in nats."""

    def __post_init__(self) -> None:
        for name in ("vectors", "counts"):
            require_instance(getattr(self, name), name, np.ndarray, what="a numpy array with a row for each word")
        if self.vectors.ndim != 2:
            raise DataError(f"vectors must have a row per word and a column per number; got shape {self.vectors.shape}")
        require_instance(self.words, "words", (tuple, list), what="a tuple of words")
        if len(self.words) != len(self.vectors) or len(self.words) != len(self.counts):
            raise DataError(
                f"{len(self.words)} words, {len(self.vectors)} vectors and {len(self.counts)} counts do not match"
            )
        is_finite = np.isfinite(self.vectors).all(axis=1)
        if not is_finite.all():
            wrong = int(np.argmin(is_finite))
            raise DataError(
                f"the vector of {self.words[wrong]!r} (row {wrong + 1}) has numbers that are not finite, and so have "
                f"{int((~is_finite).sum()) - 1} others; lower the learning rate, or get the file again"
            )

    def __repr__(self) -> str:
        return f"WordVectors({len(self):,} word{'' if len(self) == 1 else 's'} of width {self.width})"

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.rows

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return int(self.vectors.shape[1])

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def units(self) -> Float32[np.ndarray, "words width"]:
        """The vectors, scaled to length 1; a vector of zeros stays."""
        return _units(self.vectors)

    def row(self, word: str) -> int:
        """The row of a word; one that is unknown is an error that offers the nearest spelling."""
        row = self.rows.get(as_text(word, "word"))
        if row is None:
            raise UsageError(self._missing(word))
        return row

    def vector(self, word: str) -> Float32[np.ndarray, " width"]:
        """The vector of a word; with subwords, of any word."""
        if as_text(word, "word") not in self.rows and self.subwords is not None:
            return self.subwords.vector(word)
        vector: Float32[np.ndarray, " width"] = self.vectors[self.row(word)]
        return vector

    def known(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Those of these words that have a vector, and a sentence for each of the others."""
        words = as_names(words, "words", example='["dog"]')
        has_vector = [self.subwords is not None or word in self.rows for word in words]
        found = [word for word, has in zip(words, has_vector, strict=True) if has]
        return found, [self._missing(word) for word, has in zip(words, has_vector, strict=True) if not has]

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two words."""
        first, second = _units(np.stack([self.vector(one), self.vector(other)]))
        return float(first @ second)

    def nearest(self, words: Sequence[str], *, count: int = 10) -> list[list[Neighbour]]:
        """For each word the words with the highest cosine, the word itself left out; all looked up together."""
        words, count = as_names(words, "words", example='["dog"]'), as_whole_number(count, "count", least=1)
        if not words:
            return []
        queries = _units(np.stack([self.vector(word) for word in words]))
        excluded = [[self.rows[word]] if word in self.rows else [] for word in words]
        found: list[list[Neighbour]] = []
        step = max(1, _MAX_COSINES // len(self))
        for begin in range(0, len(words), step):
            scores = queries[begin : begin + step] @ self.units.T
            found += self._best(scores, excluded[begin : begin + step], count)
        return found

    def analogy(self, a: str, b: str, c: str, *, count: int = 10, method: Method = "add") -> list[Neighbour]:
        """What is to c as b is to a: `analogy("man", "king", "woman")` → queen."""
        count = as_whole_number(count, "count", least=1)
        triple = np.array([[self.row(word) for word in (a, b, c)]], np.int64)
        return self._best(self.analogy_scores(triple, method=method), triple.tolist(), count)[0]

    def solve(
        self, triples: Int64[np.ndarray, "questions three"], *, method: Method = "add", vocabulary: int | None = None
    ) -> Int64[np.ndarray, " questions"]:
        """The best row for each a, b, c; of the first `vocabulary` words only, if that is given."""
        best = np.empty(len(triples), np.int64)
        step = max(1, _MAX_COSINES // len(self))
        for begin in range(0, len(triples), step):
            part = triples[begin : begin + step]
            scores = self.analogy_scores(part, method=method)
            np.put_along_axis(scores, part, -np.inf, axis=1)
            best[begin : begin + step] = scores[:, :vocabulary].argmax(axis=1)
        return best

    def analogy_scores(
        self, triples: Integer[np.ndarray, "questions three"], *, method: Method = "add"
    ) -> Float32[np.ndarray, "questions words"]:
        """The score of every word as an answer to each a, b, c."""
        require_choice(method, "method", get_args(Method))
        a, b, c = (self.units[triples[:, place]] for place in range(3))
        if method == "add":
            scores: Float32[np.ndarray, "questions words"] = _units(b - a + c) @ self.units.T
            return scores
        from_a, from_b, from_c = ((1 + side @ self.units.T) / 2 for side in (a, b, c))
        product: Float32[np.ndarray, "questions words"] = from_b * from_c / (from_a + np.float32(_EPSILON))
        return product

    def arrays(self) -> dict[str, np.ndarray]:
        """What a model directory keeps."""
        if self.symbols is None:
            raise UsageError("these vectors were not learned here, so they have no symbols; write them as a file")
        kept: dict[str, np.ndarray] = {"vectors": self.vectors, "counts": self.counts, "symbols": self.symbols}
        if self.outputs is not None:
            kept["outputs"] = self.outputs
        if self.subwords is not None:
            kept["buckets"] = self.subwords.buckets
        if self.losses:
            kept["losses"] = np.array(self.losses)
        return kept

    def _best(
        self, scores: Float[np.ndarray, "queries words"], excluded: Sequence[Sequence[int]], count: int
    ) -> list[list[Neighbour]]:
        """The highest scores of each row; of equal ones the more frequent word."""
        for row, places in zip(scores, excluded, strict=True):
            row[list(places)] = -np.inf
        wanted = min(count, len(self))
        top = np.argpartition(-scores, wanted - 1, axis=1)[:, :wanted]
        found = []
        for row, places in zip(scores, np.sort(top, axis=1), strict=True):
            order = places[np.argsort(-row[places], kind="stable")]
            found.append([Neighbour(self.words[at], float(row[at])) for at in order if np.isfinite(row[at])])
        return found

    def _missing(self, word: str) -> str:
        """That a word has no vector, with the nearest spelling that has one."""
        cased = {known.casefold(): known for known in reversed(self.words)}
        same = cased.get(word.casefold())
        if near := [same] if same is not None else difflib.get_close_matches(word, self.words, n=3):
            return f"{word!r} has no vector; did you mean {' or '.join(repr(each) for each in near)}?"
        return f"{word!r} has no vector: it is not among the {len(self):,} words that were learned"


def _units(vectors: Float32[np.ndarray, "rows width"]) -> Float32[np.ndarray, "rows width"]:
    # Squares of very large or very small numbers leave the range of single precision, so such rows are scaled first.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    if ((largest > _LARGE) | ((largest > 0) & (largest < 1 / _LARGE))).any():
        vectors = vectors / np.where(largest > 0, largest, np.float32(1.0))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Float32[np.ndarray, "rows width"] = vectors / np.where(lengths > 0, lengths, np.float32(1.0))
    return units
