"""What a hypothesis is worth: its log-probability, corrected for its length.

A product of probabilities shrinks with every factor, so raw log-probabilities favour short outputs. Each
normalisation divides by a penalty lp(|Y|), where |Y| counts the end symbol (and so does the log-probability):

    score = log P(Y∣X) / lp(|Y|)

    none   lp = 1                     the most probable sequence
    mean   lp = |Y|                   mean log-probability of a symbol
    gnmt   lp = ((5 + |Y|) / 6)^α     Wu et al., 2016; lp(1) = 1 for every α, and α = 0 is `none`

Systems give the same option name to different formulas: n^α, ((b + n)/(b + 1))^α, with end counted or not. Compare
formulas, not names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

LengthNormalisation = Literal["none", "mean", "gnmt"]


class Score(Protocol):
    """How a search ranks hypotheses. `length` is |Y|, which counts end."""

    def terms(self, log_prob: float, length: int) -> Mapping[str, float]:
        """The score by parts; its value is their sum."""
        ...

    def bound(self, log_prob: float, length: int, limit: int) -> float:
        """No continuation of a sequence of this length gets a better score, if |Y| may reach `limit`."""
        ...


def length_penalty(kind: LengthNormalisation, length: int, alpha: float) -> float:
    """lp(|Y|), by which the log-probability is divided; `alpha` is used by `gnmt` only."""
    match kind:
        case "none":
            return 1.0
        case "mean":
            return float(length)
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class LengthNormalised:
    """score = log P(Y∣X) / lp(|Y|), itemised as the log-probability and what dividing it adds."""

    kind: LengthNormalisation
    alpha: float

    def terms(self, log_prob: float, length: int) -> Mapping[str, float]:
        # What is impossible is so at any length: ∞ − ∞ would be no number.
        added = self._value(log_prob, length) - log_prob if log_prob > float("-inf") else 0.0
        return {"log_prob": log_prob, "length": added}

    def bound(self, log_prob: float, length: int, limit: int) -> float:
        """Further symbols only lower log P, and lp runs in one direction: at best log P stays, at either end of it."""
        return max(self._value(log_prob, length), self._value(log_prob, limit))

    def _value(self, log_prob: float, length: int) -> float:
        return log_prob / length_penalty(self.kind, length, self.alpha)


def score_of(terms: Mapping[str, float]) -> float:
    """The sum of the terms, added in their order."""
    return sum(terms.values())
