"""Perplexity: among how many equally likely symbols a model hesitates, on average."""

import math
from dataclasses import dataclass
from typing import Literal

from seqloom.core.errors import DataError, UsageError

Unit = Literal["token", "word", "character", "byte"]
Unknown = Literal["counted", "skipped", "absent"]


@dataclass(frozen=True)
class Perplexity:
    """A perplexity with what it was counted in: numbers of different units cannot be compared.

    `has_end` says whether the end of each sentence was predicted and counted; `unknown` says whether words outside
    the vocabulary were predicted as one symbol (which makes them cheap), left out, or cannot occur.
    """

    value: float
    unit: Unit
    count: int
    has_end: bool
    unknown: Unknown

    @property
    def bits(self) -> float:
        """Cross-entropy in bits per unit: log₂ of the perplexity."""
        return math.log2(self.value)

    @property
    def signature(self) -> str:
        """How the number was counted, to be printed with it."""
        return f"unit:{self.unit}|count:{self.count}|end:{'yes' if self.has_end else 'no'}|unknown:{self.unknown}"


def perplexity(
    cross_entropy: float, count: int, *, unit: Unit = "token", has_end: bool = True, unknown: Unknown = "absent"
) -> Perplexity:
    """exp of the mean cross-entropy.

        PPL = exp(−(1/count) Σ_t log P(w_t ∣ w_<t))

    `cross_entropy` is the sum −Σ_t log P(w_t ∣ w_<t) in nats over all symbols, `count` the number of units it is
    shared among: it may be words or bytes while the model predicts subwords. 1 is perfect; a model that finds all of
    V symbols equally likely has V.
    """
    if count < 1:
        raise DataError(f"perplexity is a mean, and there are {count} {unit}s to share {cross_entropy:g} nats among")
    if math.isnan(cross_entropy) or cross_entropy < -1e-6 * count:
        raise UsageError(
            f"a cross-entropy of {cross_entropy} nats over {count} {unit}s is none; "
            "give the sum of −log P, which is 0 or more"
        )
    mean = cross_entropy / count
    value = math.exp(mean) if mean < 700 else math.inf  # exp overflows near 709.8
    return Perplexity(value, unit, count, has_end, unknown)
