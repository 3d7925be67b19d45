"""Search as other systems do: named modes with the rules of their beam searches, for the same output from our models.

    candidates of a step   each live hypothesis with each symbol that may follow it, best log P first
    finished               those of them that end, among the first beam of them
    live                   the best of the others

What each mode does with them is one value of `PeerRules`; this file feeds them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.peer_rules import PeerMode, PeerOptions, PeerRules, PeerScore, rules_of
from seqloom.search.peer_sentence import Candidate, PeerSentence
from seqloom.search.peer_stops import waited_for
from seqloom.search.top import Top, top_symbols
from seqloom.search.trail import Ledger


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
    in `never` are not chosen. What is None is as the peer has it where its user says nothing.
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


@torch.inference_mode()
def peer_beam(
    stepper: Stepper, source: Source, rules: PeerRules, *, limits: Sequence[int], beam: int, nbest: int
) -> list[list[Hypothesis]]:
    """Beam search by these rules. Of equal candidates the better row and then the lower symbol comes first."""
    if not limits:
        return []
    attention: list[Tensor | None] = []
    score = PeerScore(rules.length_penalty, rules.counts_begin, rules.offset, rules.word_penalty)
    live = sentences = [
        PeerSentence(number, rules, score, Ledger(score, stepper.end, length, attention), beam, nbest, limit)
        for number, (limit, length) in enumerate(zip(limits, source.lengths.tolist(), strict=True))
    ]
    offers = _Offers(rules, stepper.end)
    state = stepper.start(source)
    last = source.lengths.new_full((len(live),), stepper.begin)
    while live:
        step = stepper.step(state, last)
        attention.append(step.attention)
        offered = offers.after(step, [sentence for sentence in live for _ in sentence.ways], length=len(attention))
        for sentence, candidates in zip(live, _best_candidates(live, offered, rules.candidates), strict=True):
            sentence.advance(candidates, length=len(attention))
        live = [sentence for sentence in live if sentence.ways]
        trails = [way.trail for sentence in live for way in sentence.ways if way is not None]
        state = step.state.select(torch.tensor([trail.row for trail in trails], dtype=torch.long, device=last.device))
        last = torch.tensor([trail.symbol for trail in trails], dtype=torch.long, device=last.device)
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


def _best_candidates(live: Sequence[PeerSentence], step: Step, beams: int) -> list[list[Candidate]]:
    """The candidates of each sentence that a step looks at, best first, impossible ones left out."""
    best = beams * max(sentence.width for sentence in live)
    top = top_symbols(step, best)
    totals = _totals(live, top)
    values, symbols = top.log_probs.double().tolist(), top.symbols.tolist()
    found, first = [], 0
    for sentence in live:
        rows = range(first, first + len(sentence.ways))
        ranked = sorted(
            (-total, row - first, symbols[row][column], row, column)
            for row in rows
            for column, total in enumerate(totals[row])
            if total > float("-inf")
        )[: beams * sentence.width]
        found.append([Candidate(row, place, symbol, values[row][column]) for _, place, symbol, row, column in ranked])
        first = rows.stop
    return found


def _totals(live: Sequence[PeerSentence], top: Top) -> list[list[float]]:
    """log P of each row with each of its best symbols."""
    ways = [way for sentence in live for way in sentence.ways]
    so_far: Float[Tensor, " rows"] = top.log_probs.new_tensor(
        [0.0 if way is None else way.trail.log_prob for way in ways], dtype=torch.float64
    )
    totals: list[list[float]] = (so_far[:, None] + top.log_probs.double()).tolist()
    return totals


def _check(source: Source, rules: PeerRules, *, limits: Sequence[int], beam: int, nbest: int) -> None:
    if beam < 1:
        raise ConfigError(f"beam {beam} is too small; give 1 or more")
    most = beam if rules.stop != "count_or_top" else waited_for(rules, beam)
    if not 1 <= nbest <= most:
        raise ConfigError(f"nbest {nbest} is out of range; a beam of {beam} leaves 1 to {most} hypotheses")
    if len(limits) != len(source.lengths):
        raise ConfigError(f"{len(limits)} limits were given for {len(source.lengths)} sentences; each needs its own")
    if min(limits, default=1) < 1:
        raise ConfigError(f"a limit of {min(limits)} leaves no room for any output; give 1 or more")
    if rules.min_length < 0:
        raise ConfigError(f"min_length {rules.min_length} is out of range; give 0 or more")
