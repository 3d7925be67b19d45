"""Search as other systems do: named modes with the rules of their beam searches, for the same output from our models.

    candidates of a step   each live hypothesis with each symbol that may follow it, best log P first
    finished               those of them that end, among the first beam of them
    live                   the best of the others

What each mode does with them is one value of `PeerRules`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import IMPOSSIBLE, DeadEnd, top_symbols
from seqloom.search.driver import Cancellation, run
from seqloom.search.hypothesis import BackPointer, Hypothesis, Ledger, extend
from seqloom.search.peers.rules import PeerRules, PeerScore


def peer_search(
    stepper: Stepper,
    source: Source,
    rules: PeerRules,
    *,
    limits: Sequence[int],
    beam: int,
    nbest: int = 1,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """At most `nbest` hypotheses for each sentence, best first, as a peer with these rules would find them.

    `limits` has the maximum |Y| of each sentence, its end counted. Of equal candidates the better row and then the
    lower symbol comes first. The loop is the driver's; pools of finished hypotheses, stops and limits are the peer's.
    """
    if beam == 1:  # greedy search in all of them
        rules = replace(rules, candidates=1, place="lost", stop="none_live")
    attention: list[Tensor | None] = []
    score = PeerScore(rules.length_penalty, rules.counts_begin, rules.offset, rules.word_penalty)
    sentences = [
        PeerSentence(number, rules, score, Ledger(score, stepper.end, length, attention), beam, nbest, limit)
        for number, (limit, length) in enumerate(zip(limits, source.lengths.tolist(), strict=True))
    ]

    def advance(step: Step) -> tuple[np.ndarray, np.ndarray]:
        live = [sentence for sentence in sentences if sentence.live]
        attention.append(step.attention)
        length = len(attention)
        owners = [sentence.limit for sentence in live for _ in sentence.live]
        offered = _allowed(step, rules, end=stepper.end, is_last=[length == limit for limit in owners], length=length)
        for sentence, candidates in zip(live, _best_candidates(live, offered, rules.candidates), strict=True):
            sentence.advance(candidates, length=length)
        if cancellation is not None:
            _leave_cancelled(live, cancellation)
        last = [each.pointer for sentence in live for each in sentence.live if each is not None]
        return np.array([each.row for each in last], np.int64), np.array([each.symbol for each in last], np.int64)

    run(stepper, source, advance)
    return [sentence.hypotheses() for sentence in sentences]


class PeerCandidate(NamedTuple):
    """A live hypothesis (by its row in the batch and its place in the sentence) with one symbol more."""

    row: int
    place: int
    symbol: int
    token_log_prob: float


class PeerHypothesis(NamedTuple):
    """A hypothesis after a step. `is_over` if it ends here or is cut; one that continued after its end is a ghost."""

    pointer: BackPointer
    is_over: bool = False
    is_ghost: bool = False


class Ended(NamedTuple):
    """A hypothesis that is finished or was cut, with its score."""

    score: float
    pointer: BackPointer


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
    """Whether some step put an end into each place of the beam."""
    has_topped: bool = False
    """Whether some step put a finished hypothesis first."""

    def __post_init__(self) -> None:
        self.width, self.seen = self.beam, [False] * self.beam

    def advance(self, candidates: Sequence[PeerCandidate], *, length: int) -> None:
        """Take the candidates of a step, best first: those that end are finished, the best of the others continue.

        After it, live hypotheses have `length` symbols.
        """
        before, end, hypotheses = self.finished, self.ledger.end, []
        for row, place, symbol, token_log_prob in candidates:
            each = self.live[place]
            pointer = extend(None if each is None else each.pointer, symbol, token_log_prob=token_log_prob, row=row)
            is_ghost = each is not None and (each.is_ghost or each.pointer.symbol == end)
            is_last = symbol == end or length == self.limit
            hypotheses.append(PeerHypothesis(pointer, is_over=is_last and not is_ghost, is_ghost=is_ghost))
        if self.rules.drops_empty and length == 1:
            hypotheses = [each for each in hypotheses if each.pointer.symbol != end] or hypotheses
        picked = hypotheses[: self.width]
        if self.rules.place == "kept":  # ended hypotheses keep their places, where their score meets log P
            then = [(ended.score, PeerHypothesis(ended.pointer, is_over=True)) for ended in self.finished]
            ranked = [*then, *((each.pointer.log_prob, each) for each in hypotheses)]
            picked = [each for _, each in sorted(ranked, key=lambda pair: -pair[0])][: self.beam]
        self._finish([each.pointer for each in picked if each.is_over])
        live = [] if length == self.limit else self._live(hypotheses, picked)
        if not live and not self.finished:
            raise DeadEnd(self.number, length)
        for place in range(self.beam):
            self.seen[place] |= place >= len(picked) or picked[place].pointer.symbol == end
        self.has_topped |= bool(picked) and picked[0].is_over
        self.live = [] if not live or self._is_over(picked, live, before) else [*live]
        self.width = len(live) if self.rules.place == "lost" else self.beam

    def hypotheses(self) -> list[Hypothesis]:
        """The best of the finished hypotheses, best first; of equal ones the earlier first."""
        ranked = sorted(self.finished, key=lambda ended: -ended.score)[: self.nbest]
        return [self._hypothesis(ended.pointer) for ended in ranked]

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

    def _is_over(
        self, picked: Sequence[PeerHypothesis], live: Sequence[PeerHypothesis], before: Sequence[Ended]
    ) -> bool:
        """Whether the sentence stops after this step.

        `picked` are the places of the beam in their order, `live` what could continue, best first, `before` what was
        finished by earlier steps.
        """
        rules, score, count = self.rules, self.score, len(self.finished)
        match rules.stop:
            case "top_finished":
                return count >= self.nbest and picked[0].is_over
            case "nbest_on_top":  # of equal ones, those of this step come first, in the order of their places
                now = [(-score.divided(each.pointer.log_prob, each.pointer.length), each.is_over) for each in picked]
                then = [(-ended.score, True) for ended in before]
                ranked = sorted([*now, *then], key=lambda entry: entry[0])[: self.nbest]
                return len(ranked) == self.nbest and all(is_over for _, is_over in ranked)
            case "every_place":
                return all(self.seen)
            case "count":
                return count >= self.beam
            case "count_or_top":
                if score.alpha == 0:
                    return count >= self.nbest and self.has_topped
                return count >= math.floor(self.beam * rules.patience + 0.5)
            case "no_better":
                if count < self.beam or rules.early_stopping is True:
                    return count >= self.beam
                best = live[0].pointer
                is_hopeful = rules.early_stopping == "never" and score.alpha > 0
                possible = score.divided(best.log_prob, self.limit if is_hopeful else best.length)
                return possible <= min(ended.score for ended in self.finished)
            case "none_live":
                return False
            case _:
                assert_never(rules.stop)

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


def _leave_cancelled(live: Sequence[PeerSentence], cancellation: Cancellation) -> None:
    """Drop all hypotheses of cancelled sentences."""
    rows = 0
    for sentence in live:
        if sentence.live and cancellation.is_cancelled(sentence.number):
            rows += len(sentence.live)
            sentence.live, sentence.finished = [], []
    if rows:
        cancellation.on_dropped(rows)


def _allowed(step: Step, rules: PeerRules, *, end: int, is_last: Sequence[bool], length: int) -> Step:
    """The step with −∞ for symbols that are never chosen, for early ends, and for late others.

    Candidates made of it become the `length`-th symbols; `is_last` says of each row whether that is its last one.
    """
    ends = _is(step, {end})
    has_to_end = rules.at_limit == "end" or rules.free_end
    must_end = torch.tensor([has_to_end and last for last in is_last], device=ends.device)[:, None]  # [rows, 1]
    forbidden = must_end & ~ends
    if length <= rules.min_length:
        forbidden |= ends & ~must_end
    if rules.never:
        forbidden |= _is(step, rules.never)
    if not forbidden.any():
        return step
    log_probs = step.log_probs.masked_fill(forbidden, IMPOSSIBLE)
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
    """The candidates of each sentence that a step considers, best first, impossible ones left out."""
    best = beams * max(sentence.width for sentence in live)
    top = top_symbols(step, best)
    so_far = [0.0 if each is None else each.pointer.log_prob for sentence in live for each in sentence.live]
    before = top.log_probs.new_tensor(so_far, dtype=torch.float64)  # [rows]
    totals: list[list[float]] = (before[:, None] + top.log_probs.double()).tolist()
    values, symbols = top.log_probs.double().tolist(), top.symbols.tolist()
    found, first = [], 0
    for sentence in live:
        rows = range(first, first + len(sentence.live))
        ranked = sorted(
            (-total, row - first, symbols[row][column], row, column)
            for row in rows
            for column, total in enumerate(totals[row])
            if total > IMPOSSIBLE
        )[: beams * sentence.width]
        found.append(
            [PeerCandidate(row, place, symbol, values[row][column]) for _, place, symbol, row, column in ranked]
        )
        first = rows.stop
    return found
