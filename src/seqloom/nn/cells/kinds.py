"""The cells by name: from the settings of a config or an experiment to a function that makes cells.

A new cell is one class, and here its import, its name and its line in the table.
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Literal, get_args

from seqloom.core.errors import check_known
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.gru import GRUCell, Reset, Update
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, Peephole, PeepholeCell
from seqloom.nn.cells.rnn import Activation, ElmanCell
from seqloom.nn.init import Start

CellKind = Literal["rnn", "lstm", "peephole", "coupled", "gru"]

CELLS: dict[CellKind, Callable[..., Cell]] = {
    "rnn": ElmanCell,
    "lstm": LSTMCell,
    "peephole": PeepholeCell,
    "coupled": CoupledCell,
    "gru": GRUCell,
}


def kinds_with(option: str) -> list[CellKind]:
    """The cells that have an option of `cell_maker`, as a keyword argument of their constructor."""
    return [kind for kind, cell in CELLS.items() if option in signature(cell).parameters]


def cell_maker(
    kind: CellKind,
    *,
    activation: Activation = "tanh",
    forget_bias: float = 1.0,
    peephole: Peephole = "diagonal",
    reset: Reset = "after",
    update: Update = "keep",
    norm: bool = False,
    start: Start = "orthogonal",
    spectral_radius: float = 1.0,
) -> Callable[[int, int], Cell]:
    """From the width of the input and of the state to a cell of this kind. Options that a kind lacks are ignored."""
    check_known("kind", kind, get_args(CellKind))
    options = {
        "activation": activation,
        "forget_bias": forget_bias,
        "peephole": peephole,
        "reset": reset,
        "update": update,
        "norm": norm,
        "start": start,
        "spectral_radius": spectral_radius,
    }
    return partial(CELLS[kind], **{name: value for name, value in options.items() if kind in kinds_with(name)})
