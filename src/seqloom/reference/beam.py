"""Beam search to read: the k best of all continuations, step by step, until nothing can win any more.

    candidates = {(y_1 … y_t, y) : y_1 … y_t a live hypothesis, y any symbol}
    kept       = the k candidates of highest log P(y_1 … y_t y ∣ x) = Σ_j log P(y_j ∣ x, y_<j)
    finished   = those of them that end, ranked by score(log P, length)
    live       = the others

A sentence stops when n hypotheses are finished and no live one can come among the n best of them, by an upper bound on
the score of its continuations, or at its maximum length, where live ones are returned after the finished ones. Of equal
candidates the one from the better hypothesis and then of the lower symbol comes first. `seqloom.search.beam` finds the
same hypotheses, for many sentences at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from seqloom.core.stepping import Source, Step, Stepper


class Scored(NamedTuple):
    """A hypothesis: its symbols without end, and its score."""

    symbols: tuple[int, ...]
    is_finished: bool
    score: float


class Live(NamedTuple):
    """A hypothesis that has not ended, and the row of the batch that it continues."""

    symbols: tuple[int, ...] = ()
    log_prob: float = 0.0
    row: int = 0


@torch.inference_mode()
def beam_search(
    stepper: Stepper,
    source: Source,
    *,
    beam: int,
    nbest: int,
    limits: Sequence[int],
    score: Callable[[float, int], float],
    bound: Callable[[float, int, int], float],
) -> list[list[Scored]]:
    """At most `nbest` hypotheses for each sentence, best first.

    `limits` are maximum lengths, end included; `score(log_prob, length)` ranks what has ended; no continuation of a
    hypothesis scores more than `bound(log_prob, length, limit)`.
    """
    lives = [[Live()] for _ in limits]
    finished: list[list[Scored]] = [[] for _ in limits]
    cut: list[list[Scored]] = [[] for _ in limits]
    state = stepper.start(source)
    last = source.lengths.new_full((len(limits),), stepper.begin)
    for length in range(1, max(limits, default=0) + 1):
        step = stepper.step(state, last)
        row = 0
        for number, limit in enumerate(limits):
            candidates: list[Live] = []
            for live in lives[number]:
                for symbol, log_prob in best_symbols(step, row, beam):
                    candidates.append(Live((*live.symbols, symbol), live.log_prob + log_prob, row))
                row += 1
            candidates.sort(key=lambda each: -each.log_prob)  # stable
            kept = candidates[:beam]
            lives[number] = [each for each in kept if each.symbols[-1] != stepper.end]
            ended = [each for each in kept if each.symbols[-1] == stepper.end]
            finished[number] += [Scored(each.symbols[:-1], True, score(each.log_prob, length)) for each in ended]
            finished[number].sort(key=lambda each: -each.score)
            best = finished[number][:nbest]
            if length == limit:
                cut[number] = [Scored(each.symbols, False, score(each.log_prob, length)) for each in lives[number]]
                lives[number] = []
            elif len(best) == nbest and all(
                bound(each.log_prob, length, limit) <= best[-1].score for each in lives[number]
            ):
                lives[number] = []
        rows = [each for live in lives for each in live]
        if not rows:
            break
        state = step.state.select(last.new_tensor([each.row for each in rows]))
        last = last.new_tensor([each.symbols[-1] for each in rows])
    return [[*done, *rest][:nbest] for done, rest in zip(finished, cut, strict=True)]


def best_symbols(step: Step, row: int, count: int) -> list[tuple[int, float]]:
    """The most probable symbols of a row with their log-probabilities; of equal ones the lower symbol first."""
    log_probs = step.log_probs[row].double().tolist()
    symbols = range(len(log_probs)) if step.symbols is None else step.symbols.expand_as(step.log_probs)[row].tolist()
    pairs = sorted(zip(symbols, log_probs, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return [pair for pair in pairs[:count] if pair[1] > float("-inf")]
