"""The gated recurrent unit."""

from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.core.errors import ConfigError, check_known
from seqloom.nn.bptt.gru import ResetAfterPass, ResetBeforePass, Update
from seqloom.nn.bptt.passes import ManualBackward
from seqloom.nn.bptt.truncation import run_cell
from seqloom.nn.cells.cell import (
    CellState,
    GatedCell,
    Inputs,
    Lengths,
    NormedLinear,
    RunResult,
    check_run,
    mix,
    of_rows,
    run_fused,
)
from seqloom.nn.init import Start

Reset = Literal["after", "before", "input"]
"""What the reset gate acts on: the product U h, the state h, or the input x."""


class GRUCell(GatedCell):
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
    groups = (2, 1)

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
        check_known("reset", reset, get_args(Reset))
        check_known("update", update, get_args(Update))
        if reset == "input" and input_width != width:
            raise ConfigError(
                f"a reset gate of width {width} cannot act on an input of width {input_width}: reset='input' needs "
                "both to be the same; set reset to after or before, or make the widths equal"
            )
        has_state_bias = reset == "after" and not norm
        super().__init__(
            input_width, width, has_state_bias=has_state_bias, norm=norm, start=start, spectral_radius=spectral_radius
        )
        self.reset, self.update = reset, update

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        """With reset="input" the input itself replaces W_n x, which has to wait for the gate."""
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
        return (mix(n, hidden, z) if self.update == "keep" else mix(hidden, n, z),)

    def manual_backward(self) -> ManualBackward:
        weight, gain, inner = self.from_state.weight, self.state_gain, slice(2 * self.width, None)
        if self.reset == "after":
            return ManualBackward(partial(ResetAfterPass, update=self.update), (weight, self.from_state.bias, gain))
        make = partial(ResetBeforePass, update=self.update)
        if self.reset == "before":
            return ManualBackward(make, (weight, gain))
        inner_gain = self.from_input.gain if isinstance(self.from_input, NormedLinear) else None
        further = (self.from_input.weight[inner], self.from_input.bias[inner])
        return ManualBackward(make, (weight, gain, *further, None if inner_gain is None else inner_gain[inner]))

    def run(self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None) -> RunResult:
        if self.norm or self.reset != "after" or inputs.device.type == "cpu":
            return run_cell(self, inputs, state, lengths=lengths)
        check_run(self, inputs, state, lengths=lengths)
        weights = self.torch_weights
        if self.update == "new":  # 1 − σ(a) = σ(−a)
            signs = weights[0].new_ones(3, self.width)
            signs[1] = -1
            weights = [weight * signs.view(-1, *[1] * (weight.dim() - 1)) for weight in weights]
        return run_fused(torch.gru, inputs, state, weights=weights, lengths=lengths)
