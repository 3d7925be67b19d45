"""Search as other systems do: named modes with the rules of their beam searches, for the same output from our models.

    candidates of a step   each live hypothesis with each symbol that may follow it, best log P first
    finished               those of them that end, among the first beam of them
    live                   the best of the others

What each mode does with them is one value of `PeerRules`.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, assert_never

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from seqloom.core.stepping import NEVER_STOPPED, BeamStepper, Source, State, Step, Stepper
from seqloom.search.candidates import (
    IMPOSSIBLE,
    DeadEnd,
    columns_of,
    forbid,
    not_a_number,
    penalise_repetition,
    ranked,
    top_symbols,
)
from seqloom.search.driver import Cancellation, Continuation, run
from seqloom.search.hypothesis import BackPointer, Hypothesis, Ledger
from seqloom.search.peers.rules import PeerRules, PeerScore

MAX_FORBIDDEN = 0.5
"""Probability of forbidden symbols up to which it is taken from the others' sum: beyond, that would be inexact."""

Array = np.ndarray


def peer_search(
    stepper: Stepper,
    source: Source,
    rules: PeerRules,
    *,
    limits: Sequence[int],
    beam: int,
    nbest: int = 1,
    least: Sequence[int] | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """At most `nbest` hypotheses for each sentence, best first, as a peer with these rules would find them.

    `limits` has the maximum |Y| of each sentence, its end counted, `least` the number of symbols before its end, if
    that is more than the peer itself requires. Of equal candidates the better row and then the lower symbol comes
    first. The loop is the driver's; pools of finished hypotheses, stops and limits are the peer's.
    """
    if beam == 1:  # greedy search in all of them
        rules = replace(rules, candidates=1, place="lost", stop="none_live")
    decoding = _PeerDecoding(
        source,
        rules,
        end=stepper.end,
        limits=limits,
        least=least,
        beam=beam,
        nbest=nbest,
        cancellation=cancellation,
    )
    run(stepper, source, decoding.advance, ahead=decoding.ahead_with(stepper))
    return [decoding.hypotheses(sentence) for sentence in decoding.sentences]


class PeerHypothesis(NamedTuple):
    """A candidate of a step, by its rank. `is_over` if it ends here or is cut; one that continued after its end is a
    ghost."""

    pointer: BackPointer
    rank: int
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
    finished: list[Ended] = field(default_factory=list)
    width: int = 0
    """How many candidates of a step can be taken."""
    ghosts: list[bool] = field(default_factory=list)
    """Whether each live hypothesis continues after its end; empty if none does."""
    seen: list[bool] = field(default_factory=list)
    """Whether some step put an end into each place of the beam."""
    has_topped: bool = False
    """Whether some step put a finished hypothesis first."""

    def __post_init__(self) -> None:
        self.width, self.seen = self.beam, [False] * self.beam

    @property
    def is_quiet(self) -> bool:
        """Whether a step in which nothing ends just takes its first candidates."""
        if not self.finished:
            return True
        if self.rules.place != "refilled":
            return False
        match self.rules.stop:
            case "no_better":
                return len(self.finished) < self.beam
            case "top_finished" | "count":
                return True
            case _:
                return False

    def advance(self, candidates: Sequence[tuple[int, BackPointer]], *, length: int) -> list[int]:
        """Take the candidates of a step, best first: those that end are finished, the best of the others continue.

        A candidate is the place of a live hypothesis and its path with one symbol more, `length` in all. Returns the
        ranks of those that continue; none if the sentence is over.
        """
        before, end, hypotheses = self.finished, self.ledger.end, []
        for rank, (place, pointer) in enumerate(candidates):
            is_ghost = bool(self.ghosts) and self.ghosts[place]
            is_last = pointer.symbol == end or length == self.limit
            hypotheses.append(PeerHypothesis(pointer, rank, is_over=is_last and not is_ghost, is_ghost=is_ghost))
        if self.rules.drops_empty and length == 1:
            hypotheses = [each for each in hypotheses if each.pointer.symbol != end] or hypotheses
        picked = hypotheses[: self.width]
        if self.rules.place == "kept":  # ended hypotheses keep their places, where their score meets log P
            then = [(ended.score, PeerHypothesis(ended.pointer, -1, is_over=True)) for ended in self.finished]
            by_score = [*then, *((each.pointer.log_prob, each) for each in hypotheses)]
            picked = [each for _, each in sorted(by_score, key=lambda pair: -pair[0])][: self.beam]
        self._finish([each.pointer for each in picked if each.is_over])
        live = [] if length == self.limit else self._live(hypotheses, picked)
        if not live and not self.finished:
            raise DeadEnd(self.number, length)
        for place in range(self.beam):
            self.seen[place] |= place >= len(picked) or picked[place].pointer.symbol == end
        self.has_topped |= bool(picked) and picked[0].is_over
        self.width = len(live) if self.rules.place == "lost" else self.beam
        if not live or self._is_over(picked, live, before):
            return []
        if self.rules.place == "ghost":
            self.ghosts = [each.is_ghost or each.pointer.symbol == end for each in live]
        return [each.rank for each in live]

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

    def hypothesis(self, pointer: BackPointer) -> Hypothesis:
        """A finished or cut hypothesis, from its whole path."""
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


class _Links(NamedTuple):
    """What a step has added to each live row."""

    rows: Array
    """The row before."""
    symbols: Array
    log_probs: Array
    totals: Array


class _PeerDecoding:
    """All sentences of a batch, step by step. Python looks at a sentence only when something of it ends."""

    def __init__(
        self,
        source: Source,
        rules: PeerRules,
        *,
        end: int,
        limits: Sequence[int],
        least: Sequence[int] | None,
        beam: int,
        nbest: int,
        cancellation: Cancellation | None,
    ) -> None:
        self.rules, self.end, self.beam, self.cancellation = rules, end, beam, cancellation
        self.attention: list[Tensor | None] = []
        score = PeerScore(rules.length_penalty, rules.counts_begin, rules.offset, rules.word_penalty)
        self.sentences = [
            PeerSentence(number, rules, score, Ledger(score, end, length, self.attention), beam, nbest, limit)
            for number, (limit, length) in enumerate(zip(limits, source.lengths.tolist(), strict=True))
        ]
        count = len(self.sentences)
        self.limits = np.array(limits, np.int64)
        self.least = np.maximum(rules.min_length, np.zeros(count, np.int64) if least is None else np.array(least))
        self.live = np.arange(count)
        """The sentences that are not over, which have `sizes` rows side by side."""
        self.sizes = np.ones(count, np.int64)
        self.totals = np.zeros(count)
        """log P of each row."""
        self.widths = np.full(count, beam)
        self.is_quiet = np.ones(count, bool)
        self.links: list[_Links] = []
        has_history = rules.no_repeat > 0 or rules.repetition_penalty != 1
        self.history = np.empty((count, 0), np.int64) if has_history else None
        """The symbols of each row so far, where they matter."""

    def advance(self, step: Step) -> tuple[Array, Array]:
        """Rank the candidates of a step and take them; the rows that continue."""
        self.attention.append(step.attention)
        offered = self._allowed(step)
        best = self.rules.candidates * int(self.widths[self.live].max())
        device = offered.log_probs.device
        found = ranked(
            top_symbols(offered, best),
            so_far=torch.from_numpy(self.totals).to(device),
            sizes=torch.from_numpy(self.sizes).to(device),
            beam=self.beam,
            best=best,
        )
        tables = (found.values, found.rows, found.symbols, found.log_probs)  # [sentences, candidates] each
        return self._take(*(table.cpu().numpy() for table in tables))

    def ahead_with(self, stepper: Stepper) -> Callable[[State, Tensor], Continuation | None] | None:
        """How the stepper takes the steps in which nothing ends by itself; None if the rules are others than its own.

        Where nothing ends among the first beam of candidates, they continue, however many more were considered.
        """
        is_plain = self.history is None and (self.rules.place == "refilled" or self.beam == 1)
        if not (is_plain and isinstance(stepper, BeamStepper)):
            return None
        return partial(self._step_ahead, stepper)

    def _step_ahead(self, stepper: BeamStepper, state: State, last: Tensor) -> Continuation | None:
        """Take what the stepper finds until something ends, and take that."""
        rules, kept, length = self.rules, self.beam, len(self.attention)
        # Ends are forced or forbidden elsewhere: at the last step of a sentence, and at its first ones.
        steps = int(self.limits[self.live].min()) - 1 - length
        if steps < 1 or length < self.least[self.live].max():
            return None
        if not self.is_quiet[self.live].all():
            steps = 1
        stop = NEVER_STOPPED
        if self.cancellation is not None and self.cancellation.stop is None:
            steps = 1
        elif self.cancellation is not None and self.cancellation.stop is not None:
            stop = self.cancellation.stop
        found = stepper.step_beams(
            state,
            last,
            totals=self.totals,
            beam=kept,
            steps=steps,
            stop=stop,
            candidates=rules.candidates * kept,
            never=sorted(rules.never),
            renormalises=rules.renormalises and bool(rules.never),
        )
        if found is None:
            return None
        if found.not_a_number >= 0:
            raise not_a_number(found.not_a_number, found.last_rows)
        *quiet, final = zip(found.values, found.rows, found.symbols, found.log_probs, strict=True)
        for tables in quiet:  # [sentences, candidates] each
            values, rows, symbols, log_probs = (table[:, :kept].ravel() for table in tables)
            self.links.append(_Links(rows, symbols, log_probs, values))
            self.attention.append(None)
        if quiet:
            self.totals, self.sizes = self.links[-1].totals, np.full(len(self.live), kept)
        self.attention.append(None)
        return Continuation(*self._take(*final), found.state)

    def _take(self, values: Array, rows: Array, symbols: Array, log_probs: Array) -> tuple[Array, Array]:
        """Take the candidates of each live sentence, best first; the rows that continue."""
        length, live = len(self.attention), self.live
        widths, ranks = self.widths[live][:, None], np.arange(values.shape[1])
        is_there = (values > IMPOSSIBLE) & (ranks < self.rules.candidates * widths)
        lives = ranks < widths  # of a quiet sentence
        is_quiet = self.is_quiet[live] & (length < self.limits[live])
        is_quiet &= (~lives | (is_there & (symbols != self.end))).all(1)
        starts = self.sizes.cumsum() - self.sizes
        for at in (~is_quiet).nonzero()[0].tolist():
            number, there = int(live[at]), is_there[at]
            sentence = self.sentences[number]
            tables = (rows[at], symbols[at], log_probs[at], values[at])
            candidates = [
                (row - int(starts[at]), BackPointer(None, symbol, log_prob, total, row, length))
                for row, symbol, log_prob, total in zip(*(table[there].tolist() for table in tables), strict=True)
            ]
            lives[at] = False
            lives[at, sentence.advance(candidates, length=length)] = True
            self.widths[number], self.is_quiet[number] = sentence.width, sentence.is_quiet
        if self.cancellation is not None:
            self._leave_cancelled(self.cancellation, lives)
        taken = _Links(rows[lives], symbols[lives], log_probs[lives], values[lives])
        sizes = lives.sum(1)
        self.live, self.sizes = live[sizes > 0], sizes[sizes > 0]
        self.totals = taken.totals
        self.links.append(taken)
        if self.history is not None:
            self.history = np.concatenate([self.history[taken.rows], taken.symbols[:, None]], 1)
        return taken.rows, taken.symbols

    def _leave_cancelled(self, cancellation: Cancellation, lives: Bool[np.ndarray, "sentences candidates"]) -> None:
        """Drop all hypotheses of cancelled sentences."""
        dropped = 0
        for at in np.flatnonzero(lives.any(1)).tolist():
            if cancellation.is_cancelled(int(self.live[at])):
                dropped += int(lives[at].sum())
                lives[at] = False
                self.sentences[self.live[at]].finished.clear()
        if dropped:
            cancellation.on_dropped(dropped)

    def hypotheses(self, sentence: PeerSentence) -> list[Hypothesis]:
        """The best of the finished hypotheses, best first; of equal ones the earlier first."""
        best = sorted(sentence.finished, key=lambda ended: -ended.score)[: sentence.nbest]
        return [sentence.hypothesis(self._path(ended.pointer)) for ended in best]

    def _path(self, pointer: BackPointer) -> BackPointer:
        """The same hypothesis with all symbols before the last."""
        links, row = [], pointer.row
        for length in range(pointer.length - 1, 0, -1):
            rows, symbols, log_probs, totals = self.links[length - 1]
            before = int(rows[row])
            links.append(
                BackPointer(None, int(symbols[row]), float(log_probs[row]), float(totals[row]), before, length)
            )
            row = before
        path: BackPointer | None = None
        for link in reversed(links):
            path = link._replace(before=path)
        return pointer._replace(before=path)

    # --- what the next symbol may be ----------------------------------------------------------------------------------

    def _allowed(self, step: Step) -> Step:
        """The step with −∞ for symbols that are never chosen or come again, for early ends, and for late others."""
        rules, length = self.rules, len(self.attention)
        has_to_end = (self.limits[self.live] == length) & (rules.at_limit == "end" or rules.free_end)  # [sentences]
        is_early = (length <= self.least[self.live]) & ~has_to_end
        if not (has_to_end.any() or is_early.any() or rules.never or self.history is not None):
            return step
        log_probs = step.log_probs.clone()
        offered = replace(step, log_probs=log_probs)
        if self.history is not None:
            penalise_repetition(offered, self.history, rules.repetition_penalty)
            _forbid_repetition(offered, self.history, rules.no_repeat)
        if rules.never:
            forbid(offered, rules.never)
        if is_early.any():
            forbid(offered, {self.end}, rows=np.repeat(is_early, self.sizes))
        if has_to_end.any():
            ends = torch.where(_is(step, {self.end}), 0.0 if rules.free_end else log_probs, IMPOSSIBLE)
            is_last = torch.from_numpy(np.repeat(has_to_end, self.sizes)).to(log_probs.device)
            log_probs = torch.where(is_last[:, None], ends, log_probs)
        if rules.renormalises:
            is_plain = self.history is None and not (has_to_end.any() or is_early.any()) and step.symbols is None
            never = [symbol for symbol in rules.never if symbol < log_probs.shape[1]]
            forbidden = step.log_probs[:, never].exp().sum(1, keepdim=True) if is_plain else None
            if forbidden is not None and bool((forbidden < MAX_FORBIDDEN).all()):
                log_probs -= torch.log1p(-forbidden)  # [rows, 1]: the others have the rest
            else:
                is_possible = log_probs.isneginf().logical_not().any(1, keepdim=True)  # else 0 / 0
                log_probs = torch.where(is_possible, log_probs.log_softmax(1), log_probs)
        return replace(step, log_probs=log_probs)


def _is(step: Step, symbols: Collection[int]) -> Bool[Tensor, "rows columns"]:
    """True where a column belongs to one of these symbols."""
    columns = step.log_probs.shape[1]
    offered = torch.arange(columns, device=step.log_probs.device) if step.symbols is None else step.symbols
    return torch.isin(offered, offered.new_tensor(sorted(symbols))).expand_as(step.log_probs)


def _forbid_repetition(step: Step, history: Int64[np.ndarray, "rows length"], size: int) -> None:
    """Set symbols to −∞ that would complete a run of `size` symbols for the second time."""
    if not size or history.shape[1] < size:
        return
    windows = np.lib.stride_tricks.sliding_window_view(history, size, axis=1)  # [rows, windows, size]
    last = history[:, history.shape[1] - size + 1 :]
    is_same = (windows[:, :, :-1] == last[:, None]).all(2)  # [rows, windows]
    for row in is_same.any(1).nonzero()[0].tolist():
        again = {int(symbol) for symbol in windows[row, is_same[row], -1]}
        step.log_probs[row, columns_of(step.symbols, row, again)] = IMPOSSIBLE
