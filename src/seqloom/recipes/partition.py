"""Look at the normaliser of a language model: log Z over a text, and what samples would know of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.config import Config
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import require_file
from seqloom.core.symbols import BEGIN, END
from seqloom.data.text import read_one_language
from seqloom.inspection.findings import Finding
from seqloom.inspection.partition import gradient_cosines, importance_variance, log_partition
from seqloom.inspection.partition_picture import (
    draw_gradient_cosines,
    draw_importance_variance,
    draw_log_partition,
    sample_numbers,
)
from seqloom.nn.alias import AliasSampler, noise_distribution
from seqloom.nn.modes import evaluating
from seqloom.nn.objectives import Nce, Objective, SampledSoftmax
from seqloom.nn.outputs import Output
from seqloom.recipes.load import Loaded
from seqloom.recipes.readers import reader_of
from seqloom.recipes.reading import RecurrentReader
from seqloom.text.normalise import is_blank

Tell = Callable[[int, int], None]
"""Told how many parts are done, and how many there are."""

PARTS = 4


class PartitionConfig(Config):
    """How much is looked at."""

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
    progress: Tell = lambda _done, _all: None,
) -> list[Finding]:
    """log Z at the positions of a text, gradient cosines by samples, and the variance of importance sampling."""
    settings = config or PartitionConfig()
    reader = reader_of(loaded)
    if not isinstance(reader, RecurrentReader) or not isinstance(reader.model.output, Output):
        raise UsageError(
            f"{loaded.folder} is normalised by the way it is built, so there is no log Z to look at; take a recurrent "
            "language model with model.output=full"
        )
    lines = _encoded_lines(loaded, file, settings.tokens, encoding=encoding)
    assert isinstance(loaded.model, nn.Module)  # whatever a recurrent reader reads with, whole or in part
    with evaluating(loaded.model):
        features, labels = _features(reader, lines, most=settings.tokens)
    output = reader.model.output
    progress(1, PARTS)
    findings = [_log_z(output, features)]
    progress(2, PARTS)
    symbols = len(output.weight)
    counts = np.bincount(np.concatenate([np.array([*line, END]) for line in lines]), minlength=symbols)
    noise = AliasSampler(noise_distribution(counts, power=settings.power))
    findings.append(_cosines(output, features, labels, noise=noise, settings=settings))
    progress(3, PARTS)
    uniform = AliasSampler(noise_distribution(counts, power=0.0))
    findings.append(_variance(output, features, proposals={"uniform": uniform, "drawn by count": noise}))
    progress(PARTS, PARTS)
    return findings


def _encoded_lines(loaded: Loaded, file: Path, most: int, *, encoding: str | None) -> list[list[int]]:
    """The first lines of a text as ids, as many as are needed."""
    require_file(file)
    found: list[list[int]] = []
    tokens = 0
    for line in read_one_language(file, encoding=encoding, language=loaded.config.data.target):
        if not is_blank(line):
            found.append(list(loaded.tokenizers.target.encode(line)))
            tokens += len(found[-1]) + 1
        if tokens >= most:
            break
    if tokens < 2:
        raise DataError(f"{file} has no text to look at: all its lines are blank")
    return found


def _features(
    reader: RecurrentReader, lines: list[list[int]], *, most: int
) -> tuple[Float[Tensor, "tokens width"], Int[Tensor, " tokens"]]:
    """What the model makes of each position before it is scored, and the symbol that comes there."""
    features, labels, state = [], [], None
    for line in lines:
        # A model of lines begins each of them anew; one of texts reads the end of a line as the next beginning.
        if reader.context == "line":
            state = None
        ids = torch.tensor([[BEGIN, *line, END]], device=reader.device)
        found, state = reader.model(ids[:, :-1], state)
        features.append(found[0])
        labels.append(ids[0, 1:])
    return torch.cat(features)[:most], torch.cat(labels)[:most]


def _log_z(output: Output, features: Float[Tensor, "tokens width"]) -> Finding:
    found = log_partition(output, features)
    low, middle, high = found.quantiles(0.05, 0.5, 0.95)
    learned = None if output.log_z is None else float(output.log_z.detach())
    note = "" if learned is None else f" (with the learned log Z = {learned:.3f} taken off)"
    sentence = (
        f"log Z over {len(found.values):,} positions: mean {found.mean:.3f}, standard deviation {found.deviation:.3f}, "
        f"90% from {low:.3f} to {high:.3f}{note}; unnormalised scores are off by that much"
    )
    data = {
        "tokens": len(found.values),
        "mean": found.mean,
        "deviation": found.deviation,
        "median": middle,
        "low": low,
        "high": high,
        "learned_log_z": learned,
    }
    return Finding("log-z", "The normaliser", sentence, data, lambda: draw_log_partition(found))


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
    found = importance_variance(output, features, proposals=proposals)
    symbols = len(output.weight)
    needed = {
        name: {
            "half": found.needed(name, deviation=0.1, share=0.5),
            "nine_tenths": found.needed(name, deviation=0.1, share=0.9),
        }
        for name in proposals
    }
    shown = "; ".join(f"{name} {each['half']:,.0f} and {each['nine_tenths']:,.0f}" for name, each in needed.items())
    sentence = (
        f"importance samples for Z to 10% at half and at nine tenths of the positions: {shown} "
        f"(there are {symbols:,} symbols)"
    )
    numbers = sample_numbers(symbols)
    data = {"needed_for_a_tenth": needed, "symbols": symbols}
    return Finding(
        "importance-variance",
        "Importance sampling",
        sentence,
        data,
        lambda: draw_importance_variance(found, numbers, symbols=symbols),
    )
