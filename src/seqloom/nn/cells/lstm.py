"""The long short-term memory and its relatives with peepholes and with coupled gates.

With `norm`, tanh(LN(c')) replaces tanh(c') besides the norms of `GatedCell`.
"""

from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.errors import check_known
from seqloom.nn.bptt.lstm import lstm_pass
from seqloom.nn.bptt.passes import ManualBackward
from seqloom.nn.bptt.truncation import run_cell
from seqloom.nn.cells.cell import CellState, GatedCell, Inputs, Lengths, RunResult, check_lengths, check_run, mix
from seqloom.nn.init import Start

Peephole = Literal["diagonal", "full"]


class LSTMCell(GatedCell):
    """One step of a long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate by Gers et al., 2000).

        i = σ(W_i x + b_i + U_i h + d_i)       input gate: how much of the candidate is written
        f = σ(W_f x + b_f + U_f h + d_f)       forget gate: 1 keeps the old memory
        g = tanh(W_g x + b_g + U_g h + d_g)    candidate
        o = σ(W_o x + b_o + U_o h + d_o)       output gate: how much of the memory is shown
        c' = f ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    W and b are `from_input`, U and d `from_state`, the gates in this order. Two biases are one too many; they are
    torch's, whose kernels run whole sequences with the same weights (with `norm` there is no d). `forget_bias` is
    where b_f begins: at 1 the memory lasts for a few steps from the start (Józefowicz et al., 2015).
    """

    parts = 2
    gates = ("input i", "forget f", "candidate g", "output o")
    groups = (4,)

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        forget_bias: float = 1.0,
        norm: bool = False,
        start: Start = "orthogonal",
        spectral_radius: float = 1.0,
    ) -> None:
        super().__init__(
            input_width, width, has_state_bias=not norm, norm=norm, start=start, spectral_radius=spectral_radius
        )
        self.memory_norm = nn.LayerNorm(width) if norm else None
        nn.init.constant_(self.from_input.bias[width : 2 * width].detach(), forget_bias)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        i, f, g, o = (projected + self.from_state(hidden)).chunk(4, dim=1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * _shown(memory, self.memory_norm), memory

    def manual_backward(self) -> ManualBackward:
        bias, gain, norm = self.from_state.bias, self.state_gain, _norm(self.memory_norm)
        return ManualBackward(partial(lstm_pass, order="ifgo"), (self.from_state.weight, bias, gain, None, *norm))

    def run(self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None) -> RunResult:
        # For rows of several lengths torch returns the last memory only from its kernel for packed sequences, which
        # takes twice the time of the hand-derived pass. Not every CPU has its kernel for half precision under autocast.
        is_cast = inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if self.norm or lengths is not None or not inputs.shape[1] or is_cast:
            return run_cell(self, inputs, state, lengths=lengths)
        check_run(self, inputs, state, lengths=None)
        weights, begin = self.torch_weights, [part[None] for part in state]
        # The kernel for CPUs saves what its backward pass needs only if `trains` is set.
        trains = torch.is_grad_enabled()
        outputs, hidden, memory = torch.lstm(inputs, begin, weights, True, 1, 0.0, trains, False, True)
        return outputs, (hidden[0], memory[0])

    def outputs(
        self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time width"]:
        if lengths is not None and not self.norm:
            check_lengths(lengths, rows=len(inputs), time=inputs.shape[1])
            lengths = None
        return self.run(inputs, state, lengths=lengths)[0]


class PeepholeCell(GatedCell):
    """One step of an LSTM whose gates also see the memory (Gers & Schmidhuber, 2000).

        o = σ(W_o x + b_o + U_o h + p_o ⊙ c')      output gate: looks at the new memory
        i = σ(W_i x + b_i + U_i h + p_i ⊙ c)       input gate
        f = σ(W_f x + b_f + U_f h + p_f ⊙ c)       forget gate
        g = tanh(W_g x + b_g + U_g h)              candidate
        c' = f ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    That is peephole="diagonal", the paper's: each unit looks at its own memory. With peephole="full" the gates look at
    all of the old memory, V_o c, V_i c and V_f c instead of p ⊙ c, as if c were joined to h; then the output gate
    sees c, too, and not c'. W and b are `from_input`, U is `from_state`, p or V `from_memory`, the gates in this order;
    the peepholes begin at 0, where the cell is an LSTM. `forget_bias` is where b_f begins.
    """

    parts = 2
    gates = ("output o", "input i", "forget f", "candidate g")
    groups = (4,)

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        peephole: Peephole = "diagonal",
        forget_bias: float = 1.0,
        norm: bool = False,
        start: Start = "orthogonal",
        spectral_radius: float = 1.0,
    ) -> None:
        check_known("peephole", peephole, get_args(Peephole))
        super().__init__(
            input_width, width, has_state_bias=False, norm=norm, start=start, spectral_radius=spectral_radius
        )
        self.peephole = peephole
        shape = (3, width) if peephole == "diagonal" else (3 * width, width)
        self.from_memory = nn.Parameter(torch.zeros(shape))
        self.memory_norm = nn.LayerNorm(width) if norm else None
        nn.init.constant_(self.from_input.bias[2 * width : 3 * width].detach(), forget_bias)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        o, i, f, g = (projected + self.from_state(hidden)).chunk(4, dim=1)
        if self.peephole == "diagonal":
            seen_o, seen_i, seen_f = self.from_memory
            i, f = i + seen_i * memory, f + seen_f * memory
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            o = o + seen_o * memory
        else:
            seen_o, seen_i, seen_f = F.linear(memory, self.from_memory).chunk(3, dim=1)
            o, i, f = o + seen_o, i + seen_i, f + seen_f
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * _shown(memory, self.memory_norm), memory

    def manual_backward(self) -> ManualBackward:
        gain, norm = self.state_gain, _norm(self.memory_norm)
        parameters = (self.from_state.weight, None, gain, self.from_memory, *norm)
        return ManualBackward(partial(lstm_pass, order="oifg", peephole=self.peephole), parameters)

    run = run_cell


class CoupledCell(GatedCell):
    """One step of an LSTM that forgets as much as it writes, f = 1 − i (Greff et al., 2017).

        o = σ(W_o x + b_o + U_o h)        output gate
        i = σ(W_i x + b_i + U_i h)        input gate: 1 puts the candidate in the place of the old memory
        g = tanh(W_g x + b_g + U_g h)     candidate
        c' = (1 − i) ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    The memory is a mean of candidates, so it stays between −1 and 1 once there. W and b are `from_input`, U is
    `from_state`, the gates in this order: three quarters of the parameters of an LSTM with one bias. `forget_bias` is
    where −b_i begins, which opens the forget gate 1 − i as far as that of an LSTM.
    """

    parts = 2
    gates = ("output o", "input i", "candidate g")
    groups = (3,)

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        forget_bias: float = 1.0,
        norm: bool = False,
        start: Start = "orthogonal",
        spectral_radius: float = 1.0,
    ) -> None:
        super().__init__(
            input_width, width, has_state_bias=False, norm=norm, start=start, spectral_radius=spectral_radius
        )
        self.memory_norm = nn.LayerNorm(width) if norm else None
        nn.init.constant_(self.from_input.bias[width : 2 * width].detach(), -forget_bias)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        o, i, g = (projected + self.from_state(hidden)).chunk(3, dim=1)
        memory = mix(memory, g.tanh(), i.sigmoid())
        return o.sigmoid() * _shown(memory, self.memory_norm), memory

    def manual_backward(self) -> ManualBackward:
        gain, norm = self.state_gain, _norm(self.memory_norm)
        return ManualBackward(partial(lstm_pass, order="oig"), (self.from_state.weight, None, gain, None, *norm))

    run = run_cell


def _shown(memory: Float[Tensor, "rows width"], norm: nn.LayerNorm | None) -> Float[Tensor, "rows width"]:
    return memory.tanh() if norm is None else F.layer_norm(memory, norm.normalized_shape, norm.weight, norm.bias).tanh()


def _norm(norm: nn.LayerNorm | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if norm is None else (norm.weight, norm.bias)
