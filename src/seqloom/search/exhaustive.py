"""Exhaustive search: every sequence there is. The oracle for the other searches, for tiny vocabularies only.

It has a loop of its own, one sentence at a time, so that it shares no code with what it checks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import ScoreInputs, SearchScore, score_of
from seqloom.search.settings import SearchConfig

MAX_SEQUENCES = 200_000
"""The most sequences that one sentence may have; more would take minutes and gigabytes."""


@torch.inference_mode()
def exhaustive_search(
    stepper: Stepper, source: Source, settings: SearchConfig, *, score: SearchScore | None = None
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
class _Partial:
    """A sequence so far: its symbols, their log-probabilities, and the attention that each source position has got."""

    symbols: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    coverage: Tensor | None = None


def _all_of_one(stepper: Stepper, source: Source, *, limit: int, score: SearchScore) -> list[Hypothesis]:
    state: State = stepper.start(source)
    length = int(source.lengths[0])
    partials, found = [_Partial()], []
    for _ in range(limit):
        last = source.lengths.new_tensor(
            [partial.symbols[-1] if partial.symbols else stepper.begin for partial in partials]
        )
        step = stepper.step(state, last)
        extended: list[_Partial] = []
        rows: list[int] = []
        for row, partial in enumerate(partials):
            for symbol, longer in _continuations(partial, step, row, length=length):
                if symbol == stepper.end:
                    found.append(_hypothesis(longer, end=stepper.end, score=score, source_length=length))
                else:
                    extended.append(longer)
                    rows.append(row)
        if len(extended) + len(found) > MAX_SEQUENCES:
            raise UsageError(
                f"an exhaustive search over {step.log_probs.shape[1]} symbols and up to {limit} steps has more than "
                f"{MAX_SEQUENCES} sequences; give a smaller maximum length or use beam search"
            )
        partials = extended
        if not partials:
            break
        state = step.state.select(source.lengths.new_tensor(rows))
    found += [_hypothesis(partial, end=stepper.end, score=score, source_length=length) for partial in partials]
    return sorted(found, key=lambda hypothesis: (not hypothesis.is_finished, -hypothesis.score))


def _continuations(partial: _Partial, step: Step, row: int, *, length: int) -> list[tuple[int, _Partial]]:
    """Each possible symbol, and the partial output with it."""
    symbols = None if step.symbols is None else step.symbols.expand_as(step.log_probs)[row].tolist()
    coverage = partial.coverage
    if step.attention is not None:
        looked = step.attention[row, :length].double()
        coverage = looked if coverage is None else coverage + looked
    return [
        (symbol, _Partial((*partial.symbols, symbol), (*partial.log_probs, log_prob), coverage))
        for column, log_prob in enumerate(step.log_probs[row].tolist())
        if log_prob > float("-inf")
        for symbol in [column if symbols is None else symbols[column]]
    ]


def _hypothesis(partial: _Partial, *, end: int, score: SearchScore, source_length: int) -> Hypothesis:
    is_finished = partial.symbols[-1] == end
    outcome = ScoreInputs(
        log_prob=sum(partial.log_probs),
        length=len(partial.symbols),
        source_length=source_length,
        end_log_prob=partial.log_probs[-1] if is_finished else None,
        coverage=None if partial.coverage is None else tuple(partial.coverage.tolist()),
    )
    terms = score.terms(outcome)
    symbols = partial.symbols[:-1] if is_finished else partial.symbols
    return Hypothesis(symbols, is_finished, score_of(terms), terms, partial.log_probs, is_complete=is_finished)
