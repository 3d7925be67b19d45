"""Search as other systems do: named modes with the rules of their beam searches, for the same output from our models.

    candidates of a step   each live hypothesis with each symbol that may follow it, best log P first
    finished               those of them that end, among the first beam of them
    live                   the best of the others

What each mode does with them is one value of `PeerRules`; this file feeds them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import DeadEnd, Top, top_symbols
from seqloom.search.driver import run
from seqloom.search.hypothesis import BackPointer, Hypothesis, Ledger, extend
from seqloom.search.peers.rules import (
    Ended,
    PeerHypothesis,
    PeerOptions,
    PeerRules,
    PeerScore,
    PeerStep,
    is_over,
    patience_count,
    rules_of,
)
from seqloom.search.settings import PeerMode


class PeerCandidate(NamedTuple):
    """A live hypothesis (by its row in the batch and its place in the sentence) with one symbol more."""

    row: int
    place: int
    symbol: int
    token_log_prob: float


@dataclass
class PeerSentence:
    """A sentence between two steps: its live and finished hypotheses. `live` is empty when it is over."""

    number: int
    rules: PeerRules
    score: PeerScore
    ledger: Ledger
    beam: int
    nbest: int
    limit: int
    live: list[PeerHypothesis | None] = field(default_factory=lambda: [None])
    finished: list[Ended] = field(default_factory=list)
    width: int = 0
    seen: list[bool] = field(default_factory=list)
    has_topped: bool = False

    def __post_init__(self) -> None:
        self.width, self.seen = self.beam, [False] * self.beam

    def advance(self, candidates: Sequence[PeerCandidate], *, length: int) -> None:
        """Take the candidates of a step, best first: those that end are finished, the best of the others continue.

        After it, live hypotheses have `length` symbols.
        """
        before = self.finished
        hypotheses = self._extended(candidates, length)
        picked = self._picked(hypotheses)
        self._finish([each.pointer for each in picked if each.is_over])
        live = [] if length == self.limit else self._live(hypotheses, picked)
        if not live and not self.finished:
            raise DeadEnd(self.number, length)
        for place in range(self.beam):
            self.seen[place] |= place >= len(picked) or picked[place].pointer.symbol == self.ledger.end
        self.has_topped |= bool(picked) and picked[0].is_over
        standing = PeerStep(
            picked=picked,
            before=before,
            finished=self.finished,
            live=live,
            seen=self.seen,
            has_topped=self.has_topped,
            beam=self.beam,
            nbest=self.nbest,
            limit=self.limit,
        )
        self.live = [] if is_over(self.rules, self.score, standing) else [*live]
        self.width = len(live) if self.rules.place == "lost" else self.beam

    def hypotheses(self) -> list[Hypothesis]:
        """The best of the finished hypotheses, best first; of equal ones the earlier first."""
        ranked = sorted(self.finished, key=lambda ended: -ended.score)[: self.nbest]
        return [self._hypothesis(ended.pointer) for ended in ranked]

    def _extended(self, candidates: Sequence[PeerCandidate], length: int) -> list[PeerHypothesis]:
        """The candidates as hypotheses, without the empty one, if this peer drops it."""
        end, hypotheses = self.ledger.end, []
        for row, place, symbol, token_log_prob in candidates:
            each = self.live[place]
            before = None if each is None else each.pointer
            pointer = extend(before, symbol, token_log_prob=token_log_prob, row=row)
            is_ghost = each is not None and (each.is_ghost or each.pointer.symbol == end)
            hypotheses.append(
                PeerHypothesis(
                    pointer, is_over=not is_ghost and (symbol == end or length == self.limit), is_ghost=is_ghost
                )
            )
        if self.rules.drops_empty and length == 1:
            return [each for each in hypotheses if each.pointer.symbol != end] or hypotheses
        return hypotheses

    def _picked(self, hypotheses: Sequence[PeerHypothesis]) -> list[PeerHypothesis]:
        """The places of the beam after this step. Where ended hypotheses keep theirs, their score meets log P."""
        if self.rules.place != "kept":
            return list(hypotheses[: self.width])
        then = [(ended.score, PeerHypothesis(ended.pointer, is_over=True)) for ended in self.finished]
        ranked = [*then, *((each.pointer.log_prob, each) for each in hypotheses)]
        return [each for _, each in sorted(ranked, key=lambda pair: -pair[0])][: self.beam]

    def _finish(self, over: Sequence[BackPointer]) -> None:
        """Remember what is finished now, as far as this peer does."""
        ended = [Ended(self.ledger.value(pointer), pointer) for pointer in over]
        if self.rules.place == "kept":  # the beam itself is the memory
            self.finished = ended
            return
        self.finished = [*self.finished, *ended]
        if self.rules.pool == "best":
            self.finished.sort(key=lambda ended: -ended.score)
        if self.rules.pool != "all":
            del self.finished[self.beam :]

    def _live(self, hypotheses: Sequence[PeerHypothesis], picked: Sequence[PeerHypothesis]) -> list[PeerHypothesis]:
        match self.rules.place:
            case "kept":
                return [each for each in picked if not each.is_over]
            case "ghost":
                return list(picked)
            case "refilled" | "lost":
                return [each for each in hypotheses if not each.is_over][: self.width]
            case _:
                assert_never(self.rules.place)

    def _hypothesis(self, pointer: BackPointer) -> Hypothesis:
        has_ended = pointer.symbol == self.ledger.end
        hit_limit = not has_ended or (self.rules.at_limit == "end" and pointer.length == self.limit)  # a forced end
        found = self.ledger.hypothesis(pointer, is_finished=has_ended, hit_limit=hit_limit)
        if has_ended or self.rules.at_limit != "cut_shorter":
            return found
        dropped = found.token_log_probs[-1]
        log_prob = found.terms["log_prob"] - dropped
        return replace(
            found,
            symbols=found.symbols[:-1],
            terms={"log_prob": log_prob, "dropped": dropped, "length": found.score - log_prob - dropped},
            token_log_probs=found.token_log_probs[:-1],
            attention=None if found.attention is None else found.attention[:-1],
        )


def peer_search(
    stepper: Stepper,
    source: Source,
    *,
    mode: PeerMode,
    limits: Sequence[int],
    beam: int,
    nbest: int = 1,
    length_penalty: float | None = None,
    min_length: int | None = None,
    never: Collection[int] | None = None,
    options: PeerOptions = PeerOptions(),  # noqa: B008 (a frozen value)
) -> list[list[Hypothesis]]:
    """At most `nbest` hypotheses for each sentence, best first, as the peer of this name would find them.

    `limits` has the maximum |Y| of each sentence, its end counted; `min_length` counts symbols before the end; symbols
    in `never` are not chosen. What is None has the default of the peer.
    """
    rules = rules_of(mode, options)
    if mode == "joeynmt" and length_penalty is not None:
        length_penalty = max(0.0, length_penalty)  # there a negative α means none, as 0 does
    rules = replace(
        rules,
        length_penalty=rules.length_penalty if length_penalty is None else length_penalty,
        min_length=rules.min_length if min_length is None else min_length,
        never=rules.never if never is None else frozenset(never),
    )
    _check(source, rules, limits=limits, beam=beam, nbest=nbest)
    if beam == 1:  # greedy search in all of them
        rules = replace(rules, candidates=1, place="lost", stop="none_live")
    return peer_beam(stepper, source, rules, limits=limits, beam=beam, nbest=nbest)


def peer_beam(
    stepper: Stepper, source: Source, rules: PeerRules, *, limits: Sequence[int], beam: int, nbest: int
) -> list[list[Hypothesis]]:
    """Beam search by these rules. Of equal candidates the better row and then the lower symbol comes first.

    The loop is the driver's; pools of finished hypotheses, stops and limits are those of the peer.
    """
    attention: list[Tensor | None] = []
    score = PeerScore(rules.length_penalty, rules.counts_begin, rules.offset, rules.word_penalty)
    sentences = [
        PeerSentence(number, rules, score, Ledger(score, stepper.end, length, attention), beam, nbest, limit)
        for number, (limit, length) in enumerate(zip(limits, source.lengths.tolist(), strict=True))
    ]
    offers = _Offers(rules, stepper.end)

    def advance(step: Step) -> tuple[np.ndarray, np.ndarray]:
        live = [sentence for sentence in sentences if sentence.live]
        attention.append(step.attention)
        offered = offers.after(step, [sentence for sentence in live for _ in sentence.live], length=len(attention))
        for sentence, candidates in zip(live, _best_candidates(live, offered, rules.candidates), strict=True):
            sentence.advance(candidates, length=len(attention))
        last = [each.pointer for sentence in live for each in sentence.live if each is not None]
        return np.array([each.row for each in last], np.int64), np.array([each.symbol for each in last], np.int64)

    run(stepper, source, advance)
    return [sentence.hypotheses() for sentence in sentences]


@dataclass(frozen=True)
class _Offers:
    """What may come next by the rules: −∞ for symbols that are never chosen, for early ends, and for late others."""

    rules: PeerRules
    end: int

    def after(self, step: Step, owners: Sequence[PeerSentence], *, length: int) -> Step:
        """The step with the log-probabilities that candidates are made of; they become the `length`-th symbols."""
        rules = self.rules
        ends = _is(step, {self.end})
        must_end = torch.tensor(
            [length == owner.limit and (rules.at_limit == "end" or rules.free_end) for owner in owners],
            device=ends.device,
        )[:, None]
        forbidden = must_end & ~ends
        if length <= rules.min_length:
            forbidden |= ends & ~must_end
        if rules.never:
            forbidden |= _is(step, rules.never)
        if not forbidden.any():
            return step
        log_probs = step.log_probs.masked_fill(forbidden, float("-inf"))
        if rules.free_end:
            log_probs = log_probs.masked_fill(must_end & ends, 0.0)
        if rules.renormalises:
            is_possible = log_probs.isneginf().logical_not().any(1, keepdim=True)  # else 0 / 0
            log_probs = torch.where(is_possible, log_probs.log_softmax(1), log_probs)
        return replace(step, log_probs=log_probs)


def _is(step: Step, symbols: Collection[int]) -> Bool[Tensor, "rows columns"]:
    """True where a column belongs to one of these symbols."""
    columns = step.log_probs.shape[1]
    offered = torch.arange(columns, device=step.log_probs.device) if step.symbols is None else step.symbols
    return torch.isin(offered, offered.new_tensor(sorted(symbols))).expand_as(step.log_probs)


def _best_candidates(live: Sequence[PeerSentence], step: Step, beams: int) -> list[list[PeerCandidate]]:
    """The candidates of each sentence that a step looks at, best first, impossible ones left out."""
    best = beams * max(sentence.width for sentence in live)
    top = top_symbols(step, best)
    totals = _totals(live, top)
    values, symbols = top.log_probs.double().tolist(), top.symbols.tolist()
    found, first = [], 0
    for sentence in live:
        rows = range(first, first + len(sentence.live))
        ranked = sorted(
            (-total, row - first, symbols[row][column], row, column)
            for row in rows
            for column, total in enumerate(totals[row])
            if total > float("-inf")
        )[: beams * sentence.width]
        found.append(
            [PeerCandidate(row, place, symbol, values[row][column]) for _, place, symbol, row, column in ranked]
        )
        first = rows.stop
    return found


def _totals(live: Sequence[PeerSentence], top: Top) -> list[list[float]]:
    """log P of each row with each of its best symbols."""
    hypotheses = [each for sentence in live for each in sentence.live]
    so_far: Float[Tensor, " rows"] = top.log_probs.new_tensor(
        [0.0 if each is None else each.pointer.log_prob for each in hypotheses], dtype=torch.float64
    )
    totals: list[list[float]] = (so_far[:, None] + top.log_probs.double()).tolist()
    return totals


def _check(source: Source, rules: PeerRules, *, limits: Sequence[int], beam: int, nbest: int) -> None:
    if beam < 1:
        raise ConfigError(f"beam {beam} is too small; give 1 or more")
    most = beam if rules.stop != "count_or_top" else patience_count(rules, beam)
    if not 1 <= nbest <= most:
        raise ConfigError(f"nbest {nbest} is out of range; a beam of {beam} leaves 1 to {most} hypotheses")
    if len(limits) != len(source.lengths):
        raise ConfigError(f"got {len(limits)} limits for {len(source.lengths)} sentences; each needs its own")
    if min(limits, default=1) < 1:
        raise ConfigError(f"a limit of {min(limits)} leaves no room for any output; give 1 or more")
    if rules.min_length < 0:
        raise ConfigError(f"min_length {rules.min_length} is out of range; give 0 or more")
