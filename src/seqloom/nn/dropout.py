"""Dropout from cheap random bytes.

torch draws one float per element from a generator that runs on one thread, a noticeable cost for small models. Here one
byte decides: it is drawn at memory speed, and a rate is rounded to the nearest 1/256.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from seqloom.core.errors import ConfigError


class HasModules(Protocol):
    """A torch module, by what is read of it here."""

    def modules(self) -> Iterator[nn.Module]:
        """It and all modules inside it."""
        ...


@contextmanager
def evaluating(model: HasModules) -> Iterator[None]:
    """No gradients and no dropout inside; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


LEVELS = 256
"""Values of a byte, hence the number of possible rates."""


class RandomBytes:
    """A stream of random bytes from one seed, on any device."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._bits = numpy.random.SFC64(seed)
        self._generators: dict[torch.device, torch.Generator] = {}

    def bytes_like(self, tensor: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
        """Uniform random bytes in the shape of a tensor, on its device."""
        return self.draw(tensor.shape, tensor.device)

    def draw(self, shape: Sequence[int], device: torch.device) -> UInt8[Tensor, "..."]:
        """Uniform random bytes in a shape, on a device."""
        if device.type == "cpu":
            count = math.prod(shape)
            drawn = numpy.atleast_1d(self._bits.random_raw(-(-count // 8))).view(numpy.uint8)
            return torch.from_numpy(drawn)[:count].view(*shape)
        generator = self._generators.get(device)
        if generator is None:
            generator = torch.Generator(device=device).manual_seed(self.seed)
            self._generators[device] = generator
        return torch.randint(LEVELS, tuple(shape), dtype=torch.uint8, device=device, generator=generator)


class Dropout(nn.Module):
    """Sets each element to zero with probability `rate` and scales the others by 1 / (1 − rate), in training only.

    `rate` is rounded to the nearest 1/256, which may be 0; the scale is that of the rounded rate, so the mean is exact.
    Every layer begins with its own stream from seed 0: `reseed` gives a model one stream from a chosen seed.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1 or round(LEVELS * rate) == LEVELS:
            raise ConfigError(
                f"a dropout rate of {rate} is not possible; give one from 0 to {(LEVELS - 1) / LEVELS:.3f}, such as 0.1"
            )
        self.rate = rate
        self.threshold = round(LEVELS * rate)
        self.noise = RandomBytes(0)

    @property
    def is_active(self) -> bool:
        """Whether it drops anything now."""
        return self.training and self.threshold > 0

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.is_active:
            return values
        dropped: Tensor = _Drop.apply(values, self.noise.bytes_like(values), self.threshold)  # type: ignore[no-untyped-call]
        return dropped

    def add(self, residual: Float[Tensor, "*shape"], branch: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """residual + dropout(branch), in fewer passes over memory."""
        if not self.is_active:
            return residual + branch
        summed: Tensor = _DropAdd.apply(residual, branch, self.noise.bytes_like(branch), self.threshold)  # type: ignore[no-untyped-call]
        return summed

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class StochasticDepth(nn.Module):
    """Drops the branch of whole examples with probability `rate` and scales the others by 1 / (1 − rate).

    In training only (Huang et al., 2016). One byte decides for each example, from the same stream as dropout.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropout = Dropout(rate)

    def forward(self, branch: Float[Tensor, "batch numbers"]) -> Float[Tensor, "batch numbers"]:
        if not self.dropout.is_active:
            return branch
        factors: Tensor = self.dropout(branch.new_ones(len(branch), 1))
        return branch * factors


def reseed(model: nn.Module, seed: int) -> None:
    """Give all dropout layers of a model one fresh stream: the same batch with the same seed is dropped equally."""
    noise = RandomBytes(seed)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.noise = noise


def kept(drawn: UInt8[Tensor, "*shape"], threshold: int, dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """1 where a byte is at least `threshold`, else 0.

    Compared in place, as floats: a boolean mask in between takes several times as long.
    """
    return drawn.to(dtype).ge_(threshold)


def scale_of(threshold: int) -> float:
    """1 / (1 − rate) for the rounded rate, `threshold` / 256."""
    return LEVELS / (LEVELS - threshold)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, drawn: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(drawn)
        ctx.threshold = threshold  # type: ignore[attr-defined]
        return kept(drawn, threshold, values.dtype).mul_(scale_of(threshold)).mul_(values)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (drawn,) = ctx.saved_tensors  # type: ignore[attr-defined]
        threshold: int = ctx.threshold  # type: ignore[attr-defined]
        return kept(drawn, threshold, gradient.dtype).mul_(scale_of(threshold)).mul_(gradient), None, None


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, residual: Tensor, branch: Tensor, drawn: Tensor, threshold: int) -> Tensor:
        ctx.save_for_backward(drawn)
        ctx.threshold = threshold  # type: ignore[attr-defined]
        return torch.addcmul(residual, branch, kept(drawn, threshold, branch.dtype), value=scale_of(threshold))

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (drawn,) = ctx.saved_tensors  # type: ignore[attr-defined]
        threshold: int = ctx.threshold  # type: ignore[attr-defined]
        branch = kept(drawn, threshold, gradient.dtype).mul_(scale_of(threshold)).mul_(gradient)
        return gradient, branch, None, None
