"""The hand-derived passes of the gated recurrent unit: one for a reset after the product, one for a reset before it.

    h' = n + k ⊙ (h − n)        k: what is kept, z or 1 − z

Back, with a dot for the gradient of a gate's sum (what goes into its σ or tanh):

    ż = [±(h − n) ⊙ z ⊙ (1 − z)] ⊙ ∂h'         + where k = z, − where k = 1 − z
    ṅ = [(1 − k) ⊙ (1 − n²)] ⊙ ∂h'
    ∂h = k ⊙ ∂h' + the gradients through the gates

Everything in brackets is known for all steps before the first step back.
"""

from typing import Literal

import torch
from torch import Tensor

from seqloom.nn.bptt.passes import Pass, Steps, Tensors, link

Update = Literal["keep", "new"]
"""What an update gate of 1 gives: the old state or the candidate."""


class ResetAfterPass(Pass):
    """n = tanh(p_n + r ⊙ s_n), s = U h + d, with the parameters U, d and the gain of LN(U h).

    Back, with a dot also for the gradient of s: of r and z it is that of their sums.

        ṙ = [ṅ's bracket ⊙ s_n ⊙ r ⊙ (1 − r)] ⊙ ∂h'
        ṡ_n = [ṅ's bracket ⊙ r] ⊙ ∂h'
        ∂h = k ⊙ ∂h' + Uᵀ [ṙ ż ṡ_n]
    """

    def __init__(self, parameters: tuple[Tensor | None, ...], *, update: Update) -> None:
        weight, self._bias, gain = parameters
        assert weight is not None
        self._width = weight.shape[1]
        self._link = link(weight, gain, groups=(2 * self._width, self._width))
        self._update = update

    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        (hidden,), width, gates = states, self._width, projected
        self._link.begin(steps, gates)
        sums = torch.zeros_like(gates)
        if self._bias is not None:
            sums += self._bias
        sum_at, sigmoids_sum, n_sum = (steps.at(each) for each in (sums, sums[:, : 2 * width], sums[:, 2 * width :]))
        sigmoids = steps.at(gates[:, : 2 * width])
        r, z, n = (steps.at(each) for each in gates.split(width, 1))
        before, after = steps.around(hidden)
        for step in range(len(steps.sizes)):
            self._link.add(step, before[step], sum_at[step])
            sigmoids[step].add_(sigmoids_sum[step]).sigmoid_()
            n[step].addcmul_(r[step], n_sum[step]).tanh_()
            _mix(self._update, n[step], before[step], gate=z[step], out=after[step])
        return gates, sums[:, 2 * width :], *self._link.tape

    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        gates, sums, *rest = tape
        self._link.prepare_backward(steps, iter(rest))
        self._steps, (self._hidden,), (self._gradient,) = steps, states, gradients
        self._old = steps.before_all(self._hidden)
        self.gate_gradients = torch.empty_like(gates)
        kept = _mix_gradients(self._update, gates, self._old, local=self.gate_gradients)
        r = gates[:, : self._width]
        of_r, _, of_n = self.gate_gradients.split(self._width, 1)
        self._candidate = of_n.clone()
        of_n.mul_(r)
        torch.mul(of_n, sums, out=of_r)
        of_r.addcmul_(of_r, r, value=-1)
        self._kept_at, self._gradients_at = steps.at(kept), steps.at(self.gate_gradients)
        self._by_hidden = steps.at(self.gate_gradients.unflatten(1, (3, -1)))

    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        before, after = self._steps.around(self._gradient)
        for step in reversed(range(first, last)):
            self._by_hidden[step].mul_(after[step][:, None])
            into = None if is_cut and step == first else before[step]
            self._link.backward(step, self._gradients_at[step], into)
            if into is not None:
                into.addcmul_(after[step], self._kept_at[step])

    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        (hidden,) = gradients
        gate_gradients = (self._by_hidden[step] * hidden[:, :, None]).flatten(2)
        torch.sum(gate_gradients, 0, out=self._gradients_at[step])
        return [torch.addcmul(self._link.vjp(step, gate_gradients), hidden, self._kept_at[step])]

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        of_weight, of_gain = self._link.gradients(self.gate_gradients, self._old)
        return of_weight, None if self._bias is None else self.gate_gradients.sum(0), of_gain

    def input_gradients(self) -> Tensor:
        # The gradient of the candidate's sum with the input does not pass through the reset gate.
        torch.mul(self._steps.after_all(self._gradient), self._candidate, out=self.gate_gradients[:, 2 * self._width :])
        return self.gate_gradients


class ResetBeforePass(Pass):
    """n = tanh(p_n + U_n q), q = r ⊙ h, with the parameters U and the gain of LN(U h); or, reset of the input,
    n = tanh(b_n + W_n q + U_n h), q = r ⊙ x, with the further parameters W_n, b_n and the gain of LN(W_n q).

        q̇ = U_nᵀ ṅ                                      q̇ = W_nᵀ ṅ
        ṙ = [q ⊙ (1 − r)] ⊙ q̇                           the same
        ∂h = k ⊙ ∂h' + U_rᵀ ṙ + U_zᵀ ż + r ⊙ q̇          ∂h = k ⊙ ∂h' + Uᵀ [ṙ ż ṅ],  ∂x = r ⊙ q̇
    """

    def __init__(self, parameters: tuple[Tensor | None, ...], *, update: Update) -> None:
        weight, gain, *inner = parameters
        assert weight is not None
        self._width = width = weight.shape[1]
        self._update = update
        self._has_inner = bool(inner)
        if inner:
            inner_weight, self._bias, inner_gain = inner
            self._link, self._reach = link(weight, gain, groups=(2 * width, width)), 3 * width
        else:
            inner_weight, inner_gain = weight[2 * width :], None if gain is None else gain[2 * width :]
            self._link, self._reach = link(weight[: 2 * width], None if gain is None else gain[: 2 * width]), 2 * width
        assert inner_weight is not None
        self._inner = link(inner_weight, inner_gain)

    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        (hidden,), width, gates = states, self._width, projected
        self._link.begin(steps, gates)
        self._inner.begin(steps, gates)
        before, after = steps.around(hidden)
        r, z, n = (steps.at(each) for each in gates.split(width, 1))
        total, sigmoids = steps.at(gates[:, : self._reach]), steps.at(gates[:, : 2 * width])
        reset = gates.new_empty(steps.positions, width)
        reset_at, source = steps.at(reset), before
        if self._has_inner:  # the input is where the candidate's sum will be
            reset.copy_(gates[:, 2 * width :])
            source = reset_at
            gates[:, 2 * width :] = 0 if self._bias is None else self._bias
        for step in range(len(steps.sizes)):
            self._link.add(step, before[step], total[step])
            sigmoids[step].sigmoid_()
            torch.mul(source[step], r[step], out=reset_at[step])
            self._inner.add(step, reset_at[step], n[step])
            n[step].tanh_()
            _mix(self._update, n[step], before[step], gate=z[step], out=after[step])
        return gates, reset, *self._link.tape, *self._inner.tape

    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        gates, self._reset, *rest = tape
        links = iter(rest)
        self._link.prepare_backward(steps, links)
        self._inner.prepare_backward(steps, links)
        width, self._steps, (self._hidden,), (self._gradient,) = self._width, steps, states, gradients
        self._old = steps.before_all(self._hidden)
        self.gate_gradients = torch.empty_like(gates)
        kept = _mix_gradients(self._update, gates, self._old, local=self.gate_gradients)
        self._r = gates[:, :width]
        torch.addcmul(self._reset, self._reset, self._r, value=-1, out=self.gate_gradients[:, :width])
        self._of_reset = torch.zeros_like(self._reset)
        self._kept_at, self._r_at, self._of_reset_at = (steps.at(each) for each in (kept, self._r, self._of_reset))
        self._by_reset, self._by_candidate = (
            steps.at(self.gate_gradients[:, :width]),
            steps.at(self.gate_gradients[:, 2 * width :]),
        )
        self._by_hidden = steps.at(self.gate_gradients[:, width:].unflatten(1, (2, -1)))
        self._reached = steps.at(self.gate_gradients[:, : self._reach])

    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        before, after = self._steps.around(self._gradient)
        for step in reversed(range(first, last)):
            self._by_hidden[step].mul_(after[step][:, None])
            of_reset = self._of_reset_at[step]
            self._inner.backward(step, self._by_candidate[step], of_reset)
            self._by_reset[step].mul_(of_reset)
            into = None if is_cut and step == first else before[step]
            self._link.backward(step, self._reached[step], into)
            if into is not None:
                into.addcmul_(after[step], self._kept_at[step])
                if not self._has_inner:
                    into.addcmul_(of_reset, self._r_at[step])

    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        (hidden,) = gradients
        by_hidden = (self._by_hidden[step] * hidden[:, :, None]).flatten(2)
        of_reset = self._inner.vjp(step, by_hidden[:, :, self._width :])
        gate_gradients = torch.cat([self._by_reset[step] * of_reset, by_hidden], 2)
        before = torch.addcmul(self._link.vjp(step, gate_gradients[:, :, : self._reach]), hidden, self._kept_at[step])
        if not self._has_inner:
            before.addcmul_(of_reset, self._r_at[step])
        torch.sum(of_reset, 0, out=self._of_reset_at[step])
        self._by_reset[step].copy_(gate_gradients[:, :, : self._width].sum(0))
        self._by_hidden[step].copy_(by_hidden.sum(0).unflatten(1, (2, -1)))
        return [before]

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        of_candidate = self.gate_gradients[:, 2 * self._width :]
        of_weight, of_gain = self._link.gradients(self.gate_gradients[:, : self._reach], self._old)
        of_inner, of_inner_gain = self._inner.gradients(of_candidate, self._reset)
        if not self._has_inner:
            joined = None if of_gain is None or of_inner_gain is None else torch.cat([of_gain, of_inner_gain])
            return torch.cat([of_weight, of_inner]), joined
        return of_weight, of_gain, of_inner, None if self._bias is None else of_candidate.sum(0), of_inner_gain

    def input_gradients(self) -> Tensor:
        if self._has_inner:  # the input is in the place of the candidate's sum in `projected`
            torch.mul(self._of_reset, self._r, out=self.gate_gradients[:, 2 * self._width :])
        return self.gate_gradients


def _mix(update: Update, candidate: Tensor, hidden: Tensor, *, gate: Tensor, out: Tensor) -> None:
    """The new state, from the candidate and the old one."""
    if update == "keep":
        torch.lerp(candidate, hidden, gate, out=out)
    else:
        torch.lerp(hidden, candidate, gate, out=out)


def _mix_gradients(update: Update, gates: Tensor, hidden: Tensor, *, local: Tensor) -> Tensor:
    """The kept share of the old state; writes the local gradients of z and n."""
    _, z, n = gates.chunk(3, 1)
    _, of_z, of_n = local.chunk(3, 1)
    torch.addcmul(z, z, z, value=-1, out=of_z)
    if update == "keep":
        of_z.mul_(torch.sub(hidden, n, out=of_n))
        kept, fresh = z, 1 - z
    else:
        of_z.mul_(torch.sub(n, hidden, out=of_n))
        kept, fresh = 1 - z, z
    torch.addcmul(fresh, fresh, torch.mul(n, n, out=of_n), value=-1, out=of_n)
    return kept
