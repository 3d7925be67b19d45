"""The beam search of CTranslate2 as its makers describe it, written plainly over our steppers.

The 2k best candidates are found. Of the k best, those that end are finished, and each leaves its place to the best of
the others that does not end; so k hypotheses stay live. Without a length penalty a sentence stops when the best
candidate of some step has ended and n are finished, with one when k are finished, and at the maximum length in any
case, where what is live counts as finished.
"""

from dataclasses import dataclass

import torch

from seqloom.core.stepping import Source, Stepper


@dataclass(frozen=True)
class Way:
    symbols: tuple[int, ...]
    log_prob: float


@torch.inference_mode()
def refilled_search(
    stepper: Stepper, source: Source, *, beam: int, nbest: int, power: float, limit: int
) -> list[tuple[tuple[int, ...], float]]:
    """Symbols with their end, and scores, of one sentence."""
    state, live, finished, has_top_ended = stepper.start(source), [Way((), 0.0)], [], False
    for length in range(1, limit + 1):
        last = source.lengths.new_tensor([way.symbols[-1] if way.symbols else stepper.begin for way in live])
        step = stepper.step(state, last)
        totals = step.log_probs.double() + torch.tensor([[way.log_prob] for way in live], dtype=torch.float64)
        values, places = totals.flatten().topk(2 * beam)
        symbols = step.log_probs.shape[1]
        candidates = [
            (place // symbols, Way((*live[place // symbols].symbols, place % symbols), value))
            for place, value in zip(places.tolist(), values.tolist(), strict=True)
        ]
        spare = [each for each in candidates[beam:] if each[1].symbols[-1] != stepper.end]
        kept = []
        for rank, (row, way) in enumerate(candidates[:beam]):
            if way.symbols[-1] == stepper.end or length == limit:
                finished.append(way)
                has_top_ended |= rank == 0
                kept.append(spare.pop(0))
            else:
                kept.append((row, way))
        if (has_top_ended and len(finished) >= nbest) if power == 0 else len(finished) >= beam:
            break
        live = [way for _, way in kept]
        state = step.state.select(source.lengths.new_tensor([row for row, _ in kept]))
    scored = [(way.symbols, way.log_prob / len(way.symbols) ** power) for way in finished]
    return sorted(scored, key=lambda pair: -pair[1])[:nbest]
