"""Dropout from cheap random bytes that were handed in.

torch draws one float per element from a generator that runs on one thread, which costs a small model a sixth of its
training time. Here one byte decides: it is drawn at memory speed, and a rate is rounded to the nearest 1/256.
"""

import numpy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx


class Noise:
    """A stream of random bytes from one seed, on whichever device they are wanted."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._bits = numpy.random.SFC64(seed)
        self._generators: dict[torch.device, torch.Generator] = {}

    def bytes_like(self, tensor: Tensor) -> Tensor:
        """Uniform random bytes in the shape of a tensor, on its device."""
        if tensor.device.type == "cpu":
            count = tensor.numel()
            drawn = numpy.atleast_1d(self._bits.random_raw(-(-count // 8))).view(numpy.uint8)
            return torch.from_numpy(drawn)[:count].view(tensor.shape)
        generator = self._generators.get(tensor.device)
        if generator is None:
            generator = torch.Generator(device=tensor.device).manual_seed(self.seed)
            self._generators[tensor.device] = generator
        return torch.randint(256, tensor.shape, dtype=torch.uint8, device=tensor.device, generator=generator)


class Dropout(nn.Module):
    """Sets each element to zero with probability `rate` and scales the others by 1 / (1 − rate), in training only.

    `rate` is met to the nearest 1/256; the scale is that of the rate in force, so the mean is exact.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.threshold = round(256 * rate)
        self.scale = 256 / (256 - self.threshold)
        self.noise = Noise(0)

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.threshold == 0:
            return values
        dropped: Tensor = _Drop.apply(values, self.mask(values), self.scale)  # type: ignore[no-untyped-call]
        return dropped

    def add(self, residual: Float[Tensor, "*shape"], branch: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """residual + dropout(branch), in fewer passes over memory."""
        if not self.training or self.threshold == 0:
            return residual + branch
        summed: Tensor = _DropAdd.apply(residual, branch, self.mask(branch), self.scale)  # type: ignore[no-untyped-call]
        return summed

    def mask(self, values: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """True where an element is dropped."""
        return self.noise.bytes_like(values) < self.threshold

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


def reseed(model: nn.Module, seed: int) -> None:
    """Hand every dropout layer of a model one fresh stream. A batch seen again under its seed is dropped the same."""
    noise = Noise(seed)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.noise = noise


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, dropped: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(dropped)
        ctx.scale = scale  # type: ignore[attr-defined]
        return (values * scale).masked_fill_(dropped, 0)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (dropped,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return (gradient * ctx.scale).masked_fill_(dropped, 0), None, None  # type: ignore[attr-defined]


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, residual: Tensor, branch: Tensor, dropped: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(dropped)
        ctx.scale = scale  # type: ignore[attr-defined]
        return branch.masked_fill(dropped, 0).mul_(scale).add_(residual)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (dropped,) = ctx.saved_tensors  # type: ignore[attr-defined]
        branch = (gradient * ctx.scale).masked_fill_(dropped, 0)  # type: ignore[attr-defined]
        return gradient, branch, None, None
