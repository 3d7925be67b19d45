"""The hand-derived pass of the LSTM, with peepholes and with coupled gates, plain and with compiled steps.

    c' = f ⊙ c + i ⊙ g        h' = o ⊙ tanh(c')

Back, with a dot for the gradient of a gate's sum (what goes into its σ or tanh):

    ċ' = ∂c' + k ⊙ ∂h'                        k = o ⊙ (1 − tanh²c') = o − h' ⊙ tanh(c')
    ȯ = [h' ⊙ (1 − o)] ⊙ ∂h'
    i̇ = [g ⊙ i ⊙ (1 − i)] ⊙ ċ'                coupled: [(g − c) ⊙ i ⊙ (1 − i)] ⊙ ċ'
    ḟ = [c ⊙ f ⊙ (1 − f)] ⊙ ċ'                coupled: none
    ġ = [i ⊙ (1 − g²)] ⊙ ċ'
    ∂c = f ⊙ ċ'                               coupled: (1 − i) ⊙ ċ'
    ∂h = Uᵀ [ȯ i̇ ḟ ġ]

Everything in brackets is known for all steps before the first step back. Diagonal peepholes only change what is
known, k by [ȯ's bracket] ⊙ p_o, and the f of ∂c by [i̇'s] ⊙ p_i + [ḟ's] ⊙ p_f; full ones add Vᵀ [ȯ i̇ ḟ] to ∂c.

The compiled one computes everything but the products of a step in one call. It is for single precision on the CPU,
without norms, and where numba is installed; everything else uses `LSTMPass`, its plain twin.
"""

from itertools import accumulate
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from seqloom.core.jit import compiled, has_numba
from seqloom.nn.bptt.passes import EPSILON, Pass, Product, Steps, Tensors, link, norm_backward


class LSTMPass(Pass):
    """The parameters are U, a second bias, the gain of LN(U h), the peepholes, and gain and bias of LN(c')."""

    def __init__(
        self,
        parameters: tuple[Tensor | None, ...],
        *,
        order: Literal["ifgo", "oifg", "oig"],
        peephole: Literal["diagonal", "full"] | None = None,
    ) -> None:
        """`order` names the gates as their weights stand; without f, the gates i and f are coupled."""
        weight, self._bias, gain, peepholes, self._gain, self._shift = parameters
        assert weight is not None
        self._width = weight.shape[1]
        self._order = order
        self._is_coupled = "f" not in order
        self._link = link(weight, gain)
        self._own = peepholes if peephole == "diagonal" else None
        self._full = Product(peepholes) if peepholes is not None and peephole == "full" else None

    def _gates(self, gates: Tensor, names: str) -> Tensor:
        """The columns of gates that stand side by side."""
        return gates.narrow(1, self._order.index(names) * self._width, len(names) * self._width)

    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        gates, (hidden, memory), own = projected, states, self._own
        if self._bias is not None:
            gates.add_(self._bias)
        self._link.begin(steps, gates)
        shown = gates.new_empty(steps.positions, self._width)
        tanh, total = steps.at(shown), steps.at(gates)
        o, i, g = (steps.at(self._gates(gates, name)) for name in "oig")
        f = i if self._is_coupled else steps.at(self._gates(gates, "f"))
        early = {"ifgo": ("if", "o"), "oifg": ("oif",), "oig": ("oi",)}[self._order] if own is None else ("if",)
        sigmoids = [steps.at(self._gates(gates, names)) for names in early]
        (before, after), (old, new) = steps.around(hidden), steps.around(memory)
        looking = steps.at(self._gates(gates, "oif")) if self._full is not None else []
        if own is not None:
            looking = steps.at(self._gates(gates, "if").unflatten(1, (2, -1)))
            seen, _ = steps.around(memory[:, None])
            own_o, own_if = own[0], own[1:]
        for step in range(len(steps.sizes)):
            self._link.add(step, before[step], total[step])
            if self._full is not None:
                self._full.add(step, old[step], looking[step])
            if own is not None:
                looking[step].addcmul_(seen[step], own_if)
            for names in sigmoids:
                names[step].sigmoid_()
            g[step].tanh_()
            if self._is_coupled:
                torch.lerp(old[step], g[step], i[step], out=new[step])
            else:
                torch.mul(f[step], old[step], out=new[step]).addcmul_(i[step], g[step])
            if own is not None:
                o[step].addcmul_(new[step], own_o).sigmoid_()
            normed = new[step]
            if self._gain is not None:
                normed = torch.native_layer_norm(normed, [self._width], self._gain, self._shift, EPSILON)[0]
            torch.tanh(normed, out=tanh[step])
            torch.mul(o[step], tanh[step], out=after[step])
        return gates, shown, *self._link.tape

    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        gates, shown, *rest = tape
        self._link.prepare_backward(steps, iter(rest))
        self._steps, (self._hidden, memory), self._gradients = steps, states, gradients
        self._old, self._new = steps.before_all(memory), steps.after_all(memory)
        self.gate_gradients = self._local_gradients(gates)
        self._derivative = torch.addcmul(self._gates(gates, "o"), steps.after_all(self._hidden), shown, value=-1)
        if self._own is not None and self._gain is None:
            self._derivative.addcmul_(self._gates(self.gate_gradients, "o"), self._own[0])
        if self._gain is not None:
            _, self._mean, self._scale = torch.native_layer_norm(
                self._new, [self._width], self._gain, self._shift, EPSILON
            )
            self._norm_at = [steps.at(each) for each in (self._new, self._mean, self._scale)]
        if self._is_coupled:  # ∂c'/∂c, all but what comes through h
            kept = 1 - self._gates(gates, "i")
        else:
            kept = self._gates(gates, "f")
            if self._own is not None:
                kept = torch.addcmul(kept, self._gates(self.gate_gradients, "i"), self._own[1])
                kept.addcmul_(self._gates(self.gate_gradients, "f"), self._own[2])
        self._derivative_at, self._kept_at = steps.at(self._derivative), steps.at(kept)
        self._gradients_at = steps.at(self.gate_gradients)
        self._by_hidden = steps.at(self._gates(self.gate_gradients, "o"))
        by_memory = self._gates(self.gate_gradients, self._order.replace("o", ""))
        self._by_memory = steps.at(by_memory.unflatten(1, (-1, self._width)))
        self._looking = steps.at(self._gates(self.gate_gradients, "oif")) if self._full is not None else []

    def _local_gradients(self, gates: Tensor) -> Tensor:
        """What stands in brackets above, side by side as the gates."""
        local = torch.empty_like(gates)
        i, g = self._gates(gates, "i"), self._gates(gates, "g")
        hidden = self._steps.after_all(self._hidden)
        torch.addcmul(hidden, hidden, self._gates(gates, "o"), value=-1, out=self._gates(local, "o"))
        if self._is_coupled:
            written = torch.sub(g, self._old, out=self._gates(local, "i")).mul_(i)
            written.addcmul_(written, i, value=-1)
        else:
            sigmoids = self._gates(gates, "if")
            torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=self._gates(local, "if"))
            self._gates(local, "i").mul_(g)
            self._gates(local, "f").mul_(self._old)
        candidate = torch.mul(i, g, out=self._gates(local, "g"))
        torch.addcmul(i, candidate, g, value=-1, out=candidate)
        return local

    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        hidden, carried = self._gradients
        before, after = self._steps.around(hidden)
        memory = carried
        for step in reversed(range(first, last)):
            if len(memory) != self._steps.sizes[step] or step == last - 1:
                memory = carried[: self._steps.sizes[step]]
                spread = memory[:, None]
            if self._gain is None:
                memory.addcmul_(after[step], self._derivative_at[step])
            else:
                memory.add_(self._behind_norm(step, after[step] * self._derivative_at[step]))
            self._by_hidden[step].mul_(after[step])
            if self._own is not None and self._gain is not None:
                memory.addcmul_(self._by_hidden[step], self._own[0])
            self._by_memory[step].mul_(spread)
            memory.mul_(self._kept_at[step])
            into = None if is_cut and step == first else before[step]
            self._link.backward(step, self._gradients_at[step], into)
            if into is None:
                memory.zero_()
            elif self._full is not None:
                self._full.backward(step, self._looking[step], memory)

    def _behind_norm(self, step: int, gate_gradients: Tensor) -> Tensor:
        assert self._gain is not None
        values, mean, scale = (each[step] for each in self._norm_at)
        return norm_backward(gate_gradients, values, mean=mean, scale=scale, gain=self._gain)

    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        hidden, memory = gradients
        shown = hidden * self._derivative_at[step]
        memory = memory + (shown if self._gain is None else self._behind_norm(step, shown))
        by_hidden = self._by_hidden[step] * hidden
        if self._own is not None and self._gain is not None:
            memory = memory + by_hidden * self._own[0]
        by_memory = (self._by_memory[step] * memory[:, :, None]).flatten(2)
        is_first = self._order[0] == "o"
        gate_gradients = torch.cat([by_hidden, by_memory] if is_first else [by_memory, by_hidden], 2)
        before = self._kept_at[step] * memory
        if self._full is not None:
            before = before + self._full.vjp(step, gate_gradients[:, :, : 3 * self._width])
        torch.sum(gate_gradients, 0, out=self._gradients_at[step])
        return [self._link.vjp(step, gate_gradients), before]

    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        gate_gradients = self.gate_gradients
        of_weight, of_gain = self._link.gradients(gate_gradients, self._steps.before_all(self._hidden))
        of_bias = None if self._bias is None else gate_gradients.sum(0)
        of_peepholes = None
        if self._full is not None:
            of_peepholes = self._gates(gate_gradients, "oif").t() @ self._old
        if self._own is not None:
            sides = ((self._new, "o"), (self._old, "i"), (self._old, "f"))
            of_peepholes = torch.stack([(side * self._gates(gate_gradients, name)).sum(0) for side, name in sides])
        of_norm: tuple[Tensor | None, ...] = (None, None)
        if self._gain is not None:
            of_shown = self._steps.after_all(self._gradients[0]) * self._derivative
            of_norm = torch.ops.aten.native_layer_norm_backward(
                of_shown,
                self._new,
                [self._width],
                self._mean,
                self._scale,
                self._gain,
                self._shift,
                [False, True, True],
            )[1:]
        return of_weight, of_bias, of_gain, of_peepholes, *of_norm


def lstm_pass(
    parameters: tuple[Tensor | None, ...],
    *,
    order: Literal["ifgo", "oifg", "oig"],
    peephole: Literal["diagonal", "full"] | None = None,
) -> Pass:
    """The fastest pass there is for these weights."""
    weight, _, gain, *_ = parameters
    assert weight is not None
    is_plain = weight.device.type == "cpu" and weight.dtype == torch.float32 and gain is None
    make = FusedLSTMPass if is_plain and has_numba() else LSTMPass
    return make(parameters, order=order, peephole=peephole)


# What an LSTM computes between two products, compiled: single precision, on the CPU.
#
# At small widths most of the time of a recurrent step is call overhead: ten operations on a few thousand numbers each.
# Here one call does all of them. numba compiles these functions when they are first called, which takes a few seconds,
# and caches the result on disk. Arguments are positional: that is how compiled code is called quickly.
#
# No loop has more than five arrays and each writes one: a quick check then shows that none overlaps another, without
# which the compiled code could not work on eight numbers at a time.

Array = Any
"""Of float32. numba infers types and shapes."""

# tanh(x) = x P(x²) / Q(x²) to 2.3e-8 for |x| ≤ 9.1, where it is 1 in single precision: fitted by least squares on the
# relative error, weighted again where it was largest until it was nearly equal everywhere.
P0, P1, P2 = np.float32(1.0), np.float32(0.1337447464466095), np.float32(0.003487810492515564)
P3, P4 = np.float32(2.0481178580666892e-05), np.float32(1.317751241458609e-08)
Q1, Q2 = np.float32(0.4670778810977936), np.float32(0.025847386568784714)
Q3, Q4 = np.float32(0.0003272919275332242), np.float32(7.704041422584851e-07)
MAX_ARGUMENT = np.float32(9.0)
HALF, ONE = np.float32(0.5), np.float32(1.0)


@compiled(fast={"contract"})
def tanh_of(x: Any) -> Any:
    # Written so that a NaN passes every comparison and comes out again.
    x = MAX_ARGUMENT if x > MAX_ARGUMENT else x
    x = -MAX_ARGUMENT if x < -MAX_ARGUMENT else x
    u = x * x
    y = x * (P0 + u * (P1 + u * (P2 + u * (P3 + u * P4)))) / (ONE + u * (Q1 + u * (Q2 + u * (Q3 + u * Q4))))
    y = ONE if y > ONE else y
    return -ONE if y < -ONE else y


@compiled(fast={"contract"})
def sigmoid(gate: Array) -> None:
    """σ(a) = ½ + ½ tanh(½ a)"""
    for k in range(gate.shape[0]):
        gate[k] = HALF + HALF * tanh_of(HALF * gate[k])


@compiled(fast={"contract"})
def tanh_into(source: Array, out: Array) -> None:
    for k in range(source.shape[0]):
        out[k] = tanh_of(source[k])


@compiled(fast={"contract"})
def add_product(peephole: Array, memory: Array, gate: Array) -> None:
    for k in range(gate.shape[0]):
        gate[k] += peephole[k] * memory[k]


@compiled(fast={"contract"})
def step_forward(
    gates: Array,
    memory: Array,
    hidden: Array,
    shown: Array,
    own: Array,
    columns: Array,
    place: int,
    old: int,
    new: int,
    size: int,
) -> None:
    """From the sums of a step's gates to the gates, the new memory, its tanh and the new hidden state.

    `columns` is where o, i, g and f begin; −1 for f couples it to i. `own` are the diagonal peepholes, or has no rows.
    The step's rows begin at `place` among the positions and at `old` and `new` among the states before and after it.
    """
    width = memory.shape[1]
    for row in range(size):
        at = gates[place + row]
        o, i = at[columns[0] : columns[0] + width], at[columns[1] : columns[1] + width]
        g, c, cc = at[columns[2] : columns[2] + width], memory[old + row], memory[new + row]
        if own.shape[0]:
            add_product(own[1], c, i)
        sigmoid(i)
        tanh_into(g, g)
        if columns[3] < 0:
            for k in range(width):
                cc[k] = c[k] + i[k] * (g[k] - c[k])
        else:
            f = at[columns[3] : columns[3] + width]
            if own.shape[0]:
                add_product(own[2], c, f)
            sigmoid(f)
            for k in range(width):
                cc[k] = f[k] * c[k] + i[k] * g[k]
        if own.shape[0]:
            add_product(own[0], cc, o)
        sigmoid(o)
        t, h = shown[place + row], hidden[new + row]
        tanh_into(cc, t)
        for k in range(width):
            h[k] = o[k] * t[k]


@compiled(fast={"contract"})
def step_back(
    gate_gradients: Array,
    carried: Array,
    gradient: Array,
    gates: Array,
    memory: Array,
    hidden: Array,
    shown: Array,
    own: Array,
    columns: Array,
    place: int,
    old: int,
    new: int,
    size: int,
) -> None:
    """From the gradients of a step's states to those of its gates' sums, and `carried` to that of the memory before.

    Arrays and places as in `step_forward`; `gradient` is that of the hidden states. The formulas are at the top.
    """
    width = memory.shape[1]
    for row in range(size):
        at, into = gates[place + row], gate_gradients[place + row]
        o, i = at[columns[0] : columns[0] + width], at[columns[1] : columns[1] + width]
        g, c = at[columns[2] : columns[2] + width], memory[old + row]
        to_o, to_i = into[columns[0] : columns[0] + width], into[columns[1] : columns[1] + width]
        to_g = into[columns[2] : columns[2] + width]
        h, t, dh, dc = hidden[new + row], shown[place + row], gradient[new + row], carried[row]
        for k in range(width):
            dc[k] += dh[k] * (o[k] - h[k] * t[k])
        for k in range(width):
            to_o[k] = dh[k] * (h[k] - h[k] * o[k])
        if own.shape[0]:
            add_product(own[0], to_o, dc)
        for k in range(width):
            to_g[k] = dc[k] * (i[k] - i[k] * g[k] * g[k])
        if columns[3] < 0:
            for k in range(width):
                to_i[k] = dc[k] * (g[k] - c[k]) * (i[k] - i[k] * i[k])
            for k in range(width):
                dc[k] -= dc[k] * i[k]
        else:
            f, to_f = at[columns[3] : columns[3] + width], into[columns[3] : columns[3] + width]
            for k in range(width):
                to_i[k] = dc[k] * g[k] * (i[k] - i[k] * i[k])
            for k in range(width):
                to_f[k] = dc[k] * c[k] * (f[k] - f[k] * f[k])
            for k in range(width):
                dc[k] *= f[k]
            if own.shape[0]:
                add_product(own[1], to_i, dc)
                add_product(own[2], to_f, dc)


class FusedLSTMPass(LSTMPass):
    """See `LSTMPass`; local gradients are computed step by step, from gates that are still in the CPU's cache."""

    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        gates, (hidden, memory) = projected.contiguous(), states
        if self._bias is not None:
            gates.add_(self._bias)
        shown = gates.new_empty(steps.positions, self._width)
        before, _ = steps.around(hidden)
        total = steps.at(gates)
        old, looking = [], []
        if self._full is not None:
            old, looking = steps.around(memory)[0], steps.at(self._gates(gates, "oif"))
        arrays = _array(gates), _array(memory), _array(hidden), _array(shown)
        own, columns = self._own_array(), self._columns()
        for step, places in enumerate(_places(steps)):
            self._link.add(step, before[step], total[step])
            if self._full is not None:
                self._full.add(step, old[step], looking[step])
            step_forward(*arrays, own, columns, *places)
        return gates, shown

    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        self._steps, (self._hidden, self._memory), self._gradients, self._tape = steps, states, gradients, tape
        self._old, self._new = steps.before_all(self._memory), steps.after_all(self._memory)
        self.gate_gradients = torch.empty_like(tape[0])

    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        (hidden, carried), (gates, shown) = self._gradients, self._tape
        before, _ = self._steps.around(hidden)
        gate_gradients = self._steps.at(self.gate_gradients)
        looking = self._steps.at(self._gates(self.gate_gradients, "oif")) if self._full is not None else []
        incoming = _array(self.gate_gradients), _array(carried), _array(hidden)
        saved = _array(gates), _array(self._memory), _array(self._hidden), _array(shown)
        own, columns, places = self._own_array(), self._columns(), _places(self._steps)
        for step in reversed(range(first, last)):
            step_back(*incoming, *saved, own, columns, *places[step])
            if is_cut and step == first:
                carried[: len(gate_gradients[step])] = 0
                return
            self._link.backward(step, gate_gradients[step], before[step])
            if self._full is not None:
                self._full.backward(step, looking[step], carried[: len(gate_gradients[step])])

    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        """As the plain twin does: several gradients at once need the local gradients themselves."""
        if self._tape:
            super().prepare_backward(
                self._steps, (self._hidden, self._memory), tape=self._tape, gradients=self._gradients
            )
            self._tape = ()
        return super().vjp(step, gradients)

    def _own_array(self) -> np.ndarray:
        return np.zeros((0, self._width), np.float32) if self._own is None else _array(self._own.contiguous())

    def _columns(self) -> np.ndarray:
        found = [self._order.find(name) for name in "oigf"]
        return np.array([place * self._width if place >= 0 else -1 for place in found])


def _array(tensor: Tensor) -> np.ndarray:
    """The same memory as numba sees it."""
    assert tensor.is_contiguous()
    array: np.ndarray = tensor.detach().numpy()
    return array


def _places(steps: Steps) -> list[tuple[int, int, int, int]]:
    """For each step, where its rows begin among the positions and among the states before and after, and how many."""
    starts = list(accumulate(steps.sizes, initial=0))[:-1]
    blocks = [0, *(steps.rows + start for start in starts)]
    return [
        (start, old, steps.rows + start, size) for start, old, size in zip(starts, blocks, steps.sizes, strict=False)
    ]
