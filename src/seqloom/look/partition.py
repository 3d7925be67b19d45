"""The normaliser of a softmax, and the accuracy of its estimates.

    Z(x) = Σ_w exp(s_w(x))          log Z is 0 where scores are log-probabilities by themselves

Three questions about a model with a table of scores, measured at the positions of a text:

1. How far from 0 is log Z? NCE takes it for 0, so a model trained by it should keep it there; one trained by maximum
   likelihood has no reason to.
2. How near is the gradient of a sampled objective to that of the full softmax, by the number of samples?
3. How well is Z known from n importance samples, Ẑ = 1/n Σ exp(s_w) / q_w with w from q? Its relative variance is

       Var(Ẑ) / Z² = (Σ_w p_w² / q_w − 1) / n,  p = softmax(s)

   which is large where few words hold nearly all of p and q does not know them: the reason not to estimate the
   gradient of maximum likelihood by importance sampling.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from matplotlib.figure import Figure
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.config import Config
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import require_file
from seqloom.core.symbols import BEGIN, END
from seqloom.data.plain_text import read_one_language
from seqloom.drawing.figures import INK, QUIET, SERIES, Finding, new_axes
from seqloom.models.reading import RecurrentReader
from seqloom.nn.dropout import evaluating
from seqloom.nn.objectives import AliasSampler, FullSoftmax, Nce, Objective, SampledSoftmax, noise_distribution
from seqloom.nn.outputs import Output
from seqloom.runs.loading import Loaded
from seqloom.runs.readers import require_reader
from seqloom.text.normalise import is_blank

SCORES = 1 << 22
"""Scores held at a time."""


@torch.no_grad()
def log_partition(output: Output, features: Float[Tensor, "tokens width"]) -> Float64[np.ndarray, " tokens"]:
    """log Σ_w exp(W_w · x + b_w), less the log Z that the model has learned, if it has, for each x."""
    values = torch.cat([torch.logsumexp(output(some).double(), dim=1) for some in features.split(_at_once(output))])
    if output.log_z is not None:
        values = values - output.log_z.double()
    return values.cpu().numpy()


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


@torch.no_grad()
def importance_variance(
    output: Output, features: Float[Tensor, "tokens width"], *, proposals: Mapping[str, AliasSampler]
) -> dict[str, Float64[np.ndarray, " tokens"]]:
    """How uneven importance weights are: Var(Ẑ) / Z² = Σ_w p_w² / q_w − 1 of one draw for each x, by proposal q."""
    everything = torch.arange(len(output.weight), device=features.device)
    inverse = {name: (-sampler.log_probs(everything)).exp() for name, sampler in proposals.items()}
    found: dict[str, list[Tensor]] = {name: [] for name in proposals}
    for some in features.split(_at_once(output)):
        squares = output.log_probs(some).double().mul_(2).exp_()  # [tokens, symbols]
        for name, weights in inverse.items():
            found[name].append(squares @ weights - 1)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in found.items()}


def _at_once(output: Output) -> int:
    return max(1, SCORES // len(output.weight))


# Pictures of the normaliser: its histogram, gradients by samples, and the variance of importance sampling.


def draw_log_partition(values: Float64[np.ndarray, " tokens"]) -> Figure:
    """How often each value of log Z comes up."""
    figure, axes = new_axes()
    axes.hist(values, bins=60, color=SERIES[0])
    mean, lowest, highest = float(values.mean()), float(values.min()), float(values.max())
    axes.axvline(mean, color=SERIES[1], linewidth=1.2, linestyle="--", label=f"mean {mean:.2f}")
    spread = max(highest - lowest, 0.1)
    # Where 0 is far away, an axis that reaches it would press all values into one bar.
    if lowest - spread <= 0 <= highest + spread:
        axes.axvline(0, color=INK, linewidth=1.0)
    else:
        axes.set_xlim(lowest - 0.05 * spread, highest + 0.05 * spread)
    axes.set_xlabel("log Z (0: scores are log-probabilities)")
    axes.set_ylabel("positions")
    axes.set_ylim(top=1.15 * axes.get_ylim()[1])  # room for the legend above the bars
    axes.legend(frameon=False, loc="upper right")
    return figure


def draw_gradient_cosines(found: GradientCosines) -> Figure:
    """Cosine to the gradient of the full softmax, by the number of samples: of one draw, and of the mean of several."""
    figure, axes = new_axes()
    for colour, name in zip(SERIES, found.single, strict=False):
        axes.plot(found.samples, found.single[name], color=colour, marker="o", label=name)
        axes.plot(found.samples, found.averaged[name], color=colour, linestyle=":", marker=".")
    axes.axhline(1, color=QUIET, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_ylim(top=1.03)
    axes.set_xlabel("samples (dotted: mean gradient of several draws)")
    axes.set_ylabel("cosine to the full softmax")
    axes.legend(frameon=False)
    return figure


def draw_importance_variance(
    variances: Mapping[str, Float64[np.ndarray, " tokens"]], samples: Sequence[int], *, symbols: int
) -> Figure:
    """Relative deviation of Ẑ by the number of samples: in the middle position, and in the worst tenth."""
    figure, axes = new_axes()
    for colour, (name, values) in zip(SERIES, variances.items(), strict=False):
        for share, style, words in ((0.5, "-", "half of positions"), (0.9, "--", "a tenth is worse")):
            deviations = np.sqrt(np.quantile(values, share) / np.array(samples))
            axes.plot(samples, deviations, color=colour, linestyle=style, label=f"{name}, {words}")
    axes.axvline(symbols, color=QUIET, linewidth=1.0)
    axes.annotate("all symbols", (symbols, axes.get_ylim()[1]), color=QUIET, ha="right", va="top", rotation=90)
    axes.axhline(0.1, color=QUIET, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(min(samples), max(*samples, symbols))
    axes.set_xlabel("importance samples")
    axes.set_ylabel("deviation of Ẑ / Z")
    axes.legend(frameon=False)
    return figure


def sample_numbers(symbols: int) -> tuple[int, ...]:
    """Numbers of samples from 1 to all symbols, evenly on a logarithmic scale."""
    return tuple(int(number) for number in np.unique(np.geomspace(1, symbols, 25).round()))


# The normaliser of a language model: log Z over a text, and its estimates from samples.

PARTS = 4
"""Steps of progress that are reported."""


class PartitionConfig(Config):
    """How much text is used."""

    tokens: int = Field(2048, ge=2)
    """Positions of the text, from its beginning."""
    samples: tuple[Annotated[int, Field(ge=1)], ...] = Field((16, 64, 256, 1024, 4096), min_length=1)
    """Numbers of samples at which gradients are compared; those above the number of symbols are left out."""
    draws: int = Field(4, ge=1)
    """Draws over which cosines are averaged."""
    power: float = Field(1.0, ge=0, le=1)
    """Noise is drawn in proportion to (count + 1)^power, counted on this text."""
    seed: int = 1
    """Seed of the draws."""


def look_at_partition(
    loaded: Loaded,
    file: Path,
    config: PartitionConfig | None = None,
    *,
    encoding: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Finding]:
    """log Z at the positions of a text, gradient cosines by samples, and the variance of importance sampling.

    `progress` is called with the number of parts done and the total.
    """
    settings, model = config or PartitionConfig(), loaded.config.model
    reader = cast("RecurrentReader", require_reader(loaded))
    if model.is_fitted or not model.has_output_table:
        raise UsageError(
            f"{loaded.folder} is normalised by construction and has no log Z; use a recurrent "
            "language model with model.output=full"
        )
    output = cast("Output", reader.model.output)
    require_file(file)
    parts, ids_of_lines, tokens, state = [], [], 0, None
    with evaluating(cast("nn.Module", loaded.model)):
        for line in read_one_language(file, encoding=encoding, language=loaded.config.data.target):
            if is_blank(line):
                continue
            # A model of lines restarts at each line; a model of texts continues across line ends.
            state = None if reader.context == "line" else state
            ids = torch.tensor([[BEGIN, *loaded.tokenizers.target.encode(line), END]], device=reader.device)
            found, state = reader.model(ids[:, :-1], state)  # [1, tokens, width]
            parts.append(found[0])
            ids_of_lines.append(ids[0, 1:])
            tokens += len(ids_of_lines[-1])
            if tokens >= settings.tokens:
                break
    if not parts:
        raise DataError(f"{file} contains only blank lines")
    features, labels = torch.cat(parts)[: settings.tokens], torch.cat(ids_of_lines)  # [tokens, width], [tokens]
    progress(1, PARTS)
    findings = [_log_z(output, features)]
    progress(2, PARTS)
    counts = np.bincount(labels.cpu().numpy(), minlength=len(output.weight))
    noise = AliasSampler(noise_distribution(counts, power=settings.power))
    findings.append(_cosines(output, features, labels[: settings.tokens], noise=noise, settings=settings))
    progress(3, PARTS)
    uniform = AliasSampler(noise_distribution(counts, power=0.0))
    findings.append(_variance(output, features, proposals={"uniform": uniform, "drawn by count": noise}))
    progress(PARTS, PARTS)
    return findings


def _log_z(output: Output, features: Float[Tensor, "tokens width"]) -> Finding:
    values = log_partition(output, features)
    mean, deviation = float(values.mean()), float(values.std())
    low, middle, high = map(float, np.quantile(values, (0.05, 0.5, 0.95)))
    learned = None if output.log_z is None else float(output.log_z.detach())
    note = "" if learned is None else f" (with the learned log Z = {learned:.3f} taken off)"
    sentence = (
        f"log Z over {len(values):,} positions: mean {mean:.3f}, standard deviation {deviation:.3f}, "
        f"90% from {low:.3f} to {high:.3f}{note}; unnormalised scores are off by that much"
    )
    data = {
        "tokens": len(values),
        "mean": mean,
        "deviation": deviation,
        "median": middle,
        "low": low,
        "high": high,
        "learned_log_z": learned,
    }
    return Finding("log-z", "The normaliser", sentence, data, lambda: draw_log_partition(values))


def _cosines(
    output: Output,
    features: Float[Tensor, "tokens width"],
    labels: Int[Tensor, " tokens"],
    *,
    noise: AliasSampler,
    settings: PartitionConfig,
) -> Finding:
    objectives: dict[str, Callable[[int], Objective]] = {
        "sampled softmax": lambda samples: SampledSoftmax(noise, samples),
        "sampled softmax, label corrected": lambda samples: SampledSoftmax(noise, samples, correction="all"),
        "NCE": lambda samples: Nce(noise, samples),
    }
    samples = [number for number in settings.samples if number <= len(output.weight)] or [len(output.weight)]
    found = gradient_cosines(
        output, features, labels, objectives=objectives, samples=samples, draws=settings.draws, seed=settings.seed
    )
    shown = "; ".join(f"{name} {values[-1]:.3f}" for name, values in found.single.items())
    sentence = f"cosine to the gradient of the full softmax with {samples[-1]:,} samples: {shown}"
    data = {
        "samples": list(found.samples),
        "single": {name: list(values) for name, values in found.single.items()},
        "averaged": {name: list(values) for name, values in found.averaged.items()},
        "draws": settings.draws,
        "power": settings.power,
        "seed": settings.seed,
    }
    return Finding("gradient-cosine", "Gradients from samples", sentence, data, lambda: draw_gradient_cosines(found))


def _variance(
    output: Output, features: Float[Tensor, "tokens width"], *, proposals: dict[str, AliasSampler]
) -> Finding:
    variances = importance_variance(output, features, proposals=proposals)
    symbols = len(output.weight)
    # Samples after which Ẑ has a relative deviation of 10%, by the share of positions for which they are enough.
    needed = {
        name: {"half": float(np.quantile(each, 0.5)) / 0.1**2, "nine_tenths": float(np.quantile(each, 0.9)) / 0.1**2}
        for name, each in variances.items()
    }
    shown = "; ".join(f"{name} {each['half']:,.0f} and {each['nine_tenths']:,.0f}" for name, each in needed.items())
    sentence = (
        f"importance samples for Z to 10% at half and at nine tenths of the positions: {shown} "
        f"(there are {symbols:,} symbols)"
    )
    data = {"needed_for_a_tenth": needed, "symbols": symbols}

    def draw() -> Figure:
        return draw_importance_variance(variances, sample_numbers(symbols), symbols=symbols)

    return Finding("importance-variance", "Importance sampling", sentence, data, draw)
