"""Recurrent layers of ours and of torch, all in one process: the same threads, the same allocator.

warm I      a call or two of entry I, by which it is decided how many calls make one measurement: {"calls": …}
time I      one measurement of entry I: {"calls": …, "seconds": …}

A call is a forward and a backward pass over one batch, from inputs that need no gradient and states of zeros to the
gradients of the weights. All layers read and write [batch, time, width].
"""

import argparse
import gc
import json
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from serving import Line
from torch import Tensor, nn

from seqloom.models.cell_options import CELLS
from seqloom.nn.cells.cell import Cell, CellState, unroll
from seqloom.version import __version__

PRODUCTS = 3
"""Matrix products at least by which the peak is measured: one alone is too short to tell it."""

Layer = Callable[[Tensor], Tensor]
"""From inputs to hidden states at every position."""


def build(entry: dict[str, Any], width: int) -> tuple[nn.Module, Layer]:
    """The layer of an entry with fresh weights, the same for the same kind."""
    torch.manual_seed(1)
    if entry["program"] == "torch":
        return torch_layer(entry["kind"], width)
    if entry["program"] == "torch cells":
        return torch_cells(width)
    cell = CELLS[entry["kind"]](width, width, **entry["options"])
    if entry["program"] == "plain loop":
        return cell, lambda inputs: unroll(cell, inputs, nothing_read(cell, inputs))[0]
    return cell, lambda inputs: cell.run(inputs, nothing_read(cell, inputs))[0]


def nothing_read(cell: Cell, inputs: Tensor) -> CellState:
    """The state before the first position."""
    return cell.begin(inputs.new_zeros(len(inputs), cell.width))


def torch_layer(name: str, width: int) -> tuple[nn.Module, Layer]:
    """A recurrent layer of torch; it makes its zeros by itself."""
    module: nn.LSTM | nn.GRU | nn.RNN
    if name == "nn.LSTM":
        module = nn.LSTM(width, width, batch_first=True)
    elif name == "nn.GRU":
        module = nn.GRU(width, width, batch_first=True)
    else:
        module = nn.RNN(width, width, nonlinearity="relu" if name == "nn.RNN relu" else "tanh", batch_first=True)
    return module, lambda inputs: module(inputs)[0]


def torch_cells(width: int) -> tuple[nn.Module, Layer]:
    """What everybody writes first: a loop over nn.LSTMCell."""
    cell = nn.LSTMCell(width, width)

    def loop(inputs: Tensor) -> Tensor:
        hidden = memory = inputs.new_zeros(len(inputs), width)
        outputs = []
        for each in inputs.unbind(1):
            hidden, memory = cell(each, (hidden, memory))
            outputs.append(hidden)
        return torch.stack(outputs, 1)

    return cell, loop


def make_call(module: nn.Module, layer: Layer, shape: tuple[int, int, int]) -> Callable[[], None]:
    """A forward and a backward pass over random inputs of [batch, time, width], with random gradients at the end."""
    generator = torch.Generator().manual_seed(2)
    inputs, gradient = (torch.randn(shape, generator=generator) for _ in range(2))

    def call() -> None:
        layer(inputs).backward(gradient)
        for parameter in module.parameters():
            parameter.grad = None

    return call


def make_product(size: int) -> Callable[[], None]:
    """A product of two square matrices."""
    left, right = torch.randn(size, size), torch.randn(size, size)
    product = torch.mm(left, right)

    def call() -> None:
        torch.mm(left, right, out=product)

    return call


class Stopwatch:
    """Times the calls of one entry."""

    def __init__(self, call: Callable[[], None], *, least_seconds: float, least_calls: int) -> None:
        self._call, self._least_seconds, self._least_calls = call, least_seconds, least_calls
        self._calls = least_calls

    def warm(self) -> dict[str, float]:
        """Call it once, and once more if the first call may have been slow by what it had to load."""
        seconds = self._timed(1)
        if seconds < 4 * self._least_seconds:
            seconds = self._timed(1)
        self._calls = max(self._least_calls, math.ceil(self._least_seconds / seconds))
        return {"calls": self._calls}

    def time(self) -> dict[str, float]:
        """One measurement."""
        gc.collect()  # the garbage of others is not this one's
        return {"calls": self._calls, "seconds": self._timed(self._calls)}

    def _timed(self, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            self._call()
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--entries", type=json.loads, required=True)
    parser.add_argument("--shape", type=int, nargs=3, required=True, metavar=("BATCH", "TIME", "WIDTH"))
    parser.add_argument("--least-seconds", type=float, required=True)
    given = parser.parse_args()
    line = Line()
    torch.set_num_threads(given.threads)
    batch, length, width = given.shape
    watches = []
    for entry in given.entries:
        if entry["program"] == "sgemm":
            call, least_calls = make_product(int(entry["kind"])), PRODUCTS
        else:
            call, least_calls = make_call(*build(entry, width), (batch, length, width)), 1
        watches.append(Stopwatch(call, least_seconds=given.least_seconds, least_calls=least_calls))
    gc.freeze()  # what is loaded by now need not be looked through before each measurement
    line.say({"version": f"seqloom {__version__}, torch {torch.__version__}"})
    for name, number in line.commands():
        line.say(watches[number].warm() if name == "warm" else watches[number].time())


if __name__ == "__main__":
    main()
