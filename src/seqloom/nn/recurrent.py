"""Recurrent layers over batches of sequences: stacks in one direction and in both.

Sequences are padded at the end. A layer that reads from the left reads all real positions before the padding, and the
other direction reads each sequence reversed within its own length; so one dense kernel serves sequences of any lengths,
and padding changes no real position. Padded positions of an output may hold anything finite. Lengths are passed down
all the same: hand-derived passes skip the padding.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from seqloom.core.errors import ConfigError, check_known
from seqloom.nn.bptt.truncation import FULL, Truncation, run_cell
from seqloom.nn.cells.cell import Cell, CellState, Inputs, Lengths, check_lengths
from seqloom.nn.dropout import Dropout
from seqloom.nn.init import xavier_uniform
from seqloom.nn.packing import length_mask

# Between recurrent layers: skip connections, and two kinds of dropout.
#
# With x_l for what layer l reads, h_l for its hidden states and y_l for its result (y_0 = x_1 = the inputs):
#
#     none       y_l = h_l                                    x_{l+1} = dropout(y_l)
#     residual   y_l = h_l + y_{l−1}                          x_{l+1} = dropout(y_l)          (He et al., 2016)
#     highway    y_l = T ⊙ h_l + (1 − T) ⊙ y_{l−1}            x_{l+1} = dropout(y_l)          (Srivastava et al., 2015)
#     dense      y_l = h_l                                    x_{l+1} = [x_l; dropout(y_l)]   (Huang et al., 2017)
#
# A sum needs two vectors of one width, so the lowest layer has a skip connection only where the inputs are as wide as
# its hidden states; all others always have one. Dropout acts on what a layer reads and never on the skip connection.

Skip = Literal["none", "residual", "dense", "highway"]
"""The skip connection of a layer."""

DropoutKind = Literal["between", "variational"]
"""Whether every number is dropped independently, or the same ones at all positions of a sequence."""

Masks = tuple[Float[Tensor, "rows _"], ...]
"""The factors of each sequence at each place with dropout: 0 or 1 / (1 − rate)."""


class SequenceDropout(nn.Module):
    """Dropout on sequences: each number independently ("between"), or one mask per sequence ("variational").

    The second is that of Gal & Ghahramani (2016) on the inputs and outputs of layers. The state from step to step is
    not dropped, since the kernels that run whole sequences do so in one call.
    """

    def __init__(self, rate: float, *, kind: DropoutKind) -> None:
        super().__init__()
        check_known("dropout_kind", kind, get_args(DropoutKind))
        self.kind = kind
        self.dropout = Dropout(rate)

    @property
    def has_masks(self) -> bool:
        """Whether a mask is drawn per sequence, now."""
        return self.kind == "variational" and self.training and self.dropout.threshold > 0

    def draw(self, rows: int, width: int, *, like: Float[Tensor, "*any"]) -> Float[Tensor, "rows width"]:
        """A mask for each sequence: dropout of ones."""
        mask: Tensor = self.dropout(like.new_ones(rows, width))
        return mask

    def forward(
        self, values: Float[Tensor, "rows *time width"], mask: Float[Tensor, "rows width"] | None = None
    ) -> Float[Tensor, "rows *time width"]:
        """Whole sequences, or one position of each; for single positions pass the same `mask` each time."""
        dropped: Tensor
        if not self.has_masks:
            dropped = self.dropout(values)
            return dropped
        if mask is None:
            mask = self.draw(values.shape[0], values.shape[-1], like=values)
        return values * (mask if values.dim() == 2 else mask[:, None])


Rows = Float[Tensor, "*rows width"]


class Highway(nn.Module):
    """A gate between a layer and its skip connection (Srivastava et al., 2015).

        T = σ(W x + b)                       transform gate: 1 takes the layer
        y = T ⊙ H(x) + (1 − T) ⊙ x           1 − T is the carry gate: 1 is the identity

    b begins below zero, so that a deep stack first carries its input upwards and learns where to change it.
    """

    def __init__(self, width: int, *, bias: float = -1.0) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        xavier_uniform(self.gate.weight)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, below: Rows, hidden: Rows) -> Rows:
        """From x and H(x) to y."""
        return torch.lerp(below, hidden, self.gate(below).sigmoid())


class Addition(nn.Module):
    """y = H(x) + x"""

    def forward(self, below: Rows, hidden: Rows) -> Rows:
        return below + hidden


class NoBypass(nn.Module):
    """y = H(x), which may be of another width than x."""

    def forward(
        self,
        below: Float[Tensor, "*rows inputs"],  # noqa: ARG002 - the same call as for the other bypasses
        hidden: Float[Tensor, "*rows width"],
    ) -> Float[Tensor, "*rows width"]:
        return hidden


Bypass = NoBypass | Addition | Highway


class Climb(nn.Module):
    """The signal path through the layers of a stack: what each of them reads, and its result."""

    def __init__(
        self, input_width: int, width: int, *, layers: int, skip: Skip, dropout_rate: float, dropout_kind: DropoutKind
    ) -> None:
        super().__init__()
        self.width = width
        check_known("skip", skip, get_args(Skip))
        self.skip = skip
        bypasses: list[Bypass] = []
        for below in (input_width, *[width] * (layers - 1)):
            if below != width or skip in ("none", "dense"):
                bypasses.append(NoBypass())
            else:
                bypasses.append(Highway(width) if skip == "highway" else Addition())
        self.bypasses = cast("Sequence[Bypass]", nn.ModuleList(bypasses))
        self.dropout = SequenceDropout(dropout_rate, kind=dropout_kind)

    def draw(self, rows: int, *, like: Float[Tensor, "*any"]) -> Masks:
        """Masks for sequences that are read position by position; empty where none are needed."""
        gaps = len(self.bypasses) - 1 if self.dropout.has_masks else 0
        return tuple(self.dropout.draw(rows, self.width, like=like) for _ in range(gaps))

    def forward(
        self, inputs: Float[Tensor, "rows *time inputs"], layer: Callable[[int, Tensor], Tensor], *, masks: Masks = ()
    ) -> Float[Tensor, "rows *time width"]:
        """The result of the top layer; `layer(l, x_l)` returns h_l."""
        read = left = inputs
        for number, bypass in enumerate(self.bypasses):
            if number:
                dropped = self.dropout(left, masks[number - 1] if masks else None)
                read = torch.cat([read, dropped], -1) if self.skip == "dense" else dropped
            left = bypass(left, layer(number, read))
        return left


StackState = tuple[CellState, ...]
"""The state of each layer, lowest first."""


MakeCell = Callable[[int, int], Cell]
"""From the width of the input and of the state to a cell."""

Summary = Literal["last", "mean", "max", "join"]
"""A function q of all hidden states: one vector for a sequence."""


class Stack(nn.Module):
    """Layers that read from left to right, each the result of the one below, with dropout in between.

        h_l[t] = cell_l(x_l[t], h_l[t − 1])        x_1 = the inputs, without dropout

    What a layer reads (x_l) and its result (y_l) depend on `skip` (see above); the output is y of the top layer.
    """

    def __init__(
        self, cells: Iterable[Cell], *, dropout_rate: float, skip: Skip = "none", dropout_kind: DropoutKind = "between"
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
        """A state from a hint for each layer; zeros give the empty state."""
        return tuple(cell.begin(hint) for cell, hint in zip(self.cells, hints.unbind(1), strict=True))

    def forward(
        self,
        inputs: Inputs,
        state: StackState | None = None,
        *,
        lengths: Lengths | None = None,
        truncation: Truncation = FULL,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], StackState]:
        """The result of the top layer at every position, and the state after the last one.

        With `lengths`, the last position of each row is that of its length. `truncation` is that of each layer's
        gradient through time; the random kind draws from `generator`.
        """
        finals = []

        def layer(number: int, read: Tensor) -> Tensor:
            cell, first = self.cells[number], self._first(number, read, state)
            if truncation == FULL:
                hidden, final = cell.run(read, first, lengths=lengths)
            else:
                hidden, final = run_cell(cell, read, first, lengths=lengths, truncation=truncation, generator=generator)
            finals.append(final)
            return hidden

        outputs: Tensor = self.climb(inputs, layer)
        return outputs, tuple(finals)

    def outputs(
        self,
        inputs: Inputs,
        state: StackState | None = None,
        *,
        lengths: Lengths | None = None,
        masks: Masks = (),
    ) -> Float[Tensor, "batch time width"]:
        """The same without the last state, which is expensive for rows of unequal lengths."""

        def layer(number: int, read: Tensor) -> Tensor:
            return self.cells[number].outputs(read, self._first(number, read, state), lengths=lengths)

        outputs: Tensor = self.climb(inputs, layer, masks=masks)
        return outputs

    def step(
        self, inputs: Float[Tensor, "rows inputs"], state: StackState, *, masks: Masks = ()
    ) -> tuple[Float[Tensor, "rows width"], StackState]:
        """One position: the result of the top layer, and the state of all.

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
    """Layers that read in both directions and join their states, with dropout in between.

        →h_l[t] = →cell_l(x_l[t], →h_l[t − 1])
        ←h_l[t] = ←cell_l(x_l[t], ←h_l[t + 1])
        h_l[t] = [→h_l[t]; ←h_l[t]]

    What a layer reads (x_l) and its result (y_l) depend on `skip` (see above); the output is y of the top layer.
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

    def forward(self, inputs: Inputs, lengths: Lengths) -> Float[Tensor, "batch time width"]:
        """The result of the top layer at every position."""
        turn = turning(lengths, inputs.shape[1])

        def layer(number: int, read: Tensor) -> Tensor:
            right, left = self.rightward[number], self.leftward[number]
            forwards = right.outputs(read, _nothing_read(right, read), lengths=lengths)
            backwards = left.outputs(reorder(read, turn), _nothing_read(left, read), lengths=lengths)
            return torch.cat([forwards, reorder(backwards, turn)], 2)  # [batch, time, both widths]

        outputs: Tensor = self.climb(inputs, layer)
        return outputs


def require_causal(layers: Stack | Bidirectional, *, model: str) -> Stack:
    """These layers, for a model that predicts each symbol from those before it; an error if they read ahead."""
    if isinstance(layers, Bidirectional):
        raise ConfigError(
            f"{model} predicts each symbol from the ones before it, but bidirectional layers also see the symbols "
            "after it; use layers that read from left to right only"
        )
    return layers


def input_widths(
    input_width: int, width: int, *, layers: int, directions: int = 1, skip: Skip = "none"
) -> tuple[int, ...]:
    """The width of the input of each layer: as given for the lowest, then all directions of the layer below.

    In a dense stack each layer reads the input and the results of all layers below it.
    """
    check_known("skip", skip, get_args(Skip))
    if skip == "dense":
        return tuple(input_width + layer * directions * width for layer in range(layers))
    return (input_width, *[directions * width] * (layers - 1))


def cells_of(
    make: MakeCell, input_width: int, *, width: int, layers: int, directions: int = 1, skip: Skip = "none"
) -> list[Cell]:
    """The cells of a stack, or of one direction of two."""
    widths = input_widths(input_width, width, layers=layers, directions=directions, skip=skip)
    return [make(each, width) for each in widths]


def summarise(
    outputs: Float[Tensor, "batch time width"], lengths: Lengths, *, summary: Summary, directions: int
) -> Float[Tensor, "batch width"]:
    """c = q(h_1 … h_n), over real positions only.

    last   the last state of each direction: h_n of the rightward half, h_1 of the leftward half
    join   the same, of layers that read in both directions
    mean   Σ_t h_t / n
    max    max_t h_t, number by number
    """
    check_known("summary", summary, get_args(Summary))
    if summary in ("last", "join"):
        last = (lengths - 1).clamp(min=0)
        rightmost = outputs[torch.arange(len(lengths), device=lengths.device), last]  # [batch, width]
        half = outputs.shape[2] // 2
        return rightmost if directions == 1 else torch.cat([rightmost[:, :half], outputs[:, 0, half:]], 1)
    counted = lengths.clamp(min=1)
    padding = ~length_mask(counted, outputs.shape[1])[:, :, None]  # [batch, time, 1]
    if summary == "max":
        return outputs.masked_fill(padding, float("-inf")).amax(1)
    return outputs.masked_fill(padding, 0).sum(1) / counted[:, None]


def turning(lengths: Lengths, longest: int) -> Int[Tensor, " positions"]:
    """Indices into `batch · longest` that reverse every sequence within its length and leave the padding."""
    check_lengths(lengths, rows=len(lengths), time=longest)
    at = torch.arange(longest, device=lengths.device)
    turned = torch.where(at < lengths[:, None], lengths[:, None] - 1 - at, at)  # [batch, longest]
    rows = torch.arange(len(lengths), device=lengths.device)[:, None]
    return (rows * longest + turned).flatten()


def reorder(
    padded: Float[Tensor, "batch time width"], turn: Int[Tensor, " positions"]
) -> Float[Tensor, "batch time width"]:
    """The positions in an order that is its own inverse, so that the gradient is a gather too."""
    turned: Tensor = _Reorder.apply(padded, turn)  # type: ignore[no-untyped-call]
    return turned


def _nothing_read(cell: Cell, inputs: Inputs) -> CellState:
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
