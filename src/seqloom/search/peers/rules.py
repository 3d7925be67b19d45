"""How other systems search: what their beam searches do differently, as values of one dataclass.

All of them rank candidates by log P and finished hypotheses by

    score = (log P(Y∣X) − w · n) / ((b + n) / (b + 1))^α

but n counts the begin symbol or not, b and w differ, and so do the steps around it: how many candidates a step
considers, what becomes of the place of a hypothesis that has ended, which finished hypotheses are remembered, when a
sentence stops, and what happens at its maximum length. Each field of `PeerRules` is one of these differences.
docs/search/peer-modes.md says which version of each system was read, and how the rules were checked.

When a sentence is over (`PeerRules.stop`):

    top_finished   the best candidate of this step is finished, and there are as many as were requested
    nbest_on_top   the n best of all finished and all live hypotheses, each by the score it has now, are finished
    every_place    each place of the beam has held an end at some step
    count          one beam of hypotheses is finished
    count_or_top   `patience` beams are finished; with α = 0, the best candidate of some step was finished and there
                   are as many as were requested
    no_better      the pool is full, and the best live hypothesis, divided by the length penalty of its length now, is
                   no better than the worst in the pool (`early_stopping` True: the pool is full; "never" with α > 0:
                   the length penalty of the maximum length)
    none_live      no hypothesis is left
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from seqloom.core.symbols import PAD, UNKNOWN
from seqloom.search.scores import EndNormalisation, ScoreInputs
from seqloom.search.settings import PeerMode, SearchConfig

PlaceRule = Literal["refilled", "lost", "kept", "ghost"]
PoolRule = Literal["all", "first", "best"]
StopRule = Literal["top_finished", "nbest_on_top", "every_place", "count", "count_or_top", "no_better", "none_live"]
LimitRule = Literal["cut", "cut_shorter", "end"]


@dataclass(frozen=True)
class PeerRules:
    """What one peer does; the words are those of docs/search/peer-modes.md."""

    place: PlaceRule
    """What becomes of the place of an ended hypothesis: `refilled` by another candidate (of the same step, if it
    considers more than one beam of them, else of the next), `lost`, `kept` by the hypothesis itself, which then
    competes by its score with the log P of the others, or `ghost`: the row continues after its end and takes places
    from the others."""

    stop: StopRule
    """When a sentence is over, as listed above."""

    candidates: int = 1
    """How many candidates a step considers, in beams. An end counts only among the first beam of them."""

    pool: PoolRule = "all"
    """Which finished hypotheses are remembered: `all`, the `first` beam of them, or the `best` beam of them."""

    at_limit: LimitRule = "cut"
    """At the maximum length a hypothesis is `cut` and joins the finished ones, is `cut_shorter`, by its last symbol,
    whose log P stays in the score, or has to `end`."""

    length_penalty: float = 1.0
    """α."""

    counts_begin: bool = False
    """Whether n counts the begin symbol. It counts the end of all that have one."""

    offset: float = 0.0
    """b: 0 makes the penalty n^α, 5 that of Wu et al. (2016). opennmt-py: `-length_penalty wu` is 5; sockeye:
    `--length-penalty-beta`."""

    word_penalty: float = 0.0
    """w. marian: `--word-penalty`."""

    min_length: int = 0
    """Symbols before an end is allowed."""

    never: frozenset[int] = frozenset()
    """Symbols that are never chosen."""

    no_repeat: int = 0
    """No run of so many symbols comes twice; 0 allows every repetition."""

    repetition_penalty: float = 1.0
    """What log P of a symbol is multiplied by if the hypothesis already has it."""

    drops_empty: bool = False
    """Whether an end that is picked as the first symbol is thrown away, its place with it."""

    renormalises: bool = False
    """Whether the probabilities of a step sum to one again after symbols were forbidden."""

    free_end: bool = False
    """Whether a hypothesis ends at the maximum length at no cost, log P(end) = 0. huggingface: `forced_eos_token_id` is
    set, as it is for most Marian models."""

    early_stopping: bool | Literal["never"] = False
    """For `no_better`: stop as soon as the pool is full, or compare by the best length that there could be."""

    patience: float = 1.0
    """For `count_or_top`: beams of finished hypotheses that are waited for."""


RULES: Mapping[PeerMode, PeerRules] = {
    "opennmt-lua": PeerRules(
        place="refilled",
        stop="nbest_on_top",
        at_limit="cut_shorter",
        length_penalty=0.0,
        counts_begin=True,
        offset=5.0,
        drops_empty=True,
    ),
    "opennmt-py": PeerRules(place="refilled", stop="top_finished", counts_begin=True),
    "joeynmt": PeerRules(place="ghost", stop="every_place", length_penalty=0.0, offset=5.0, min_length=1),
    "sockeye": PeerRules(place="kept", stop="none_live", at_limit="end"),
    "fairseq": PeerRules(
        candidates=2, place="refilled", pool="first", stop="count", at_limit="end", min_length=1, never=frozenset({PAD})
    ),
    "marian": PeerRules(place="lost", stop="none_live", length_penalty=0.0, never=frozenset({UNKNOWN})),
    "huggingface": PeerRules(candidates=2, place="refilled", pool="best", stop="no_better"),
    "ctranslate2": PeerRules(candidates=2, place="refilled", stop="count_or_top", min_length=1, renormalises=True),
}
"""The defaults of each peer; options of a peer are fields to `replace`."""


def rules_of(mode: PeerMode, length_penalty: float | None = None) -> PeerRules:
    """The rules of a peer, with this α if one is given."""
    if length_penalty is None:
        return RULES[mode]
    # In joeynmt a negative α means none, as 0 does.
    return replace(RULES[mode], length_penalty=max(0.0, length_penalty) if mode == "joeynmt" else length_penalty)


def rules_for(mode: PeerMode, settings: SearchConfig) -> PeerRules:
    """The rules of a peer with the options that the settings give it."""
    rules = rules_of(mode, settings.peer_length_penalty)
    rules = replace(
        rules,
        never=rules.never | frozenset(settings.never),
        no_repeat=settings.no_repeat,
        repetition_penalty=settings.repetition_penalty,
    )
    if mode != "huggingface":
        return rules
    return replace(
        rules,
        early_stopping=settings.peer_early_stopping,
        free_end=settings.peer_forced_end,
        renormalises=settings.peer_renormalise,
        counts_begin=settings.peer_counts_begin,
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
