"""Hand-derived passes over time: the parts that all cells share.

Positions are time-major and packed: those of step 0, then those of step 1, and so on, the longest row first within a
step, so that the rows of a step are the first rows of the step before. A buffer of states has the first state as one
more block in front; the states before all steps are then a slice of it (or one gather, where rows differ in length),
and the gradient of each weight is one product over all positions.

The forward pass works in place: its buffer holds the products with the inputs before, and the gates afterwards. The
backward pass first computes what does not depend on the incoming gradient for all steps at once: the local gradient of
each gate, ∂state/∂sum. Its loop then multiplies gradients of the state by local gradients, also in place.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-5
"""Added to every variance that a norm divides by."""

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Steps:
    """Which of the packed positions belong to which step."""

    rows: int
    """Rows of the first state; some may have no step."""
    sizes: tuple[int, ...]
    """Rows that take part in each step, never more than in the step before and never none."""
    previous: Tensor | None
    """Where the state before each position stands in a buffer of states; None if all rows take part in all steps."""

    @property
    def positions(self) -> int:
        return sum(self.sizes)

    def at(self, packed: Tensor) -> list[Tensor]:
        """The part of each step of a buffer `[positions, …]`."""
        # Unsafe only under autograd: these views skip its bookkeeping, and every run makes hundreds of them.
        return list(torch.unsafe_split_with_sizes(packed, self.sizes)) if self.sizes else []

    def around(self, states: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The state before each step, of the rows that take part in it, and the state after; of a buffer of states."""
        whole = states.narrow(0, 0, self.rows + self.positions)
        blocks = torch.unsafe_split_with_sizes(whole, (self.rows, *self.sizes))
        before = list(blocks[:-1])
        if self.previous is not None:
            before = [block[:size] for block, size in zip(before, self.sizes, strict=True)]
        return before, list(blocks[1:])

    def after_all(self, states: Tensor) -> Tensor:
        return states.narrow(0, self.rows, self.positions)

    def before_all(self, states: Tensor) -> Tensor:
        return states.narrow(0, 0, self.positions) if self.previous is None else states.index_select(0, self.previous)


class Pass(ABC):
    """The steps of one cell over one batch.

    Forward: `forward`. Backward: `prepare_backward`, then all steps from the last to the first by `backward`, which is
    fast, or by `vjp`, which takes several gradients at once and returns them; then `parameter_gradients`, if weights
    are trained, and `input_gradients`.
    """

    gate_gradients: Tensor
    """[positions, gates]. From `prepare_backward` on the local gradient of each gate; after its step, the gradient of
    its sum."""

    @abstractmethod
    def forward(self, steps: Steps, projected: Tensor, states: Tensors) -> tuple[Tensor, ...]:
        """Fill the states after the first block, overwrite `projected`, and return the tape for `prepare_backward`."""

    @abstractmethod
    def prepare_backward(self, steps: Steps, states: Tensors, *, tape: Tensors, gradients: Tensors) -> None:
        """Compute all local gradients.

        The first of `gradients` has the form of a buffer of states and holds, for every position, what comes from
        outside; each step adds to the block before it. The second is that of the memory, one row for each row of the
        first state; each step changes its rows.
        """

    @abstractmethod
    def backward(self, first: int, last: int, *, is_cut: bool) -> None:
        """Steps last − 1 down to `first`; `is_cut` keeps the gradient from the state before `first`."""

    @abstractmethod
    def vjp(self, step: int, gradients: Tensors) -> list[Tensor]:
        """From gradients of the state after a step to those of the state before it, each `[several, rows, width]`.

        The sum over the several goes into `gate_gradients`, as after `backward`.
        """

    @abstractmethod
    def parameter_gradients(self) -> tuple[Tensor | None, ...]:
        """The gradient of each parameter, from all steps at once."""

    def input_gradients(self) -> Tensor:
        """The gradient of `projected`; may overwrite the tape."""
        return self.gate_gradients


@dataclass(frozen=True)
class ManualBackward:
    """The hand-derived pass of a cell: how to make it, and the weights of every step (None where there is none)."""

    make: Callable[[tuple[Tensor | None, ...]], Pass]
    parameters: tuple[Tensor | None, ...]


class Product:
    """U h, added to gates at every step by weights that all steps share."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._turned = weight.t()

    def begin(self, steps: Steps, like: Tensor) -> None:
        """Allocate what the backward pass needs; a plain product keeps nothing."""

    @property
    def tape(self) -> tuple[Tensor, ...]:
        return ()

    def prepare_backward(self, steps: Steps, tape: Iterator[Tensor]) -> None:
        """Prepare the backward pass, and take from the tape what `tape` returned."""

    def add(self, step: int, state: Tensor, total: Tensor) -> None:  # noqa: ARG002
        """total += U state"""
        total.addmm_(state, self._turned)

    def backward(self, step: int, gate_gradients: Tensor, into: Tensor | None) -> None:  # noqa: ARG002
        """into += Uᵀ gate_gradients; without `into` only what the gradient of U needs is kept."""
        if into is not None:
            into.addmm_(gate_gradients, self.weight)

    def vjp(self, step: int, gate_gradients: Tensor) -> Tensor:  # noqa: ARG002
        """Uᵀ gate_gradients of several gradients, `[several, rows, gates]`."""
        return gate_gradients @ self.weight

    def gradients(self, gate_gradients: Tensor, states: Tensor) -> tuple[Tensor, Tensor | None]:
        """Of U and, where there is one, of the gain."""
        return gate_gradients.t() @ states, None


class NormedProduct:
    """As `Product`: gain ⊙ (y − mean y) / √(var y + ε), y = U h"""

    def __init__(self, weight: Tensor, gain: Tensor) -> None:
        self.weight = weight
        self.gain = gain
        self._turned = weight.t()
        self._shape = [len(gain)]

    def begin(self, steps: Steps, like: Tensor) -> None:
        self._products = like.new_empty(steps.positions, len(self.gain))
        self._product_at = steps.at(self._products)

    @property
    def tape(self) -> tuple[Tensor, ...]:
        return (self._products,)

    def prepare_backward(self, steps: Steps, tape: Iterator[Tensor]) -> None:
        self._products = next(tape)
        _, self._mean, self._scale = torch.native_layer_norm(self._products, self._shape, self.gain, None, EPSILON)
        self._product_at, self._mean_at, self._scale_at = map(steps.at, (self._products, self._mean, self._scale))
        self._behind = torch.zeros_like(self._products)
        """The gradient of U h, behind the norm."""
        self._behind_at = steps.at(self._behind)

    def add(self, step: int, state: Tensor, total: Tensor) -> None:
        product = torch.mm(state, self._turned, out=self._product_at[step])
        total.add_(torch.native_layer_norm(product, self._shape, self.gain, None, EPSILON)[0])

    def backward(self, step: int, gate_gradients: Tensor, into: Tensor | None) -> None:
        behind = norm_backward(
            gate_gradients, self._product_at[step], mean=self._mean_at[step], scale=self._scale_at[step], gain=self.gain
        )
        self._behind_at[step].copy_(behind)
        if into is not None:
            into.addmm_(behind, self.weight)

    def vjp(self, step: int, gate_gradients: Tensor) -> Tensor:
        behind = norm_backward(
            gate_gradients, self._product_at[step], mean=self._mean_at[step], scale=self._scale_at[step], gain=self.gain
        )
        torch.sum(behind, 0, out=self._behind_at[step])
        return behind @ self.weight

    def gradients(self, gate_gradients: Tensor, states: Tensor) -> tuple[Tensor, Tensor | None]:
        _, of_gain, _ = torch.ops.aten.native_layer_norm_backward(
            gate_gradients.contiguous(),
            self._products,
            self._shape,
            self._mean,
            self._scale,
            self.gain,
            None,
            [False, True, False],
        )
        return self._behind.t() @ states, of_gain


def norm_backward(gradients: Tensor, values: Tensor, *, mean: Tensor, scale: Tensor, gain: Tensor) -> Tensor:
    """From the gradient of a norm's result to that of its values; `gradients` may have one more axis in front."""
    values, mean, scale = (each.expand(*gradients.shape[:-1], -1).contiguous() for each in (values, mean, scale))
    behind: Tensor = torch.ops.aten.native_layer_norm_backward(
        gradients.contiguous(), values, [len(gain)], mean, scale, gain, None, [True, False, False]
    )[0]
    return behind


class SideBySide:
    """As `Product`: products with the same state for gates that stand side by side, each with a norm of its own."""

    def __init__(self, links: Sequence[NormedProduct]) -> None:
        self._links = links
        self._sizes = [len(each.gain) for each in links]

    def begin(self, steps: Steps, like: Tensor) -> None:
        for each in self._links:
            each.begin(steps, like)

    @property
    def tape(self) -> tuple[Tensor, ...]:
        return tuple(tensor for each in self._links for tensor in each.tape)

    def prepare_backward(self, steps: Steps, tape: Iterator[Tensor]) -> None:
        for each in self._links:
            each.prepare_backward(steps, tape)

    def add(self, step: int, state: Tensor, total: Tensor) -> None:
        for each, part in zip(self._links, total.split(self._sizes, 1), strict=True):
            each.add(step, state, part)

    def backward(self, step: int, gate_gradients: Tensor, into: Tensor | None) -> None:
        for each, part in zip(self._links, gate_gradients.split(self._sizes, 1), strict=True):
            each.backward(step, part, into)

    def vjp(self, step: int, gate_gradients: Tensor) -> Tensor:
        parts = zip(self._links, gate_gradients.split(self._sizes, 2), strict=True)
        return torch.stack([each.vjp(step, part) for each, part in parts]).sum(0)

    def gradients(self, gate_gradients: Tensor, states: Tensor) -> tuple[Tensor, Tensor | None]:
        parts = zip(self._links, gate_gradients.split(self._sizes, 1), strict=True)
        of_weights, of_gains = zip(*(each.gradients(part, states) for each, part in parts), strict=True)
        return torch.cat(of_weights), torch.cat(of_gains)


Link = Product | NormedProduct | SideBySide


def link(weight: Tensor, gain: Tensor | None, *, groups: Sequence[int] = ()) -> Link:
    """With a gain, the product is normalised, each of the groups by itself."""
    if gain is None:
        return Product(weight)
    if len(groups) < 2:
        return NormedProduct(weight, gain)
    parts = zip(weight.split(list(groups)), gain.split(list(groups)), strict=True)
    return SideBySide([NormedProduct(*part) for part in parts])
