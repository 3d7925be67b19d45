"""Corrupted text: what a model reads when it learns to restore a sentence, or tokens that were hidden in it.

    ids → words → corruption(words, generator) → words → ids
    ids → masking(ids, generator) → ids as they are read, and the places of the tokens to be predicted

A corruption works on whole words, however many pieces they have, so that no half word is left; masking works on single
tokens and keeps their number. What either draws belongs to the sentence: its generator is a pure function of (seed,
epoch, sample). Batches, workers, ranks and a resume change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Int64, Integer

from seqloom.core.errors import ConfigError
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.text.marks import SPACE
from seqloom.text.tokenizer import Tokenizer

Word = Integer[np.ndarray, " pieces"]
"""The ids of the pieces of one word."""


class Corruption(Protocol):
    """A kind of noise. A new one is a frozen dataclass with this method."""

    def __call__(self, words: Sequence[Word], generator: np.random.Generator) -> list[Word]:
        """What is left of the words of a sentence; of at least one word, at least one."""
        ...


@dataclass(frozen=True)
class WordNoise:
    """Words dropped, blanked and shuffled nearby (Lample et al., 2018).

        dropped    each word with probability drop_rate; if it would be all of them, one stays
        blanked    each other word with probability blank_rate: the symbol `blank` takes its place
        shuffled   the rest is sorted by i + u_i with u_i ~ uniform(0, k + 1), so that no word moves further than k

    `k` is the shuffle distance; 0 keeps the order.
    """

    drop_rate: float
    blank_rate: float
    shuffle_distance: int
    blank: int
    """The symbol in place of a blanked word."""

    def __post_init__(self) -> None:
        for name, rate in (("drop_rate", self.drop_rate), ("blank_rate", self.blank_rate)):
            if not 0 <= rate < 1:
                raise ConfigError(f"{name} is {rate:g}; give a share from 0 up to but not 1, such as 0.1")

    def __call__(self, words: Sequence[Word], generator: np.random.Generator) -> list[Word]:
        # All numbers are drawn at once, whatever the rates are: what one word loses does not depend on the others.
        drop, blank, shift = generator.random((3, len(words)))
        is_kept = drop >= self.drop_rate
        if len(words) and not is_kept.any():
            is_kept[np.argmax(drop)] = True
        kept = np.flatnonzero(is_kept).tolist()
        blanked = np.array([self.blank], dtype=np.int64)
        left = [blanked if blank[place] < self.blank_rate else words[place] for place in kept]
        keys = np.arange(len(kept)) + (self.shuffle_distance + 1) * shift[kept]
        return [left[place] for place in np.argsort(keys, kind="stable")] if self.shuffle_distance else left


@dataclass(frozen=True, eq=False)
class MaskedTokens:
    """Tokens of which some are hidden."""

    read: Int64[np.ndarray, " tokens"]
    """What the model reads."""
    places: Int64[np.ndarray, " hidden"]
    """Where the hidden tokens are, in rising order; they are to be predicted, however they are read."""


@dataclass(frozen=True)
class TokenMasking:
    """Tokens hidden for masked language modelling (Devlin et al., 2019).

        chosen     ⌊rate · n + u⌋ of the n tokens, u ~ uniform(0, 1): each one with probability `rate`
        masked     of the chosen, each with probability mask_rate: the mask symbol is read in its place
        replaced   each with probability random_rate: an ordinary symbol, all of them equally likely
        kept       the others are read as they are

    PAD, BEGIN, END and the mask symbol are not counted among the n: they are never chosen. No reserved symbol and no
    mask replaces a token.
    """

    mask: int
    """The mask symbol."""
    symbols: int
    """Size of the vocabulary."""
    rate: float = 0.15
    mask_rate: float = 0.8
    random_rate: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError(f"a share of {self.rate:g} of the tokens cannot be hidden; give one between 0 and 1")
        if self.mask_rate < 0 or self.random_rate < 0 or self.mask_rate + self.random_rate > 1:
            raise ConfigError(
                f"of the hidden tokens {self.mask_rate:g} are masked and {self.random_rate:g} replaced; give shares "
                "that add up to at most 1"
            )
        if not len(RESERVED) <= self.mask < self.symbols:
            raise ConfigError(
                f"the mask symbol {self.mask} is reserved or outside of the vocabulary of {self.symbols:,} symbols"
            )

    def __call__(self, ids: Integer[np.ndarray, " tokens"], generator: np.random.Generator) -> MaskedTokens:
        read = ids.astype(np.int64)
        is_ordinary = (read != PAD) & (read != BEGIN) & (read != END) & (read != self.mask)
        candidates = np.flatnonzero(is_ordinary)
        # Rounding at random keeps the rate exact for short texts, too.
        count = min(len(candidates), int(self.rate * len(candidates) + generator.random()))
        places = np.sort(generator.choice(candidates, count, replace=False))
        fate = generator.random(count)
        others = len(RESERVED) + generator.integers(max(1, self.symbols - len(RESERVED) - 1), size=count)
        others += others >= self.mask
        is_masked = fate < self.mask_rate
        is_replaced = ~is_masked & (fate < self.mask_rate + self.random_rate)
        is_replaced &= others < self.symbols  # of the mask alone, a vocabulary has no symbol to draw
        read[places[is_masked]] = self.mask
        read[places[is_replaced]] = others[is_replaced]
        return MaskedTokens(read, places)


@dataclass(frozen=True, eq=False)
class WordBorders:
    """Where words begin in ids of a vocabulary: at pieces with a space before them, and around marks."""

    has_space: Bool[np.ndarray, " symbols"]
    """Whether a piece begins with a space."""
    is_mark: Bool[np.ndarray, " symbols"]
    """Whether a piece has neither letters nor digits: punctuation is a word of its own."""
    are_words: bool
    """Whether each piece is a word."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> "WordBorders":
        """Those of the pieces of a tokeniser."""
        pieces = tokenizer.vocabulary
        has_space = np.array([piece.startswith((SPACE, "Ġ")) for piece in pieces])
        is_mark = np.array([not any(map(str.isalnum, piece)) for piece in pieces])
        return WordBorders(has_space, is_mark, tokenizer.kind == "word")

    def split(self, ids: Integer[np.ndarray, " tokens"]) -> list[Word]:
        """The words of a sentence."""
        if self.are_words:
            return list(ids.reshape(-1, 1))
        # A lone space belongs to the word after it.
        is_space, is_mark = self.has_space[ids], self.is_mark[ids]
        is_lone = is_space & is_mark
        after_mark = np.concatenate([[False], is_mark[:-1] & ~is_lone[:-1]])
        begins = is_space | (is_mark & ~np.concatenate([[False], is_lone[:-1]])) | after_mark
        return [word for word in np.split(ids, np.flatnonzero(begins)) if len(word)]


def generator_for(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """What the noise of a sentence is drawn from; `sample` is its number in the text."""
    return np.random.Generator(np.random.PCG64(seed_for(seed, "corruption", epoch, sample)))


def corrupt(
    sentences: Sequence[Integer[np.ndarray, " tokens"]],
    corruption: Corruption,
    *,
    borders: WordBorders,
    seed: int,
    epoch: int,
    samples: Sequence[int] | Integer[np.ndarray, " sentences"],
) -> list[Int64[np.ndarray, " left"]]:
    """Corrupted sentences, ids without END; `samples` are their numbers in the text."""
    found = []
    for ids, sample in zip(sentences, samples, strict=True):
        words = corruption(borders.split(ids), generator_for(seed, epoch, int(sample)))
        found.append(np.concatenate([np.empty(0, np.int64), *words]).astype(np.int64))
    return found
