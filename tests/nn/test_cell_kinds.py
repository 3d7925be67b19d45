"""Cells by name are the cells themselves, with the options that they have."""

import pytest
import torch

from seqloom.core.errors import ConfigError
from seqloom.nn.cells.cell import Cell
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.kinds import CellKind, cell_maker
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import spectral_radius

KINDS: dict[CellKind, type[Cell]] = {
    "rnn": ElmanCell,
    "lstm": LSTMCell,
    "peephole": PeepholeCell,
    "coupled": CoupledCell,
    "gru": GRUCell,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_its_class_with_its_defaults(kind: CellKind) -> None:
    torch.manual_seed(1)
    made = cell_maker(kind)(3, 4)
    torch.manual_seed(1)
    direct = KINDS[kind](3, 4)  # type: ignore[call-arg]
    assert type(made) is type(direct)
    torch.testing.assert_close(made.state_dict(), direct.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_norm_and_start(kind: CellKind) -> None:
    cell = cell_maker(kind, norm=True, start="spectral", spectral_radius=0.7)(3, 4)
    assert "from_state.gain" in cell.state_dict()
    radii = [spectral_radius(gate) for gate in cell.from_state.weight.chunk(len(cell.gates))]
    assert radii == pytest.approx([0.7] * len(cell.gates), abs=1e-6)


def test_options_reach_the_cell_that_has_them() -> None:
    rnn = cell_maker("rnn", activation="identity")(3, 4)
    assert isinstance(rnn, ElmanCell)
    assert rnn.activation == "identity"
    gru = cell_maker("gru", reset="before", update="new")(3, 4)
    assert isinstance(gru, GRUCell)
    assert (gru.reset, gru.update) == ("before", "new")
    full = cell_maker("peephole", peephole="full", forget_bias=3.0)(3, 4)
    assert full.get_parameter("from_memory").shape == (12, 4)
    assert full.from_input.bias.view(4, 4).tolist() == [[0.0] * 4, [0.0] * 4, [3.0] * 4, [0.0] * 4]
    assert cell_maker("lstm", forget_bias=3.0)(3, 4).from_input.bias.view(4, 4)[1].tolist() == [3.0] * 4
    assert cell_maker("coupled", forget_bias=3.0)(3, 4).from_input.bias.view(3, 4)[1].tolist() == [-3.0] * 4


def test_a_reset_of_the_input_needs_equal_widths() -> None:
    make = cell_maker("gru", reset="input")
    assert isinstance(make(4, 4), GRUCell)
    with pytest.raises(ConfigError, match="width 4 cannot act on an input of width 3"):
        make(3, 4)
