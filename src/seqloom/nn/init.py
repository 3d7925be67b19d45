"""How weights begin."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's own random numbers come from `seed`; outside, nothing has changed.

    torch's layers draw their first weights from its global generator. This borrows it and gives it back.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def xavier_uniform(weight: Tensor, *, gain: float = 1.0, parts: int = 1) -> Tensor:
    """Uniform in ±gain·√(6 / (in + out)), which keeps the variance of signals and gradients (Glorot & Bengio, 2010).

    A fused matrix holds `parts` matrices one above the other (queries, keys, values); each gets its own fan-out.
    """
    out, inner = weight.shape[0] // parts, weight.shape[1]
    bound = gain * math.sqrt(6 / (inner + out))
    return nn.init.uniform_(weight, -bound, bound)
