"""What the gates of an LSTM do to the gradient of its memory.

The memory c_{t−1} reaches c_t on four ways, three of them through h_{t−1} = o_{t−1} ⊙ tanh(c_{t−1}):

    ∂c_t/∂c_{t−1} = A + B + C + D
    A = diag(c_{t−1} ⊙ f(1 − f)) · U_f · S     through the forget gate
    B = diag(f)                                kept as it is
    C = diag(g ⊙ i(1 − i)) · U_i · S           through the input gate
    D = diag(i ⊙ (1 − g²)) · U_g · S           through the candidate
    S = diag(o_{t−1} ⊙ tanh'(c_{t−1}))         how h_{t−1} moves with c_{t−1}

with i, f, g, o as in `LSTMCell`, all of step t but o_{t−1}. That is exact for one step. Over several steps the product
of such sums is not ∂c_T/∂c_{T−ℓ}: in between, the memory also moves the next output gate (c_t → h_t → o_{t+1} →
h_{t+1}), and terms that hold every o fixed leave that way out. The Jacobian of h and c together leaves nothing out.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import UsageError
from seqloom.inspection.jacobians import jacobians_along, ordered_products, states_along
from seqloom.nn.cells import CellState, LSTMCell


@dataclass(frozen=True)
class GateTerms:
    """The four terms of each step but the first, whose o_{t−1} nobody has computed."""

    forget: Float[Tensor, "steps width width"]
    """A"""
    kept: Float[Tensor, "steps width width"]
    """B"""
    input: Float[Tensor, "steps width width"]
    """C"""
    candidate: Float[Tensor, "steps width width"]
    """D"""

    @property
    def total(self) -> Float[Tensor, "steps width width"]:
        """A + B + C + D"""
        return self.forget + self.kept + self.input + self.candidate


@dataclass(frozen=True)
class _Gates:
    """What each step of one sequence computed, and the states between the steps."""

    i: Float[Tensor, "time width"]
    f: Float[Tensor, "time width"]
    g: Float[Tensor, "time width"]
    o: Float[Tensor, "time width"]
    memory: Float[Tensor, "states width"]


def gate_terms(
    cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState, *, is_as_printed: bool = False
) -> GateTerms:
    """A, B, C and D at the steps 2 … T of one sequence.

    `is_as_printed` takes tanh(c) for tanh'(c) in S, a slip that some lecture notes have.
    """
    gates = _gates_along(cell, inputs, state)
    weight_i, weight_f, weight_g, _ = cell.from_state.weight.detach().chunk(4)
    before = gates.memory[1:-1]  # c_1 … c_{T−1}
    shown = before.tanh() if is_as_printed else 1 - before.tanh() ** 2
    moves = (gates.o[:-1] * shown)[:, None, :]
    i, f, g = gates.i[1:], gates.f[1:], gates.g[1:]
    return GateTerms(
        forget=(before * f * (1 - f))[:, :, None] * weight_f * moves,
        kept=torch.diag_embed(f),
        input=(g * i * (1 - i))[:, :, None] * weight_i * moves,
        candidate=(i * (1 - g**2))[:, :, None] * weight_g * moves,
    )


def memory_jacobians(
    cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState
) -> Float[Tensor, "lags width width"]:
    """∂c_T/∂c_{T−ℓ} for ℓ = 0 … T − 1, nothing left out: from the products of the joint Jacobians.

    The memory is moved at T − ℓ and h moves with it as the output gate of that step shows it:
    ∂c_T/∂c_{T−ℓ} = (P_ℓ)_ch · S + (P_ℓ)_cc
    """
    width = cell.width
    gates = _gates_along(cell, inputs, state)
    products = ordered_products(jacobians_along(cell, inputs, state)[1:])
    from_hidden, from_memory = products[:, width:, :width], products[:, width:, width:]
    moves = gates.o * (1 - gates.memory[1:].tanh() ** 2)  # of the steps 1 … T
    return from_hidden * moves.flip(0)[:, None, :] + from_memory


def _gates_along(cell: LSTMCell, inputs: Float[Tensor, "time inputs"], state: CellState) -> _Gates:
    if cell.norm:
        raise UsageError("the four gate terms are those of an LSTM without layer norm; make the cell with norm=False")
    hidden, memory = (part[:, 0] for part in states_along(cell, inputs[None], state))
    with torch.no_grad():
        i, f, g, o = (cell.project(inputs) + cell.from_state(hidden[:-1])).chunk(4, dim=1)
    return _Gates(i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid(), memory)
