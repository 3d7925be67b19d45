"""What a recurrent cell is, and the plain loop that unrolls any of them.

A cell's step has two halves, so that the first can be done for all positions of a sequence in one product:

    p = project(x)             what the input adds to each gate, W x + b
    state' = advance(p, state)

A state is a tuple of tensors of the same shape. Its first is the hidden state, all that other layers see of a cell.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import DataError, UsageError
from seqloom.nn.bptt.passes import EPSILON, ByHand

CellState = tuple[Float[Tensor, "rows width"], ...]
"""The hidden state, then whatever else the cell remembers."""


class Cell(nn.Module, ABC):
    """What a layer needs to know of a cell."""

    input_width: int
    """Size of the input."""
    width: int
    """Size of the hidden state."""
    parts: int
    """How many tensors a state has: 1, or 2 with a memory."""
    gates: tuple[str, ...]
    """The gates in the order in which their weights stand in `from_state`."""

    from_input: nn.Linear
    """W and b, the gates one above the other."""
    from_state: nn.Linear
    """U, and a second bias where torch has one."""

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        """What each input adds to the gates, before any state is known: W x + b."""
        projected: Tensor = self.from_input(inputs)
        return projected

    @abstractmethod
    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        """The state after a step."""

    def begin(self, hint: Float[Tensor, "rows width"]) -> CellState:
        """The state whose hidden part is tanh(hint). A hint of zeros is the state before anything was read.

        The hint itself becomes the memory, where there is one, shown as through an open gate.
        """
        return (hint.tanh(), hint)[: self.parts]

    @abstractmethod
    def by_hand(self) -> ByHand:
        """The cell as its hand-derived pass knows it."""

    @abstractmethod
    def run(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], CellState]:
        """Hidden states at every position, and the state after the last one of each row.

        Without `lengths` every row is taken to be full. Real positions never see the padding after them, so lengths
        matter to the last state alone; positions in the padding may hold anything finite.

        Outputs that gradients are wanted of are not to be changed in place: the way back reads the states in them, and
        torch refuses where that would go wrong. Under autocast, processors run all in the precision of the weights.
        """

    def outputs(
        self,
        inputs: Float[Tensor, "batch time inputs"],
        state: CellState,
        *,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time width"]:
        """The hidden states of `run` alone; where `lengths` would not make that faster, they are not looked at."""
        return self.run(inputs, state, lengths=lengths)[0]


def unroll(
    cell: Cell,
    inputs: Float[Tensor, "batch time inputs"],
    *,
    state: CellState,
    lengths: Int[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, "batch time width"], CellState]:
    """The cell's `run` as a loop over its one-step form; a row past its length keeps its state."""
    check_run(cell, inputs, state, lengths=lengths)
    outputs = []
    for time, projected in enumerate(cell.project(inputs).unbind(1)):
        stepped = cell.advance(projected, state)
        outputs.append(stepped[0])
        if lengths is not None:
            goes_on = (time < lengths)[:, None]
            stepped = tuple(torch.where(goes_on, new, old) for new, old in zip(stepped, state, strict=True))
        state = stepped
    return torch.stack(outputs, 1) if outputs else inputs.new_zeros(len(inputs), 0, cell.width), state


def check_run(cell: Cell, inputs: Tensor, state: tuple[Tensor, ...], *, lengths: Tensor | None) -> None:
    """Refuse what does not fit the cell: torch's kernels would read past the end of it."""
    rows, name = len(inputs), type(cell).__name__
    if inputs.shape[2] != cell.input_width:
        raise UsageError(f"the inputs have width {inputs.shape[2]}, but this {name} reads width {cell.input_width}")
    if len(state) != cell.parts:
        raise UsageError(
            f"a state of {name} has {cell.parts} parts, but {len(state)} were given; its method begin makes all of "
            "them from the first"
        )
    for number, part in enumerate(state, start=1):
        if part.shape != (rows, cell.width):
            raise UsageError(
                f"part {number} of the state has the shape {list(part.shape)}, but the inputs have {rows} rows and "
                f"this {name} width {cell.width}: give [{rows}, {cell.width}]"
            )
    dtype = cell.from_state.weight.dtype
    for each in (inputs, *state):
        if each.dtype != dtype and not torch.is_autocast_enabled(inputs.device.type):
            given = "inputs" if each is inputs else "a state"
            raise UsageError(f"the weights of this {name} are {dtype}, but {given} of {each.dtype} came; use one type")
    if lengths is not None:
        check_lengths(lengths, rows=rows, time=inputs.shape[1])


def check_lengths(lengths: Tensor, *, rows: int, time: int) -> None:
    """Refuse lengths that these rows cannot have. Of another device than the processor the numbers are not fetched."""
    if lengths.device.type == "cpu":
        length_range(lengths, rows=rows, time=time)
    else:
        _check_form(lengths, rows)


def length_range(lengths: Tensor, *, rows: int, time: int) -> tuple[int, int]:
    """The shortest and the longest, once it is sure that these rows can have such lengths."""
    _check_form(lengths, rows)
    if not rows:
        return time, time
    shortest, longest = torch.stack(torch.aminmax(lengths)).tolist()
    if longest > time or shortest < 0:
        wrong = longest if longest > time else shortest
        raise DataError(f"a row cannot have {wrong} positions in a batch of {time}; check the lengths given with it")
    return shortest, longest


def _check_form(lengths: Tensor, rows: int) -> None:
    if lengths.shape != (rows,):
        raise DataError(f"lengths of the shape {list(lengths.shape)} do not fit {rows} rows: give one for each")
    if lengths.dtype not in (torch.int64, torch.int32):  # torch takes bytes as indices for a mask
        raise DataError(f"lengths are {lengths.dtype}, but they count positions: give torch.int64 or torch.int32")


class NormedLinear(nn.Linear):
    """LN(W x) + b: the numbers of each group brought to mean 0 and variance 1, then each scaled by its gain.

    y = W x,    LN(y) = gain ⊙ (y − mean y) / √(var y + ε)        mean and variance over the group
    """

    def __init__(self, input_width: int, width: int, *, groups: tuple[int, ...], has_bias: bool) -> None:
        super().__init__(input_width, width, bias=has_bias)
        self.groups = groups
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        ends = torch.tensor(self.groups).cumsum(0).tolist()
        parts = [of_rows(self, inputs, begin=end - size, end=end) for size, end in zip(self.groups, ends, strict=True)]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def of_rows(
    linear: nn.Linear, inputs: Float[Tensor, "*rows inputs"], *, begin: int, end: int
) -> Float[Tensor, "*rows outputs"]:
    """Some of what a linear map gives; of a `NormedLinear`, one of its groups."""
    bias = None if linear.bias is None else linear.bias[begin:end]
    if not isinstance(linear, NormedLinear):
        return F.linear(inputs, linear.weight[begin:end], bias)
    product = F.linear(inputs, linear.weight[begin:end])
    return F.layer_norm(product, (end - begin,), linear.gain[begin:end], bias, EPSILON)
