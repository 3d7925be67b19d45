"""Runs of lines that are not aligned: the path through the states of a text with the most evidence.

The states of a line are its shifts and "unrelated"; each change of state costs `SWITCH`. Where the shift falls from p
to q, p − q sources have lost their translations, and the path has no state for them. So the border is looked for again:

    Σ_{n ≤ m} L_p(n) + Σ_{n > m + p − q} L_q(n)     is largest at m, the last line before the lost ones
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float32

from seqloom.inspection.doctor.alignment import ALIGNED, SHIFTS, UNRELATED
from seqloom.inspection.doctor.alignment_kernels import best_path
from seqloom.inspection.doctor.faults import Run

SWITCH = 12.0
"""Nats that a change of state costs: four lines in a row that are clearly shifted outweigh two changes."""

SHORTEST_RUN = 3

Table = Float32[np.ndarray, "lines states"]
"""The evidence for each state of each line; columns are SHIFTS, unrelated."""


@dataclass(frozen=True)
class _Stretch:
    """Lines in one state, counted from 0; `end` is the first one behind them."""

    first: int
    end: int
    state: int


def find_runs(table: Table) -> list[Run]:
    """The runs of lines that are not aligned, with those at their borders that have lost their translations."""
    if len(table) == 0:
        return []
    return [
        Run(each.first + 1, each.end, None if each.state == UNRELATED else SHIFTS[each.state])
        for each in _with_lost(_stretches(table), table)
        if each.state != ALIGNED and each.end > each.first
    ]


def _stretches(table: Table) -> list[_Stretch]:
    """The best path; what is too short to be told counts as aligned."""
    path = np.empty(len(table), np.int64)
    best_path(table, SWITCH, path)
    for each in _cut(path):
        if each.end - each.first < SHORTEST_RUN:
            path[each.first : each.end] = ALIGNED
    return _cut(path)


def _cut(path: np.ndarray) -> list[_Stretch]:
    borders = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [_Stretch(first, end, int(path[first])) for first, end in pairwise(borders)]


def _with_lost(stretches: list[_Stretch], table: Table) -> list[_Stretch]:
    """The stretches with lost lines at the right places: they belong to the shifted run that they stand beside."""
    found = stretches[:1]
    for right in stretches[1:]:
        left, between = found[-1], right.first
        # A few lines of no state between two shifts are the lost ones.
        if left.state == UNRELATED and len(found) > 1 and left.end - left.first <= _lost(found[-2], right) + 1:
            between = found.pop().first
            left = found[-1]
        lost = _lost(left, right)
        if lost == 0:
            found.append(right)
            continue
        first = _first_lost(table, left, right, between=between)
        border = min(first + lost, right.end) if right.state == ALIGNED else first
        found[-1] = replace(left, end=border)
        found.append(replace(right, first=border))
    return found


def _lost(left: _Stretch, right: _Stretch) -> int:
    """How many sources have no translation between two stretches."""
    if UNRELATED in (left.state, right.state):
        return 0
    return max(0, SHIFTS[left.state] - SHIFTS[right.state])


def _first_lost(table: Table, left: _Stretch, right: _Stretch, *, between: int) -> int:
    """Where the lost lines begin; the path has its border among them or near, or has left out what is `between`."""
    lost = _lost(left, right)
    low, high = max(left.first, between - 2 * lost), min(right.end, right.first + lost)
    before = np.append(0.0, np.cumsum(table[low:high, left.state], dtype=np.float64))
    after = np.append(0.0, np.cumsum(table[low:high, right.state], dtype=np.float64))
    places = np.arange(high - low + 1)
    behind = np.minimum(places + lost, high - low)
    return low + int(np.argmax(before[places] + after[-1] - after[behind]))
