"""Exhaustive search: every sequence there is. The oracle for the other searches, for tiny vocabularies only."""

import torch

from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, State, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import Score, score_of
from seqloom.search.settings import SearchConfig

LARGEST = 200_000
"""The most sequences that one sentence may have; more would take minutes and gigabytes."""


@torch.inference_mode()
def exhaustive_search(
    stepper: Stepper, source: Source, settings: SearchConfig, *, score: Score | None = None
) -> list[list[Hypothesis]]:
    """Every hypothesis of each sentence up to its maximum length, best first, finished ones before cut ones.

    All V^T sequences are scored by `score` (that of the settings if none is given); beam and nbest are not used.
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


def _all_of_one(stepper: Stepper, source: Source, *, limit: int, score: Score) -> list[Hypothesis]:
    state: State = stepper.start(source)
    ways: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
    found: list[Hypothesis] = []
    for _ in range(limit):
        last = source.lengths.new_tensor([symbols[-1] if symbols else stepper.begin for symbols, _ in ways])
        step = stepper.step(state, last)
        offered = list(range(step.log_probs.shape[1])) if step.symbols is None else step.symbols.tolist()
        longer: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
        rows: list[int] = []
        for row, ((symbols, log_probs), nexts) in enumerate(zip(ways, step.log_probs.tolist(), strict=True)):
            for symbol, log_prob in zip(offered, nexts, strict=True):
                if log_prob == float("-inf"):
                    continue
                if symbol == stepper.end:
                    found.append(_hypothesis(symbols, (*log_probs, log_prob), is_finished=True, score=score))
                else:
                    longer.append(((*symbols, symbol), (*log_probs, log_prob)))
                    rows.append(row)
        if len(longer) + len(found) > LARGEST:
            raise UsageError(
                f"an exhaustive search over {len(offered)} symbols and up to {limit} steps has more than {LARGEST} "
                "sequences; give a smaller maximum length or use beam search"
            )
        ways = longer
        if not ways:
            break
        state = step.state.select(source.lengths.new_tensor(rows))
    found += [_hypothesis(symbols, log_probs, is_finished=False, score=score) for symbols, log_probs in ways]
    return sorted(found, key=lambda hypothesis: (not hypothesis.is_finished, -hypothesis.score))


def _hypothesis(
    symbols: tuple[int, ...], log_probs: tuple[float, ...], *, is_finished: bool, score: Score
) -> Hypothesis:
    terms = score.terms(sum(log_probs), len(log_probs))
    return Hypothesis(symbols, is_finished, score_of(terms), terms, log_probs)
