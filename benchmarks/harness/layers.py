"""The recurrent layers that are measured, what each is compared with, and what is asked of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.flops import CellMatrices

PLAIN_LOOP, CELL_LOOP, PEAK = "plain loop", "nn.LSTMCell loop", "sgemm"

EQUAL_GOAL = 0.95
"""Of the speed of torch's layer, where the formula is torch's and so the kernel is too."""

LOOP_GOAL = 1.0
"""Of the speed of the plain loop over the same cell: none is slower."""

MEMORY_GOAL = 1.2
"""Of the memory of torch's layer, at most."""

SELDOM = 3
"""What has no goal is measured in every round of this many."""


@dataclass(frozen=True)
class Extent:
    """The size of what a layer reads: [batch, time, width], and its states are as wide as its inputs."""

    batch: int
    time: int
    width: int

    @property
    def tokens(self) -> int:
        """Positions in all rows."""
        return self.batch * self.time

    def __str__(self) -> str:
        return f"{self.batch}x{self.time}x{self.width}"


EXTENTS = (Extent(64, 64, 512), Extent(32, 100, 256), Extent(16, 50, 128))


def read_extent(text: str) -> Extent:
    """From BATCHxTIMExWIDTH."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"{text!r} is no size of a batch; write BATCHxTIMExWIDTH, say 64x64x512")
    return Extent(*map(int, parts))


def family_goal(width: int) -> float:
    """Of the GFLOP/s of the torch layer with the same gates: small products leave more to lose between them."""
    return 0.9 if width >= 512 else 0.8 if width >= 256 else 0.6


@dataclass(frozen=True)
class Case:
    """A cell of ours."""

    name: str
    kind: str
    """As in `seqloom.models.cell_options.CELLS`, with these options."""
    peer: str
    """The torch layer that it is compared with."""
    matrices: CellMatrices
    options: Mapping[str, str | bool] = field(default_factory=dict)
    is_torch_formula: bool = False
    has_goal: bool = True

    def goal(self, width: int) -> float:
        """Beside its torch layer."""
        return EQUAL_GOAL if self.is_torch_formula else family_goal(width)


_LSTM, _GRU, _RNN, _RELU = "nn.LSTM", "nn.GRU", "nn.RNN", "nn.RNN relu"
_ONE, _THREE, _FOUR = CellMatrices(1), CellMatrices(3), CellMatrices(4)

PEERS = {_LSTM: _FOUR, _GRU: _THREE, _RNN: _ONE, _RELU: _ONE}

CASES = (
    Case("LSTM", "lstm", _LSTM, _FOUR, is_torch_formula=True),
    Case("peephole", "peephole", _LSTM, _FOUR, {"peephole": "diagonal"}),
    Case("peephole full", "peephole", _LSTM, CellMatrices(4, peepholes=3), {"peephole": "full"}),
    Case("coupled", "coupled", _LSTM, _THREE),
    Case("GRU", "gru", _GRU, _THREE, {"reset": "after", "update": "keep"}, is_torch_formula=True),
    Case("GRU new", "gru", _GRU, _THREE, {"reset": "after", "update": "new"}, is_torch_formula=True),
    Case("GRU before", "gru", _GRU, _THREE, {"reset": "before"}),
    Case("GRU input", "gru", _GRU, CellMatrices(3, gated_inputs=1), {"reset": "input"}),
    Case("Elman tanh", "rnn", _RNN, _ONE, {"activation": "tanh"}, is_torch_formula=True),
    Case("Elman relu", "rnn", _RELU, _ONE, {"activation": "relu"}, is_torch_formula=True),
    Case("Elman identity", "rnn", _RNN, _ONE, {"activation": "identity"}),
    Case("LSTM norm", "lstm", _LSTM, _FOUR, {"norm": True}, has_goal=False),
    Case("peephole norm", "peephole", _LSTM, _FOUR, {"norm": True}, has_goal=False),
    Case("coupled norm", "coupled", _LSTM, _THREE, {"norm": True}, has_goal=False),
    Case("GRU norm", "gru", _GRU, _THREE, {"norm": True}, has_goal=False),
    Case("Elman norm", "rnn", _RNN, _ONE, {"norm": True}, has_goal=False),
)


@dataclass(frozen=True)
class Entry:
    """One thing that is timed: a program, and the useful flops of one call."""

    name: str
    program: Literal["sgemm", "torch", "torch cells", "ours", "plain loop"]
    flops: int
    kind: str = ""
    options: Mapping[str, str | bool] = field(default_factory=dict)
    is_seldom: bool = False

    def is_due(self, round_number: int) -> bool:
        """Whether it is measured in this round."""
        return not self.is_seldom or round_number % SELDOM == 0


def loop_name(case: Case) -> str:
    """The entry of the plain loop over a cell."""
    return f"{case.name}, {PLAIN_LOOP}"


def entries_for(extent: Extent, *, peak_size: int) -> list[Entry]:
    """All that is timed at one size: the peak, torch's layers, and each cell of ours by `run` and by the plain loop."""

    def flops(matrices: CellMatrices) -> int:
        return extent.tokens * matrices.flops(input_width=extent.width, width=extent.width)

    entries = [Entry(PEAK, "sgemm", 2 * peak_size**3, kind=str(peak_size))]
    entries += [Entry(name, "torch", flops(matrices), kind=name) for name, matrices in PEERS.items()]
    entries.append(Entry(CELL_LOOP, "torch cells", flops(_FOUR), kind="nn.LSTMCell"))
    for case in CASES:
        amount, is_seldom = flops(case.matrices), not case.has_goal
        entries.append(Entry(case.name, "ours", amount, case.kind, case.options, is_seldom))
        entries.append(Entry(loop_name(case), "plain loop", amount, case.kind, case.options, is_seldom))
    return entries


def entries_json(entries: Sequence[Entry]) -> str:
    """As the contestants take them."""
    return json.dumps([{"program": each.program, "kind": each.kind, "options": dict(each.options)} for each in entries])
