"""What a recurrent cell is, and the plain loop that unrolls any of them.

A cell is one class that computes one step. The step has two halves, so that the first can be computed for all positions
of a sequence in one product:

    p = project(x)             what the input adds to each gate, W x + b; by default x itself
    state' = advance(p, state)

A state is a tuple of tensors of the same shape. Its first is the hidden state, the only part that other layers see.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import DataError, UsageError
from seqloom.nn.bptt.passes import EPSILON, ManualBackward
from seqloom.nn.init import Start, state_matrices, xavier_uniform

CellState = tuple[Float[Tensor, "rows width"], ...]
"""The hidden state, then whatever else the cell remembers."""
Inputs = Float[Tensor, "batch time inputs"]
Lengths = Int[Tensor, " batch"]
RunResult = tuple[Float[Tensor, "batch time width"], CellState]
"""Hidden states at every position, and the state after the last one of each row."""


class Cell(nn.Module, ABC):
    """A recurrent cell. Only `advance` must be written; everything else has a default that works for any cell.

    A cell without `manual_backward` is unrolled step by step and differentiated by autograd.
    """

    parts: int = 1
    """How many tensors a state has: 1, or 2 with a memory."""

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__()
        self.input_width = input_width
        self.width = width

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        """What can be computed of each input before any state is known, as W x + b."""
        return inputs

    @abstractmethod
    def advance(self, projected: Float[Tensor, "rows gates"], state: CellState) -> CellState:
        """The state after one step."""

    def forward(self, inputs: Float[Tensor, "rows inputs"], state: CellState) -> CellState:
        """One step from an input that has not been projected yet."""
        return self.advance(self.project(inputs), state)

    def begin(self, hint: Float[Tensor, "rows width"]) -> CellState:
        """The state whose hidden part is tanh(hint). A hint of zeros is the state before anything was read.

        The hint itself becomes the memory, if there is one, as if the output gate were open.
        """
        return (hint.tanh(), hint)[: self.parts]

    def run(self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None) -> RunResult:
        """Hidden states at every position, and the state after the last one of each row.

        Without `lengths` every row is taken to be full. Real positions never see the padding after them, so lengths
        matter to the last state alone; positions in the padding may hold anything finite.

        Outputs that need gradients must not be changed in place: the backward pass reads them, and torch raises an
        error where that would give wrong results. Under autocast, CPUs compute in the precision of the weights.
        """
        return unroll(self, inputs, state, lengths=lengths)

    def outputs(
        self, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None
    ) -> Float[Tensor, "batch time width"]:
        """The hidden states of `run` alone; `lengths` are ignored where they would not make that faster."""
        return self.run(inputs, state, lengths=lengths)[0]

    def manual_backward(self) -> ManualBackward | None:
        """The hand-derived pass of this cell, an optimisation; None for autograd."""
        return None

    def gate_matrices(self) -> dict[str, Float[Tensor, "width width"]]:
        """The square matrices by which the hidden state enters each gate, by the gate's name; empty if unknown."""
        return {}

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return next((each.dtype for each in self.parameters()), torch.get_default_dtype())


class GatedCell(Cell):
    """A cell whose gates are functions of W x + b + U h + d, the gates stacked in one matrix W and one matrix U.

    With `norm`, LN(W x) and LN(U h) replace W x and U h (Ba et al., 2016): LN brings the numbers of one product to mean
    0 and variance 1 and scales each by a learnt gain.
    """

    gates: tuple[str, ...]
    """The gates in the order of their weights in `from_state`."""
    groups: tuple[int, ...]
    """How many of the gates, in their order, are normalised as one product."""
    from_input: nn.Linear
    """W and b."""
    from_state: nn.Linear
    """U, and a second bias d where torch has one."""

    def __init__(
        self,
        input_width: int,
        width: int,
        *,
        has_state_bias: bool,
        norm: bool,
        start: Start,
        spectral_radius: float,
    ) -> None:
        super().__init__(input_width, width)
        self.norm = norm
        if norm:
            groups = tuple(count * width for count in self.groups)
            self.from_input = NormedLinear(input_width, groups=groups, has_bias=True)
            self.from_state = NormedLinear(width, groups=groups, has_bias=has_state_bias)
        else:
            self.from_input = nn.Linear(input_width, len(self.gates) * width)
            self.from_state = nn.Linear(width, len(self.gates) * width, bias=has_state_bias)
        xavier_uniform(self.from_input.weight, parts=len(self.gates))
        state_matrices(self.from_state.weight, gates=len(self.gates), start=start, radius=spectral_radius)
        for linear in (self.from_input, self.from_state):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def project(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows gates"]:
        projected: Tensor = self.from_input(inputs)
        return projected

    def gate_matrices(self) -> dict[str, Float[Tensor, "width width"]]:
        return dict(zip(self.gates, self.from_state.weight.detach().split(self.width), strict=True))

    @property
    def dtype(self) -> torch.dtype:
        return self.from_state.weight.dtype

    @property
    def state_gain(self) -> Tensor | None:
        """The gain of LN(U h), if the cell has norms."""
        return self.from_state.gain if isinstance(self.from_state, NormedLinear) else None

    @property
    def torch_weights(self) -> list[Tensor]:
        """In the order of torch's kernels."""
        return [self.from_input.weight, self.from_state.weight, self.from_input.bias, self.from_state.bias]


def unroll(cell: Cell, inputs: Inputs, state: CellState, *, lengths: Lengths | None = None) -> RunResult:
    """`Cell.run` as a plain loop over single steps; a row past its length keeps its state."""
    check_run(cell, inputs, state, lengths=lengths)
    device, dtype = inputs.device.type, cell.dtype
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return unroll(cell, inputs.to(dtype), tuple(part.to(dtype) for part in state), lengths=lengths)
    outputs = []
    for time, projected in enumerate(cell.project(inputs).unbind(1)):  # [batch, gates]
        stepped = cell.advance(projected, state)
        outputs.append(stepped[0])
        if lengths is not None:
            is_real = (time < lengths)[:, None]  # [batch, 1]
            stepped = tuple(torch.where(is_real, new, old) for new, old in zip(stepped, state, strict=True))
        state = stepped
    return torch.stack(outputs, 1) if outputs else inputs.new_zeros(len(inputs), 0, cell.width), state


def check_run(cell: Cell, inputs: Tensor, state: tuple[Tensor, ...], *, lengths: Tensor | None) -> None:
    """Raise if something does not fit the cell: torch's kernels would read past the end of it."""
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
    dtype = cell.dtype
    for each in (inputs, *state):
        if each.dtype != dtype and not torch.is_autocast_enabled(inputs.device.type):
            given = "the inputs are" if each is inputs else "a state is"
            raise UsageError(f"the weights of this {name} are {dtype}, but {given} {each.dtype}; use one type")
    if lengths is not None:
        check_lengths(lengths, rows=rows, time=inputs.shape[1])


def check_lengths(lengths: Tensor, *, rows: int, time: int) -> None:
    """Raise if these rows cannot have these lengths. On other devices than the CPU the values are not fetched."""
    if lengths.device.type == "cpu":
        length_range(lengths, rows=rows, time=time)
    else:
        _check_form(lengths, rows)


def length_range(lengths: Tensor, *, rows: int, time: int) -> tuple[int, int]:
    """The shortest and the longest length, checked."""
    _check_form(lengths, rows)
    if not rows:
        return time, time
    shortest, longest = torch.stack(torch.aminmax(lengths)).tolist()
    if longest > time or shortest < 0:
        wrong = longest if longest > time else shortest
        raise DataError(f"a row cannot have {wrong} positions in a batch of {time}; check the lengths")
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

    def __init__(self, input_width: int, *, groups: tuple[int, ...], has_bias: bool) -> None:
        super().__init__(input_width, sum(groups), bias=has_bias)
        self.groups = groups
        self.gain = nn.Parameter(torch.ones(sum(groups)))

    def forward(self, inputs: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        ends = torch.tensor(self.groups).cumsum(0).tolist()
        parts = [of_rows(self, inputs, begin=end - size, end=end) for size, end in zip(self.groups, ends, strict=True)]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def of_rows(
    linear: nn.Linear, inputs: Float[Tensor, "*rows inputs"], *, begin: int, end: int
) -> Float[Tensor, "*rows outputs"]:
    """Some of the outputs of a linear map; of a `NormedLinear`, one of its groups."""
    bias = None if linear.bias is None else linear.bias[begin:end]
    if not isinstance(linear, NormedLinear):
        return F.linear(inputs, linear.weight[begin:end], bias)
    product = F.linear(inputs, linear.weight[begin:end])
    return F.layer_norm(product, (end - begin,), linear.gain[begin:end], bias, EPSILON)


def mix(
    begin: Float[Tensor, "rows width"], end: Float[Tensor, "rows width"], gate: Float[Tensor, "rows width"]
) -> Float[Tensor, "rows width"]:
    """begin + gate ⊙ (end − begin), also where autocast has left some of them in half precision."""
    dtype = torch.promote_types(begin.dtype, end.dtype)
    return torch.lerp(begin.to(dtype), end.to(dtype), gate.to(dtype))


def run_fused(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    inputs: Inputs,
    state: CellState,
    *,
    weights: list[Tensor],
    lengths: Lengths | None,
) -> RunResult:
    """A kernel of torch for states of one part, whose outputs contain the last state of every row.

    Not for CPUs: there torch's RNN and GRU are loops of small calls, and the hand-derived pass is faster.
    """
    if not inputs.shape[1]:  # the kernels reject empty sequences
        return inputs.new_zeros(len(inputs), 0, state[0].shape[1]), state
    outputs, hidden = kernel(inputs, state[0][None], weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
    if lengths is None:
        return outputs, (hidden[0],)
    # A row without positions keeps its first state.
    steps = torch.cat([state[0][:, None], outputs], 1)  # [batch, 1 + time, width]
    return outputs, (steps[torch.arange(len(lengths), device=lengths.device), lengths],)
