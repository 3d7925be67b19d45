"""Recurrent layers over batches of sequences: stacks in one direction and in both.

Sequences are padded at the end. A layer that reads from the left never meets the padding before it has read
all real positions, and the other direction reads each sequence turned round within its own length; so one dense kernel
serves sequences of any lengths, and padding changes nothing that is real. What stands at a padded position of an
output may be anything finite.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from seqloom.nn.cells import Cell, CellState
from seqloom.nn.dropout import Dropout

StackState = tuple[CellState, ...]
"""The state of each layer, lowest first."""

MakeCell = Callable[[int, int], Cell]
"""From the width of the input and of the state to a cell."""


class Stack(nn.Module):
    """Layers that read from left to right, each the hidden states of the one below, with dropout in between.

    h_l[t] = cell_l(dropout(h_{l−1}[t]), h_l[t − 1])        h_0 = the inputs, without dropout
    """

    def __init__(self, cells: Iterable[Cell], *, dropout_rate: float) -> None:
        super().__init__()
        self.cells = cast("Sequence[Cell]", nn.ModuleList(cells))
        self.dropout = Dropout(dropout_rate)

    def begin(self, hints: Float[Tensor, "rows layers width"]) -> StackState:
        """A state from a hint for each layer; zeros stand for nothing read yet."""
        return tuple(cell.begin(hint) for cell, hint in zip(self.cells, hints.unbind(1), strict=True))

    def forward(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: StackState | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], StackState]:
        """Hidden states of the top layer at every position, and the state after the last one.

        With `lengths`, the last position of each row is that of its length.
        """
        finals = []
        for layer, cell in enumerate(self.cells):
            first = _nothing_read(cell, inputs) if state is None else state[layer]
            inputs, final = cell.run(inputs if layer == 0 else self.dropout(inputs), first, lengths=lengths)
            finals.append(final)
        return inputs, tuple(finals)

    def step(
        self, inputs: Float[Tensor, "rows inputs"], state: StackState
    ) -> tuple[Float[Tensor, "rows width"], StackState]:
        """One position: the hidden state of the top layer, and the state of all."""
        states = []
        for layer, cell in enumerate(self.cells):
            below = inputs if layer == 0 else self.dropout(inputs)
            stepped = cell.advance(cell.project(below), state[layer])
            inputs = stepped[0]
            states.append(stepped)
        return inputs, tuple(states)


class Bidirectional(nn.Module):
    """Layers that read in both directions and join what they find, with dropout in between.

    →h_l[t] = →cell_l(h_{l−1}[t], →h_l[t − 1])
    ←h_l[t] = ←cell_l(h_{l−1}[t], ←h_l[t + 1])
    h_l[t] = [→h_l[t]; ←h_l[t]]
    """

    def __init__(self, rightward: Iterable[Cell], leftward: Iterable[Cell], *, dropout_rate: float) -> None:
        super().__init__()
        self.rightward = cast("Sequence[Cell]", nn.ModuleList(rightward))
        self.leftward = cast("Sequence[Cell]", nn.ModuleList(leftward))
        self.dropout = Dropout(dropout_rate)

    def forward(
        self, inputs: Float[Tensor, "batch time inputs"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time width"]:
        turn = turning(lengths, inputs.shape[1])
        for layer, (right, left) in enumerate(zip(self.rightward, self.leftward, strict=True)):
            below = inputs if layer == 0 else self.dropout(inputs)
            forwards, _ = right.run(below, _nothing_read(right, below))
            backwards, _ = left.run(reorder(below, turn), _nothing_read(left, below))
            inputs = torch.cat([forwards, reorder(backwards, turn)], 2)
        return inputs


def cells_of(make: MakeCell, input_width: int, *, width: int, layers: int, directions: int = 1) -> list[Cell]:
    """The cells of a stack: the lowest reads the input, each other one what all directions below it leave."""
    return [make(input_width if layer == 0 else directions * width, width) for layer in range(layers)]


def ends(
    outputs: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"], *, directions: int
) -> Float[Tensor, "batch width"]:
    """The last hidden state of each direction: of the rightward half at the end, of the leftward half at the start."""
    last = (lengths - 1).clamp(min=0)
    rightmost = outputs[torch.arange(len(lengths), device=lengths.device), last]
    if directions == 1:
        return rightmost
    half = outputs.shape[2] // 2
    return torch.cat([rightmost[:, :half], outputs[:, 0, half:]], 1)


def turning(lengths: Int[Tensor, " batch"], longest: int) -> Int[Tensor, " positions"]:
    """Indices into `batch · longest` that turn every sequence round within its length and leave the padding."""
    at = torch.arange(longest, device=lengths.device)
    turned = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)
    rows = torch.arange(len(lengths), device=lengths.device)[:, None]
    return (rows * longest + turned).flatten()


def reorder(
    padded: Float[Tensor, "batch time width"], turn: Int[Tensor, " positions"]
) -> Float[Tensor, "batch time width"]:
    """The positions in another order, one that is its own inverse: hence the gradient is a gather too."""
    turned: Tensor = _Reorder.apply(padded, turn)  # type: ignore[no-untyped-call]
    return turned


def _nothing_read(cell: Cell, inputs: Float[Tensor, "batch time inputs"]) -> CellState:
    return cell.begin(inputs.new_zeros(len(inputs), cell.width))


class _Reorder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, padded: Tensor, turn: Tensor) -> Tensor:
        ctx.save_for_backward(turn)
        return padded.flatten(0, 1).index_select(0, turn).view(padded.shape)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (turn,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return gradient.flatten(0, 1).index_select(0, turn).view(gradient.shape), None
