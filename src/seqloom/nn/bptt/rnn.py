"""The hand-derived pass of the plain recurrent network."""

from typing import Literal

import torch
from torch import Tensor

from seqloom.nn.bptt.passes import Pass, Steps, Tensors, link


class ElmanPass(Pass):
    """h' = φ(p + U h), with the weights U and, for LN(U h), its gain.

    Back: δ = φ' ⊙ ∂h',  ∂p = δ,  ∂h = Uᵀ δ,  ∂U = Σ δ hᵀ, and φ' follows from h' alone: 1 − h'², [h' > 0] or 1.
    """

    def __init__(
        self, parameters: tuple[Tensor | None, ...], *, activation: Literal["tanh", "relu", "identity"]
    ) -> None:
        weight, gain = parameters
        assert weight is not None
        self._link = link(weight, gain)
        self._activation = activation

    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        (hidden,), product = states, self._link
        product.begin(steps, projected)
        steps.after_all(hidden).copy_(projected)
        activate = {"tanh": torch.tanh_, "relu": torch.relu_, "identity": None}[self._activation]
        for step, (before, after) in enumerate(zip(*steps.around(hidden), strict=True)):
            product.add(step, before, after)
            if activate is not None:
                activate(after)
        return product.tape

    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        self._link.prepare_backward(steps, iter(tape))
        self._steps, (self._hidden,) = steps, states
        self._before, self._after = steps.around(gradients[0])
        self.gate_gradients = steps.after_all(gradients[0])  # a gradient becomes δ in place
        hidden = steps.after_all(self._hidden)
        self._derivatives: list[Tensor] | None = None
        if self._activation == "tanh":
            self._derivatives = steps.at(torch.addcmul(hidden.new_ones(()), hidden, hidden, value=-1))
        elif self._activation == "relu":
            self._derivatives = steps.at((hidden > 0).to(hidden.dtype))

    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        for step in reversed(range(first, last)):
            gate_gradients = self._after[step]
            if self._derivatives is not None:
                gate_gradients.mul_(self._derivatives[step])
            self._link.backward(step, gate_gradients, None if is_cut and step == first else self._before[step])

    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        (hidden,) = gradients
        gate_gradients = hidden if self._derivatives is None else hidden * self._derivatives[step]
        torch.sum(gate_gradients, 0, out=self._after[step])
        return [self._link.vjp(step, gate_gradients)]

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        return self._link.gradients(self.gate_gradients, self._steps.before_all(self._hidden))
