"""Corrupted text: what a model reads when it learns to restore a sentence, or tokens that were hidden in it.

    ids → words → corruption(words, generator) → words → ids
    ids → masking(ids, generator) → ids as they are read, and the places of the tokens to be predicted
    ids → noise(ids, generator) → ids as an encoder reads them, and ids that the decoder is to write

A corruption works on whole words, however many pieces they have, so that no half word is left; masking works on single
tokens and keeps their number; noise hides spans of tokens. What each draws belongs to the sentence: its generator is a
pure function of (seed, epoch, sample). Batches, workers, ranks and a resume change nothing.
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


# --- noise for encoder-decoder models ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NoisyText:
    """A text with noise, and what is to be written for it; both without END at their ends."""

    read: Int64[np.ndarray, " read"]
    target: Int64[np.ndarray, " target"]


class Noise(Protocol):
    """Noise that an encoder-decoder model learns to undo. A new kind is a frozen dataclass with this method."""

    def __call__(self, ids: Integer[np.ndarray, " tokens"], generator: np.random.Generator) -> NoisyText:
        """The text with noise."""
        ...


@dataclass(frozen=True, eq=False)
class HiddenSpans:
    """Parts of a text from left to right: tokens begin … begin + length − 1 of each. A length may be 0."""

    begins: Int64[np.ndarray, " spans"]
    lengths: Int64[np.ndarray, " spans"]

    @property
    def _before(self) -> Int64[np.ndarray, " spans"]:
        """Hidden tokens before each span."""
        before: Int64[np.ndarray, " spans"] = np.cumsum(self.lengths) - self.lengths
        return before

    @property
    def places(self) -> Int64[np.ndarray, " hidden"]:
        """Of all hidden tokens."""
        return np.repeat(self.begins - self._before, self.lengths) + np.arange(self.lengths.sum())

    def hide(
        self, ids: Int64[np.ndarray, " tokens"], symbols: int | Int64[np.ndarray, " spans"]
    ) -> Int64[np.ndarray, " left"]:
        """The text with a symbol in place of each span."""
        return np.insert(np.delete(ids, self.places), self.begins - self._before, symbols)

    def list(
        self, ids: Int64[np.ndarray, " tokens"], symbols: Int64[np.ndarray, " spans"]
    ) -> Int64[np.ndarray, " listed"]:
        """The tokens of each span, after its symbol."""
        return np.insert(ids[self.places], self._before, symbols)


def span_count(tokens: int, *, rate: float, mean_span: float) -> tuple[int, int]:
    """How many tokens of a text are hidden in how many spans: ⌊rate · n⌉, one or more, in ⌊hidden / mean_span⌉."""
    if tokens < 2:
        return 0, 0
    hidden = min(max(round(tokens * rate), 1), tokens - 1)
    return hidden, min(max(round(hidden / mean_span), 1), hidden, tokens - hidden)


@dataclass(frozen=True)
class SpanCorruption:
    """Spans behind sentinels (T5; Raffel et al., 2020).

        text     Thank you for inviting me to your party last week
        read     Thank you ⟨0⟩ me to your party ⟨1⟩ week
        target   ⟨0⟩ for inviting ⟨1⟩ last

    A share `rate` of the tokens is hidden, in spans of `mean_span` tokens on average; both numbers follow from the
    length of the text. As in `random_spans_noise_mask` of T5, the lengths of the spans are a composition of the hidden
    tokens into parts of at least one, each equally likely, and so are those of the kept parts: spans never touch.
    There, every text begins with a kept part and ends with a span. But a line of 20 tokens has one span, which would
    always be its end; so here the first kept part may be empty, and a last one may follow. Among texts of T5's form the
    law is the same.
    """

    sentinels: tuple[int, ...]
    """The symbols in place of the spans, from left to right."""
    rate: float = 0.15
    mean_span: float = 3.0

    def spans(self, tokens: int, generator: np.random.Generator) -> HiddenSpans:
        """What is hidden of a text of so many tokens."""
        hidden, count = span_count(tokens, rate=self.rate, mean_span=self.mean_span)
        if not count:
            return HiddenSpans(np.zeros(0, np.int64), np.zeros(0, np.int64))
        lengths = _composition(hidden, count, generator)
        kept = _composition(tokens - hidden + 2, count + 1, generator)  # the first and the last are one too long
        return HiddenSpans(np.cumsum(kept[:-1]) - 1 + np.cumsum(lengths) - lengths, lengths)

    def __call__(self, ids: Integer[np.ndarray, " tokens"], generator: np.random.Generator) -> NoisyText:
        text, spans = ids.astype(np.int64), self.spans(len(ids), generator)
        count = len(spans.lengths)
        if count > len(self.sentinels):
            raise ConfigError(f"{len(ids)} tokens have {count} spans, but there are {len(self.sentinels)} sentinels")
        symbols = np.array(self.sentinels[:count], np.int64)
        return NoisyText(spans.hide(text, symbols), spans.list(text, symbols))


def _composition(total: int, parts: int, generator: np.random.Generator) -> Int64[np.ndarray, " parts"]:
    """A sum of so many positive numbers, each such sum equally likely."""
    inner = np.sort(generator.choice(total - 1, parts - 1, replace=False)) + 1
    lengths: Int64[np.ndarray, " parts"] = np.diff(np.concatenate([[0], inner, [total]]))
    return lengths


@dataclass(frozen=True)
class BartNoise:
    """Spans behind one mask each, of unknown length (BART; Lewis et al., 2020). The target is the whole text.

    sentences   of a text with several, between its ENDs, in random order
    infilling   ⌊rate · n + u⌋ tokens are hidden, u ~ uniform(0, 1), in spans of Poisson(mean_span) tokens, the
                last one cut; each order of spans and kept tokens is equally likely. A span of length 0 inserts a
                mask where nothing is missing.
    deletion    each token that is left is lost with probability deletion_rate
    masking     or read as a mask with probability mask_rate
    """

    mask: int
    """The mask symbol."""
    rate: float = 0.3
    mean_span: float = 3.0
    permutes_sentences: bool = True
    deletion_rate: float = 0.0
    mask_rate: float = 0.0

    def spans(self, tokens: int, generator: np.random.Generator) -> HiddenSpans:
        """What is hidden of a text of so many tokens."""
        hidden = min(tokens, int(self.rate * tokens + generator.random()))
        lengths = np.zeros(0, np.int64)
        while lengths.sum() < hidden:
            drawn = generator.poisson(self.mean_span, size=2 + int(1.5 * hidden / self.mean_span))
            lengths = np.concatenate([lengths, drawn])
        if hidden:  # up to the span that reaches the number
            lengths = lengths[: np.searchsorted(np.cumsum(lengths), hidden) + 1]
            lengths[-1] -= lengths.sum() - hidden
        count = len(lengths)
        order = np.sort(generator.choice(tokens - hidden + count, count, replace=False))  # among kept tokens
        return HiddenSpans(order - np.arange(count) + np.cumsum(lengths) - lengths, lengths)

    def __call__(self, ids: Integer[np.ndarray, " tokens"], generator: np.random.Generator) -> NoisyText:
        target = ids.astype(np.int64)
        text = permute_sentences(target, generator) if self.permutes_sentences else target
        read = self.spans(len(text), generator).hide(text, self.mask)
        fate = generator.random(len(read))
        fate[read == self.mask] = 1.0
        read = np.where(fate < self.deletion_rate + self.mask_rate, self.mask, read)
        return NoisyText(read[fate >= self.deletion_rate], target)


def permute_sentences(
    ids: Int64[np.ndarray, " tokens"], generator: np.random.Generator
) -> Int64[np.ndarray, " tokens"]:
    """The sentences of a text, between its ENDs, in random order; the ENDs stay between them."""
    sentences = [part[part != END] for part in np.split(ids, np.flatnonzero(ids == END) + 1)]
    is_ended = len(ids) > 0 and ids[-1] == END
    if is_ended:
        sentences.pop()  # nothing comes after the last END
    if len(sentences) < 2:
        return ids
    parts = [part for place in generator.permutation(len(sentences)) for part in (sentences[place], [END])]
    permuted: Int64[np.ndarray, " tokens"] = np.concatenate(parts if is_ended else parts[:-1]).astype(np.int64)
    return permuted


@dataclass(frozen=True)
class HiddenWords:
    """Words of a question and of its answer are hidden, and are to be written in their order.

        text     Who wrote Faust ? END Goethe wrote it .
        read     Who □ Faust ? END □ wrote it .
        target   wrote Goethe

    Of the words of each side ⌊rate · n + u⌋ are hidden, u ~ uniform(0, 1), but one or more. Each piece of a hidden word
    is read as a mask, so the pieces of the target belong to the masks one by one. A text without an END inside is one
    side.
    """

    mask: int
    """The mask symbol."""
    borders: WordBorders
    rate: float = 0.15

    def __call__(self, ids: Integer[np.ndarray, " tokens"], generator: np.random.Generator) -> NoisyText:
        text = ids.astype(np.int64)
        is_hidden = np.zeros(len(text), bool)
        for side in np.split(np.arange(len(text)), np.flatnonzero(text == END)):
            inside = side[text[side] != END]
            words = self.borders.split(text[inside])
            word_of = np.repeat(np.arange(len(words)), [len(word) for word in words])
            count = min(len(words), max(1, int(self.rate * len(words) + generator.random())))
            is_hidden[inside] = np.isin(word_of, generator.choice(len(words), count, replace=False))
        return NoisyText(np.where(is_hidden, self.mask, text), text[is_hidden])
