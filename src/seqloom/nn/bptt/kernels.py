"""What an LSTM does between two products, compiled: single precision, on the processor.

At small widths most of a recurrent step's time goes into calling: ten operations on a few thousand numbers each. Here
one call does all of them. numba compiles these functions when they are first called, which takes a few seconds, and
keeps the result beside this file. Arguments are given by place: that is how compiled code is called quickly.
`seqloom.nn.bptt.lstm` is the only one who calls.

No loop has more than five arrays and each writes one: a quick check then tells that none overlaps another, without
which the compiled code could not work on eight numbers at a time.
"""

from typing import Any

import numpy as np

from seqloom.core.jit import compiled

Array = Any
"""Of float32. numba finds out types and shapes by itself."""

# tanh(x) = x P(x²) / Q(x²) to 2.3e-8 for |x| ≤ 9.1, where it is 1 in single precision: fitted by least squares on the
# relative error, weighted anew where it was largest until it was nearly the same everywhere.
P0, P1, P2 = np.float32(1.0), np.float32(0.1337447464466095), np.float32(0.003487810492515564)
P3, P4 = np.float32(2.0481178580666892e-05), np.float32(1.317751241458609e-08)
Q1, Q2 = np.float32(0.4670778810977936), np.float32(0.025847386568784714)
Q3, Q4 = np.float32(0.0003272919275332242), np.float32(7.704041422584851e-07)
FARTHEST = np.float32(9.0)
HALF, ONE = np.float32(0.5), np.float32(1.0)


@compiled(fast={"contract"})
def tanh(x: Any) -> Any:
    # Written so that a NaN passes every comparison and comes out again.
    x = FARTHEST if x > FARTHEST else x
    x = -FARTHEST if x < -FARTHEST else x
    u = x * x
    y = x * (P0 + u * (P1 + u * (P2 + u * (P3 + u * P4)))) / (ONE + u * (Q1 + u * (Q2 + u * (Q3 + u * Q4))))
    y = ONE if y > ONE else y
    return -ONE if y < -ONE else y


@compiled(fast={"contract"})
def sigmoid(gate: Array) -> None:
    """σ(a) = ½ + ½ tanh(½ a)"""
    for k in range(gate.shape[0]):
        gate[k] = HALF + HALF * tanh(HALF * gate[k])


@compiled(fast={"contract"})
def tanh_into(source: Array, out: Array) -> None:
    for k in range(source.shape[0]):
        out[k] = tanh(source[k])


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

    Arrays and places as in `step_forward`; `gradient` is that of the hidden states. The formulas are those of
    `seqloom.nn.bptt.lstm`.
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
