"""Spectra: eigenvalues by modulus, singular values by size, a picture of both, and the gates of a model."""

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.drawing.spectra import draw_spectra
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.jacobians import spectrum_of, state_spectra


def test_a_known_matrix_has_its_known_spectrum() -> None:
    """[[0, −2], [2, 0]] turns by 90° and doubles: λ = ±2i, both singular values 2. A shear has σ > ρ."""
    turned = spectrum_of("turn", torch.tensor([[0.0, -2.0], [2.0, 0.0]]))
    assert (turned.radius, turned.gain) == (pytest.approx(2), pytest.approx(2))
    np.testing.assert_allclose(sorted(turned.eigenvalues.imag), [-2, 2])
    sheared = spectrum_of("shear", torch.tensor([[1.0, 3.0], [0.0, 0.5]]))
    assert sheared.radius == pytest.approx(1)
    assert sheared.gain > 3
    assert sheared.as_data()["eigenvalues"] == [pytest.approx([1, 0]), pytest.approx([0.5, 0])]


def test_each_gate_is_its_own_part_of_the_weights() -> None:
    cell = LSTMCell(3, 4)
    gates = cell.gate_matrices()
    assert list(gates) == ["input i", "forget f", "candidate g", "output o"]
    assert torch.equal(torch.cat(list(gates.values())), cell.from_state.weight)
    assert list(GRUCell(3, 4).gate_matrices()) == ["reset r", "update z", "candidate n"]


def test_gates_begin_as_rotations() -> None:
    for spectrum in (spectrum_of(name, matrix) for name, matrix in LSTMCell(3, 8).gate_matrices().items()):
        np.testing.assert_allclose(np.abs(spectrum.eigenvalues), 1, atol=1e-5)
        np.testing.assert_allclose(spectrum.singular_values, 1, atol=1e-5)


def test_all_cells_of_a_model_are_found_by_name() -> None:
    model = nn.ModuleDict({"below": LSTMCell(3, 4), "above": nn.Sequential(GRUCell(4, 4)), "out": nn.Linear(4, 4)})
    spectra = state_spectra(model)
    assert {name: len(gates) for name, gates in spectra.items()} == {"below": 4, "above.0": 3}
    assert state_spectra(nn.Linear(4, 4)) == {}


def test_a_picture_has_a_plane_and_singular_values_for_each_cell() -> None:
    groups = {f"cell {number}": [spectrum_of("u", torch.randn(4, 4))] for number in range(4)}
    figure = draw_spectra(groups)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == list(groups)
    assert len([axes for axes in figure.axes if axes.axison]) == 8
