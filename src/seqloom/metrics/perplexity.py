"""Perplexity: among how many equally likely symbols a model hesitates, on average.

Models that cut text differently cannot be compared token by token: the same text has more characters than words. But
what a model thinks of the whole text, −Σ log P in nats, does not depend on how it was cut. Shared among the words or
characters of the text it gives numbers that compare: the perplexity per word of a character model is exp(nats / words).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from seqloom.core.errors import DataError, UsageError

Unit = Literal["token", "word", "character"]
Unknown = Literal["counted", "skipped", "absent"]


@dataclass(frozen=True)
class Perplexity:
    """A perplexity with what it was counted in: numbers of different units cannot be compared.

    The end of each sentence is predicted and counted. `unknown` says whether words outside the vocabulary were
    predicted as one symbol (which may make them cheap), left out, or cannot occur.
    """

    value: float
    unit: Unit
    count: int
    unknown: Unknown
    is_bound: bool = False
    """Whether the true value is this one or lower: the model gives a lower bound of log P only."""

    @property
    def bits(self) -> float:
        """Cross-entropy in bits per unit: log₂ of the perplexity."""
        return math.log2(self.value)

    @property
    def signature(self) -> str:
        """How the number was counted, to be printed with it."""
        bound = "|bound:upper" if self.is_bound else ""
        return f"unit:{self.unit}|count:{self.count}|end:yes|unknown:{self.unknown}{bound}"


def perplexity(
    cross_entropy: float, count: int, *, unit: Unit = "token", unknown: Unknown = "absent", is_bound: bool = False
) -> Perplexity:
    """exp of the mean cross-entropy.

        PPL = exp(−(1/count) Σ_t log P(w_t ∣ w_<t))

    `cross_entropy` is the sum −Σ_t log P(w_t ∣ w_<t) in nats over all symbols, `count` the number of units it is
    shared among: it may be words while the model predicts subwords. 1 is perfect; a model that finds all of
    V symbols equally likely has V.
    """
    if count < 1:
        raise DataError(f"perplexity is a mean, and there are {count} {unit}s to share {cross_entropy:g} nats among")
    if math.isnan(cross_entropy) or cross_entropy < -1e-6 * count:
        raise UsageError(
            f"a cross-entropy of {cross_entropy} nats over {count} {unit}s is invalid; "
            "give the sum of −log P, which is 0 or more"
        )
    mean = cross_entropy / count
    value = math.exp(mean) if mean < 700 else math.inf  # exp overflows near 709.8
    return Perplexity(value, unit, count, unknown, is_bound)


@dataclass(frozen=True)
class TextSize:
    """A text, counted in every unit; the end of a line is one more of each."""

    tokens: int
    words: int
    """Runs of anything but white space."""
    characters: int
    """Unicode characters, spaces among them."""


def measure_text(lines: Iterable[str], tokens: int) -> TextSize:
    """Count a text, given the number of tokens (without the ends of lines) that a model cuts it into."""
    words = characters = 0
    for line in lines:
        tokens, words, characters = tokens + 1, words + len(line.split()) + 1, characters + len(line) + 1
    return TextSize(tokens, words, characters)


@dataclass(frozen=True)
class Perplexities:
    """The perplexity of one text in three units, of which the last two compare models that cut text differently.

    They compare only where about as much is unknown to both. A word is what is between spaces; the end of a line
    counts as a word and as a character.
    """

    token: Perplexity
    word: Perplexity
    character: Perplexity
    unknown: int
    """Tokens that the vocabulary does not have; each counts as one symbol."""
    impossible: int
    """Tokens to which the model gives no probability at all; one of them makes a perplexity infinite."""
    known: Perplexity | None = None
    """Per token of those that the vocabulary has, where there are others."""
    unknown_bits: float | None = None
    """What a token that is unknown costs on average."""

    @property
    def all(self) -> tuple[Perplexity, ...]:
        return self.token, self.word, self.character


def perplexities(
    cross_entropy: float,
    size: TextSize,
    *,
    unknown: int = 0,
    unknown_cross_entropy: float = 0.0,
    impossible: int = 0,
    is_bound: bool = False,
) -> Perplexities:
    """The perplexity of one text in every unit: exp(cross_entropy / units), each with how it was counted.

    `cross_entropy` is −Σ log P in nats over the tokens that the vocabulary has, the ends of lines among them, and
    `unknown_cross_entropy` that over the tokens which it does not have.
    """
    whole = cross_entropy + unknown_cross_entropy
    policy: Unknown = "counted" if unknown else "absent"
    known = None
    if 0 < unknown < size.tokens:
        known = perplexity(cross_entropy, size.tokens - unknown, unknown="skipped", is_bound=is_bound)
    return Perplexities(
        perplexity(whole, size.tokens, unit="token", unknown=policy, is_bound=is_bound),
        perplexity(whole, size.words, unit="word", unknown=policy, is_bound=is_bound),
        perplexity(whole, size.characters, unit="character", unknown=policy, is_bound=is_bound),
        unknown=unknown,
        impossible=impossible,
        known=known,
        unknown_bits=unknown_cross_entropy / unknown / math.log(2) if unknown else None,
    )
