"""The LSTM to read equals the one that is trained."""

import torch

from seqloom.nn.cells.lstm import LSTMCell
from seqloom.reference.lstm import Gate, lstm


def test_states_equal_those_of_the_cell() -> None:
    cell = LSTMCell(3, 4).double()
    inputs = torch.randn(1, 6, 3, dtype=torch.float64)
    weights = [cell.from_input.weight, cell.from_state.weight, cell.from_input.bias + cell.from_state.bias]
    parts = zip(*(weight.view(4, 4, *weight.shape[1:]).tolist() for weight in weights), strict=True)
    gates = {name: Gate(*part) for name, part in zip("ifgo", parts, strict=True)}
    expected = torch.tensor(lstm(inputs[0].tolist(), gates), dtype=torch.float64)
    zeros = torch.zeros(1, 4, dtype=torch.float64)
    torch.testing.assert_close(cell.run(inputs, (zeros, zeros))[0][0], expected, rtol=0, atol=1e-12)
    swapped = {**gates, "i": gates["f"], "f": gates["i"]}
    assert (torch.tensor(lstm(inputs[0].tolist(), swapped)) - expected).abs().max() > 1e-3
