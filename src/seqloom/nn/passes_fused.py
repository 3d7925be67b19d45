"""The pass of the LSTM and of its relatives with compiled steps: what is not a product is one call for each step.

It is for single precision on the processor, without norms, and where numba is installed; everything else goes by
`LSTMPass`, its plain twin.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from seqloom.nn.passes import Pass, Steps
from seqloom.nn.passes_lstm import LSTMPass


def lstm_pass(
    parameters: tuple[Tensor | None, ...],
    *,
    order: Literal["ifgo", "oifg", "oig"],
    peephole: Literal["diagonal", "full"] | None = None,
) -> Pass:
    """The fastest pass there is for these weights."""
    weight, _, gain, *_ = parameters
    assert weight is not None
    is_plain = weight.device.type == "cpu" and weight.dtype == torch.float32 and gain is None
    make = FusedLSTMPass if is_plain and has_numba() else LSTMPass
    return make(parameters, order=order, peephole=peephole)


@cache
def has_numba() -> bool:
    return find_spec("numba") is not None


def _kernels() -> ModuleType:
    """Imported late: numba takes a second to load, which commands that run no such cell need not wait for."""
    from seqloom.nn import kernels

    return kernels


class FusedLSTMPass(LSTMPass):
    """See `LSTMPass`; the slopes of a step are worked out where it is, from gates that are still in the cache."""

    def forward(self, steps: Steps, projected: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        gates, (hidden, memory), advance = projected.contiguous(), states, _kernels().step_forward
        if self._bias is not None:
            gates.add_(self._bias)
        shown = gates.new_empty(steps.positions, self._width)
        before, _ = steps.around(hidden)
        total = steps.at(gates)
        old, looking = [], []
        if self._full is not None:
            old, looking = steps.around(memory)[0], steps.at(self._gates(gates, "oif"))
        arrays = [_array(each) for each in (gates, memory, hidden, shown)]
        own, columns = self._own_array(), self._columns()
        for step, places in enumerate(_places(steps)):
            self._link.add(step, before[step], total[step])
            if self._full is not None:
                self._full.add(step, old[step], looking[step])
            advance(*arrays, own, columns, *places)
        return gates, shown

    def open(
        self, steps: Steps, states: Sequence[Tensor], *, tape: Sequence[Tensor], gradients: Sequence[Tensor]
    ) -> None:
        self._steps, (self._hidden, self._memory), self._gradients, self._tape = steps, states, gradients, tape
        self._old, self._new = steps.before_all(self._memory), steps.after_all(self._memory)
        self.slopes = torch.empty_like(tape[0])

    def sweep(self, first: int, last: int, *, is_cut: bool) -> None:
        (hidden, carried), (gates, shown), back = self._gradients, self._tape, _kernels().step_back
        before, _ = self._steps.around(hidden)
        slopes = self._steps.at(self.slopes)
        looking = self._steps.at(self._gates(self.slopes, "oif")) if self._full is not None else []
        arrays = [_array(each) for each in (self.slopes, carried, hidden, gates, self._memory, self._hidden, shown)]
        own, columns, places = self._own_array(), self._columns(), _places(self._steps)
        for step in reversed(range(first, last)):
            back(*arrays, own, columns, *places[step])
            if is_cut and step == first:
                carried[: len(slopes[step])] = 0
                return
            self._link.give_back(step, slopes[step], before[step])
            if self._full is not None:
                self._full.give_back(step, looking[step], carried[: len(slopes[step])])

    def pull(self, step: int, gradients: Sequence[Tensor]) -> list[Tensor]:
        """As the plain twin does: several gradients at once want the slopes themselves."""
        if self._tape:
            super().open(self._steps, (self._hidden, self._memory), tape=self._tape, gradients=self._gradients)
            self._tape = ()
        return super().pull(step, gradients)

    def _own_array(self) -> np.ndarray:
        return np.zeros((0, self._width), np.float32) if self._own is None else _array(self._own.contiguous())

    def _columns(self) -> np.ndarray:
        found = [self._order.find(name) for name in "oigf"]
        return np.array([place * self._width if place >= 0 else -1 for place in found])


def _array(tensor: Tensor) -> np.ndarray:
    """The same memory as numba sees it."""
    assert tensor.is_contiguous()
    array: np.ndarray = tensor.detach().numpy()
    return array


def _places(steps: Steps) -> list[tuple[int, int, int, int]]:
    """For each step, where its rows begin among the positions and among the states before and after, and how many."""
    starts = list(accumulate(steps.sizes, initial=0))[:-1]
    blocks = [0, *(steps.rows + start for start in starts)]
    return [
        (start, old, steps.rows + start, size) for start, old, size in zip(starts, blocks, steps.sizes, strict=False)
    ]
