"""What truncation does to a gradient and to learning, on a task whose dependence has a known length.

Echo: at every step, tell the symbol that was shown `distance` steps before. A gradient that goes back less far than
that cannot teach it, other than by luck. For an estimate ĝ of the exact gradient g of the cell's weights:

    bias    ‖E ĝ − g‖ / ‖g‖               of all draws of the truncation; a fixed one has a single draw
    spread  √(E ‖ĝ − E ĝ‖²) / ‖g‖         how far a single draw lies from their mean
    along   E (ĝ · g) / ‖g‖²              1 for an unbiased estimate; known to a standard error

The mean of N draws is itself known to spread/√N only: a bias of that size is what no bias looks like.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.nn.bptt import FULL, Truncation, run_by_hand
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.recurrent import MakeCell


@dataclass(frozen=True)
class EchoTask:
    """Sizes of the task, of the network and of its training."""

    distance: int = 6
    """Steps between a symbol and its echo."""
    steps: int = 48
    symbols: int = 4
    sequences: int = 16
    """In a batch."""
    width: int = 32
    updates: int = 250
    """Of the weights, by Adam."""
    learning_rate: float = 0.003
    clip_norm: float = 1.0
    tested: int = 128
    """Sequences of the test."""

    def __post_init__(self) -> None:
        if not 0 < self.distance < self.steps:
            raise UsageError(f"an echo over {self.distance} steps does not fit into sequences of {self.steps}")


@dataclass(frozen=True)
class Estimate:
    """How an estimate of the gradient lies to the exact one, as multiples of its norm."""

    bias: float
    bias_error: float
    """The bias that so many draws would show if there were none: spread/√draws."""
    spread: float
    along: float
    along_error: float
    """The standard error of `along`."""
    draws: int


class EchoNetwork(nn.Module):
    """A cell, run by hand, and a linear layer that tells a symbol at every step."""

    def __init__(self, make: MakeCell, task: EchoTask) -> None:
        super().__init__()
        self.task = task
        self.cell = make(task.symbols, task.width)
        self.tell = nn.Linear(task.width, task.symbols)
        xavier_uniform(self.tell.weight)
        nn.init.zeros_(self.tell.bias)

    def forward(
        self,
        shown: Int[Tensor, "sequences steps"],
        *,
        truncation: Truncation = FULL,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, ""]:
        """Nats per echo; the truncation changes nothing but its gradient."""
        inputs = F.one_hot(shown, self.task.symbols).to(self.tell.weight.dtype)
        begin = self.cell.begin(inputs.new_zeros(len(shown), self.task.width))
        hidden, _ = run_by_hand(self.cell, inputs, begin, truncation=truncation, generator=generator)
        distance = self.task.distance
        return F.cross_entropy(self.tell(hidden[:, distance:]).flatten(0, 1), shown[:, :-distance].flatten())


def train_echo(make: MakeCell, task: EchoTask, *, truncation: Truncation, seed: int) -> tuple[EchoNetwork, float]:
    """The network after the updates, and its test loss. Equal seeds begin alike and see the same sequences."""
    with seeded(seed_for(seed, "echo network")):
        network = EchoNetwork(make, task)
    sequences, chances, tests = (
        torch.Generator().manual_seed(seed_for(seed, use)) for use in ("echo sequences", "echo chances", "echo test")
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=task.learning_rate)
    for _ in range(task.updates):
        optimiser.zero_grad()
        network(
            draw_symbols(task, task.sequences, generator=sequences), truncation=truncation, generator=chances
        ).backward()
        nn.utils.clip_grad_norm_(network.parameters(), task.clip_norm)
        optimiser.step()
    with torch.no_grad():
        return network, float(network(draw_symbols(task, task.tested, generator=tests)))


def draw_symbols(task: EchoTask, sequences: int, *, generator: torch.Generator) -> Int[Tensor, "sequences steps"]:
    """Symbols, each independent of all others."""
    return torch.randint(task.symbols, (sequences, task.steps), generator=generator)


def measure_estimates(
    network: EchoNetwork, truncations: Sequence[Truncation], *, draws: int, seed: int
) -> list[Estimate]:
    """Bias and spread of each truncation on one batch, in double precision; the random kind is drawn so many times."""
    if draws < 2:
        raise UsageError(f"a spread needs two draws or more, not {draws}")
    dtype = network.tell.weight.dtype
    network.double()
    try:
        generator = torch.Generator().manual_seed(seed_for(seed, "estimates"))
        shown = draw_symbols(network.task, network.task.sequences, generator=generator)
        exact = _gradient(network, shown, FULL, generator)
        found = []
        for truncation in truncations:
            count = draws if truncation.kind == "random" else 1
            drawn = torch.stack([_gradient(network, shown, truncation, generator) for _ in range(count)])
            found.append(estimate_of(drawn, exact))
        return found
    finally:
        network.to(dtype)


def estimate_of(drawn: Float[Tensor, "draws weights"], exact: Float[Tensor, " weights"]) -> Estimate:
    """Bias and spread of draws about the exact gradient."""
    draws, norm = len(drawn), float(exact.norm())
    mean = drawn.mean(0)
    along = drawn @ exact / norm**2
    spread = float((drawn - mean).square().sum() / max(1, draws - 1)) ** 0.5 / norm
    return Estimate(
        bias=float((mean - exact).norm()) / norm,
        bias_error=spread / math.sqrt(draws),
        spread=spread,
        along=float(along.mean()),
        along_error=float(along.std()) / math.sqrt(draws) if draws > 1 else 0.0,
        draws=draws,
    )


def _gradient(
    network: EchoNetwork, shown: Tensor, truncation: Truncation, generator: torch.Generator
) -> Float[Tensor, " weights"]:
    weights = list(network.cell.parameters())
    loss = network(shown, truncation=truncation, generator=generator)
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, weights)])
