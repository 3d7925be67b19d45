"""One step of a Transformer decoder as a plan: products, norms and attention in a row, without module calls.

A product of one step takes about ten microseconds, and calling the module that holds it, or allocating its result,
takes as long again. The plan is made once, its buffers are reused, and it computes what the layers compute:

    norm before   x ← x + f(norm(x))             norm after   x ← norm(x + f(x))

for f = self-attention, attention to the memory, feed-forward. It exists for layers without relative positions and
without listeners, where compiled loops are used (`nn.fast.beam_attention.uses_loops`); else `DecoderPlan.of` is None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.nn.blocks import FeedForward, Residual
from seqloom.nn.fast.beam_attention import StepAttention
from seqloom.nn.fast.int8 import Int8Linear
from seqloom.nn.fast.norms import FusedNorm, Table
from seqloom.nn.multihead import CrossAttention, SelfAttention

Product = Callable[[Table, Table], Table]
"""W x + b of the first table, in the second one or in a new one."""


@dataclass(frozen=True)
class Sublayers:
    """The modules of a decoder layer that a plan is made from; the bypasses hold the norms, in the same order."""

    attention: SelfAttention
    cross: CrossAttention
    feed_forward: FeedForward
    bypasses: tuple[Residual, Residual, Residual]


@dataclass(frozen=True)
class PlannedLayer:
    """The products of a layer, and the norms of its three sublayers."""

    joined: Product
    self_output: Product
    query: Product
    cross_output: Product
    inner: Product
    outer: Product
    norms: Sequence[FusedNorm]


@dataclass(frozen=True)
class StepBuffers:
    """Buffers for the results of a layer, shared by all layers and by all steps of a search with this many rows."""

    rows: int
    joined: Table
    """Queries, keys and values."""
    query: Table
    mixed: Table
    inner: Table
    branch: Table
    normed: Table


@dataclass(frozen=True)
class DecoderPlan:
    """The layers of a decoder. With norms before, `last` is the one after all layers."""

    layers: Sequence[PlannedLayer]
    last: FusedNorm | None
    is_relu: bool
    width: int
    inner: int

    @staticmethod
    def of(layers: Sequence[Sublayers], last: nn.Module) -> "DecoderPlan | None":
        """The plan of these layers with a last norm after them, if they can be planned."""
        first = layers[0]
        is_before = first.bypasses[0].place == "before"
        weight = first.feed_forward.inner.weight  # [inner, width]
        if weight.dtype != torch.float32 or weight.device.type != "cpu":
            return None
        if is_before != isinstance(last, nn.LayerNorm) or not all(_can_be_planned(each) for each in layers):
            return None
        return DecoderPlan(
            layers=[
                PlannedLayer(
                    joined=_product(each.attention.qkv),
                    self_output=_product(each.attention.output),
                    query=_product(each.cross.query),
                    cross_output=_product(each.cross.output),
                    inner=_product(each.feed_forward.inner),
                    outer=_product(each.feed_forward.outer),
                    norms=[FusedNorm.of(bypass.norm) for bypass in each.bypasses],
                )
                for each in layers
            ],
            last=FusedNorm.of(last) if isinstance(last, nn.LayerNorm) else None,
            is_relu=first.feed_forward.activation == "relu",
            width=weight.shape[1],
            inner=weight.shape[0],
        )

    def __call__(
        self, x: Float[Tensor, "rows width"], attention: StepAttention, pool: "BufferPool"
    ) -> Float[Tensor, "rows width"]:
        """The features for the output from the embedded symbols, which are overwritten. Valid until the next step."""
        residual, buffers = Table(x), pool.buffers(self, len(x))
        sublayers = (self._attend_to_self, self._attend_to_memory, self._feed_forward)
        if self.last is None:
            for number, layer in enumerate(self.layers):
                for sublayer, norm in zip(sublayers, layer.norms, strict=True):
                    norm.add(residual, sublayer(layer, residual, attention, buffers, number), residual)
            return x
        norms = [norm for layer in self.layers for norm in layer.norms]
        normed = norms[0](residual, buffers.normed)
        following = iter([*norms[1:], self.last])
        for number, layer in enumerate(self.layers):
            for sublayer in sublayers:
                next(following).add(residual, sublayer(layer, normed, attention, buffers, number), normed)
        return normed.tensor

    def _attend_to_self(
        self, layer: PlannedLayer, x: Table, attention: StepAttention, buffers: StepBuffers, number: int
    ) -> Table:
        mixed = attention.to_self(layer.joined(x, buffers.joined), number, buffers.mixed)
        return layer.self_output(mixed, buffers.branch)

    def _attend_to_memory(
        self, layer: PlannedLayer, x: Table, attention: StepAttention, buffers: StepBuffers, number: int
    ) -> Table:
        mixed = attention.to_memory(layer.query(x, buffers.query), number, buffers.mixed)
        return layer.cross_output(mixed, buffers.branch)

    def _feed_forward(
        self,
        layer: PlannedLayer,
        x: Table,
        attention: StepAttention,  # noqa: ARG002 - the same call for all sublayers
        buffers: StepBuffers,
        number: int,  # noqa: ARG002
    ) -> Table:
        inner = layer.inner(x, buffers.inner)  # [rows, inner]
        active = inner if self.is_relu else Table(F.gelu(inner.tensor))
        if self.is_relu:
            torch.relu_(inner.tensor)
        return layer.outer(active, buffers.branch)


class BufferPool:
    """The buffers of one search, allocated again when its number of rows changes."""

    def __init__(self) -> None:
        self._buffers: StepBuffers | None = None

    def buffers(self, plan: DecoderPlan, rows: int) -> StepBuffers:
        """Buffers for this many rows."""
        if self._buffers is None or self._buffers.rows != rows:
            columns = (3 * plan.width, plan.width, plan.width, plan.inner, plan.width, plan.width)
            self._buffers = StepBuffers(rows, *(Table(torch.empty(rows, each)) for each in columns))
        return self._buffers


def _can_be_planned(layer: Sublayers) -> bool:
    """Output matrices, no positions inside attention, and no listeners."""
    attention, cross = layer.attention, layer.cross
    has_outputs = isinstance(attention.output, nn.Linear) and isinstance(cross.output, nn.Linear)
    has_listeners = attention.weights.has_listeners or cross.weights.has_listeners
    return has_outputs and attention.relative is None and not has_listeners


def _product(linear: nn.Module) -> Product:
    """The product of a linear layer, without its module."""
    assert isinstance(linear, nn.Linear)
    if isinstance(linear, Int8Linear):
        product = linear.product
        return lambda x, _: Table(product(x.tensor))
    weight, bias = linear.weight.detach().t(), linear.bias.detach()

    def multiply(x: Table, out: Table) -> Table:
        torch.addmm(bias, x.tensor, weight, out=out.tensor)
        return out

    return multiply
