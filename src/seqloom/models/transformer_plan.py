"""A step of the Transformer's decoder as a plan: products, norms and loops in a row, and nothing between them.

A product of a step takes some ten microseconds, and calling the module that holds it, or finding memory for what it
gives, as long again. The plan is laid out once, its tables are written to again and again, and it gives what the layers
give one after another:

    norm before   x ← x + f(norm(x))             norm after   x ← norm(x + f(x))

for f = self-attention, attention to the memory, feed-forward. It is for layers without positions inside attention, to
which nobody listens, where compiled loops are used (`nn.beam_attention.has_loops`); `Plan.of` says if there is one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.nn.fast.beam_attention import Looks
from seqloom.nn.fast.int8 import Int8Linear
from seqloom.nn.fast.norms import Norm
from seqloom.nn.fast.tables import Table

if TYPE_CHECKING:
    from seqloom.models.transformer import DecoderLayer

Product = Callable[[Table, Table], Table]
"""W x + b of the first table, in the second one or in a new one."""


@dataclass(frozen=True)
class Tables:
    """Places for what a layer works out, used by all layers and all steps of a search while it has so many rows."""

    rows: int
    joined: Table
    """Queries, keys and values."""
    query: Table
    mixed: Table
    inner: Table
    branch: Table
    normed: Table


@dataclass(frozen=True)
class Layer:
    """The products of a layer, and the norms of its three sublayers."""

    joined: Product
    self_output: Product
    query: Product
    cross_output: Product
    inner: Product
    outer: Product
    norms: Sequence[Norm]


@dataclass(frozen=True)
class Plan:
    """The layers of a decoder. With norms before, `last` is the one after all layers."""

    layers: Sequence[Layer]
    last: Norm | None
    is_relu: bool
    width: int
    inner: int

    @staticmethod
    def of(layers: Sequence["DecoderLayer"], last: nn.Module) -> "Plan | None":
        """The plan of these layers with a last norm after them, if there is one."""
        first = layers[0]
        is_before = first.around_self.place == "before"
        weight = first.feed_forward.inner.weight
        if weight.dtype != torch.float32 or weight.device.type != "cpu" or any(_is_special(each) for each in layers):
            return None
        if is_before != isinstance(last, nn.LayerNorm):
            return None
        return Plan(
            layers=[_layer(each) for each in layers],
            last=Norm.of(last) if isinstance(last, nn.LayerNorm) else None,
            is_relu=first.feed_forward.activation == "relu",
            width=weight.shape[1],
            inner=weight.shape[0],
        )

    def __call__(self, x: Float[Tensor, "rows width"], looks: Looks, places: "Places") -> Float[Tensor, "rows width"]:
        """What the output reads, from the embedded symbols, which are used up. It stands there until the next step."""
        residual, tables = Table(x), places.of(self, len(x))
        if self.last is None:
            for number, layer in enumerate(self.layers):
                for sublayer, norm in zip((self._back, self._at, self._inner), layer.norms, strict=True):
                    norm.add(residual, sublayer(layer, residual, looks, tables, number), residual)
            return x
        norms = [norm for layer in self.layers for norm in layer.norms]
        normed = norms[0](residual, tables.normed)
        following = iter([*norms[1:], self.last])
        for number, layer in enumerate(self.layers):
            for sublayer in (self._back, self._at, self._inner):
                next(following).add(residual, sublayer(layer, normed, looks, tables, number), normed)
        return normed.tensor

    def _back(self, layer: Layer, x: Table, looks: Looks, tables: Tables, number: int) -> Table:
        mixed = looks.back(layer.joined(x, tables.joined), number, tables.mixed)
        return layer.self_output(mixed, tables.branch)

    def _at(self, layer: Layer, x: Table, looks: Looks, tables: Tables, number: int) -> Table:
        mixed = looks.at(layer.query(x, tables.query), number, tables.mixed)
        return layer.cross_output(mixed, tables.branch)

    def _inner(self, layer: Layer, x: Table, looks: Looks, tables: Tables, number: int) -> Table:  # noqa: ARG002
        inner = layer.inner(x, tables.inner)
        active = inner if self.is_relu else Table(F.gelu(inner.tensor))
        if self.is_relu:
            torch.relu_(inner.tensor)
        return layer.outer(active, tables.branch)


class Places:
    """The tables of one search, made anew when its number of rows changes."""

    def __init__(self) -> None:
        self._tables: Tables | None = None

    def of(self, plan: Plan, rows: int) -> Tables:
        """Places for so many rows."""
        if self._tables is None or self._tables.rows != rows:
            columns = (3 * plan.width, plan.width, plan.width, plan.inner, plan.width, plan.width)
            self._tables = Tables(rows, *(Table(torch.empty(rows, each)) for each in columns))
        return self._tables


def _is_special(layer: "DecoderLayer") -> bool:
    """Positions inside attention, no output matrix, or somebody who listens."""
    attention, cross = layer.self, layer.cross
    has_outputs = isinstance(attention.output, nn.Linear) and isinstance(cross.output, nn.Linear)
    return not has_outputs or attention.relative is not None or attention.weights.is_heard or cross.weights.is_heard


def _layer(layer: "DecoderLayer") -> Layer:
    attention, cross, block = layer.self, layer.cross, layer.feed_forward
    bypasses = (layer.around_self, layer.around_cross, layer.around_feed_forward)
    return Layer(
        joined=_product(attention.qkv),
        self_output=_product(attention.output),
        query=_product(cross.query),
        cross_output=_product(cross.output),
        inner=_product(block.inner),
        outer=_product(block.outer),
        norms=[Norm.of(bypass.norm) for bypass in bypasses],
    )


def _product(linear: nn.Module) -> Product:
    """What a linear layer does, without its module."""
    assert isinstance(linear, nn.Linear)
    if isinstance(linear, Int8Linear):
        product = linear.product
        return lambda x, _: Table(product(x.tensor))
    weight, bias = linear.weight.detach().t(), linear.bias.detach()

    def multiply(x: Table, out: Table) -> Table:
        torch.addmm(bias, x.tensor, weight, out=out.tensor)
        return out

    return multiply
