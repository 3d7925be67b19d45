"""When a sentence is over, by the rules of each peer.

top_finished   the best candidate of this step is finished, and there are as many as were requested
nbest_on_top   the n best of all finished and all live hypotheses, each by the score it has now, are finished
every_place    each place of the beam has held an end at some step
count          one beam of hypotheses is finished
count_or_top   `patience` beams are finished; with α = 0, the best candidate of some step was finished and there are
               as many as were requested
no_better      the pool is full, and the best live hypothesis, divided by the length penalty of its length now, is no
               better than the worst in the pool (`early_stopping` True: the pool is full; "never" with α > 0: the
               length penalty of the maximum length)
none_live      no hypothesis is left
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, assert_never

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import PAD, UNKNOWN
from seqloom.search.hypothesis import BackPointer
from seqloom.search.scores import EndNormalisation, ScoreInputs
from seqloom.search.settings import PeerMode

# How other systems search: what their beam searches do differently, as values of one dataclass.
#
# All of them rank candidates by log P and finished hypotheses by
#
#     score = (log P(Y∣X) − w · n) / ((b + n) / (b + 1))^α
#
# but n counts the begin symbol or not, b and w differ, and so do the steps around it: how many candidates a step looks
# at, what becomes of the place of a hypothesis that has ended, which finished hypotheses are remembered, when a
# sentence stops, and what happens at its maximum length. Each field of `PeerRules` is one of these differences;
# `rules_of` has one value for each peer. docs/search/peer-modes.md says which version of each was read, and how the
# rules were checked.

PlaceRule = Literal["refilled", "lost", "kept", "ghost"]
PoolRule = Literal["all", "first", "best"]
StopRule = Literal["top_finished", "nbest_on_top", "every_place", "count", "count_or_top", "no_better", "none_live"]
LimitRule = Literal["cut", "cut_shorter", "end"]


@dataclass(frozen=True)
class PeerRules:
    """What one peer does; the words are those of docs/search/peer-modes.md."""

    candidates: int
    """How many candidates a step looks at, in beams. An end counts only among the first beam of them."""

    place: PlaceRule
    """What becomes of the place of an ended hypothesis: `refilled` by another candidate (of the same step, if it looks
    at more than one beam of them, else of the next), `lost`, `kept` by the hypothesis itself, which then competes by
    its score with the log P of the others, or `ghost`: the row continues after its end and takes places from the
    others."""

    pool: PoolRule
    """Which finished hypotheses are remembered: `all`, the `first` beam of them, or the `best` beam of them."""

    stop: StopRule
    """When a sentence is over: see `seqloom.search.peers.rules`."""

    at_limit: LimitRule
    """At the maximum length a hypothesis is `cut` and joins the finished ones, is `cut_shorter`, by its last symbol,
    whose log P stays in the score, or has to `end`."""

    length_penalty: float
    """α, where the caller gives none."""

    counts_begin: bool = False
    """Whether n counts the begin symbol. It counts the end of all that have one."""

    offset: float = 0.0
    """b: 0 makes the penalty n^α, 5 that of Wu et al. (2016)."""

    word_penalty: float = 0.0
    """w."""

    min_length: int = 0
    """Symbols before an end is allowed, where the caller gives no number."""

    never: frozenset[int] = frozenset()
    """Symbols that are never chosen, where the caller names none."""

    drops_empty: bool = False
    """Whether an end that is picked as the first symbol is thrown away, its place with it."""

    renormalises: bool = False
    """Whether the probabilities of a step sum to one again after symbols were forbidden."""

    free_end: bool = False
    """Whether a hypothesis ends at the maximum length at no cost, log P(end) = 0."""

    early_stopping: bool | Literal["never"] = False
    """For `no_better`: stop as soon as the pool is full, or compare by the best length that there could be."""

    patience: float = 1.0
    """For `count_or_top`: beams of finished hypotheses that are waited for."""


@dataclass(frozen=True)
class PeerOptions:
    """Options that only one peer has; each is refused by the other modes unless it is left alone."""

    early_stopping: bool | Literal["never"] = False
    """huggingface: `early_stopping`."""

    forced_end: bool = False
    """huggingface: whether `forced_eos_token_id` is set, as it is for most Marian models."""

    patience: float = 1.0
    """ctranslate2: `patience`."""

    opennmt_length: Literal["avg", "wu"] = "avg"
    """opennmt-py: `-length_penalty`."""

    sockeye_beta: float = 0.0
    """sockeye: `--length-penalty-beta`."""

    word_penalty: float = 0.0
    """marian: `--word-penalty`."""


OPTIONS_OF: Mapping[str, PeerMode] = {
    "early_stopping": "huggingface",
    "forced_end": "huggingface",
    "patience": "ctranslate2",
    "opennmt_length": "opennmt-py",
    "sockeye_beta": "sockeye",
    "word_penalty": "marian",
}


def rules_of(mode: PeerMode, options: PeerOptions = PeerOptions()) -> PeerRules:  # noqa: B008 (a frozen value)
    """The rules of a peer under these options."""
    check_options(mode, options)
    match mode:
        case "opennmt-lua":
            return OPENNMT_LUA
        case "opennmt-py":
            return replace(OPENNMT_PY, offset=0.0 if options.opennmt_length == "avg" else 5.0)
        case "joeynmt":
            return JOEYNMT
        case "sockeye":
            return replace(SOCKEYE, offset=options.sockeye_beta)
        case "fairseq":
            return FAIRSEQ
        case "marian":
            return replace(MARIAN, word_penalty=options.word_penalty)
        case "huggingface":
            return replace(HUGGINGFACE, early_stopping=options.early_stopping, free_end=options.forced_end)
        case "ctranslate2":
            return replace(CTRANSLATE2, patience=options.patience)
        case _:
            assert_never(mode)


def check_options(mode: PeerMode, options: PeerOptions) -> None:
    """Refuse what this peer does not know, and numbers that mean nothing."""
    for name, owner in OPTIONS_OF.items():
        value = getattr(options, name)
        if value != getattr(PeerOptions(), name) and owner != mode:
            raise ConfigError(
                f"{name}={value!r} is an option of mode {owner!r}, which {mode!r} does not have; leave it out"
            )
    if not options.patience > 0:
        raise ConfigError(f"patience {options.patience} is out of range; give more than 0")
    if not options.sockeye_beta >= 0:
        raise ConfigError(f"sockeye_beta {options.sockeye_beta} is out of range; give 0 or more")


OPENNMT_LUA = PeerRules(
    candidates=1,
    place="refilled",
    pool="all",
    stop="nbest_on_top",
    at_limit="cut_shorter",
    length_penalty=0.0,
    counts_begin=True,
    offset=5.0,
    drops_empty=True,
)
OPENNMT_PY = PeerRules(
    candidates=1,
    place="refilled",
    pool="all",
    stop="top_finished",
    at_limit="cut",
    length_penalty=1.0,
    counts_begin=True,
)
JOEYNMT = PeerRules(
    candidates=1,
    place="ghost",
    pool="all",
    stop="every_place",
    at_limit="cut",
    length_penalty=0.0,
    offset=5.0,
    min_length=1,
)
SOCKEYE = PeerRules(
    candidates=1,
    place="kept",
    pool="all",
    stop="none_live",
    at_limit="end",
    length_penalty=1.0,
)
FAIRSEQ = PeerRules(
    candidates=2,
    place="refilled",
    pool="first",
    stop="count",
    at_limit="end",
    length_penalty=1.0,
    min_length=1,
    never=frozenset({PAD}),
)
MARIAN = PeerRules(
    candidates=1,
    place="lost",
    pool="all",
    stop="none_live",
    at_limit="cut",
    length_penalty=0.0,
    never=frozenset({UNKNOWN}),
)
HUGGINGFACE = PeerRules(
    candidates=2,
    place="refilled",
    pool="best",
    stop="no_better",
    at_limit="cut",
    length_penalty=1.0,
)
CTRANSLATE2 = PeerRules(
    candidates=2,
    place="refilled",
    pool="all",
    stop="count_or_top",
    at_limit="cut",
    length_penalty=1.0,
    min_length=1,
    renormalises=True,
)


@dataclass(frozen=True)
class PeerScore:
    """The score above, by parts: log P itself, what words cost, and what dividing by the length penalty adds."""

    alpha: float
    counts_begin: bool = False
    offset: float = 0.0
    word_penalty: float = 0.0
    needs_attention: bool = field(default=False, init=False)
    end: EndNormalisation | None = field(default=None, init=False)

    def terms(self, outcome: ScoreInputs) -> Mapping[str, float]:
        terms = {"log_prob": outcome.log_prob}
        if self.word_penalty:
            terms["words"] = -self.word_penalty * self.count(outcome.length)
        before = sum(terms.values())
        terms["length"] = self.divided(before, outcome.length) - before
        return terms

    def bound(self, log_prob: float, length: int, *, limit: int) -> float:
        """The better of ending at once and at the limit: further symbols only lower log P, the rest runs one each."""
        ends = (length, limit)
        best = max(self.divided(log_prob, end) for end in ends)
        return best + max(self.divided(-self.word_penalty * self.count(end), end) for end in ends)

    def divided(self, value: float, length: int) -> float:
        """value / ((b + n) / (b + 1))^α for a hypothesis of so many symbols, its end (if it has one) among them."""
        return value / float(((self.offset + self.count(length)) / (self.offset + 1)) ** self.alpha)

    def count(self, length: int) -> int:
        """n"""
        return length + 1 if self.counts_begin else length


class Ended(NamedTuple):
    """A hypothesis that is finished or was cut, with its score."""

    score: float
    pointer: BackPointer


class PeerHypothesis(NamedTuple):
    """A hypothesis after a step. `is_over` if it ends here or is cut; one that continued after its end is a ghost."""

    pointer: BackPointer
    is_over: bool = False
    is_ghost: bool = False


@dataclass(frozen=True)
class PeerStep:
    """A sentence after a step: what the stop rules look at.

    `picked` are the places of the beam in their order, `before` what was finished by earlier steps, `finished` all that
    is finished by now, `live` what could continue, best first. `seen` says of each place whether some step put an end
    there, `has_topped` whether some step put a finished hypothesis first.
    """

    picked: Sequence[PeerHypothesis]
    before: Sequence[Ended]
    finished: Sequence[Ended]
    live: Sequence[PeerHypothesis]
    seen: Sequence[bool]
    has_topped: bool
    beam: int
    nbest: int
    limit: int


def is_over(rules: PeerRules, score: PeerScore, step: PeerStep) -> bool:
    """Whether the sentence stops after this step. One without live hypotheses always does."""
    if not step.live:
        return True
    has_enough = len(step.finished) >= step.nbest
    match rules.stop:
        case "top_finished":
            return has_enough and step.picked[0].is_over
        case "nbest_on_top":
            return _nbest_on_top(score, step)
        case "every_place":
            return all(step.seen)
        case "count":
            return len(step.finished) >= step.beam
        case "count_or_top":
            if score.alpha == 0:
                return has_enough and step.has_topped
            return len(step.finished) >= patience_count(rules, step.beam)
        case "no_better":
            return _no_better(rules, score, step)
        case "none_live":
            return False
        case _:
            assert_never(rules.stop)


def patience_count(rules: PeerRules, beam: int) -> int:
    """How many finished hypotheses `patience` waits for, halves rounded up."""
    return math.floor(beam * rules.patience + 0.5)


def _nbest_on_top(score: PeerScore, step: PeerStep) -> bool:
    """Of equal ones, those of this step come first, in the order of their places."""
    now = [(-score.divided(each.pointer.log_prob, each.pointer.length), False, each.is_over) for each in step.picked]
    then = [(-ended.score, True, True) for ended in step.before]
    ranked = sorted([*now, *then], key=lambda entry: entry[:2])[: step.nbest]
    return len(ranked) == step.nbest and all(is_over for _, _, is_over in ranked)


def _no_better(rules: PeerRules, score: PeerScore, step: PeerStep) -> bool:
    if len(step.finished) < step.beam:
        return False
    if rules.early_stopping is True:
        return True
    best = step.live[0].pointer
    is_hopeful = rules.early_stopping == "never" and score.alpha > 0
    possible = score.divided(best.log_prob, step.limit if is_hopeful else best.length)
    return possible <= min(ended.score for ended in step.finished)
