"""Greedy search: the most probable symbol at each step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.core.errors import DataError
from seqloom.core.stepping import Source, Stepper
from seqloom.search.candidates import dead_end, top_symbols
from seqloom.search.hypothesis import Hypothesis, Ledger, Trail, extend
from seqloom.search.offers import Rules
from seqloom.search.settings import SearchConfig


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


# Forced search: what a model thinks of a target that somebody else wrote.


@torch.inference_mode()
def forced_search(
    stepper: Stepper, source: Source, targets: Sequence[Sequence[int]], *, settings: SearchConfig
) -> list[Hypothesis]:
    """Each target as a finished hypothesis of its sentence: log P(y∣x) = Σ_t log P(y_t ∣ x, y_<t), end included.

    Targets hold neither begin nor end. A symbol that is not offered, or is forbidden, has log-probability −∞. The
    maximum length of the settings does not apply.
    """
    widths = source.lengths.tolist()
    if len(targets) != len(widths):
        raise DataError(f"{len(targets)} targets were given for {len(widths)} sentences; each sentence needs one")
    if not targets:
        return []
    paths = [[*target, stepper.end] for target in targets]
    trails: list[Trail | None] = [None] * len(paths)
    attention: list[Tensor | None] = []
    live = list(range(len(paths)))
    state = stepper.start(source)
    last = source.lengths.new_full((len(paths),), stepper.begin)
    while live:
        step = stepper.step(state, last)
        wanted = last.new_tensor([paths[number][len(attention)] for number in live])
        attention.append(step.attention)
        given = _log_probs_of(wanted, step.log_probs, step.symbols).tolist()
        for row, (number, log_prob) in enumerate(zip(live, given, strict=True)):
            symbol = paths[number][len(attention) - 1]
            trails[number] = extend(trails[number], symbol, token_log_prob=log_prob, row=row)
        rows = [row for row, number in enumerate(live) if len(paths[number]) > len(attention)]
        picked = last.new_tensor(rows)
        state = step.state if len(rows) == len(live) else step.state.select(picked)
        last, live = wanted[picked], [live[row] for row in rows]
    return [
        Ledger(settings.score(), stepper.end, width, attention).hypothesis(trail, is_finished=True)
        for trail, width in zip(trails, widths, strict=True)
        if trail is not None
    ]


def _log_probs_of(wanted: Tensor, log_probs: Tensor, symbols: Tensor | None) -> Tensor:
    if symbols is None:
        return log_probs.gather(1, wanted[:, None])[:, 0].double()
    matches = wanted[:, None] == symbols  # [rows, symbols], whether the rows share a shortlist or have their own
    chosen = log_probs.double().masked_fill(~matches, float("-inf"))
    return chosen.amax(1)
