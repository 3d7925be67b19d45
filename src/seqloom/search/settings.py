"""The settings of a search: part of a run's config, and what each search function takes."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, field_validator, model_validator

from seqloom.core.config import Config
from seqloom.core.stepping import Source
from seqloom.search.peer_rules import PeerMode
from seqloom.search.scores import CombinedScore, EndKind, EndNormalisation, LengthNormalisation, Score

Stop = Literal["exact", "k_finished", "first"]
Method = Literal["beam", "sample"]
Rerank = Literal["none", "agreement"]
Precision = Literal["float32", "int8"]
Split = Literal["long", "sentences"]
Unknown = Literal["keep", "copy"]


def _at_most(most: int) -> AfterValidator:
    """A bound that no search needs to pass; beyond it, memory or the range of numbers gives out before a result."""

    def check(value: float | int) -> float | int:
        if value > most:
            raise ValueError(f"{value} is too large; give at most {most:,}")
        return value

    return AfterValidator(check)


_AT_LEAST_ZERO = (
    "shortest_factor",
    "shortest_constant",
    "no_repeat",
    "diversity",
    "temperature",
    "top_k",
    "min_p",
    "shortlist",
)


class SearchConfig(Config):
    """How a model is searched for its best outputs."""

    beam: Annotated[int, _at_most(1_000)] = 4
    """Hypotheses kept at each step, per sentence. 1 is greedy search."""

    nbest: int = 1
    """Hypotheses returned per sentence, at most `beam`."""

    stop: Stop = "exact"
    """When a sentence is decided: `exact` (no live hypothesis can still win), `k_finished` (`beam` have ended) or
    `first` (`nbest` have ended)."""

    length_normalisation: LengthNormalisation = "gnmt"
    """What log P is divided by: `none` 1, `mean` |Y|, `power` |Y|^alpha, `gnmt` ((5 + |Y|) / 6)^alpha. |Y| counts the
    end symbol."""

    alpha: Annotated[float, _at_most(10)] = 0.6
    """Strength of the `gnmt` and `power` normalisations: 0 has no effect, larger values favour longer outputs."""

    reward: Annotated[float, _at_most(100)] = 0.0
    """Added to the score for each symbol of the output, end included; above 0 favours longer outputs."""

    coverage: Annotated[float, _at_most(100)] = 0.0
    """Weight β of the coverage term β Σ_i log min(1, Σ_j attention_ji), which punishes outputs that leave source words
    unread. 0 leaves it out; above 0 needs a model with attention."""

    coverage_floor: float = 1e-4
    """What a source position that nobody looked at counts as having got, so that its logarithm is finite."""

    end_normalisation: Annotated[float, _at_most(100)] = 0.0
    """γ of ep = γ |X| / |Y|, which makes it dearer to end an output that is short for its source. 0 leaves it out."""

    end_kind: EndKind = "multiply"
    """How ep acts on log P(end): `multiply` (the original system) or `add` (it is taken from it)."""

    shortest_factor: Annotated[float, _at_most(100)] = 0.0
    """Minimum output length = shortest_factor · source length + shortest_constant, counted like the maximum."""

    shortest_constant: Annotated[int, _at_most(10_000)] = 0
    """Symbols that the minimum output length has beyond its share of the source length."""

    no_repeat: Annotated[int, _at_most(1_000)] = 0
    """No run of so many symbols may come twice in an output; 0 allows every repetition."""

    groups: Annotated[int, _at_most(1_000)] = 1
    """Groups of a diverse beam search, among which `beam` is dealt out; 1 is plain beam search."""

    diversity: Annotated[float, _at_most(100)] = 0.5
    """What a symbol costs a group for each time that a group before it has just taken it."""

    mode: Literal["seqloom", PeerMode] = "seqloom"
    """Whose rules of beam search: our own, or those of another system, for the output that it would give."""

    peer_length_penalty: float | None = None
    """The length penalty of another system's mode, in that system's own meaning; left open, its own default."""

    rerank: Rerank = "none"
    """`agreement` returns the one of the `nbest` outputs that the others resemble most (minimum Bayes risk by chrF),
    then the next."""

    method: Method = "beam"
    """`beam` looks for the best output; `sample` draws `nbest` outputs at random, in the order of drawing."""

    temperature: Annotated[float, _at_most(100)] = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it; 0 is greedy search."""

    top_k: int = 0
    """Sampling: only the so many most probable symbols of a step; 0 keeps all."""

    top_p: float = 1.0
    """Sampling: only the fewest symbols that have this probability together; 1 keeps all."""

    min_p: float = 0.0
    """Sampling: only symbols that have this share of the highest probability; 0 keeps all."""

    seed: int = 1
    """Sampling: another seed gives other outputs, the same one the same."""

    length_factor: Annotated[float, _at_most(100)] = 2.0
    """Maximum output length = length_factor · source length + length_constant, both lengths with their end symbol."""

    length_constant: Annotated[int, _at_most(10_000)] = 10
    """Symbols that the maximum output length has beyond its share of the source length."""

    heads: str = "mean"
    """Which look of a Transformer counts as its attention, in the coverage term and in alignments: `mean` or `max` over
    the heads of its last layer, or LAYER/HEAD counted from 0, such as 2/0; also 1/mean and 1/max."""

    unknown: Unknown = "keep"
    """What becomes of an output word that the vocabulary lacks: `keep` writes ⁇, `copy` takes the translation that a
    dictionary gives of the source word looked at most, or else that word itself."""

    split: Split = "long"
    """Which lines are cut at the ends of their sentences, translated in parts and joined: `long` those that are longer
    than the model takes, `sentences` all."""

    shortlist: Annotated[int, _at_most(100_000)] = 0
    """How many translations of each source symbol are scored, besides the most frequent symbols; 0 scores everything.
    It is faster, and needs a model with a lexicon (`seqloom shortlist`)."""

    precision: Precision = "float32"
    """`int8` multiplies large matrices in eight bits, on a processor: faster for wide models, scores are rounded."""

    tokens_per_batch: Annotated[int, _at_most(10_000_000)] = 4096
    """Source tokens decoded together: sentences × longest sentence, each sentence counted once however wide the beam.
    It changes speed and memory, not results."""

    @field_validator("beam", "nbest", "tokens_per_batch", "groups")
    @classmethod
    def _at_least_one(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is too small; give 1 or more")
        return value

    @field_validator("heads")
    @classmethod
    def _names_heads(cls, value: str) -> str:
        if not re.fullmatch(r"mean|max|[0-9]+/(mean|max|[0-9]+)", value):
            raise ValueError(f"{value!r} is no choice of heads; give mean, max, or LAYER/HEAD such as 2/0")
        return value

    @field_validator("coverage_floor", "top_p")
    @classmethod
    def _a_share(cls, value: float) -> float:
        if not 0 < value <= 1:
            raise ValueError(f"{value} is out of range; give more than 0 and at most 1")
        return value

    @field_validator("reward")
    @classmethod
    def _not_too_low(cls, value: float) -> float:
        if not value >= -100:
            raise ValueError(f"{value} is out of range; give -100 or more")
        return value

    @field_validator("alpha", "length_factor", "length_constant", "coverage", "end_normalisation", *_AT_LEAST_ZERO)
    @classmethod
    def _not_negative(cls, value: float | int) -> float | int:
        if not 0 <= value < float("inf"):
            raise ValueError(f"{value} is out of range; give 0 or more")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        if self.nbest > self.beam and self.method == "beam":
            raise ValueError(
                f"nbest {self.nbest} asks for more hypotheses than beam {self.beam} keeps; "
                f"give beam={self.nbest} or nbest={self.beam}"
            )
        if self.mode != "seqloom" and (self.method == "sample" or self.groups > 1):
            raise ValueError(
                f"mode {self.mode} is a beam search; leave method and groups as they are, or set mode=seqloom"
            )
        if self.min_p > 1:
            raise ValueError(f"min_p {self.min_p} is out of range; give 0, which keeps all symbols, up to 1")
        if self.beam % self.groups:
            raise ValueError(f"beam {self.beam} cannot be dealt out to {self.groups} groups alike; change one of them")
        if self.length_factor == 0 and self.length_constant == 0:
            raise ValueError(
                "length_factor 0 and length_constant 0 leave no room for any output; make one of them larger"
            )
        return self

    def score(self) -> Score:
        """How hypotheses are ranked under these settings."""
        gamma = self.end_normalisation
        return CombinedScore(
            kind=self.length_normalisation,
            alpha=self.alpha,
            reward=self.reward,
            coverage=self.coverage,
            coverage_floor=self.coverage_floor,
            end=EndNormalisation(gamma, self.end_kind) if gamma else None,
        )

    def least(self, source_length: int) -> int:
        """The minimum |Y| of a sentence, which counts end, as does its length."""
        return int(self.shortest_factor * source_length) + self.shortest_constant

    def limits(self, source: Source) -> list[int]:
        """The maximum |Y| of each sentence, which counts end; a sentence's own affair, whatever stands beside it."""
        return [max(1, int(self.length_factor * length) + self.length_constant) for length in source.lengths.tolist()]
