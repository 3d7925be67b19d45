"""Exhaustive search: every sequence there is. The oracle for the other searches, for tiny vocabularies only."""

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import Outcome, Score, score_of
from seqloom.search.settings import SearchConfig

LARGEST = 200_000
"""The most sequences that one sentence may have; more would take minutes and gigabytes."""


@torch.inference_mode()
def exhaustive_search(
    stepper: Stepper, source: Source, settings: SearchConfig, *, score: Score | None = None
) -> list[list[Hypothesis]]:
    """Every hypothesis of each sentence up to its maximum length, best first, finished ones before cut ones.

    All V^T sequences are scored by `score` (that of the settings if none is given); beam, nbest and stop are not used.
    """
    limits = settings.limits(source)
    return [
        _all_of_one(
            stepper,
            Source(source.ids[number : number + 1], source.lengths[number : number + 1]),
            limit=limit,
            score=settings.score() if score is None else score,
        )
        for number, limit in enumerate(limits)
    ]


@dataclass(frozen=True)
class _Way:
    """A sequence so far: its symbols, their log-probabilities, and the sum of its looks at each source position."""

    symbols: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    coverage: Tensor | None = None


def _all_of_one(stepper: Stepper, source: Source, *, limit: int, score: Score) -> list[Hypothesis]:
    state: State = stepper.start(source)
    length = int(source.lengths[0])
    ways, found = [_Way()], []
    for _ in range(limit):
        last = source.lengths.new_tensor([way.symbols[-1] if way.symbols else stepper.begin for way in ways])
        step = stepper.step(state, last)
        longer: list[_Way] = []
        rows: list[int] = []
        for row, way in enumerate(ways):
            for symbol, next_way in _continuations(way, step, row, length=length):
                if symbol == stepper.end:
                    found.append(_hypothesis(next_way, end=stepper.end, score=score, source_length=length))
                else:
                    longer.append(next_way)
                    rows.append(row)
        if len(longer) + len(found) > LARGEST:
            raise UsageError(
                f"an exhaustive search over {step.log_probs.shape[1]} symbols and up to {limit} steps has more than "
                f"{LARGEST} sequences; give a smaller maximum length or use beam search"
            )
        ways = longer
        if not ways:
            break
        state = step.state.select(source.lengths.new_tensor(rows))
    found += [_hypothesis(way, end=stepper.end, score=score, source_length=length) for way in ways]
    return sorted(found, key=lambda hypothesis: (not hypothesis.is_finished, -hypothesis.score))


def _continuations(way: _Way, step: Step, row: int, *, length: int) -> list[tuple[int, _Way]]:
    """Each possible symbol, and the way with it."""
    symbols = None if step.symbols is None else step.symbols.expand_as(step.log_probs)[row].tolist()
    coverage = way.coverage
    if step.attention is not None:
        looked = step.attention[row, :length].double()
        coverage = looked if coverage is None else coverage + looked
    return [
        (symbol, _Way((*way.symbols, symbol), (*way.log_probs, log_prob), coverage))
        for column, log_prob in enumerate(step.log_probs[row].tolist())
        if log_prob > float("-inf")
        for symbol in [column if symbols is None else symbols[column]]
    ]


def _hypothesis(way: _Way, *, end: int, score: Score, source_length: int) -> Hypothesis:
    is_finished = way.symbols[-1] == end
    outcome = Outcome(
        log_prob=sum(way.log_probs),
        length=len(way.symbols),
        source_length=source_length,
        end_log_prob=way.log_probs[-1] if is_finished else None,
        coverage=None if way.coverage is None else tuple(way.coverage.tolist()),
    )
    terms = score.terms(outcome)
    symbols = way.symbols[:-1] if is_finished else way.symbols
    return Hypothesis(symbols, is_finished, score_of(terms), terms, way.log_probs, is_complete=is_finished)
