"""The recurrent cells, one step each (`seqloom.nn.cells.cell` says what a cell is).

`run` is the fast way over whole sequences: torch's kernel where the formula is torch's, else the hand-derived pass of
`seqloom.nn.bptt.truncation`; `unroll` is the plain twin of both.

With `norm`, LN(W x) and LN(U h) stand in the place of W x and U h, and tanh(LN(c')) in that of tanh(c') (Ba et al.,
2016): LN brings the numbers that one product gives to mean 0 and variance 1 and scales each by a learnt gain.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, check_known
from seqloom.nn.bptt.gru import ResetAfterPass, ResetBeforePass
from seqloom.nn.bptt.lstm import lstm_pass
from seqloom.nn.bptt.passes import ByHand, ElmanPass
from seqloom.nn.bptt.truncation import run_by_hand
from seqloom.nn.cells.cell import Cell, CellState, NormedLinear, check_lengths, check_run, of_rows, unroll
from seqloom.nn.init import Start, state_matrices, xavier_uniform

__all__ = ["Cell", "CellState", "CoupledCell", "ElmanCell", "GRUCell", "LSTMCell", "PeepholeCell", "unroll"]

Activation = Literal["tanh", "relu", "identity"]
Peephole = Literal["diagonal", "full"]
Reset = Literal["after", "before", "input"]
"""What the reset gate acts on: the product U h, the state h, or the input x."""
Update = Literal["keep", "new"]
"""What an update gate of 1 gives: the old state or the candidate."""


class ElmanCell(Cell):
    """One step of the plain recurrent network (Elman, 1990).

        h' = φ(W x + b + U h + d)        φ: tanh, relu or identity

    W and b are `from_input`, U and d `from_state`. Two biases are one too many; they are torch's, whose kernels run
    whole sequences of the first two forms with these very weights. `project` adds both. With the identity the state is
    the linear network of the theory, a sum over all inputs: h_t = U^t h_0 + Σ_s U^{t−s} (W x_s + b + d).
    """

    parts = 1
    gates = ("state h",)

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        activation: Activation = "tanh",
        norm: bool = False,
        start: Start = "orthogonal",
        spectral_radius: float = 1.0,
    ) -> None:
        super().__init__()
        check_known("activation", activation, get_args(Activation))
        self.input_width, self.width, self.activation, self.norm = input_width, width, activation, norm
        self.from_input = _linear(input_width, (width,), norm=norm)
        self.from_state = _linear(width, (width,), norm=norm, has_bias=not norm)
        _begin(self, start, spectral_radius)

    def forward(
        self, inputs: Float[Tensor, "rows inputs"], hidden: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "rows width"]:
        """(x, h) to h'"""
        return self.advance(self.project(inputs), (hidden,))[0]

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        if self.norm:
            return super().project(inputs)
        return F.linear(inputs, self.from_input.weight, self.from_input.bias + self.from_state.bias)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        (hidden,) = state
        total = projected + (self.from_state(hidden) if self.norm else F.linear(hidden, self.from_state.weight))
        if self.activation == "identity":
            return (total,)
        return (total.tanh() if self.activation == "tanh" else total.relu(),)

    def by_hand(self) -> ByHand:
        return ByHand(partial(ElmanPass, activation=self.activation), (self.from_state.weight, _gain(self.from_state)))

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        if self.norm or self.activation == "identity" or not _has_kernel(inputs):
            return run_by_hand(self, inputs, state, lengths=lengths)
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        check_run(self, inputs, state, lengths=lengths)
        return _run_fused(kernel, inputs, state, weights=_weights(self.from_input, self.from_state), lengths=lengths)


class LSTMCell(Cell):
    """One step of a long short-term memory (Hochreiter & Schmidhuber, 1997; forget gate by Gers et al., 2000).

        i = σ(W_i x + b_i + U_i h + d_i)       input gate: how much of the candidate is written
        f = σ(W_f x + b_f + U_f h + d_f)       forget gate: 1 keeps the old memory
        g = tanh(W_g x + b_g + U_g h + d_g)    candidate
        o = σ(W_o x + b_o + U_o h + d_o)       output gate: how much of the memory is shown
        c' = f ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    W and b are `from_input`, U and d `from_state`, the gates in this order. Two biases are one too many; they are
    torch's, whose kernels run whole sequences with these very weights (with `norm` there is no d). `forget_bias` is
    where b_f begins: at 1 the memory lasts for a few steps from the start (Józefowicz et al., 2015).
    """

    parts = 2
    gates = ("input i", "forget f", "candidate g", "output o")

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
        super().__init__()
        self.input_width, self.width, self.norm = input_width, width, norm
        self.from_input = _linear(input_width, (4 * width,), norm=norm)
        self.from_state = _linear(width, (4 * width,), norm=norm, has_bias=not norm)
        self.memory_norm = nn.LayerNorm(width) if norm else None
        _begin(self, start, spectral_radius)
        nn.init.constant_(self.from_input.bias[width : 2 * width].detach(), forget_bias)

    def forward(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        """x and (h, c) to (h', c')"""
        return self.advance(self.project(inputs), state)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        i, f, g, o = (projected + self.from_state(hidden)).chunk(4, dim=1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * _shown(memory, self.memory_norm), memory

    def by_hand(self) -> ByHand:
        bias, gain, norm = self.from_state.bias, _gain(self.from_state), _norm(self.memory_norm)
        return ByHand(partial(lstm_pass, order="ifgo"), (self.from_state.weight, bias, gain, None, *norm))

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        # Of rows of several lengths torch tells the last memory only by its kernel for packed sequences, which takes
        # twice the time of the hand-derived pass. Not every processor has its kernel for what autocast makes of it.
        is_cast = inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if self.norm or lengths is not None or not inputs.shape[1] or is_cast:
            return run_by_hand(self, inputs, state, lengths=lengths)
        check_run(self, inputs, state, lengths=None)
        weights, begin = _weights(self.from_input, self.from_state), [part[None] for part in state]
        # The kernel for CPUs keeps what its backward pass needs only when told that it trains.
        trains = torch.is_grad_enabled()
        outputs, hidden, memory = torch.lstm(inputs, begin, weights, True, 1, 0.0, trains, False, True)
        return outputs, (hidden[0], memory[0])

    def outputs(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time width"]:
        if lengths is not None and not self.norm:
            check_lengths(lengths, rows=len(inputs), time=inputs.shape[1])
            lengths = None
        return self.run(inputs, state, lengths=lengths)[0]


class PeepholeCell(Cell):
    """One step of an LSTM whose gates also see the memory (Gers & Schmidhuber, 2000).

        o = σ(W_o x + b_o + U_o h + p_o ⊙ c')      output gate: looks at the new memory
        i = σ(W_i x + b_i + U_i h + p_i ⊙ c)       input gate
        f = σ(W_f x + b_f + U_f h + p_f ⊙ c)       forget gate
        g = tanh(W_g x + b_g + U_g h)              candidate
        c' = f ⊙ c + i ⊙ g
        h' = o ⊙ tanh(c')

    That is peephole="diagonal", the paper's: each unit looks at its own memory. With peephole="full" the gates look at
    all of the old memory, V_o c, V_i c and V_f c in the places of p ⊙ c, as if c were joined to h; then the output gate
    sees c, too, and not c'. W and b are `from_input`, U is `from_state`, p or V `from_memory`, the gates in this order;
    the peepholes begin at 0, where the cell is an LSTM. `forget_bias` is where b_f begins.
    """

    parts = 2
    gates = ("output o", "input i", "forget f", "candidate g")

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
        super().__init__()
        check_known("peephole", peephole, get_args(Peephole))
        self.input_width, self.width, self.peephole, self.norm = input_width, width, peephole, norm
        self.from_input = _linear(input_width, (4 * width,), norm=norm)
        self.from_state = _linear(width, (4 * width,), norm=norm, has_bias=False)
        shape = (3, width) if peephole == "diagonal" else (3 * width, width)
        self.from_memory = nn.Parameter(torch.zeros(shape))
        self.memory_norm = nn.LayerNorm(width) if norm else None
        _begin(self, start, spectral_radius)
        nn.init.constant_(self.from_input.bias[2 * width : 3 * width].detach(), forget_bias)

    def forward(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        """x and (h, c) to (h', c')"""
        return self.advance(self.project(inputs), state)

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

    def by_hand(self) -> ByHand:
        gain, norm = _gain(self.from_state), _norm(self.memory_norm)
        parameters = (self.from_state.weight, None, gain, self.from_memory, *norm)
        return ByHand(partial(lstm_pass, order="oifg", peephole=self.peephole), parameters)

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        return run_by_hand(self, inputs, state, lengths=lengths)


class CoupledCell(Cell):
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
        super().__init__()
        self.input_width, self.width, self.norm = input_width, width, norm
        self.from_input = _linear(input_width, (3 * width,), norm=norm)
        self.from_state = _linear(width, (3 * width,), norm=norm, has_bias=False)
        self.memory_norm = nn.LayerNorm(width) if norm else None
        _begin(self, start, spectral_radius)
        nn.init.constant_(self.from_input.bias[width : 2 * width].detach(), -forget_bias)

    def forward(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        """x and (h, c) to (h', c')"""
        return self.advance(self.project(inputs), state)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        hidden, memory = state
        o, i, g = (projected + self.from_state(hidden)).chunk(3, dim=1)
        memory = _mixed(memory, g.tanh(), i.sigmoid())
        return o.sigmoid() * _shown(memory, self.memory_norm), memory

    def by_hand(self) -> ByHand:
        gain, norm = _gain(self.from_state), _norm(self.memory_norm)
        return ByHand(partial(lstm_pass, order="oig"), (self.from_state.weight, None, gain, None, *norm))

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        return run_by_hand(self, inputs, state, lengths=lengths)


class GRUCell(Cell):
    """One step of a gated recurrent unit (Cho et al., 2014).

        r = σ(W_r x + b_r + U_r h + d_r)               reset gate
        z = σ(W_z x + b_z + U_z h + d_z)               update gate
        n = tanh(W_n x + b_n + r ⊙ (U_n h + d_n))      candidate, reset="after" the product (torch, cuDNN)
        n = tanh(W_n x + b_n + U_n (r ⊙ h))            candidate, reset="before" the product (the paper)
        n = tanh(W_n (r ⊙ x) + b_n + U_n h)            candidate, reset="input": of the input, as wide as the state
        h' = (1 − z) ⊙ n + z ⊙ h                       update="keep": a gate of 1 keeps the old state (torch)
        h' = z ⊙ n + (1 − z) ⊙ h                       update="new": a gate of 1 takes the candidate

    W and b are `from_input`, U and d `from_state`, the gates in this order. Only reset="after" has a second bias d,
    and that without `norm` only. The two updates are one cell with the sign of W_z, b_z, U_z and d_z turned.
    """

    parts = 1
    gates = ("reset r", "update z", "candidate n")

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        reset: Reset = "after",
        update: Update = "keep",
        norm: bool = False,
        start: Start = "orthogonal",
        spectral_radius: float = 1.0,
    ) -> None:
        super().__init__()
        check_known("reset", reset, get_args(Reset))
        check_known("update", update, get_args(Update))
        if reset == "input" and input_width != width:
            raise ConfigError(
                f"a reset gate of width {width} cannot act on an input of width {input_width}: reset='input' needs "
                "both to be the same; set reset to after or before, or make the widths equal"
            )
        self.input_width, self.width, self.norm = input_width, width, norm
        self.reset, self.update = reset, update
        groups = (2 * width, width)
        self.from_input = _linear(input_width, groups, norm=norm)
        self.from_state = _linear(width, groups, norm=norm, has_bias=reset == "after" and not norm)
        _begin(self, start, spectral_radius)

    def forward(
        self, inputs: Float[Tensor, "rows inputs"], hidden: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "rows width"]:
        """(x, h) to h'"""
        return self.advance(self.project(inputs), (hidden,))[0]

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        """With reset="input" the input itself stands in the place of W_n x, which has to wait for the gate."""
        if self.reset == "input":
            return torch.cat([of_rows(self.from_input, inputs, begin=0, end=2 * self.width), inputs], -1)
        return super().project(inputs)

    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        (hidden,), width = state, self.width
        input_r, input_z, input_n = projected.chunk(3, dim=1)
        if self.reset == "before":
            state_r, state_z = of_rows(self.from_state, hidden, begin=0, end=2 * width).chunk(2, dim=1)
        else:
            state_r, state_z, state_n = self.from_state(hidden).chunk(3, dim=1)
        r = (input_r + state_r).sigmoid()
        z = (input_z + state_z).sigmoid()
        if self.reset == "after":
            n = (input_n + r * state_n).tanh()
        elif self.reset == "before":
            n = (input_n + of_rows(self.from_state, r * hidden, begin=2 * width, end=3 * width)).tanh()
        else:
            n = (of_rows(self.from_input, r * input_n, begin=2 * width, end=3 * width) + state_n).tanh()
        return (_mixed(n, hidden, z) if self.update == "keep" else _mixed(hidden, n, z),)

    def by_hand(self) -> ByHand:
        weight, gain, inner = self.from_state.weight, _gain(self.from_state), slice(2 * self.width, None)
        if self.reset == "after":
            return ByHand(partial(ResetAfterPass, update=self.update), (weight, self.from_state.bias, gain))
        make = partial(ResetBeforePass, update=self.update)
        if self.reset == "before":
            return ByHand(make, (weight, gain))
        inner_gain = _gain(self.from_input)
        further = (self.from_input.weight[inner], self.from_input.bias[inner])
        return ByHand(make, (weight, gain, *further, None if inner_gain is None else inner_gain[inner]))

    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        if self.norm or self.reset != "after" or not _has_kernel(inputs):
            return run_by_hand(self, inputs, state, lengths=lengths)
        check_run(self, inputs, state, lengths=lengths)
        weights = _weights(self.from_input, self.from_state)
        if self.update == "new":  # 1 − σ(a) = σ(−a)
            signs = weights[0].new_ones(3, self.width)
            signs[1] = -1
            weights = [weight * signs.view(-1, *[1] * (weight.dim() - 1)) for weight in weights]
        return _run_fused(torch.gru, inputs, state, weights=weights, lengths=lengths)


def _has_kernel(inputs: Tensor) -> bool:
    """Whether torch runs whole sequences of its RNN and GRU in one kernel on this device.

    On processors it has one for the LSTM alone; the others are loops of small calls there, and the hand-derived pass
    takes less time.
    """
    return inputs.device.type != "cpu"


def _run_fused(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    inputs: Float[Tensor, "batch time inputs"],
    state: CellState,
    *,
    weights: list[Tensor],
    lengths: Int[Tensor, " batch"] | None,
) -> tuple[Float[Tensor, "batch time width"], CellState]:
    """A kernel of torch for states of one part, whose outputs tell the last state of any row."""
    if not inputs.shape[1]:  # which the kernels refuse
        return inputs.new_zeros(len(inputs), 0, state[0].shape[1]), state
    outputs, hidden = kernel(inputs, state[0][None], weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
    if lengths is None:
        return outputs, (hidden[0],)
    # A row of no positions stays where it began.
    steps = torch.cat([state[0][:, None], outputs], 1)
    return outputs, (steps[torch.arange(len(lengths), device=lengths.device), lengths],)


def _mixed(
    begin: Float[Tensor, "rows width"], end: Float[Tensor, "rows width"], gate: Float[Tensor, "rows width"]
) -> Float[Tensor, "rows width"]:
    """begin + gate ⊙ (end − begin), also where autocast has left some of them in half precision."""
    dtype = torch.promote_types(begin.dtype, end.dtype)
    return torch.lerp(begin.to(dtype), end.to(dtype), gate.to(dtype))


def _shown(memory: Float[Tensor, "rows width"], norm: nn.LayerNorm | None) -> Float[Tensor, "rows width"]:
    return memory.tanh() if norm is None else F.layer_norm(memory, norm.normalized_shape, norm.weight, norm.bias).tanh()


def _gain(linear: nn.Linear) -> Tensor | None:
    return linear.gain if isinstance(linear, NormedLinear) else None


def _norm(norm: nn.LayerNorm | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if norm is None else (norm.weight, norm.bias)


def _linear(input_width: int, groups: tuple[int, ...], *, norm: bool, has_bias: bool = True) -> nn.Linear:
    if norm:
        return NormedLinear(input_width, sum(groups), groups=groups, has_bias=has_bias)
    return nn.Linear(input_width, sum(groups), bias=has_bias)


def _begin(cell: ElmanCell | LSTMCell | PeepholeCell | CoupledCell | GRUCell, start: Start, radius: float) -> None:
    """Glorot's bounds for W, `start` for U, each gate by itself, and biases of zero."""
    gates = len(cell.gates)
    xavier_uniform(cell.from_input.weight, parts=gates)
    state_matrices(cell.from_state.weight, gates=gates, start=start, radius=radius)
    for linear in (cell.from_input, cell.from_state):
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


def _weights(from_input: nn.Linear, from_state: nn.Linear) -> list[Tensor]:
    """In the order of torch's kernels."""
    return [from_input.weight, from_state.weight, from_input.bias, from_state.bias]
