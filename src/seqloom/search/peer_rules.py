"""How other systems search: what their beam searches do differently, as values of one dataclass.

All of them rank candidates by log P and finished hypotheses by

    score = (log P(Y∣X) − w · n) / ((b + n) / (b + 1))^α

but n counts the begin symbol or not, b and w differ, and so do the steps around it: how many candidates a step looks
at, what becomes of the place of a hypothesis that has ended, which finished hypotheses are remembered, when a sentence
stops, and what happens at its maximum length. Each field of `PeerRules` is one of these differences; `rules_of` has one
value for each peer. docs/search/peer-modes.md says which version of each was read, and how the rules were checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import PAD, UNKNOWN
from seqloom.search.scores import EndNormalisation, Outcome

PeerMode = Literal["opennmt-lua", "opennmt-py", "joeynmt", "sockeye", "fairseq", "marian", "huggingface", "ctranslate2"]

Place = Literal["refilled", "lost", "kept", "haunted"]
Pool = Literal["all", "first", "best"]
Stop = Literal["top_finished", "nbest_on_top", "every_place", "count", "count_or_top", "no_better", "none_live"]
AtLimit = Literal["cut", "cut_shorter", "end"]


@dataclass(frozen=True)
class PeerRules:
    """What one peer does; the words are those of docs/search/peer-modes.md."""

    candidates: int
    """How many candidates a step looks at, in beams. An end counts only among the first beam of them."""

    place: Place
    """What becomes of the place of an ended hypothesis: `refilled` by another candidate (of the same step, if it looks
    at more than one beam of them, else of the next), `lost`, `kept` by the hypothesis itself, which then competes by
    its score with the log P of the others, or `haunted`: the row goes on after its end and takes places from the
    living."""

    pool: Pool
    """Which finished hypotheses are remembered: `all`, the `first` beam of them, or the `best` beam of them."""

    stop: Stop
    """When a sentence is over: see `seqloom.search.peer_stops`."""

    at_limit: AtLimit
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
                f"{name}={value!r} is an option of mode {owner!r}, which {mode!r} does not know; leave it out"
            )
    if not options.patience > 0:
        raise ConfigError(f"patience {options.patience} waits for nothing; give more than 0")
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
    place="haunted",
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

    def terms(self, outcome: Outcome) -> Mapping[str, float]:
        terms = {"log_prob": outcome.log_prob}
        if self.word_penalty:
            terms["words"] = -self.word_penalty * self.count(outcome.length)
        before = sum(terms.values())
        terms["length"] = self.divided(before, outcome.length) - before
        return terms

    def bound(self, log_prob: float, length: int, *, limit: int) -> float:
        """The better of ending at once and at the limit: further symbols only lower log P, the rest runs one way."""
        ends = (length, limit)
        best = max(self.divided(log_prob, end) for end in ends)
        return best + max(self.divided(-self.word_penalty * self.count(end), end) for end in ends)

    def divided(self, value: float, length: int) -> float:
        """value / ((b + n) / (b + 1))^α for a hypothesis of so many symbols, its end (if it has one) among them."""
        return value / float(((self.offset + self.count(length)) / (self.offset + 1)) ** self.alpha)

    def count(self, length: int) -> int:
        """n"""
        return length + 1 if self.counts_begin else length
