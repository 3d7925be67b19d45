"""One step of a Transformer decoder as a plan: products, norms and attention in a row, without module calls.

A product of one step takes about ten microseconds, and calling the module that holds it, or allocating its result,
takes as long again. The plan is made once, its buffers are reused, and it computes what the layers compute:

    norm before   x ← x + f(norm(x))             norm after   x ← norm(x + f(x))

for f = self-attention, attention to the memory, feed-forward. A sum and the norm after it are one compiled loop. The
plan exists for layers without positions of their own, where compiled loops are used
(`nn.fast.beam_attention.uses_loops`); else `DecoderPlan.of` is None. One sentence is decoded by fewer calls still:
`nn.fast.compiled_step`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.jit import compiled
from seqloom.nn.blocks import Activation, FeedForward, Residual, RMSNorm
from seqloom.nn.fast.beam_attention import StepAttention, Table, powers, scale_of
from seqloom.nn.fast.int8 import Int8Linear
from seqloom.nn.fast.packed import PackedProducts
from seqloom.nn.multihead import CrossAttention, SelfAttention
from seqloom.nn.probe import Probe


@runtime_checkable
class DecoderModules(Protocol):
    """The modules of a decoder layer that a plan is made from."""

    self: SelfAttention
    cross: CrossAttention
    feed_forward: FeedForward
    around_self: Residual
    around_cross: Residual
    around_feed_forward: Residual


class StepBuffers:
    """The results of a layer, shared by all layers and by all steps of a search."""

    rows = -1

    def allocate(self, rows: int, *, width: int, inner: int, heads_width: int) -> None:
        """Buffers for this many rows, new ones if their number has changed."""
        if rows != self.rows:
            self.rows = rows
            self.joined = Table(torch.empty(rows, 3 * heads_width))  # queries, keys and values
            self.query, self.mixed = (Table(torch.empty(rows, heads_width)) for _ in range(2))
            self.inner, self.gate = (Table(torch.empty(rows, inner)) for _ in range(2))
            self.branch, self.normed = (Table(torch.empty(rows, width)) for _ in range(2))


Sublayer = Callable[[Table, StepAttention, StepBuffers], Table]
"""f of its input."""


@dataclass(frozen=True)
class DecoderPlan:
    """The sublayers of a decoder in their order. With norms before, one more norm is after all of them."""

    sublayers: Sequence[Sublayer]
    norms: Sequence["FusedNorm"]
    probes: Sequence[Probe]
    is_before: bool
    width: int
    inner: int
    heads_width: int
    """Numbers of all heads together."""
    scale: np.float32
    """The factor of scores, times log₂ e."""

    @staticmethod
    def of(
        layers: Sequence[DecoderModules], last: nn.Module, packed: PackedProducts | None = None
    ) -> "DecoderPlan | None":
        """The plan of these layers with a last norm after them, if they can be planned.

        `packed` are their linear layers, by which loops multiply in place of torch: the results are then those of
        `nn.fast.compiled_step`, however many rows and threads there are.
        """
        if not can_be_planned(layers, last):
            return None
        is_before = layers[0].around_self.place == "before"
        weight = layers[0].feed_forward.inner.weight  # [inner, width]
        bypasses = [
            each for layer in layers for each in (layer.around_self, layer.around_cross, layer.around_feed_forward)
        ]
        norms = [FusedNorm.of(bypass.norm) for bypass in bypasses]
        if isinstance(last, nn.LayerNorm | RMSNorm):
            norms.append(FusedNorm.of(last))
        sublayers = [each for number, layer in enumerate(layers) for each in _sublayers(layer, number, packed)]
        probes = [each.weights for layer in layers for each in (layer.self, layer.cross)]
        return DecoderPlan(
            sublayers,
            norms,
            probes,
            is_before,
            width=weight.shape[1],
            inner=weight.shape[0],
            heads_width=heads_width(layers[0]),
            scale=score_scale(layers[0]),
        )

    @property
    def has_listeners(self) -> bool:
        """Whether somebody listens to the layers, so that the plan must not be used."""
        return any(probe.has_listeners for probe in self.probes)

    def __call__(
        self, x: Float[Tensor, "rows width"], attention: StepAttention, buffers: StepBuffers
    ) -> Float[Tensor, "rows width"]:
        """The features for the output from the embedded symbols, which are overwritten. Valid until the next step."""
        residual = Table(x)
        buffers.allocate(len(x), width=self.width, inner=self.inner, heads_width=self.heads_width)
        if not self.is_before:
            for sublayer, norm in zip(self.sublayers, self.norms, strict=True):
                norm.add(residual, sublayer(residual, attention, buffers), residual)
            return x
        normed = self.norms[0](residual, buffers.normed)
        for sublayer, norm in zip(self.sublayers, self.norms[1:], strict=True):
            norm.add(residual, sublayer(normed, attention, buffers), normed)
        return normed.tensor


def can_be_planned(layers: Sequence[DecoderModules], last: nn.Module) -> bool:
    """Whether loops compute these layers and the norm after them."""
    weight = layers[0].feed_forward.inner.weight  # [inner, width]
    is_before = layers[0].around_self.place == "before"
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and is_before == isinstance(last, type(layers[0].around_self.norm))
        and all(layer.self.has_plain_heads and layer.self.scale == layer.cross.scale for layer in layers)
        and all(isinstance(each.output, nn.Linear) for layer in layers for each in (layer.self, layer.cross))
    )


def heads_width(layer: DecoderModules) -> int:
    """Numbers of all heads of a layer together."""
    return layer.cross.query.out_features


def score_scale(layer: DecoderModules) -> np.float32:
    """The factor of the scores of a layer, as the loops use it."""
    return scale_of(heads_width(layer) // layer.cross.heads, layer.cross.scale)


def products_of(layer: DecoderModules) -> tuple[nn.Module, ...]:
    """The linear layers of a decoder layer in the order of their use; last the gate, if there is one."""
    own, cross, feed_forward = layer.self, layer.cross, layer.feed_forward
    products = (own.qkv, own.output, cross.query, cross.output, feed_forward.inner, feed_forward.outer)
    return products if feed_forward.gate is None else (*products, feed_forward.gate)


def _sublayers(
    layer: DecoderModules, number: int, packed: PackedProducts | None
) -> tuple[Sublayer, Sublayer, Sublayer]:
    """Self-attention, attention to the memory and feed-forward of a layer."""
    products = products_of(layer)
    joined, self_output, query, cross_output, inner, outer, *gates = (
        _product(linear, len(products) * number + place, packed) for place, linear in enumerate(products)
    )
    activation = activation_number(layer.feed_forward)

    def attend_to_self(x: Table, attention: StepAttention, buffers: StepBuffers) -> Table:
        return self_output(attention.to_self(joined(x, buffers.joined), number, buffers.mixed), buffers.branch)

    def attend_to_memory(x: Table, attention: StepAttention, buffers: StepBuffers) -> Table:
        return cross_output(attention.to_memory(query(x, buffers.query), number, buffers.mixed), buffers.branch)

    def feed_forward(x: Table, _: StepAttention, buffers: StepBuffers) -> Table:
        active = inner(x, buffers.inner)  # [rows, inner]
        if gates:
            gate = gates[0](x, buffers.gate)
            activate(gate.flat, activation)
            multiply_by(active.flat, gate.flat)
        else:
            activate(active.flat, activation)
        return outer(active, buffers.branch)

    return attend_to_self, attend_to_memory, feed_forward


def _product(linear: nn.Module, number: int, packed: PackedProducts | None) -> Callable[[Table, Table], Table]:
    """W x + b of the first table, in the second one or in a new one: a linear layer without its module."""
    assert isinstance(linear, nn.Linear)
    if isinstance(linear, Int8Linear):
        product = linear.product
        return lambda x, _: Table(product(x.tensor))
    weight, given = linear.weight.detach().t(), cast("Tensor | None", linear.bias)
    bias = None if given is None else given.detach()

    def multiply(x: Table, out: Table) -> Table:
        if packed is not None:
            packed.multiply_by_threads(number, x.flat, out.flat)
        elif bias is None:
            torch.mm(x.tensor, weight, out=out.tensor)
        else:
            torch.addmm(bias, x.tensor, weight, out=out.tensor)
        return out

    return multiply


# The end of a sublayer and the beginning of the next in one pass, compiled: a sum and its layer norm.

Array = Any
"""numba infers types and shapes. Arrays are flat."""


RELU, GELU, SILU = (np.int64(get_args(Activation).index(name)) for name in ("relu", "gelu", "silu"))
LOG2_E = np.float32(math.log2(math.e))
TANH_RATE, TANH_CUBE = np.float32(2 * math.sqrt(2 / math.pi)), np.float32(0.044715)
"""x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 = x σ(2 √(2/π) (x + 0.044715 x³))"""


def activation_number(layer: FeedForward) -> np.int64:
    """The activation of a layer as the loops know it."""
    return np.int64(get_args(Activation).index(layer.activation))


@compiled(fast={"contract", "reassoc"})
def activate(numbers: Array, activation: Any) -> None:
    """relu, gelu, gelu_tanh or silu (`nn.blocks.activated`) of each number, in its place."""
    count = np.uint64(numbers.shape[0])
    if activation == RELU:
        for k in range(count):
            numbers[k] = max(numbers[k], np.float32(0.0))
    elif activation == GELU:
        for k in range(count):
            numbers[k] *= np.float32(0.5 * (1.0 + math.erf(numbers[k] * 0.7071067811865476)))
    else:
        # x σ(u) = x / (1 + e^−u), with a power that cannot overflow: σ(u) = e^−max(−u, 0) / (1 + e^−|u|)
        exponents = np.empty(numbers.shape[0], np.float32)
        for k in range(count):
            x = numbers[k]
            u = x if activation == SILU else TANH_RATE * (x + TANH_CUBE * x * x * x)
            exponents[k] = -abs(u) * LOG2_E
        powers(exponents, count)
        for k in range(count):
            x, power = numbers[k], exponents[k]
            numbers[k] = x * (power if x < np.float32(0.0) else np.float32(1.0)) / (np.float32(1.0) + power)


@compiled(fast={"contract", "reassoc"})
def multiply_by(numbers: Array, factors: Array) -> None:
    """numbers ⊙ factors, in the place of the numbers."""
    for k in range(np.uint64(numbers.shape[0])):
        numbers[k] *= factors[k]


@compiled(fast={"contract", "reassoc"}, is_inlined=True)
def normalise_row(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any, has_mean: Any, start: Any) -> None:
    """The same for the row that begins at `start`."""
    width = np.uint64(weight.shape[0])
    share = np.float32(1) / np.float32(weight.shape[0])
    total, squares = np.float32(0), np.float32(0)
    if has_mean:
        for k in range(width):
            total += x[start + k]
    mean = total * share
    for k in range(width):
        apart = x[start + k] - mean
        squares += apart * apart
    scale = np.float32(1) / np.sqrt(squares * share + epsilon)
    for k in range(width):
        out[start + k] = (x[start + k] - mean) * scale * weight[k] + bias[k]


@compiled(fast={"contract", "reassoc"})
def add_and_normalise(
    x: Array, branch: Array, weight: Array, bias: Array, out: Array, epsilon: Any, has_mean: Any
) -> None:
    """x = x + branch, out = (x − mean) / √(variance + ε) · weight + bias, row by row; the mean is 0 if it has none."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        for k in range(start, start + width):
            x[k] += branch[k]
        normalise_row(x, weight, bias, out, epsilon, has_mean, start)


@compiled(fast={"contract", "reassoc"})
def normalise(x: Array, weight: Array, bias: Array, out: Array, epsilon: Any, has_mean: Any) -> None:
    """out = (x − mean) / √(variance + ε) · weight + bias, row by row; the mean is 0 if it has none."""
    width = np.uint64(weight.shape[0])
    for start in range(np.uint64(0), np.uint64(x.shape[0]), width):
        normalise_row(x, weight, bias, out, epsilon, has_mean, start)


@dataclass(frozen=True)
class FusedNorm:
    """(x − mean) / √(variance + ε) · weight + bias of each row, as compiled loops read it; the mean of an RMS norm is
    taken for 0."""

    weight: Any
    bias: Any
    epsilon: np.float32
    has_mean: bool

    @staticmethod
    def of(norm: nn.LayerNorm | RMSNorm) -> "FusedNorm":
        weight = norm.weight.detach()
        if isinstance(norm, RMSNorm):
            weight = weight if norm.factor == 1 else weight * norm.factor
            return FusedNorm(weight.numpy(), np.zeros(len(weight), np.float32), np.float32(norm.eps), has_mean=False)
        return FusedNorm(weight.numpy(), norm.bias.detach().numpy(), np.float32(norm.eps), has_mean=True)

    def __call__(self, x: Table, out: Table) -> Table:
        """The norm of x."""
        normalise(x.flat, self.weight, self.bias, out.flat, self.epsilon, self.has_mean)
        return out

    def add(self, x: Table, branch: Table, out: Table) -> Table:
        """x becomes x + branch; returns its norm. `out` may be x itself, which then holds the norm."""
        add_and_normalise(x.flat, branch.flat, self.weight, self.bias, out.flat, self.epsilon, self.has_mean)
        return out
