"""One step of a decoder-only Transformer as a plan: packed products, norms and attention in a row, without modules.

A step of one text multiplies one row with every matrix of the model. That takes as long as reading the weights from
memory, and packed panels (`nn.fast.packed`) are read faster than by libraries, whose kernels are made for many rows.
The plan computes what the layers compute,

    x ← x + attention(norm(x))        x ← x + feed_forward(norm(x))        log softmax(W norm(x) + b)

with any number of key heads, rotary positions and norms of queries and keys. Several threads share large products.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqloom.core.jit import compiled
from seqloom.nn.blocks import FeedForward, Residual, RMSNorm
from seqloom.nn.fast.beam_attention import BeamCache, Lineage, Table, powers
from seqloom.nn.fast.decoder_plan import FusedNorm, activate, activation_number, multiply_by
from seqloom.nn.fast.packed import PANEL, SINGLE_PANELS, PackedProducts, can_be_packed, product_part
from seqloom.nn.fast.selection import log_softmax_rows
from seqloom.nn.fast.threads import share
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.outputs import Output

MAX_PACKED_NUMBERS = 1 << 30
"""Weights of the largest model that is packed, which takes as much memory again."""
MIN_SHARED_NUMBERS = 1 << 20
"""Weights of a matrix from which on threads share its product: a few rows take as long as reading it takes."""
PARTS = 4
"""Parts of such a product."""
GROUP = SINGLE_PANELS * PANEL
"""Outputs of the widest tile, at whose borders a product is split."""

Array = Any
"""numba infers types and shapes. Arrays are flat."""


class CausalModules(Protocol):
    """The modules of a layer that a plan is made from."""

    self: SelfAttention
    feed_forward: FeedForward
    around_self: Residual
    around_feed_forward: Residual


@dataclass(frozen=True)
class PlannedLayer:
    """The modules of a layer as the loops read them, and where its products begin."""

    attention: SelfAttention
    norms: tuple[FusedNorm, FusedNorm]
    head_norms: tuple[Array, Array, np.float32] | None
    first_product: int
    activation: np.int64
    is_gated: bool


@dataclass(frozen=True)
class CausalPlan:
    """The layers, the norm after them and the output."""

    layers: Sequence[PlannedLayer]
    last: FusedNorm
    products: PackedProducts
    width: int
    inner: int
    symbols: int
    window: int
    scale: np.float32

    @staticmethod
    def of(
        layers: Sequence[CausalModules], last: nn.Module, output: Output, *, window: int | None
    ) -> "CausalPlan | None":
        """The plan of these layers, if loops compute them."""
        attention, feed_forward = layers[0].self, layers[0].feed_forward
        inner, width = feed_forward.inner.weight.shape
        linears = [*(linear for layer in layers for linear in _linears(layer)), output]
        packable = [linear for linear in linears if can_be_packed(linear)]
        sizes = (width, inner, attention.qkv.out_features, attention.heads * attention.head_size)
        if (
            len(packable) < len(linears)
            or any(size % PANEL for size in sizes)
            or sum(linear.weight.numel() for linear in packable) > MAX_PACKED_NUMBERS
            or not isinstance(last, nn.LayerNorm | RMSNorm)
            or attention.relative is not None
        ):
            return None
        planned, first = [], 0
        for layer in layers:
            planned.append(_planned(layer, first))
            first += len(_linears(layer))
        scale = 1 / math.sqrt(attention.head_size) if attention.scale is None else attention.scale
        return CausalPlan(
            layers=planned,
            last=FusedNorm.of(last),
            products=PackedProducts.of(packable),
            width=width,
            inner=inner,
            symbols=len(packable[-1].weight),
            window=window or 0,
            scale=np.float32(scale * math.log2(math.e)),
        )

    @property
    def has_listeners(self) -> bool:
        """Whether somebody listens to the layers, so that the plan must not be used."""
        return any(layer.attention.weights.has_listeners for layer in self.layers)

    def log_probs(
        self, x: Float[Tensor, "rows width"], cache: BeamCache, lineage: Lineage
    ) -> Float[Tensor, "rows symbols"]:
        """log P of every symbol from the embedded last ones, which are overwritten.

        The ancestors of the rows have their slots of this position.
        """
        rows, position = lineage.ancestors.shape[0], lineage.ancestors.shape[1] - 1
        first = self.layers[0].attention
        heads, key_heads, size = first.heads, first.key_heads, first.head_size
        turn = None
        if first.rotary is not None:
            turn = first.rotary.table(position + 1, like=x)[:, position].contiguous().numpy()
        owners, ancestors, kept = lineage.owners.numpy(), lineage.ancestors.contiguous().numpy(), cache.flat
        residual, normed, branch = Table(x), _table(rows, self.width), _table(rows, self.width)
        joined, mixed = _table(rows, (heads + 2 * key_heads) * size), _table(rows, heads * size)
        active, gate = _table(rows, self.inner), _table(rows, self.inner)
        multiply = self._multiply
        norms = [each for layer in self.layers for each in layer.norms]
        norms[0](residual, normed)
        for number, layer in enumerate(self.layers):
            place = layer.first_product
            multiply(place, normed, joined)
            _place(joined.flat, rows, layer, turn, heads=heads, key_heads=key_heads)
            shape = (*kept.shape[:3], heads, key_heads, size)
            tables = (joined.flat, kept.keys[number], kept.values[number], owners, ancestors)
            attend_in_groups(*tables, shape, self.window, self.scale, mixed.flat)
            multiply(place + 1, mixed, branch)
            norms[2 * number + 1].add(residual, branch, normed)
            multiply(place + 2, normed, active)
            if layer.is_gated:
                multiply(place + 4, normed, gate)
                activate(gate.flat, layer.activation)
                multiply_by(active.flat, gate.flat)
            else:
                activate(active.flat, layer.activation)
            multiply(place + 3, active, branch)
            following = self.last if number + 1 == len(self.layers) else norms[2 * number + 2]
            following.add(residual, branch, normed)
        cache.written = position + 1
        scores = _table(rows, int(self.products.table[-1, 5]))
        multiply(len(self.products.table) - 1, normed, scores)
        log_softmax_rows(scores.flat, rows, self.symbols)
        return scores.tensor[:, : self.symbols]

    def _multiply(self, number: int, x: Table, out: Table) -> None:
        """W x + b of each row for one of the products; with one row, large ones are shared by the threads."""
        products = self.products
        is_int8, _, _, _, inputs, outputs = products.table[number].tolist()
        if is_int8 or torch.get_num_threads() == 1 or inputs * outputs < MIN_SHARED_NUMBERS:
            products.multiply(number, x.flat, out.flat)
            return
        rows, groups = len(x.tensor), outputs // GROUP
        borders = [groups * part // PARTS * GROUP // PANEL for part in range(PARTS)] + [outputs // PANEL]

        def compute(part: int) -> None:
            arguments = (number, products.table, products.floats, out.flat)
            product_part(x.flat, rows, borders[part], borders[part + 1], *arguments)

        # A panel is computed by one thread as by another, so the results do not depend on their number.
        share(PARTS, compute)


def _linears(layer: CausalModules) -> tuple[nn.Module, ...]:
    """The linear layers of a layer, the gate last."""
    own, feed_forward = layer.self, layer.feed_forward
    first = (own.qkv, own.output, feed_forward.inner, feed_forward.outer)
    return first if feed_forward.gate is None else (*first, feed_forward.gate)


def _planned(layer: CausalModules, first_product: int) -> PlannedLayer:
    attention, head_norms = layer.self, None
    if attention.query_norm is not None and attention.key_norm is not None:
        queries, keys = (each.weight.detach().numpy() for each in (attention.query_norm, attention.key_norm))
        head_norms = (queries, keys, np.float32(attention.query_norm.eps))
    return PlannedLayer(
        attention,
        norms=(FusedNorm.of(layer.around_self.norm), FusedNorm.of(layer.around_feed_forward.norm)),
        head_norms=head_norms,
        first_product=first_product,
        activation=activation_number(layer.feed_forward),
        is_gated=layer.feed_forward.gate is not None,
    )


def _place(joined: Array, rows: int, layer: PlannedLayer, turn: Array | None, *, heads: int, key_heads: int) -> None:
    """Queries and keys at their position, with their norms before or after."""
    norms, is_before = layer.head_norms, layer.attention.head_norm == "before"
    if norms is not None and is_before:
        normalise_heads(joined, rows, heads, key_heads, *norms)
    if turn is not None:
        turn_heads(joined, rows, heads + key_heads, turn[0], turn[1])
    if norms is not None and not is_before:
        normalise_heads(joined, rows, heads, key_heads, *norms)


def _table(rows: int, columns: int) -> Table:
    return Table(torch.empty(rows, columns))


# The loops, compiled: single precision, on the CPU. A row of `joined` holds queries, keys and values.


@compiled(fast={"contract", "reassoc"})
def normalise_heads(
    joined: Array, rows: Any, heads: Any, key_heads: Any, of_queries: Array, of_keys: Array, epsilon: Any
) -> None:
    """x / √(mean(x²) + ε) · weight of each query and each key, in its place."""
    size = np.uint64(of_queries.shape[0])
    share = np.float32(1) / np.float32(of_queries.shape[0])
    stride = np.uint64(joined.shape[0] // rows)
    for r in range(rows):
        for h in range(heads + key_heads):
            first = np.uint64(r) * stride + np.uint64(h) * size
            squares = np.float32(0)
            for k in range(size):
                squares += joined[first + k] * joined[first + k]
            scale = np.float32(1) / np.sqrt(squares * share + epsilon)
            weight = of_queries if h < heads else of_keys
            for k in range(size):
                joined[first + k] *= scale * weight[k]


@compiled(fast={"contract", "reassoc"})
def turn_heads(joined: Array, rows: Any, turned: Any, cosines: Array, sines: Array) -> None:
    """The first heads of each row, which are queries and keys, turned by their position (`nn.rotary`)."""
    pairs = np.uint64(cosines.shape[0])
    stride = np.uint64(joined.shape[0] // rows)
    for r in range(rows):
        for h in range(turned):
            first = np.uint64(r) * stride + np.uint64(h) * (pairs + pairs)
            for k in range(pairs):
                left, right = joined[first + k], joined[first + pairs + k]
                joined[first + k] = left * cosines[k] - right * sines[k]
                joined[first + pairs + k] = right * cosines[k] + left * sines[k]


@compiled(fast={"contract", "reassoc"})
def attend_in_groups(
    joined: Array,
    keys: Array,
    values: Array,
    owners: Array,
    ancestors: Array,
    shape: Any,
    window: Any,
    scale: Any,
    out: Array,
) -> None:
    """Each row writes its keys and values, then attends to its own history, `window` positions of it, or all if 0.

    Key head j serves queries jg … jg + g − 1. `shape` is (sentences, room, slots, heads, key heads, size). Slots
    without a row become 0.
    """
    sentences, room, slots, heads, key_heads, size = shape
    rows, count = ancestors.shape
    begin = max(0, count - window) if window > 0 else 0
    width, kept = np.uint64(heads * size), np.uint64(key_heads * size)
    numbers, group = np.uint64(size), np.uint64(heads // key_heads)
    seen = np.uint64(count - begin)
    places, query = np.empty(count, np.uint64), np.empty(size, np.float32)
    scores, taken = np.empty(count, np.float32), np.zeros(sentences, np.int64)
    for r in range(rows):
        taken[owners[r]] += 1
        for p in range(begin, count):
            places[p - begin] = np.uint64((owners[r] * room + p) * slots + ancestors[r, p]) * kept
        at, own, target = np.uint64(r) * (width + kept + kept), places[seen - np.uint64(1)], np.uint64(r) * width
        for k in range(kept):
            keys[own + k] = joined[at + width + k]
            values[own + k] = joined[at + width + kept + k]
        for h in range(np.uint64(heads)):
            head = (h // group) * numbers
            for k in range(numbers):
                query[k] = scale * joined[at + h * numbers + k]
            highest = np.float32(-np.inf)
            for p in range(seen):
                place = places[p] + head
                score = np.float32(0.0)
                for k in range(numbers):
                    score += query[k] * keys[place + k]
                scores[p] = score
                highest = max(highest, score)
            for p in range(seen):
                scores[p] -= highest
            powers(scores, seen)
            total = np.float32(0.0)
            for p in range(seen):
                total += scores[p]
            for k in range(numbers):
                query[k] = np.float32(0.0)
            for p in range(seen):
                place, weight = places[p] + head, scores[p] / total
                for k in range(numbers):
                    query[k] += weight * values[place + k]
            for k in range(numbers):
                out[target + h * numbers + k] = query[k]
    for s in range(sentences):
        first = (s * room + count - 1) * slots
        for free in range(np.uint64(first + taken[s]) * kept, np.uint64(first + slots) * kept):
            keys[free] = values[free] = np.float32(0.0)
