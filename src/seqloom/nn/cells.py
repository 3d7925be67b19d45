"""Recurrent cells: one step each, and the plain loop that unrolls any of them.

A cell's step has two halves, so that the first can be done for all positions of a sequence in one product:

    p = project(x)             what the input adds to each gate, W x + b
    state' = advance(p, state)

A state is a tuple of tensors of the same shape. Its first is the hidden state, all that other layers see of a cell.
`run` is the fast way over whole sequences; `unroll` is its plain twin, and the `run` of a cell that has no faster one.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqloom.nn.init import xavier_uniform

CellState = tuple[Float[Tensor, "rows width"], ...]
"""The hidden state, then whatever else the cell remembers."""


class Cell(nn.Module, ABC):
    """What a layer needs to know of a cell."""

    width: int
    """Size of the hidden state."""

    @abstractmethod
    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        """What each input adds to the gates, before any state is known."""

    @abstractmethod
    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        """The state after a step."""

    @abstractmethod
    def begin(self, hint: Float[Tensor, "rows width"]) -> CellState:
        """The state whose hidden part is tanh(hint). A hint of zeros is the state before anything was read."""

    @abstractmethod
    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        """Hidden states at every position, and the state after the last one of each row.

        Without `lengths` every row is taken to be full. Real positions never see the padding after them, so lengths
        matter to the last state alone; positions in the padding may hold anything finite.
        """


def unroll(
    cell: Cell,
    inputs: Float[Tensor, "batch time inputs"],
    *,
    state: CellState,
    lengths: Int[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, "batch time width"], CellState]:
    """The cell's `run` as a loop over its one-step form; a row past its length keeps its state."""
    outputs = []
    for time, projected in enumerate(cell.project(inputs).unbind(1)):
        stepped = cell.advance(projected, state)
        outputs.append(stepped[0])
        if lengths is not None:
            goes_on = (time < lengths)[:, None]
            stepped = tuple(torch.where(goes_on, new, old) for new, old in zip(stepped, state, strict=True))
        state = stepped
    return torch.stack(outputs, 1), state


class LSTMCell(Cell):
    """One step of a long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate by Gers et al., 2000).

        i = σ(W_i x + b_i + U_i h + d_i)       input gate: how much of the candidate is written
        f = σ(W_f x + b_f + U_f h + d_f)       forget gate: 1 keeps the old memory
        g = tanh(W_g x + b_g + U_g h + d_g)    candidate
        o = σ(W_o x + b_o + U_o h + d_o)       output gate: how much of the memory is shown
        c' = f ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    W and b are `from_input`, U and d `from_state`, the gates in this order. Two biases are one too many; they are
    torch's, whose kernels run whole sequences with these very weights. `forget_bias` is where b_f begins: at 1 the
    memory lasts for a few steps from the start (Józefowicz et al., 2015).
    """

    def __init__(self, input_width: int, width: int, *, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.width = width
        self.from_input, self.from_state = _gates(input_width, width, gates=4)
        nn.init.constant_(self.from_input.bias[width : 2 * width].detach(), forget_bias)

    def forward(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        """x and (h, c) to (h', c')"""
        return self.advance(self.project(inputs), state)

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        projected: Tensor = self.from_input(inputs)
        return projected

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        i, f, g, o = (projected + self.from_state(hidden)).chunk(4, dim=1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * memory.tanh(), memory

    def begin(self, hint: Float[Tensor, "rows width"]) -> CellState:
        """The hint becomes the memory, shown as through an open gate."""
        return hint.tanh(), hint

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        if lengths is not None and len(lengths):
            return self._run_packed(inputs, state, lengths=lengths)
        weights, begin = _weights(self.from_input, self.from_state), [part[None] for part in state]
        # The kernel for CPUs keeps what its backward pass needs only when told that it trains.
        trains = torch.is_grad_enabled()
        outputs, hidden, memory = torch.lstm(inputs, begin, weights, True, 1, 0.0, trains, False, True)
        return outputs, (hidden[0], memory[0])

    def _run_packed(
        self, inputs: Float[Tensor, "batch time inputs"], state: CellState, *, lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        """The memory at the end of shorter rows is known to torch's slower kernel for packed sequences alone."""
        counted = lengths.clamp(min=1)  # which refuses a row of no positions
        order = counted.argsort(descending=True)
        packed = pack_padded_sequence(inputs[order], counted[order].cpu(), batch_first=True)
        begin = [part[order][None] for part in state]
        weights = _weights(self.from_input, self.from_state)
        data, *ends = torch.lstm(
            packed.data, packed.batch_sizes, begin, weights, True, 1, 0.0, torch.is_grad_enabled(), False
        )
        outputs, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=inputs.shape[1])
        back = order.argsort()
        has_moved = (lengths > 0)[:, None]
        final = tuple(torch.where(has_moved, end[0, back], old) for end, old in zip(ends, state, strict=True))
        return outputs[back], final


class GRUCell(Cell):
    """One step of a gated recurrent unit (Cho et al., 2014).

        r = σ(W_r x + b_r + U_r h + d_r)               reset gate
        z = σ(W_z x + b_z + U_z h + d_z)               update gate: 1 keeps the old state
        n = tanh(W_n x + b_n + r ⊙ (U_n h + d_n))      candidate; the reset gate acts after the product (torch)
        h' = (1 − z) ⊙ n + z ⊙ h

    W and b are `from_input`, U and d `from_state`, the gates in this order.
    """

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.from_input, self.from_state = _gates(input_width, width, gates=3)

    def forward(
        self, inputs: Float[Tensor, "rows inputs"], hidden: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "rows width"]:
        """(x, h) to h'"""
        return self.advance(self.project(inputs), (hidden,))[0]

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        projected: Tensor = self.from_input(inputs)
        return projected

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        (hidden,) = state
        input_r, input_z, input_n = projected.chunk(3, dim=1)
        state_r, state_z, state_n = self.from_state(hidden).chunk(3, dim=1)
        r = (input_r + state_r).sigmoid()
        z = (input_z + state_z).sigmoid()
        n = (input_n + r * state_n).tanh()
        return (torch.lerp(n, hidden, z),)

    def begin(self, hint: Float[Tensor, "rows width"]) -> CellState:
        return (hint.tanh(),)

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        weights = _weights(self.from_input, self.from_state)
        outputs, hidden = torch.gru(inputs, state[0][None], weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
        if lengths is None:
            return outputs, (hidden[0],)
        # A row of no positions stays where it began.
        steps = torch.cat([state[0][:, None], outputs], 1)
        return outputs, (steps[torch.arange(len(lengths), device=lengths.device), lengths],)


def _gates(input_width: int, width: int, *, gates: int) -> tuple[nn.Linear, nn.Linear]:
    """W and U of all gates: Glorot's bounds for the inputs, a rotation per gate for the state, biases of zero."""
    from_input, from_state = nn.Linear(input_width, gates * width), nn.Linear(width, gates * width)
    xavier_uniform(from_input.weight, parts=gates)
    for gate in from_state.weight.detach().chunk(gates):
        nn.init.orthogonal_(gate)
    nn.init.zeros_(from_input.bias)
    nn.init.zeros_(from_state.bias)
    return from_input, from_state


def _weights(from_input: nn.Linear, from_state: nn.Linear) -> list[Tensor]:
    """In the order of torch's kernels."""
    return [from_input.weight, from_state.weight, from_input.bias, from_state.bias]
