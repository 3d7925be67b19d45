"""A long short-term memory (Hochreiter and Schmidhuber, 1997; Gers et al., 2000), one number at a time.

    i = σ(W_i x + U_i h + b_i)        input gate: how much of the candidate is written
    f = σ(W_f x + U_f h + b_f)        forget gate: how much of the memory is kept
    g = tanh(W_g x + U_g h + b_g)     candidate
    o = σ(W_o x + U_o h + b_o)        output gate: how much of the memory is shown
    c' = f ⊙ c + i ⊙ g                memory
    h' = o ⊙ tanh(c')                 state

The fast versions are `seqloom.nn.cells` and `seqloom.nn.bptt`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Vector = Sequence[float]
Matrix = Sequence[Vector]


@dataclass(frozen=True)
class Gate:
    """The weights of one gate: W for the input, U for the state, and b."""

    from_input: Matrix
    from_state: Matrix
    bias: Vector

    def sums(self, x: Vector, h: Vector) -> list[float]:
        """W x + U h + b."""
        rows = zip(self.from_input, self.from_state, self.bias, strict=True)
        return [dot(w, x) + dot(u, h) + b for w, u, b in rows]


def lstm_step(x: Vector, h: Vector, c: Vector, gates: Mapping[str, Gate]) -> tuple[list[float], list[float]]:
    """The next state and memory; `gates` holds i, f, g and o."""
    i, f, o = ([sigmoid(a) for a in gates[name].sums(x, h)] for name in "ifo")
    g = [math.tanh(a) for a in gates["g"].sums(x, h)]
    memory = [f_k * c_k + i_k * g_k for f_k, c_k, i_k, g_k in zip(f, c, i, g, strict=True)]
    state = [o_k * math.tanh(m_k) for o_k, m_k in zip(o, memory, strict=True)]
    return state, memory


def lstm(inputs: Sequence[Vector], gates: Mapping[str, Gate]) -> list[list[float]]:
    """The state after each input, from a state and a memory of zeros."""
    h = c = [0.0] * len(gates["i"].bias)
    states = []
    for x in inputs:
        h, c = lstm_step(x, h, c, gates)
        states.append(h)
    return states


def dot(left: Vector, right: Vector) -> float:
    """Σ_k left_k right_k."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def sigmoid(a: float) -> float:
    """σ(a) = 1 / (1 + exp(−a))."""
    return 1 / (1 + math.exp(-a))
