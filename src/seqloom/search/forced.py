"""Forced search: what a model thinks of a target that somebody else wrote."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.core.errors import DataError
from seqloom.core.stepping import Source, Stepper
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.search.trail import Ledger, Trail, extend


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
