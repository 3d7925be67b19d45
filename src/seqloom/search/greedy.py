"""Greedy search, and the log-probability of a given target."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqloom.core.errors import DataError
from seqloom.core.stepping import Source, Step, Stepper
from seqloom.search.candidates import top_symbols
from seqloom.search.driver import Expansion, Frontier, run, search
from seqloom.search.hypothesis import BackPointer, Hypothesis, Ledger, extend
from seqloom.search.settings import SearchConfig


def greedy_search(stepper: Stepper, source: Source, settings: SearchConfig) -> list[Hypothesis]:
    """One hypothesis for each sentence: y_t = argmax_y log P(y ∣ x, y_<t), until end or the maximum length.

    Of equal symbols the lowest is taken. An end normalisation acts here as it does in beam search, of which this is
    the case of one hypothesis.
    """
    limits = settings.hard_limits(source)  # the only hypothesis is the best one, so it always gets the longest limit
    return [found[0] for [found] in search(stepper, source, GreedySearch(), settings, limits=limits)]


@dataclass(frozen=True)
class GreedySearch:
    """The most probable symbol of each row."""

    beams: int = 1
    proves_completeness: bool = False
    kept: int = 1

    def choose(self, frontier: Frontier) -> Expansion:
        top = top_symbols(frontier.step, 1, values=frontier.values)
        tables = (top.values, top.symbols, top.log_probs.double())
        values, symbols, log_probs = [table.cpu().numpy() for table in tables]  # [rows, 1] each
        return Expansion(values, frontier.starts[:, None], symbols, log_probs)


def forced_search(
    stepper: Stepper, source: Source, targets: Sequence[Sequence[int]], *, settings: SearchConfig
) -> list[Hypothesis]:
    """Each target as a finished hypothesis of its sentence: log P(y∣x) = Σ_t log P(y_t ∣ x, y_<t), end included.

    Targets hold neither begin nor end. A symbol that is not offered, or is forbidden, has log-probability −∞. The
    maximum length of the settings does not apply.
    """
    if len(targets) != len(source.lengths):
        raise DataError(f"got {len(targets)} targets for {len(source.lengths)} sentences; each sentence needs one")
    paths = [[*target, stepper.end] for target in targets]
    pointers: list[BackPointer | None] = [None] * len(paths)
    attention: list[Tensor | None] = []
    live = list(range(len(paths)))

    def advance(step: Step) -> tuple[np.ndarray, np.ndarray]:
        nonlocal live
        at = len(attention)
        attention.append(step.attention)
        symbols = [paths[number][at] for number in live]
        wanted = torch.tensor(symbols, device=step.log_probs.device)[:, None]  # [rows, 1]
        if step.symbols is None:
            own = step.log_probs.gather(1, wanted)[:, 0]
        else:  # [rows, symbols], whether the rows share a shortlist or have their own
            own = step.log_probs.masked_fill(wanted != step.symbols, float("-inf")).amax(1)
        log_probs: list[float] = own.tolist()
        for row, (number, symbol, log_prob) in enumerate(zip(live, symbols, log_probs, strict=True)):
            pointers[number] = extend(pointers[number], symbol, token_log_prob=log_prob, row=row)
        rows = [row for row, number in enumerate(live) if len(paths[number]) > at + 1]
        live = [live[row] for row in rows]
        return np.array(rows, np.int64), np.array([symbols[row] for row in rows], np.int64)

    run(stepper, source, advance)
    return [
        Ledger(settings.score(), stepper.end, length, attention).hypothesis(pointer, is_finished=True)
        for pointer, length in zip(pointers, source.lengths.tolist(), strict=True)
        if pointer is not None
    ]
