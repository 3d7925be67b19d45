"""Products of a few rows with a matrix, at the speed of the processor's arithmetic.

A decoding step multiplies a handful of rows with every matrix of the model. Libraries for products are made for
hundreds of rows: with five, they compute at a third of what the processor can do. Here a matrix is packed once, in
panels of 16 outputs, and a tile of the result stays in registers while its panel is read once, from start to end:

    tile[r, c] = start[c] + Σ_k x[r, k] · panel[k, c]          6 rows at most, 16 outputs

The sums run over k in one order, whatever the number of rows, so a row of the result depends on its own row of x alone,
to the last bit. A matrix in eight bits (`nn.fast.int8`) is read as such and becomes floats in registers. Its sums are
of integers, which floats hold exactly up to 2²⁴, so they are those of any other kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from seqloom.core.jit import Instructions, compiled
from seqloom.nn.fast.int8 import LEAST, SHARE, Int8Linear, Int8Output
from seqloom.nn.fast.threads import parts_of, share
from seqloom.nn.outputs import Output

LANES = 8
"""Floats in a register."""
PANEL = 2 * LANES
MAX_ROWS = 6
"""Rows of a tile: 6 · 2 sums, the two registers of the panel, and one of x are 15 of the 16 registers."""
SINGLE_PANELS = 4
"""Panels of a tile with one row, whose sums would otherwise wait for each other."""
MAX_INT8_INPUTS = (2**24 - 1) // (127 * 63)
"""Inputs of a product in eight bits up to which floats hold every sum of it exactly."""

Array = Any
"""numba infers types and shapes. Arrays are flat."""


def _tile(rows: int, *, panels: int = 1) -> Instructions:
    """out[r, c] = start[c] + Σ_k x[r, k] · weight[k, c] for some rows and panels, which begin at the given places."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir  # type: ignore[import-untyped]
        from numba.core import cgutils

        x, x_at, inputs, weight, weight_at, start, start_at, out, out_at, stride = arguments
        vector, whole = ir.VectorType(ir.FloatType(), LANES), ir.IntType(64)
        is_int8 = signature.args[3].dtype.bitwidth == 8
        stored = ir.VectorType(ir.IntType(8), LANES) if is_int8 else vector
        three = ir.FunctionType(vector, [vector] * 3)
        fma = cgutils.get_or_insert_function(builder.module, three, f"llvm.fma.v{LANES}f32")  # type: ignore[no-untyped-call]

        def data(number: int, value: Any) -> Any:
            return context.make_array(signature.args[number])(context, builder, value).data

        numbers, matrix, begin, result = data(0, x), data(3, weight), data(5, start), data(7, out)

        def place(base: Any, at: Any, kind: Any) -> Any:
            return builder.bitcast(builder.gep(base, [at]), kind.as_pointer())

        def plus(*parts: Any) -> Any:
            total = parts[0]
            for part in parts[1:]:
                total = builder.add(total, part)
            return total

        halves = [(panel, half) for panel in range(panels) for half in range(PANEL // LANES)]
        first = [
            builder.load(place(begin, plus(start_at, whole(panel * PANEL + half * LANES)), vector), align=4)
            for panel, half in halves
        ]
        before, loop = builder.block, builder.append_basic_block("sum")
        after = builder.append_basic_block("summed")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(whole)
        k.add_incoming(whole(0), before)
        sums = [builder.phi(vector) for _ in range(rows) for _ in halves]
        panel_size = builder.mul(inputs, whole(PANEL))
        read = []
        for panel, half in halves:
            at = plus(
                weight_at,
                builder.mul(panel_size, whole(panel)),
                builder.mul(k, whole(PANEL)),
                whole(half * LANES),
            )
            numbers_of_half = builder.load(place(matrix, at, stored), align=1 if is_int8 else 4)
            if is_int8:
                integers = builder.sext(numbers_of_half, ir.VectorType(ir.IntType(32), LANES))
                numbers_of_half = builder.sitofp(integers, vector)
            read.append(numbers_of_half)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        nothing = ir.Constant(vector, ir.Undefined)
        added = []
        for row in range(rows):
            number = builder.load(builder.gep(numbers, [plus(x_at, builder.mul(inputs, whole(row)), k)]))
            spread = builder.insert_element(nothing, number, ir.IntType(32)(0))
            spread = builder.shuffle_vector(spread, nothing, lanes)
            for half in range(len(halves)):
                added.append(builder.call(fma, [spread, read[half], sums[row * len(halves) + half]]))
        following = builder.add(k, whole(1))
        k.add_incoming(following, loop)
        for number, (total, new) in enumerate(zip(sums, added, strict=True)):
            total.add_incoming(first[number % len(halves)], before)
            total.add_incoming(new, loop)
        builder.cbranch(builder.icmp_signed("<", following, inputs), loop, after)
        builder.position_at_end(after)
        for row in range(rows):
            for half, (panel, offset) in enumerate(halves):
                at = plus(out_at, builder.mul(stride, whole(row)), whole(panel * PANEL + offset * LANES))
                builder.store(added[row * len(halves) + half], place(result, at, vector), align=4)
        return context.get_dummy_value()

    def typed(  # numba matches the arguments of a call with these names
        _: Any, x: Any, x_at: Any, inputs: Any, weight: Any, weight_at: Any,  # noqa: ARG001
        start: Any, start_at: Any, out: Any, out_at: Any, stride: Any,  # noqa: ARG001
    ) -> Any:  # fmt: skip
        from numba import types

        floats, whole = types.Array(types.float32, 1, "C"), types.int64
        packed = types.Array(weight.dtype, 1, "C")
        return types.void(floats, whole, whole, packed, whole, floats, whole, floats, whole, whole), emit

    return Instructions(typed)


_tile_1, _tile_2, _tile_3, _tile_4, _tile_5, _tile_6 = (_tile(rows) for rows in range(1, MAX_ROWS + 1))
_wide_tile = _tile(1, panels=SINGLE_PANELS)


@compiled()
def multiply(
    x: Array,
    x_at: Any,
    rows: Any,
    inputs: Any,
    weight: Array,
    weight_at: Any,
    outputs: Any,
    start: Array,
    start_at: Any,
    out: Array,
    out_at: Any,
    stride: Any,
) -> None:
    """out = start + x Wᵀ for a packed W, whose outputs are a multiple of 16. Each table begins at its own place.

    Rows of the result are `stride` apart.
    """
    panels, size, panel = outputs // PANEL, inputs * PANEL, 0
    if rows == 1:
        while panel + SINGLE_PANELS <= panels:
            at = panel * PANEL
            _wide_tile(
                x, x_at, inputs, weight, weight_at + panel * size, start, start_at + at, out, out_at + at, stride
            )
            panel += SINGLE_PANELS
    while panel < panels:
        at, here = panel * PANEL, weight_at + panel * size
        row = 0
        while row < rows:
            left, source, target = rows - row, x_at + row * inputs, out_at + row * stride + at
            if left >= 6 and left != 7:
                _tile_6(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 6
            elif left == 5:
                _tile_5(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 5
            elif left == 4 or left == 7:
                _tile_4(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 4
            elif left == 3:
                _tile_3(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 3
            elif left == 2:
                _tile_2(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 2
            else:
                _tile_1(x, source, inputs, weight, here, start, start_at + at, out, target, stride)
                row += 1
        panel += 1


@compiled(fast={"contract"})
def product(x: Array, rows: Any, number: Any, products: Array, floats: Array, int8: Array, out: Array) -> None:
    """out = W x + b of each row for one of `PackedProducts`; in eight bits as `Int8Weight.product` computes it."""
    at, bias, scales = products[number, 1], products[number, 2], products[number, 3]
    inputs, outputs = products[number, 4], products[number, 5]
    if not products[number, 0]:
        multiply(x, 0, rows, inputs, floats, at, outputs, floats, bias, out, 0, outputs)
        return
    rounded, factors = np.empty(rows * inputs, np.float32), np.empty(rows, np.float32)
    bits, scale_bits = (
        x.view(np.uint32),
        factors.view(np.uint32),
    )  # bits rise with a number; loops compare eight of them
    for r in range(rows):
        first, last = np.uint64(r * inputs), np.uint64((r + 1) * inputs)
        highest = np.uint32(0)
        for k in range(first, last):
            highest = max(highest, bits[k] & np.uint32(0x7FFFFFFF))
        scale_bits[r] = highest
        factors[r] = max(factors[r] * SHARE, LEAST)
        for k in range(first, last):
            rounded[k] = np.rint(x[k] / factors[r])
    multiply(rounded, 0, rows, inputs, int8, at, outputs, floats, 0, out, 0, outputs)
    for r in range(rows):
        first = np.uint64(r * outputs)
        for o in range(np.uint64(outputs)):
            out[first + o] = out[first + o] * floats[scales + o] * factors[r] + floats[bias + o]


@compiled()
def product_part(
    x: Array, rows: Any, first: Any, last: Any, number: Any, products: Array, floats: Array, out: Array
) -> None:
    """The panels from `first` to `last` of one of `PackedProducts` that is not in eight bits.

    The rows of `out` may end within the last panel.
    """
    at, bias, inputs = products[number, 1], products[number, 2], products[number, 4]
    size, columns = inputs * PANEL, out.shape[0] // rows
    if last * PANEL > columns:
        last -= 1
        ending, begin = np.empty(rows * PANEL, np.float32), last * PANEL
        multiply(x, 0, rows, inputs, floats, at + last * size, PANEL, floats, bias + begin, ending, 0, PANEL)
        for r in range(rows):
            for c in range(begin, columns):
                out[r * columns + c] = ending[r * PANEL + c - begin]
    begin, outputs = first * PANEL, (last - first) * PANEL
    multiply(x, 0, rows, inputs, floats, at + first * size, outputs, floats, bias + begin, out, begin, columns)


@dataclass(frozen=True)
class PackedProducts:
    """Linear layers and outputs, packed, one after another."""

    table: Array
    """A row for each product: whether it is in eight bits, where its matrix, bias and scales begin, inputs, outputs."""
    floats: Array
    """Zeros, with which sums of integers begin, then matrices, biases and scales."""
    int8: Array

    @staticmethod
    def of(layers: Sequence[nn.Linear | Output]) -> "PackedProducts":
        """The outputs of the last panel of a layer that it does not have are −∞."""
        zeros = max(_padded(len(layer.weight)) for layer in layers)
        floats, int8 = _Joined([np.zeros(zeros, np.float32)]), _Joined([np.zeros(1, np.int8)])
        table: list[tuple[int, ...]] = []
        for layer in layers:
            outputs, inputs = layer.weight.shape
            start = np.full(_padded(outputs), -np.inf, np.float32)
            bias = layer.offsets if isinstance(layer, Output) else layer.bias
            start[:outputs] = 0.0 if bias is None else bias.detach().numpy()
            scales = 0
            if isinstance(layer, Int8Linear | Int8Output):
                matrix = int8.add(pack_matrix(layer.int8.rounded))
                factors = np.zeros(_padded(outputs), np.float32)
                factors[:outputs] = layer.int8.scales.numpy()
                scales = floats.add(factors)
            else:
                matrix = floats.add(pack_matrix(layer.weight))
            is_int8 = int(isinstance(layer, Int8Linear | Int8Output))
            table.append((is_int8, matrix, floats.add(start), scales, inputs, len(start)))
        return PackedProducts(np.array(table, np.int64), floats.array(), int8.array())

    def multiply(self, number: int, x: Array, out: Array) -> None:
        """W x + b of each row for one of the products; the tables are flat."""
        product(x, x.shape[0] // self.table[number, 4], number, self.table, self.floats, self.int8, out)

    def multiply_by_threads(self, number: int, x: Array, out: Array) -> None:
        """The same for a product that is not in eight bits, to the last bit, by as many threads as torch uses.

        The rows of `out` have as many numbers as the product has outputs, whether these fill panels or not.
        """
        inputs, panels = int(self.table[number, 4]), int(self.table[number, 5]) // PANEL
        rows = x.shape[0] // inputs
        parts = parts_of(rows * inputs * panels * PANEL, most=panels)
        borders = [panels * part // parts for part in range(parts + 1)]

        def compute(part: int) -> None:
            product_part(x, rows, borders[part], borders[part + 1], number, self.table, self.floats, out)

        share(parts, compute)


@dataclass
class _Joined:
    """Arrays that become one."""

    parts: list[Array]

    def add(self, part: Array) -> int:
        """Where it begins."""
        self.parts.append(part)
        return sum(map(len, self.parts[:-1]))

    def array(self) -> Array:
        return np.concatenate(self.parts)


def can_be_packed(layer: nn.Module) -> TypeGuard[nn.Linear | Output]:
    """Whether this processor and these loops multiply with a layer as fast and as exactly as they should."""
    return (
        isinstance(layer, nn.Linear | Output)
        and layer.weight.dtype == torch.float32
        and layer.weight.device.type == "cpu"
        and not (isinstance(layer, Int8Linear | Int8Output) and layer.weight.shape[1] > MAX_INT8_INPUTS)
        and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    )


def pack_matrix(weight: Float[Tensor, "outputs inputs"] | Int8[Tensor, "outputs inputs"]) -> Array:
    """A matrix in panels, flat; outputs beyond the last are zero."""
    outputs, inputs = weight.shape
    filled = weight.new_zeros(_padded(outputs), inputs)
    filled[:outputs] = weight.detach()
    return filled.unflatten(0, (-1, PANEL)).transpose(1, 2).contiguous().view(-1).numpy()


def _padded(outputs: int) -> int:
    """Outputs of whole panels."""
    return -(-outputs // PANEL) * PANEL
