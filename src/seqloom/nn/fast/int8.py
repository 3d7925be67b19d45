"""Products with weights in eight bits, for decoding on CPUs.

    s_r = max_k |x_rk| / 127                        one scale per row of x, so that neighbours change nothing
    q_rk = round(x_rk / s_r)                        −127 … 127
    t_o = max_k |W_ok| / 63                         one scale per row of W
    Q_ok = round(W_ok / t_o)                        −63 … 63
    y_ro = s_r t_o Σ_k q_rk Q_ok + b_o              the sum is of integers, hence exact

CPUs without a dot product of eight-bit numbers add two products of q + 128 and Q in sixteen bits, which holds
2 · 255 · 64 but not 2 · 255 · 127. Weights of seven bits give the same sum on all of them. A row of y depends on its
row of x alone, to the last bit, which a product of floats does not guarantee.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.jit import compiled
from seqloom.nn.fast.beam_attention import uses_loops
from seqloom.nn.outputs import Output

MIN_WEIGHTS = 100_000
"""Weights of a matrix from which on the product in eight bits saves more than rounding its input costs."""

SHIFT = 128
"""Added to an input of eight bits, because the kernel needs numbers from 0 on."""

SHARE, LEAST = np.float32(1 / 127), np.float32(torch.finfo(torch.float32).tiny)
"""A scale is this share of the largest number of its row, and at least this."""


SCALES = "int8_scales"
"""The buffer of a linear layer whose weight was rounded before it was loaded; it is not part of the weights."""


Array = Any
"""numba infers types and shapes. Arrays are flat."""


@compiled()
def _round(x: Array, columns: int, share: Any, least: Any, shift: Any, rounded: Array, scales: Array) -> None:
    """scale = max(least, share · max |x|) and round(x / scale) + shift of each row; tables are flat.

    The largest number is found by its bits, which rise with it: whole numbers are compared eight at a time, and floats
    are not, because of NaN. A NaN has higher bits than any number, and its row comes out as its scale does, NaN.
    """
    bits = x.view(np.uint32)
    for r in range(scales.shape[0]):
        start = np.uint64(r * columns)
        highest = np.uint32(0)
        for k in range(start, start + np.uint64(columns)):
            highest = max(highest, bits[k] & np.uint32(0x7FFFFFFF))
        scales[r] = np.array([highest], np.uint32).view(np.float32)[0] * share
        if scales[r] < least:
            scales[r] = least
        for k in range(start, start + np.uint64(columns)):
            rounded[k] = np.uint8(np.int32(np.rint(x[k] / scales[r])) + shift)


class Int8Weight:
    """A matrix in seven bits with a scale per row, packed for the kernel."""

    def __init__(
        self,
        weight: Float[Tensor, "outputs inputs"],
        bias: Float[Tensor, " outputs"] | None,
        *,
        scales: Float[Tensor, " outputs"] | None = None,
    ) -> None:
        """`scales` are those of a weight that was rounded before: then the same integers are found again."""
        weight = weight.detach().float()
        if scales is None:
            scales = (weight.abs().amax(1) / 63).clamp(min=torch.finfo(torch.float32).tiny)
        self.rounded: Int8[Tensor, "outputs inputs"] = (weight / scales[:, None]).round().to(torch.int8)
        self.scales: Float[Tensor, " outputs"] = scales
        self.bias = None if bias is None else bias.detach().float()
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)
        self._packed = torch.ops.onednn.qlinear_prepack(self.rounded, None)

    def product(self, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        """W x + b of each row."""
        rows = x.reshape(-1, x.shape[-1])
        rounded, scales = round_rows(rows)
        if not len(rows):
            return x.new_zeros(*x.shape[:-1], len(self.scales))
        sums: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, SHIFT, self._packed, self.scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        result = sums.mul_(scales) if self.bias is None else torch.addcmul(self.bias, sums, scales, out=sums)
        return result.view(*x.shape[:-1], len(self.scales))

    def plain_product(self, x: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The same by exact sums in float64: the plain twin of the kernel."""
        rounded, scales = round_rows(x)
        sums = (rounded.double() - SHIFT) @ self.rounded.double().t()
        result = (sums * self.scales.double()).float() * scales
        return result if self.bias is None else result + self.bias


def round_rows(x: Float[Tensor, "rows inputs"]) -> tuple[UInt8[Tensor, "rows inputs"], Float[Tensor, "rows one"]]:
    """Each row in eight bits from 1 to 255, where 128 stands for 0, and its scale. A row of zeros stays one."""
    if uses_loops(x):
        rounded, scales = torch.empty(x.shape, dtype=torch.uint8), x.new_empty(len(x), 1)
        tables = (rounded.view(-1).numpy(), scales.view(-1).numpy())
        _round(x.contiguous().view(-1).numpy(), x.shape[1], SHARE, LEAST, np.int32(SHIFT), *tables)
        return rounded, scales
    scales = torch.linalg.vector_norm(x, float("inf"), 1, keepdim=True).mul_(float(SHARE))
    scales.clamp_(min=float(LEAST))
    return (x / scales).round_().add_(SHIFT).to(torch.uint8), scales


class Int8Linear(nn.Linear):
    """A linear layer that multiplies in eight bits; it keeps its float weights for inspection."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        scales = getattr(linear, SCALES, None)
        self.int8 = Int8Weight(linear.weight, linear.bias, scales=scales)
        self.product = self.int8.product

    def forward(self, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        return self.int8.product(x)


class Int8Output(Output):
    """An output layer that multiplies in eight bits. Shortlists take its rows as they are."""

    def __init__(self, output: Output) -> None:
        super().__init__(output.weight, absent=output.absent)
        self.bias = output.bias
        self.int8 = Int8Weight(output.weight, output.offsets)

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows symbols"]:
        return self.int8.product(features)


def with_int8(model: nn.Module, *, least_weights: int = MIN_WEIGHTS) -> nn.Module:
    """A model that shares all parameters with this one and multiplies large matrices in eight bits; not to be trained.

    Products of cells and attentions that do not use a linear layer are not changed.
    """
    device = next(model.parameters()).device
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        raise UsageError(f"search.precision=int8 needs a CPU with oneDNN and is not supported on {device}; use float32")
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    twin = copy.deepcopy(model, shared)
    for name, module in list(twin.named_modules()):
        if type(module) is nn.Linear and module.weight.numel() >= least_weights:
            _replace(twin, name, Int8Linear(module))
        elif type(module) is Output and module.weight.numel() >= least_weights:
            _replace(twin, name, Int8Output(module))
    return twin.eval()


def row_scales(model: nn.Module, *, least_weights: int = MIN_WEIGHTS) -> dict[str, Float[Tensor, " outputs"]]:
    """The scales of the weights that `with_int8` rounds and nothing else reads, by their names.

    Tables of symbols are not among them: embeddings and shortlists read them as they are.
    """
    count = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))
    return {
        f"{name}.weight": Int8Weight(module.weight, None).scales
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module.weight.numel() >= least_weights and count[id(module.weight)] == 1
    }


def keep_scales(model: nn.Module, scales: Mapping[str, Float[Tensor, " outputs"]]) -> None:
    """Store the scales with which weights were rounded in their linear layers, by the names of the weights."""
    for name, values in scales.items():
        layer = dict(model.named_modules()).get(name.removesuffix(".weight"))
        if not isinstance(layer, nn.Linear):
            raise ModelError(f"{name} is rounded to eight bits, but it is not the weight of a linear layer")
        layer.register_buffer(SCALES, values, persistent=False)


def kept_scales(model: nn.Module) -> dict[str, Float[Tensor, " outputs"]]:
    """The scales that `keep_scales` stored."""
    found = ((name, getattr(module, SCALES, None)) for name, module in model.named_modules())
    return {f"{name}.weight": scales for name, scales in found if scales is not None}


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)
