"""The cells by name: from what a config or an experiment says to a maker of cells."""

from collections.abc import Callable
from functools import partial
from typing import Literal, assert_never, get_args

from seqloom.core.errors import check_known
from seqloom.nn.cells.standard import (
    Activation,
    Cell,
    CoupledCell,
    ElmanCell,
    GRUCell,
    LSTMCell,
    Peephole,
    PeepholeCell,
    Reset,
    Update,
)
from seqloom.nn.init import Start

CellKind = Literal["rnn", "lstm", "peephole", "coupled", "gru"]


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
    """From the width of the input and of the state to a cell of this kind.

    An option that a kind does not have is not looked at: `activation` is for the rnn, `forget_bias` for the lstm, the
    peephole and the coupled cell, `peephole` for the peephole cell, `reset` and `update` for the gru.
    """
    check_known("kind", kind, get_args(CellKind))
    match kind:
        case "rnn":
            return partial(ElmanCell, activation=activation, norm=norm, start=start, spectral_radius=spectral_radius)
        case "lstm":
            return partial(LSTMCell, forget_bias=forget_bias, norm=norm, start=start, spectral_radius=spectral_radius)
        case "peephole":
            return partial(
                PeepholeCell,
                peephole=peephole,
                forget_bias=forget_bias,
                norm=norm,
                start=start,
                spectral_radius=spectral_radius,
            )
        case "coupled":
            return partial(
                CoupledCell, forget_bias=forget_bias, norm=norm, start=start, spectral_radius=spectral_radius
            )
        case "gru":
            return partial(GRUCell, reset=reset, update=update, norm=norm, start=start, spectral_radius=spectral_radius)
    assert_never(kind)
