"""Recurrent layers over batches of sequences: stacks in one direction and in both.

Sequences are padded at the end. A layer that reads from the left never meets the padding before it has read
all real positions, and the other direction reads each sequence turned round within its own length; so one dense kernel
serves sequences of any lengths, and padding changes nothing that is real. What stands at a padded position of an
output may be anything finite. Lengths are handed down all the same: cells whose passes are our own skip the padding.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from seqloom.core.errors import ConfigError, check_known
from seqloom.nn.bptt import FULL, Truncation, run_by_hand
from seqloom.nn.cell_base import Cell, CellState, check_lengths
from seqloom.nn.masks import length_mask
from seqloom.nn.skips import Climb, DropoutKind, Masks, Skip

StackState = tuple[CellState, ...]
"""The state of each layer, lowest first."""

MakeCell = Callable[[int, int], Cell]
"""From the width of the input and of the state to a cell."""

Summary = Literal["last", "mean", "max", "join"]
"""A function q of all hidden states: one vector for a sequence."""


class Stack(nn.Module):
    """Layers that read from left to right, each what the one below leaves, with dropout in between.

        h_l[t] = cell_l(x_l[t], h_l[t − 1])        x_1 = the inputs, without dropout

    What a layer reads (x_l) and leaves (y_l) is told in `nn.skips`; the output is y of the top layer.
    """

    def __init__(
        self,
        cells: Iterable[Cell],
        *,
        dropout_rate: float,
        skip: Skip = "none",
        dropout_kind: DropoutKind = "between",
    ) -> None:
        super().__init__()
        self.cells = cast("Sequence[Cell]", nn.ModuleList(cells))
        self.climb = Climb(
            self.cells[0].input_width,
            self.cells[0].width,
            layers=len(self.cells),
            skip=skip,
            dropout_rate=dropout_rate,
            dropout_kind=dropout_kind,
        )

    def begin(self, hints: Float[Tensor, "rows layers width"]) -> StackState:
        """A state from a hint for each layer; zeros stand for nothing read yet."""
        return tuple(cell.begin(hint) for cell, hint in zip(self.cells, hints.unbind(1), strict=True))

    def forward(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: StackState | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
        truncation: Truncation = FULL,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], StackState]:
        """What the top layer leaves at every position, and the state after the last one.

        With `lengths`, the last position of each row is that of its length. `truncation` is that of each layer's
        gradient through time; the random kind draws from `generator`.
        """
        finals = []

        def layer(number: int, read: Tensor) -> Tensor:
            cell, first = self.cells[number], self._first(number, read, state)
            if truncation == FULL:
                hidden, final = cell.run(read, first, lengths=lengths)
            else:
                hidden, final = run_by_hand(
                    cell, read, first, lengths=lengths, truncation=truncation, generator=generator
                )
            finals.append(final)
            return hidden

        outputs: Tensor = self.climb(inputs, layer)
        return outputs, tuple(finals)

    def outputs(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: StackState | None = None,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
        masks: Masks = (),
    ) -> Float[Tensor, "batch time width"]:
        """The same without the last state, which rows of unequal lengths pay for."""

        def layer(number: int, read: Tensor) -> Tensor:
            return self.cells[number].outputs(read, self._first(number, read, state), lengths=lengths)

        outputs: Tensor = self.climb(inputs, layer, masks=masks)
        return outputs

    def step(
        self, inputs: Float[Tensor, "rows inputs"], state: StackState, *, masks: Masks = ()
    ) -> tuple[Float[Tensor, "rows width"], StackState]:
        """One position: what the top layer leaves, and the state of all.

        Variational dropout takes the masks of `climb.draw`, the same ones at every step of a sequence.
        """
        states = []

        def layer(number: int, read: Tensor) -> Tensor:
            cell = self.cells[number]
            states.append(cell.advance(cell.project(read), state[number]))
            return states[-1][0]

        output: Tensor = self.climb(inputs, layer, masks=masks)
        return output, tuple(states)

    def _first(self, number: int, read: Float[Tensor, "batch time inputs"], state: StackState | None) -> CellState:
        return _nothing_read(self.cells[number], read) if state is None else state[number]


class Bidirectional(nn.Module):
    """Layers that read in both directions and join what they find, with dropout in between.

        →h_l[t] = →cell_l(x_l[t], →h_l[t − 1])
        ←h_l[t] = ←cell_l(x_l[t], ←h_l[t + 1])
        h_l[t] = [→h_l[t]; ←h_l[t]]

    What a layer reads (x_l) and leaves (y_l) is told in `nn.skips`; the output is y of the top layer.
    """

    def __init__(
        self,
        rightward: Iterable[Cell],
        leftward: Iterable[Cell],
        *,
        dropout_rate: float,
        skip: Skip = "none",
        dropout_kind: DropoutKind = "between",
    ) -> None:
        super().__init__()
        self.rightward = cast("Sequence[Cell]", nn.ModuleList(rightward))
        self.leftward = cast("Sequence[Cell]", nn.ModuleList(leftward))
        self.climb = Climb(
            self.rightward[0].input_width,
            self.rightward[0].width + self.leftward[0].width,
            layers=len(self.rightward),
            skip=skip,
            dropout_rate=dropout_rate,
            dropout_kind=dropout_kind,
        )

    def forward(
        self, inputs: Float[Tensor, "batch time inputs"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time width"]:
        """What the top layer leaves at every position."""
        turn = turning(lengths, inputs.shape[1])

        def layer(number: int, read: Tensor) -> Tensor:
            right, left = self.rightward[number], self.leftward[number]
            forwards = right.outputs(read, _nothing_read(right, read), lengths=lengths)
            backwards = left.outputs(reorder(read, turn), _nothing_read(left, read), lengths=lengths)
            return torch.cat([forwards, reorder(backwards, turn)], 2)

        outputs: Tensor = self.climb(inputs, layer)
        return outputs


def require_causal(layers: Stack | Bidirectional, *, model: str) -> Stack:
    """These layers, for a model that foretells each symbol from those before it: refused if they read ahead."""
    if isinstance(layers, Bidirectional):
        raise ConfigError(
            f"{model} tells each symbol from the ones before it, but layers that read in both directions have seen "
            "the symbols after it as well; let them read from left to right only"
        )
    return layers


def input_widths(
    input_width: int, width: int, *, layers: int, directions: int = 1, skip: Skip = "none"
) -> tuple[int, ...]:
    """How wide the input of each layer is: for the lowest as given, for each other one what all directions leave below.

    In a dense stack each layer reads the input and what all layers below it leave.
    """
    check_known("skip", skip, get_args(Skip))
    joined = directions * width
    if skip == "dense":
        return tuple(input_width + layer * joined for layer in range(layers))
    return (input_width, *(joined for _ in range(layers - 1)))


def cells_of(
    make: MakeCell, input_width: int, *, width: int, layers: int, directions: int = 1, skip: Skip = "none"
) -> list[Cell]:
    """The cells of a stack, or of one direction of two."""
    widths = input_widths(input_width, width, layers=layers, directions=directions, skip=skip)
    return [make(each, width) for each in widths]


def summarise(
    outputs: Float[Tensor, "batch time width"],
    lengths: Int[Tensor, " batch"],
    *,
    summary: Summary,
    directions: int,
) -> Float[Tensor, "batch width"]:
    """c = q(h_1 … h_n), from the real positions alone.

    last   the last state of each direction: h_n of the rightward half, h_1 of the leftward half
    join   the same, of layers that read in both directions
    mean   Σ_t h_t / n
    max    max_t h_t, number by number
    """
    check_known("summary", summary, get_args(Summary))
    if summary in ("last", "join"):
        return ends(outputs, lengths, directions=directions)
    counted = lengths.clamp(min=1)
    padding = ~length_mask(counted, outputs.shape[1])[:, :, None]
    if summary == "max":
        return outputs.masked_fill(padding, float("-inf")).amax(1)
    return outputs.masked_fill(padding, 0).sum(1) / counted[:, None]


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
    check_lengths(lengths, rows=len(lengths), time=longest)
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
