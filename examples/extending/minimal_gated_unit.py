"""The minimal gated unit (Zhou et al., 2016): one gate that both forgets and resets.

f = σ(W_f x + U_f h + b_f)              forget gate: 1 takes the candidate
n = tanh(W_n x + U_n (f ⊙ h) + b_n)     candidate
h' = (1 − f) ⊙ h + f ⊙ n
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.nn.cells.cell import Cell, CellState


class MinimalGatedUnit(Cell):
    def __init__(self, input_width: int, width: int) -> None:
        super().__init__(input_width, width)
        self.forget = nn.Linear(input_width + width, width)
        self.candidate = nn.Linear(input_width + width, width)

    def advance(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        (hidden,) = state  # [rows, width]
        forget = self.forget(torch.cat([inputs, hidden], 1)).sigmoid()
        candidate = self.candidate(torch.cat([inputs, forget * hidden], 1)).tanh()
        return (torch.lerp(hidden, candidate, forget),)
