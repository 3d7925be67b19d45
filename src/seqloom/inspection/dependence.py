"""What lies between two positions of a sequence, counted in the graph of the computation.

    shortest   the fewest on a way from input i to output j: what a gradient at least has to pass
    longest    the most: so many must follow one another, however many processors there are

Counted are matrix products, or all operations that compute something (those that only move numbers are not). The two
tell different things: the memory of an LSTM passes a step through a gate and a sum, but through no matrix.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import Node

from seqloom.core.errors import UsageError
from seqloom.nn.attention import Attention
from seqloom.nn.cells import Cell
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import packing_of

PRODUCTS = ("Addmm", "Mm", "Bmm", "Baddbmm", "Linear", "Mv", "ScaledDotProduct")
"""How the names of nodes begin that multiply matrices. The last does two in one; short sequences go without."""
OPERATIONS = (*PRODUCTS, "Add", "Sub", "Rsub", "Mul", "Div", "Neg", "Lerp", "Tanh", "Sigmoid", "Relu", "Softmax")
"""Those of all nodes that compute something, in the layers that are looked at here."""

Reader = Callable[[Sequence[Float[Tensor, "one width"]]], Float[Tensor, "one width"]]
"""From the inputs of each position to the output of the last one."""


@dataclass(frozen=True)
class Way:
    """What lies between an input and an output."""

    shortest: int
    longest: int


def ways(
    output: Float[Tensor, "*out"], inputs: Sequence[Float[Tensor, "*in"]], *, counted: tuple[str, ...] = PRODUCTS
) -> list[Way]:
    """From each input, a leaf that wants its gradient, to the output."""
    if output.grad_fn is None:
        raise UsageError("the output was computed without gradients, so there is no graph to look at")
    order = list(_upwards(output.grad_fn))
    return [_way(order, leaf, number, counted) for number, leaf in enumerate(inputs)]


def ways_to_last(read: Reader, *, positions: int, width: int, counted: tuple[str, ...] = PRODUCTS) -> list[Way]:
    """From each position to the last. Position p lies positions − 1 − p steps before the last."""
    inputs = [torch.ones(1, width).requires_grad_() for _ in range(positions)]  # any numbers have the same graph
    return ways(read(inputs), inputs, counted=counted)


def read_by_cell(cell: Cell) -> Reader:
    """The last hidden state. Each input is projected by itself: done together, all would seem to depend on all."""

    def read(inputs: Sequence[Tensor]) -> Tensor:
        return _states(cell, inputs)[-1]

    return read


def read_by_attention(layer: SelfAttention) -> Reader:
    """What self-attention leaves at the last position."""

    def read(inputs: Sequence[Tensor]) -> Tensor:
        packing = packing_of(torch.tensor([len(inputs)]), len(inputs))
        mixed: Tensor = layer(torch.cat(list(inputs)), packing, mask=None, is_causal=False)
        return mixed[-1:]

    return read


def read_by_both(cell: Cell, attention: Attention) -> Reader:
    """What the last hidden state finds when it looks at all of them."""

    def read(inputs: Sequence[Tensor]) -> Tensor:
        states = _states(cell, inputs)
        memory = attention.remember(torch.stack(states, 1), torch.tensor([len(inputs)]))
        contexts: Tensor = attention(states[-1][:, None], memory)[0]
        return contexts[:, 0]

    return read


def _states(cell: Cell, inputs: Sequence[Tensor]) -> list[Tensor]:
    state = cell.begin(inputs[0].new_zeros(1, cell.width))
    states = []
    for one in inputs:
        state = cell.advance(cell.project(one), state)
        states.append(state[0])
    return states


def _upwards(root: Node) -> Iterator[Node]:
    """The nodes of a graph, each after all that it was computed from."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, is_open = stack.pop()
        if is_open:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(below, False) for below, _ in node.next_functions if below is not None and below not in seen]


def _way(order: Sequence[Node], leaf: Tensor, number: int, counted: tuple[str, ...]) -> Way:
    found: dict[Node, Way] = {}
    for node in order:
        if getattr(node, "variable", None) is leaf:
            found[node] = Way(0, 0)
            continue
        below = [found[one] for one, _ in node.next_functions if one in found]
        if below:
            own = int(node.name().startswith(counted))
            found[node] = Way(own + min(way.shortest for way in below), own + max(way.longest for way in below))
    if order[-1] not in found:
        raise UsageError(f"the output does not depend on input {number}; give a leaf that wants its gradient")
    return found[order[-1]]
