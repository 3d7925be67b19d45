"""What a hypothesis is worth: its log-probability, corrected for length, coverage and early ends.

A product of probabilities shrinks with every factor, so raw log-probabilities favour short outputs. The score puts
together what has been proposed against it (Wu et al., 2016, and the first OpenNMT):

    score = (log P(Y∣X) + end) / lp(|Y|) + coverage + reward · |Y|

    lp         none 1,  mean |Y|,  power |Y|^α,  gnmt ((5 + |Y|) / 6)^α     gnmt: lp(1) = 1 for every α; α = 0 is `none`
    coverage   β Σ_i log max(floor, min(1, Σ_j a_ji))       a_ji: how much output position j looked at source position i
    end        multiply (ep − 1) log P(end),  add −ep       ep = γ |X| / |Y|;  γ = 0 leaves it out

Lengths count the end symbol, and so does the log-probability. Since log P(end) is negative, ep > 1 makes an output that
is short for its source dearer. Coverage is never positive; its floor keeps a source position without attention from
being worth −∞. Systems give the same option name to different formulas: n^α, ((b + n)/(b + 1))^α, with end counted or
not. Compare formulas, not names.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, assert_never

from torch import Tensor

LengthNormalisation = Literal["none", "mean", "power", "gnmt"]
EndKind = Literal["multiply", "add"]

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class ScoreInputs:
    """What there is to know of a hypothesis when it is scored.

    `length` and `source_length` count the end symbol. `end_log_prob` is log P(end ∣ …), None where the end was not
    reached. `coverage` is Σ_j a_ji for each source position i, where the score needs it.
    """

    log_prob: float
    length: int
    source_length: int = 0
    end_log_prob: float | None = None
    coverage: tuple[float, ...] | None = None


class SearchScore(Protocol):
    """How a search ranks hypotheses."""

    @property
    def needs_attention(self) -> bool:
        """Whether outcomes must have their coverage."""
        ...

    @property
    def end(self) -> "EndNormalisation | None":
        """What is done to the log-probability of the end symbol, where candidates are ranked as well."""
        ...

    def terms(self, outcome: ScoreInputs) -> Mapping[str, float]:
        """The score by parts; its value is their sum."""
        ...

    def bound(self, log_prob: float, length: int, *, limit: int) -> float:
        """No continuation of a sequence of this length gets a better score, if |Y| may reach `limit`."""
        ...


@dataclass(frozen=True)
class EndNormalisation:
    """ep = γ |X| / |Y|, by which log P(end) is multiplied, or which is taken from it."""

    weight: float
    kind: EndKind = "multiply"

    def changed(self, end_log_prob: Number, source_length: Number, *, length: int) -> Number:
        """What replaces log P(end); for a number or a number per row."""
        factor = self.weight * source_length / length
        match self.kind:
            case "multiply":
                return end_log_prob * factor
            case "add":
                return end_log_prob - factor
            case _:
                assert_never(self.kind)


def length_penalty(kind: LengthNormalisation, length: int, alpha: float) -> float:
    """lp(|Y|), by which the log-probability is divided; `alpha` is used by `power` and `gnmt` only."""
    match kind:
        case "none":
            return 1.0
        case "mean":
            return float(length)
        case "power":
            return float(length**alpha)
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)
        case _:
            assert_never(kind)


def coverage_penalty(coverage: tuple[float, ...], *, floor: float) -> float:
    """Σ_i log max(floor, min(1, coverage_i)): 0 where all of the source was attended to, less elsewhere."""
    return math.fsum(math.log(max(floor, min(1.0, looked))) for looked in coverage)


@dataclass(frozen=True)
class CombinedScore:
    """The score above, by parts: log P itself, then what each correction adds to it. Those that are off add no part."""

    kind: LengthNormalisation = "none"
    alpha: float = 0.0
    reward: float = 0.0
    coverage: float = 0.0
    coverage_floor: float = 1e-4
    end: EndNormalisation | None = None

    @property
    def needs_attention(self) -> bool:
        return self.coverage > 0

    def terms(self, outcome: ScoreInputs) -> Mapping[str, float]:
        log_prob = outcome.log_prob
        terms = {"log_prob": log_prob}
        if log_prob == float("-inf"):  # impossible at any length: ∞ − ∞ would be NaN
            return terms
        if self.end is not None and outcome.end_log_prob is not None:
            sources = float(outcome.source_length)
            changed = self.end.changed(outcome.end_log_prob, sources, length=outcome.length)
            terms["end"] = changed - outcome.end_log_prob
        before = sum(terms.values())
        terms["length"] = before / length_penalty(self.kind, outcome.length, self.alpha) - before
        if self.coverage:
            assert outcome.coverage is not None, "a score with coverage needs the attention of its outcomes"
            terms["coverage"] = self.coverage * coverage_penalty(outcome.coverage, floor=self.coverage_floor)
        if self.reward:
            terms["reward"] = self.reward * outcome.length
        return terms

    def bound(self, log_prob: float, length: int, *, limit: int) -> float:
        """Further symbols only lower log P, coverage and end never add, lp and reward run in one direction each.

        So the best of both ends of the range, taken for each by itself, is never less than the truth.
        """
        ends = (length, limit)
        best = max(log_prob / length_penalty(self.kind, end, self.alpha) for end in ends)
        return best + max(self.reward * end for end in ends)


def score_of(terms: Mapping[str, float]) -> float:
    """The sum of the terms, added in their order."""
    return sum(terms.values())
