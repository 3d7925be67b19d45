"""The settings of a model make the cell that they name, with the options that it has."""

import pytest
import torch

from seqloom.core.errors import ConfigError
from seqloom.models.cell_options import CELLS
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import spectral_radius


@pytest.mark.parametrize("kind", CELLS)
def test_a_kind_is_its_class_with_its_defaults(kind: str) -> None:
    torch.manual_seed(1)
    made = RnnLmConfig(cell=kind).make_cell()(3, 4)
    torch.manual_seed(1)
    direct = CELLS[kind](3, 4)
    assert type(made) is type(direct)
    torch.testing.assert_close(made.state_dict(), direct.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", CELLS)
def test_every_kind_takes_norm_and_start(kind: str) -> None:
    cell = RnnLmConfig(cell=kind, cell_norm=True, start="spectral", spectral_radius=0.7).make_cell()(3, 4)
    assert "from_state.gain" in cell.state_dict()
    radii = [spectral_radius(gate) for gate in cell.from_state.weight.chunk(len(cell.gates))]
    assert radii == pytest.approx([0.7] * len(cell.gates), abs=1e-6)


def test_options_reach_the_cell_that_has_them() -> None:
    rnn = RnnLmConfig(cell="rnn", activation="identity").make_cell()(3, 4)
    assert isinstance(rnn, ElmanCell)
    assert rnn.activation == "identity"
    gru = RnnLmConfig(cell="gru", reset="before", update="new").make_cell()(3, 4)
    assert isinstance(gru, GRUCell)
    assert (gru.reset, gru.update) == ("before", "new")
    full = RnnLmConfig(cell="peephole", peephole="full", forget_bias=3.0).make_cell()(3, 4)
    assert full.get_parameter("from_memory").shape == (12, 4)
    assert full.from_input.bias.view(4, 4).tolist() == [[0.0] * 4, [0.0] * 4, [3.0] * 4, [0.0] * 4]
    lstm, coupled = (RnnLmConfig(cell=kind, forget_bias=3.0).make_cell()(3, 4) for kind in ("lstm", "coupled"))
    assert lstm.from_input.bias.view(4, 4)[1].tolist() == [3.0] * 4
    assert coupled.from_input.bias.view(3, 4)[1].tolist() == [-3.0] * 4


def test_a_reset_of_the_input_needs_equal_widths() -> None:
    make = RnnLmConfig(cell="gru", reset="input").make_cell()
    assert isinstance(make(4, 4), GRUCell)
    with pytest.raises(ConfigError, match="width 4 cannot act on an input of width 3"):
        make(3, 4)
