"""The settings of a search: part of a run's config, and what each search function takes."""

from typing import Annotated

from pydantic import AfterValidator, field_validator, model_validator

from seqloom.core.config import Config
from seqloom.core.stepping import Source
from seqloom.search.scores import LengthNormalisation, LengthNormalised, Score


def _at_most(most: int) -> AfterValidator:
    """A bound that no search needs to pass; beyond it, memory or the range of numbers gives out before a result."""

    def check(value: float | int) -> float | int:
        if value > most:
            raise ValueError(f"{value} is too large; give at most {most:,}")
        return value

    return AfterValidator(check)


class SearchConfig(Config):
    """How a model is searched for its best outputs."""

    beam: Annotated[int, _at_most(1_000)] = 4
    """Hypotheses kept at each step, per sentence. 1 is greedy search."""

    nbest: int = 1
    """Hypotheses returned per sentence, at most `beam`."""

    length_normalisation: LengthNormalisation = "gnmt"
    """What log P is divided by: `none` 1, `mean` |Y|, `gnmt` ((5 + |Y|) / 6)^alpha. |Y| counts the end symbol."""

    alpha: Annotated[float, _at_most(10)] = 0.6
    """Strength of the `gnmt` normalisation: 0 has no effect, larger values favour longer outputs."""

    length_factor: Annotated[float, _at_most(100)] = 2.0
    """Maximum output length = length_factor · source length + length_constant, both lengths with their end symbol."""

    length_constant: Annotated[int, _at_most(10_000)] = 10
    """Symbols that the maximum output length has beyond its share of the source length."""

    tokens_per_batch: Annotated[int, _at_most(10_000_000)] = 4096
    """Source tokens decoded together: sentences × longest sentence, each sentence counted once however wide the beam.
    It changes speed and memory, not results."""

    @field_validator("beam", "nbest", "tokens_per_batch")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is too small; give 1 or more")
        return value

    @field_validator("alpha", "length_factor", "length_constant")
    @classmethod
    def _not_negative(cls, value: float | int) -> float | int:
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value} is out of range; give 0 or more")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        if self.nbest > self.beam:
            raise ValueError(
                f"nbest {self.nbest} asks for more hypotheses than beam {self.beam} keeps; "
                f"give beam={self.nbest} or nbest={self.beam}"
            )
        if self.length_factor == 0 and self.length_constant == 0:
            raise ValueError(
                "length_factor 0 and length_constant 0 leave no room for any output; make one of them larger"
            )
        return self

    def score(self) -> Score:
        """How hypotheses are ranked under these settings."""
        return LengthNormalised(self.length_normalisation, self.alpha)

    def limits(self, source: Source) -> list[int]:
        """The maximum |Y| of each sentence, which counts end; a sentence's own affair, whatever stands beside it."""
        return [max(1, int(self.length_factor * length) + self.length_constant) for length in source.lengths.tolist()]
