"""The settings of a search: part of a run's config, and what each search function takes."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import GetCoreSchemaHandler, field_validator, model_validator
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from seqloom.core.config import Config
from seqloom.core.stepping import Source
from seqloom.search.scores import CombinedScore, EndKind, EndNormalisation, LengthNormalisation, SearchScore

HUGGINGFACE_OPTIONS = ("peer_early_stopping", "peer_forced_end", "peer_renormalise", "peer_counts_begin")
"""Settings of one mode."""

FOLLOWED_BY_FITTED = ("beam", "nbest", "rerank", "split", "unknown", "tokens_per_batch")
"""Settings that translators with a search of their own follow."""

PeerMode = Literal["opennmt-lua", "opennmt-py", "joeynmt", "sockeye", "fairseq", "marian", "huggingface", "ctranslate2"]
Stop = Literal["exact", "k_finished", "first"]
Method = Literal["beam", "sample"]
Rerank = Literal["none", "agreement"]
Precision = Literal["float32", "int8"]
Split = Literal["long", "sentences"]
Unknown = Literal["keep", "copy"]

DEFAULT_OVERRUN = 2.0
"""How far a search may continue past a maximum length that was not set by the user, as a multiple of it."""

COVERED_SHARE = 0.998
"""Share of the training pairs whose targets fit into the maximum output length. The rest is mostly misaligned pairs."""

MAX_MEASURED_PAIRS = 1_000_000
"""Training pairs from which the ratio of lengths is measured; of a larger corpus, evenly spaced ones."""


@dataclass(frozen=True)
class _Range:
    """The bounds of a number. Above `le` memory or the range of numbers would give out before a result."""

    ge: float | int | None = None
    le: int | None = None
    gt: float | int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def check(self, value: float | int) -> float | int:
        """The number, if it is within the bounds."""
        if self.le is not None and value > self.le:
            raise ValueError(f"{value} is too large; give at most {self.le:,}")
        if self.ge is not None and not self.ge <= value < math.inf:  # nor NaN
            wrong = "too small" if self.ge == 1 else "out of range"
            raise ValueError(f"{value} is {wrong}; give {self.ge:g} or more")
        if self.gt is not None and not value > self.gt:
            raise ValueError(f"{value} is out of range; give more than {self.gt:g} and at most {self.le}")
        return value


class SearchConfig(Config):
    """How a model is searched for its best outputs."""

    beam: Annotated[int, _Range(1, 1_000)] = 4
    """Hypotheses kept at each step, per sentence. 1 is greedy search."""

    nbest: Annotated[int, _Range(1, 100_000)] = 1
    """Hypotheses returned per sentence: at most `beam` of a beam search, samples as many as you like."""

    stop: Stop = "exact"
    """When a sentence is decided: `exact` (no live hypothesis can still win), `k_finished` (`beam` have ended) or
    `first` (`nbest` have ended)."""

    length_normalisation: LengthNormalisation = "gnmt"
    """What log P is divided by: `none` 1, `mean` |Y|, `power` |Y|^alpha, `gnmt` ((5 + |Y|) / 6)^alpha. |Y| counts the
    end symbol."""

    alpha: Annotated[float, _Range(0, 10)] = 0.6
    """Strength of the `gnmt` and `power` normalisations: 0 has no effect, larger values favour longer outputs."""

    reward: Annotated[float, _Range(-100, 100)] = 0.0
    """Added to the score for each symbol of the output, end included; above 0 favours longer outputs."""

    coverage: Annotated[float, _Range(0, 100)] = 0.0
    """Weight β of the coverage term β Σ_i log min(1, Σ_j attention_ji), which punishes outputs that leave source words
    unread. 0 leaves it out; above 0 needs a model with attention and `mode: seqloom`."""

    coverage_floor: Annotated[float, _Range(le=1, gt=0)] = 1e-4
    """The least attention that a source position counts as having got, so that its logarithm is finite."""

    end_normalisation: Annotated[float, _Range(0, 100)] = 0.0
    """γ of ep = γ |X| / |Y|, which penalises ending an output that is short for its source. 0 leaves it out."""

    end_kind: EndKind = "multiply"
    """How ep acts on log P(end): `multiply` (the original system) or `add` (it is taken from it)."""

    shortest_factor: Annotated[float, _Range(0, 100)] = 0.0
    """Minimum output length = shortest_factor · source length + shortest_constant, counted like the maximum."""

    shortest_constant: Annotated[int, _Range(0, 10_000)] = 0
    """Symbols that the minimum output length has beyond its share of the source length."""

    no_repeat: Annotated[int, _Range(0, 1_000)] = 0
    """No run of so many symbols may come twice in an output; 0 allows every repetition."""

    brackets: bool = False
    """Whether the output is a well-formed parse, with brackets around the words of the source in their order. Needs a
    joint vocabulary of whole words (text.kind=word text.segmentation=spaces) in which `(` and `)` are words."""

    repetition_penalty: Annotated[float, _Range(le=100, gt=0)] = 1.0
    """Above 1, log P of symbols that an output already has is multiplied by it when they are compared with others, so
    that they come again less often. In the mode of another system it changes the score too."""

    never: tuple[Annotated[int, _Range(0)], ...] = ()
    """Symbols that are never written, by their ids."""

    groups: Annotated[int, _Range(1, 1_000)] = 1
    """Groups of a diverse beam search, which share `beam` equally; 1 is plain beam search."""

    diversity: Annotated[float, _Range(0, 100)] = 0.5
    """What a symbol costs a group for each time that an earlier group took it at the same step."""

    mode: Literal["seqloom", PeerMode] = "seqloom"
    """Whose rules of beam search: our own, or those of another system, for the output that it would give."""

    peer_length_penalty: float | None = None
    """The length penalty of another system's mode, in that system's own meaning; left open, its own default."""

    peer_early_stopping: bool | Literal["never"] = False
    """Mode huggingface: true stops when a beam of hypotheses has ended, false when no live one is better by its length
    now, never when none can become better."""

    peer_forced_end: bool = False
    """Mode huggingface: outputs end at the maximum length, at no cost in their score."""

    peer_renormalise: bool = False
    """Mode huggingface: probabilities of a step sum to one again after symbols were forbidden."""

    peer_counts_begin: bool = False
    """Mode huggingface: lengths count one symbol more, as they do there if an output begins with its language."""

    rerank: Rerank = "none"
    """`agreement` returns the one of the `nbest` outputs that the others resemble most (minimum Bayes risk by chrF),
    then the next. Samples count as often as they were drawn, outputs of a beam by their probability."""

    method: Method = "beam"
    """`beam` looks for the best output; `sample` draws `nbest` outputs at random, in the order of drawing, with those
    that come more than once."""

    temperature: Annotated[float, _Range(0, 100)] = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it; 0 is greedy search."""

    top_k: Annotated[int, _Range(0)] = 0
    """Sampling: only the so many most probable symbols of a step; 0 keeps all."""

    top_p: Annotated[float, _Range(le=1, gt=0)] = 1.0
    """Sampling: only the fewest symbols that have this probability together; 1 keeps all."""

    min_p: Annotated[float, _Range(0, 1)] = 0.0
    """Sampling: only symbols that have this share of the highest probability; 0 keeps all."""

    seed: int = 1
    """Sampling: another seed gives other outputs, the same one the same."""

    length_factor: Annotated[float, _Range(0, 100)] | None = None
    """Maximum output length = length_factor · source length + length_constant, both lengths with their end symbol.
    Left open: taken from the length ratios of the training data, which are stored with the model."""

    length_constant: Annotated[int, _Range(0, 10_000)] | None = None
    """Symbols that the maximum output length has beyond its share of the source length. Left open: taken from the
    training data."""

    length_overrun: Annotated[float, _Range(1, 100)] | None = None
    """A search whose best hypothesis has not ended at the maximum length continues, up to this many times that length;
    1 cuts it there. Left open: 2 if the maximum comes from the training data, 1 if you set it."""

    heads: str = "mean"
    """Which look of a Transformer counts as its attention, in the coverage term and in alignments: `mean` or `max` over
    the heads of its last layer, or LAYER/HEAD counted from 0, such as 2/0; also 1/mean and 1/max."""

    unknown: Unknown = "keep"
    """What becomes of an output word that the vocabulary lacks: `keep` writes ⁇, `copy` takes the translation that a
    dictionary gives of the source word looked at most, or else that word itself."""

    split: Split = "long"
    """Which lines are cut at the ends of their sentences, translated in parts and joined: `long` those that are longer
    than the model takes, `sentences` all."""

    shortlist: Annotated[int, _Range(0, 100_000)] = 0
    """How many translations of each source symbol are scored, besides the most frequent symbols; 0 scores everything.
    It is faster, and needs a model with a lexicon (`seqloom shortlist`)."""

    precision: Precision = "float32"
    """`int8` multiplies large matrices in eight bits, on a processor: faster for wide models, scores are rounded."""

    tokens_per_batch: Annotated[int, _Range(1, 10_000_000)] = 4096
    """Source tokens decoded together: sentences × longest sentence, each sentence counted once however wide the beam.
    It changes speed and memory, not results."""

    @field_validator("heads")
    @classmethod
    def _names_heads(cls, value: str) -> str:
        if not re.fullmatch(r"mean|max|[0-9]+/(mean|max|[0-9]+)", value):
            raise ValueError(f"invalid choice of heads {value!r}; give mean, max, or LAYER/HEAD such as 2/0")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "SearchConfig":
        if self.nbest > self.beam and self.method != "sample":
            raise ValueError(
                f"nbest {self.nbest} is more hypotheses than beam {self.beam} keeps; "
                f"give search.beam={self.beam_for(self.nbest)} or search.nbest={self.beam}"
            )
        if self.mode != "seqloom" and (self.method != "beam" or self.groups > 1):
            raise ValueError(
                f"mode {self.mode} is a beam search; leave method and groups as they are, or add search.mode=seqloom"
            )
        foreign = [name for name in ("coverage", "end_normalisation", "reward") if getattr(self, name)]
        if self.mode != "seqloom" and foreign:
            raise ValueError(
                f"mode {self.mode} scores by the rules of that system, which have no {foreign[0]} here; set "
                f"search.{foreign[0]}=0, or mode=seqloom"
            )
        if self.beam % self.groups:
            raise ValueError(f"beam {self.beam} is not divisible by {self.groups} groups; {self._fitting()}")
        if self.length_factor == 0 and self.length_constant == 0:
            raise ValueError("length_factor 0 and length_constant 0 leave no room for any output; increase one of them")
        return self

    def beam_for(self, nbest: int) -> int:
        """The smallest beam that keeps so many hypotheses and is divisible by the groups."""
        return -(-nbest // self.groups) * self.groups

    def _fitting(self) -> str:
        """Beams that the groups divide, and numbers of groups that divide the beam."""
        below = self.beam // self.groups * self.groups
        beams = [beam for beam in (below, below + self.groups) if beam >= self.nbest and beam > 0]
        groups = [number for number in range(2, self.beam + 1) if self.beam % number == 0]
        words = f"give search.beam={' or '.join(map(str, beams))}"
        return f"{words}, or search.groups={' or '.join(map(str, groups))}" if groups else words

    def without_effect(self, name: str) -> str | None:
        """What a setting that is not at its default still needs to change anything; None where it does."""
        if getattr(self, name, None) == type(self).model_fields[name].default:
            return None
        if name in ("temperature", "top_k", "top_p", "min_p") and self.method != "sample":
            return "search.method=sample"
        if name == "length_overrun" and self.mode != "seqloom":
            return "search.mode=seqloom, since other systems cut at the maximum length"
        if name == "rerank" and self.nbest == 1:
            return "search.nbest (such as 8), from which it chooses"
        if name == "peer_length_penalty" and self.mode == "seqloom":
            return "search.mode with the name of another system"
        if name in HUGGINGFACE_OPTIONS and self.mode != "huggingface":
            return "search.mode=huggingface"
        if name in ("stop", "length_normalisation", "alpha") and self.mode != "seqloom":
            return (
                f"search.mode=seqloom (mode {self.mode} has its own rules; its length penalty is peer_length_penalty)"
            )
        if name == "coverage_floor" and not self.coverage:
            return "search.coverage (such as 0.2)"
        if name == "end_kind" and not self.end_normalisation:
            return "search.end_normalisation (such as 1)"
        return "search.groups (2 or more)" if name == "diversity" and self.groups == 1 else None

    def problem_of_fitted(self, kind: str) -> str | None:
        """What a translator of this kind, which has a search of its own, cannot follow; None if it can follow all."""
        for name, field in type(self).model_fields.items():
            if name not in FOLLOWED_BY_FITTED and (value := getattr(self, name)) != field.default:
                followed = ", ".join(f"search.{each}" for each in FOLLOWED_BY_FITTED[:-1])
                return (
                    f"search.{name}={value} is not supported by a model of kind {kind}, which has a search of its own; "
                    f"leave it out (it follows {followed})"
                )
        return None

    def unwatched(self) -> list[str]:
        """Settings that must change before the candidates of the search can be recorded."""
        wanted = {"method": "beam", "groups": 1, "mode": "seqloom"}
        return [f"search.{name}={value}" for name, value in wanted.items() if getattr(self, name) != value]

    def score(self) -> SearchScore:
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

    def with_own_rules(self) -> "SearchConfig":
        """The same by our own rules, which support constraints and traces, in place of those of mode huggingface.

        Finished hypotheses are compared by log P / |Y|^penalty in both.
        """
        penalty = 1.0 if self.peer_length_penalty is None else self.peer_length_penalty
        alpha = min(10.0, max(0.0, penalty))
        return self.model_copy(update={"mode": "seqloom", "length_normalisation": "power", "alpha": alpha})

    def with_output_limit(self, limit: "OutputLimit") -> "SearchConfig":
        """The same settings with the maximum output length filled in where it was left open."""
        factor, constant, overrun = self._maximum_length(limit)
        filled = {"length_factor": factor, "length_constant": constant, "length_overrun": overrun}
        return self.model_copy(update=filled)

    def limits(self, source: Source) -> list[int]:
        """The maximum |Y| of each sentence, end included. It depends on the sentence alone, not on its batch."""
        factor, constant, _ = self._maximum_length(OutputLimit())
        return [max(1, int(factor * length) + constant) for length in source.lengths.tolist()]

    def hard_limits(self, source: Source) -> list[int]:
        """The |Y| at which each sentence is cut even if its best hypothesis has not ended."""
        _, _, overrun = self._maximum_length(OutputLimit())
        return [int(overrun * limit) for limit in self.limits(source)]

    def _maximum_length(self, limit: "OutputLimit") -> tuple[float, int, float]:
        """Factor, constant and overrun, with `limit` for what was left open."""
        factor, constant, overrun = self.length_factor, self.length_constant, self.length_overrun
        default_overrun = DEFAULT_OVERRUN if factor is None and constant is None else 1.0
        return (
            limit.factor if factor is None else factor,
            limit.constant if constant is None else constant,
            default_overrun if overrun is None else overrun,
        )


@dataclass(frozen=True)
class OutputLimit:
    """The maximum output length that a model needs: factor · source length + constant, end symbols included.

    The default serves models that do not know the lengths of their training data.
    """

    factor: float = 2.0
    constant: int = 10

    @staticmethod
    def covering(source_lengths: np.ndarray, target_lengths: np.ndarray) -> "OutputLimit":
        """The limit under which COVERED_SHARE of these pairs can be written, and never less than the default.

        The factor comes from the longer half of the sources, where the ratio of lengths is stable; the constant covers
        what that leaves out, mostly short sources with long targets.
        """
        default = OutputLimit()
        if not len(source_lengths):
            return default
        every = -(-len(source_lengths) // MAX_MEASURED_PAIRS)
        source = np.maximum(1, np.asarray(source_lengths[::every], np.float64))
        target = np.asarray(target_lengths[::every], np.float64)
        is_long = source >= np.median(source)
        ratio = np.quantile(target[is_long] / source[is_long], COVERED_SHARE, method="higher")
        factor = min(100.0, max(default.factor, math.ceil(10 * ratio) / 10))
        rest = np.quantile(target - np.floor(factor * source), COVERED_SHARE, method="higher")
        return OutputLimit(factor, min(10_000, max(default.constant, int(rest))))
