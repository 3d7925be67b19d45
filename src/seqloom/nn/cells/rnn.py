"""The plain recurrent network."""

from functools import partial
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import check_known
from seqloom.nn.bptt.passes import ManualBackward
from seqloom.nn.bptt.rnn import ElmanPass
from seqloom.nn.bptt.truncation import run_cell
from seqloom.nn.cells.cell import CellState, GatedCell, Inputs, Lengths, RunResult, check_run, run_fused
from seqloom.nn.init import Start

Activation = Literal["tanh", "relu", "identity"]


class ElmanCell(GatedCell):
    """One step of the plain recurrent network (Elman, 1990).

        h' = φ(W x + b + U h + d)        φ: tanh, relu or identity

    W and b are `from_input`, U and d `from_state`. Two biases are one too many; they are torch's, whose kernels run
    whole sequences of the first two forms with the same weights. `project` adds both. With the identity the state is
    the linear network of the theory, a sum over all inputs: h_t = U^t h_0 + Σ_s U^{t−s} (W x_s + b + d).
    """

    parts = 1
    gates = ("state h",)
    groups = (1,)

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
        check_known("activation", activation, get_args(Activation))
        super().__init__(
            input_width, width, has_state_bias=not norm, norm=norm, start=start, spectral_radius=spectral_radius
        )
        self.activation = activation

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

    def manual_backward(self) -> ManualBackward:
        return ManualBackward(partial(ElmanPass, activation=self.activation), (self.from_state.weight, self.state_gain))

    def run(self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None) -> RunResult:
        if self.norm or self.activation == "identity" or inputs.device.type == "cpu":
            return run_cell(self, inputs, state, lengths=lengths)
        kernel = torch.rnn_tanh if self.activation == "tanh" else torch.rnn_relu
        check_run(self, inputs, state, lengths=lengths)
        return run_fused(kernel, inputs, state, weights=self.torch_weights, lengths=lengths)
