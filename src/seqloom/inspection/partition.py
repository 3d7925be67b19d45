"""The normaliser of a softmax, and what estimates of it are worth.

    Z(x) = Σ_w exp(s_w(x))          log Z is 0 where scores are log-probabilities by themselves

Three questions to a model with a table of scores, asked of the positions of a text:

1. How far from 0 is log Z? NCE takes it for 0, so a model trained by it should keep it there; one trained by maximum
   likelihood has no reason to.
2. How near is the gradient of a sampled objective to that of the full softmax, by the number of samples?
3. How well is Z known from n importance samples, Ẑ = 1/n Σ exp(s_w) / q_w with w from q? Its relative variance is

       Var(Ẑ) / Z² = (Σ_w p_w² / q_w − 1) / n,  p = softmax(s)

   which is large where few words hold nearly all of p and q does not know them: the reason not to estimate the
   gradient of maximum likelihood this way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from seqloom.nn.alias import AliasSampler
from seqloom.nn.objectives import FullSoftmax, Objective
from seqloom.nn.outputs import Output

SCORES = 1 << 22
"""Scores held at a time."""


@dataclass(frozen=True)
class LogPartition:
    """log Z at each position of a text, less the log Z that the model has learned, if it has."""

    values: Float64[np.ndarray, " tokens"]

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation: what no single number for log Z can make up for."""
        return float(self.values.std())

    def quantiles(self, *shares: float) -> tuple[float, ...]:
        return tuple(float(value) for value in np.quantile(self.values, shares))


@torch.no_grad()
def log_partition(output: Output, features: Float[Tensor, "tokens width"]) -> LogPartition:
    """log Σ_w exp(W_w · x + b_w) − log Z learned, for each x."""
    parts = [torch.logsumexp(output(some).double(), dim=1) for some in features.split(_at_once(output))]
    values = torch.cat(parts)
    if output.log_z is not None:
        values = values - output.log_z.double()
    return LogPartition(values.cpu().numpy())


@dataclass(frozen=True)
class GradientCosines:
    """Cosines between the gradient of an objective and that of the full softmax."""

    samples: tuple[int, ...]
    single: Mapping[str, tuple[float, ...]]
    """Mean over draws of the cosine of one draw's gradient, by objective: what a step of training sees."""
    averaged: Mapping[str, tuple[float, ...]]
    """Cosine of the mean of the gradients over draws: what is left is bias, and noise that was not averaged out."""


def gradient_cosines(
    output: Output,
    features: Float[Tensor, "tokens width"],
    labels: Int[Tensor, " tokens"],
    *,
    objectives: Mapping[str, Callable[[int], Objective]],
    samples: Sequence[int],
    draws: int,
    seed: int,
) -> GradientCosines:
    """Compare gradients with respect to features and table, over several draws of each number of samples."""
    full = _gradient(FullSoftmax(), output, features, labels, generator=torch.Generator())
    single: dict[str, list[float]] = {name: [] for name in objectives}
    averaged: dict[str, list[float]] = {name: [] for name in objectives}
    for name, make in objectives.items():
        for number in samples:
            generator = torch.Generator().manual_seed(seed)
            total, cosines = torch.zeros_like(full), 0.0
            for _ in range(draws):
                drawn = _gradient(make(number), output, features, labels, generator=generator)
                cosines += float(torch.cosine_similarity(drawn, full, dim=0))
                total += drawn
            single[name].append(cosines / draws)
            averaged[name].append(float(torch.cosine_similarity(total, full, dim=0)))
    return GradientCosines(
        samples=tuple(samples),
        single={name: tuple(values) for name, values in single.items()},
        averaged={name: tuple(values) for name, values in averaged.items()},
    )


def _gradient(
    objective: Objective,
    output: Output,
    features: Float[Tensor, "tokens width"],
    labels: Int[Tensor, " tokens"],
    *,
    generator: torch.Generator,
) -> Float[Tensor, " numbers"]:
    features = features.detach().requires_grad_()
    inputs = [features, output.weight] if output.bias is None else [features, output.weight, output.bias]
    loss = objective(features, labels, output, generator=generator)
    found = torch.autograd.grad(loss, inputs)
    return torch.cat([(part.to_dense() if part.is_sparse else part).flatten() for part in found])


@dataclass(frozen=True)
class ImportanceVariance:
    """How uneven importance weights are: Var(Ẑ) / Z² of a single draw at each position, by proposal q."""

    variances: Mapping[str, Float64[np.ndarray, " tokens"]]

    def deviations(self, name: str, samples: Sequence[int], *, share: float) -> tuple[float, ...]:
        """Relative standard deviation of Ẑ from so many samples, at the position at this share of all positions."""
        variance = float(np.quantile(self.variances[name], share))
        return tuple((variance / number) ** 0.5 for number in samples)

    def needed(self, name: str, *, deviation: float, share: float) -> float:
        """Samples after which Ẑ has this relative deviation, at the position at this share of all positions."""
        return float(np.quantile(self.variances[name], share)) / deviation**2


@torch.no_grad()
def importance_variance(
    output: Output, features: Float[Tensor, "tokens width"], *, proposals: Mapping[str, AliasSampler]
) -> ImportanceVariance:
    """Σ_w p_w² / q_w − 1 for each x and each q."""
    everything = torch.arange(len(output.weight), device=features.device)
    inverse = {name: (-sampler.log_probs(everything)).exp() for name, sampler in proposals.items()}
    found: dict[str, list[Tensor]] = {name: [] for name in proposals}
    for some in features.split(_at_once(output)):
        squares = output.log_probs(some).double().mul_(2).exp_()
        for name, weights in inverse.items():
            found[name].append(squares @ weights - 1)
    return ImportanceVariance({name: torch.cat(parts).cpu().numpy() for name, parts in found.items()})


def _at_once(output: Output) -> int:
    return max(1, SCORES // len(output.weight))
