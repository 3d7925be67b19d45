"""Greedy search: the most probable symbol at each step."""

import torch
from torch import Tensor

from seqloom.core.stepping import Source, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.offers import Rules
from seqloom.search.settings import SearchConfig
from seqloom.search.top import dead_end, top_symbols
from seqloom.search.trail import Ledger, Trail, extend


@torch.inference_mode()
def greedy_search(stepper: Stepper, source: Source, settings: SearchConfig) -> list[Hypothesis]:
    """One hypothesis for each sentence: y_t = argmax_y log P(y ∣ x, y_<t), until end or the maximum length.

    Of equal symbols the lowest is taken. Sentences leave the batch as they finish. An end normalisation acts here as it
    does in beam search, of which this is the case of one hypothesis.
    """
    # The only hypothesis is the best one, so it always gets the longest limit.
    limits, lengths, score = settings.hard_limits(source), source.lengths.tolist(), settings.score()
    found: dict[int, Hypothesis] = {}
    if not limits:
        return []
    attention: list[Tensor | None] = []
    rules = Rules(stepper.end, score.end)
    live: list[tuple[int, Trail | None]] = [(sentence, None) for sentence in range(len(limits))]
    state = stepper.start(source)
    last = source.lengths.new_full((len(limits),), stepper.begin)
    while live:
        step = stepper.step(state, last)
        attention.append(step.attention)
        values = rules.values(
            step,
            length=len(attention),
            source_lengths=[lengths[sentence] for sentence, _ in live],
            standings=[None] * len(live),
        )
        top = top_symbols(step, 1, values=values)
        best = torch.cat([top.symbols.double(), top.log_probs.double()], 1).tolist()
        rows: list[int] = []
        going: list[tuple[int, Trail | None]] = []
        for row, ((sentence, before), (symbol, log_prob)) in enumerate(zip(live, best, strict=True)):
            if log_prob == float("-inf"):
                raise dead_end(sentence, len(attention))
            trail = extend(before, int(symbol), token_log_prob=log_prob, row=row)
            if trail.symbol != stepper.end and trail.length < limits[sentence]:
                rows.append(row)
                going.append((sentence, trail))
                continue
            ledger = Ledger(score, stepper.end, lengths[sentence], attention)
            is_finished = trail.symbol == stepper.end
            found[sentence] = ledger.hypothesis(trail, is_finished=is_finished, hit_limit=not is_finished)
        picked = torch.tensor(rows, dtype=torch.long, device=last.device)
        state = step.state if len(rows) == len(live) else step.state.select(picked)
        last, live = top.symbols[picked, 0], going
    return [found[sentence] for sentence in range(len(limits))]
