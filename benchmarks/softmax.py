"""The cost of the softmax: a training step of an LSTM language model with a large vocabulary, by objective.

    python benchmarks/softmax.py [--quick] [--threads 2] [--pairs 15] [--symbols 100000] [--samples 4096]

Every objective trains its own copy of one model on the same batches of random words that follow Zipf's law, all in one
process and in turns. A step is what the trainer does: forward, backward, norm of the gradient, clipping, AdamW. The
last lines claim ratios to the full softmax; the exit code is 1 if one of them misses its goal.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from harness.ending import Outcome, measure_and_exit
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.core.symbols import RESERVED
from seqloom.models.rnn_lm import RnnLm, RnnLmConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.objectives import (
    AliasSampler,
    FullSoftmax,
    Nce,
    NegativeSampling,
    Objective,
    SampledSoftmax,
    noise_distribution,
)
from seqloom.training.optimisers import clip_by_norm, global_norm, gradients, make_optimiser
from seqloom.training.settings import TrainingConfig
from seqloom.training.sparse_updates import set_row_gradients
from seqloom.training.trainer import keep_freed_memory

FULL = "full softmax"
GOALS: Mapping[str, float] = {"sampled softmax": 5.0, "NCE": 5.0}
"""How many times as fast as the full softmax a step has to be."""

FULL_PAIRS = 15
OWN_SAMPLES = 25
"""Noise words where each token has its own."""


@dataclass(frozen=True)
class Extent:
    """What is measured: the size of the model and of a step."""

    symbols: int = 100_000
    width: int = 256
    rows: int = 32
    time: int = 32
    samples: int = 4096

    def __str__(self) -> str:
        tokens = self.rows * self.time
        return f"{self.symbols:,} symbols, LSTM {self.width}, {tokens:,} tokens a step, {self.samples:,} samples"


@dataclass
class Contestant:
    """A model with an objective and an optimiser."""

    name: str
    objective: Objective
    model: RnnLm
    has_row_updates: bool
    seconds: dict[int, float] = field(default_factory=dict)
    """Of one step, by the number of the round."""

    def __post_init__(self) -> None:
        set_row_gradients(self.model, self.has_row_updates)
        self.optimiser = make_optimiser(self.model, TrainingConfig(learning_rate=1e-3))
        self.steps = 0

    def step(self, batch: Tensor) -> float:
        """What the trainer does in a step; its loss."""
        self.optimiser.zero_grad(set_to_none=True)
        features, _ = self.model(batch[:, :-1], None)
        labels = batch[:, 1:].flatten()
        generator = torch.Generator().manual_seed(self.steps)
        loss = self.objective(features.flatten(0, 1), labels, self.model.output, generator=generator)
        (loss / len(labels)).backward()
        values = gradients(self.model.parameters())
        clip_by_norm(values, 1.0, norm=global_norm(values).item())
        self.optimiser.step()
        self.steps += 1
        return loss.item() / len(labels)

    def rates(self, rounds: Sequence[int]) -> list[float]:
        """Steps per second in some rounds."""
        return [1 / self.seconds[number] for number in rounds]


def line_up(extent: Extent, *, is_quick: bool) -> list[Contestant]:
    """The objectives to be compared; the full softmax is the first."""
    counts = zipf_counts(extent.symbols)
    noise = AliasSampler(noise_distribution(counts, power=1.0))
    sampled = SampledSoftmax(noise, extent.samples)
    full = build(extent, FullSoftmax(), name=FULL, has_row_updates=False)
    found = [
        full,
        build(extent, sampled, name="sampled softmax"),
        build(extent, Nce(noise, extent.samples), name="NCE"),
    ]
    if not is_quick:
        own = Nce(noise, OWN_SAMPLES, sharing="token")
        negative = NegativeSampling(noise, 5)
        found += [
            build(extent, own, name=f"NCE, {OWN_SAMPLES} words for each token"),
            build(extent, negative, name="negative sampling, 5 words for each token"),
            build(extent, sampled, name="sampled softmax, all rows updated", has_row_updates=False),
            build(extent, FullSoftmax(), name="adaptive softmax", has_row_updates=False, output="adaptive"),
        ]
    return found


def build(
    extent: Extent, objective: Objective, *, name: str, has_row_updates: bool = True, output: str = "full"
) -> Contestant:
    """One contestant with fresh weights, the same for all that have the same output."""
    tying = "output" if output == "full" else "none"
    config = RnnLmConfig.model_validate({"width": extent.width, "output": output, "tying": tying, "dropout_rate": 0.0})
    symbols = Symbols(extent.symbols, extent.symbols, is_shared=True)
    return Contestant(name, objective, config.build(symbols, seed=1), has_row_updates)


def zipf_counts(symbols: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """How often the words of a text come up by Zipf's law; the reserved symbols do not."""
    counts = np.zeros(symbols)
    counts[len(RESERVED) :] = 10.0 * symbols / np.arange(1, symbols - len(RESERVED) + 1)
    return counts


def batches(extent: Extent, *, number: int) -> list[Tensor]:
    """Batches of random words, with the first one read before the first is predicted."""
    text = AliasSampler(noise_distribution(zipf_counts(extent.symbols), power=1.0, smoothing=1e-9))
    generator = torch.Generator().manual_seed(7)
    return [text.draw((extent.rows, extent.time + 1), generator=generator) for _ in range(number)]


def measure(contestants: Sequence[Contestant], text: Sequence[Tensor], *, pairs: int) -> None:
    """Time a step of each, or some where steps are short, in every round, in another order each time."""
    lengths = {}
    for contestant in contestants:
        contestant.step(text[0])  # what is allocated at the first step
        begin = time.perf_counter()
        contestant.step(text[1])
        lengths[contestant.name] = max(1, min(10, int(0.5 / (time.perf_counter() - begin))))
    countdown = Countdown("round", pairs)
    for number in range(pairs):
        order = list(contestants)
        random.Random(number).shuffle(order)
        for contestant in order:
            gc.collect()
            steps = lengths[contestant.name]
            begin = time.perf_counter()
            for step in range(steps):
                contestant.step(text[(number + step) % len(text)])
            contestant.seconds[number] = (time.perf_counter() - begin) / steps
        countdown.tick()


def report(extent: Extent, contestants: Sequence[Contestant], *, threads: int) -> None:
    """Print the table."""
    full = contestants[0]
    print(
        f"\n### A training step: {extent}\n\nOne table for embeddings and output (but in the adaptive softmax), "
        f"AdamW, {threads} threads. Medians of {len(full.seconds)} rounds.\n"
    )
    print("| objective | tables | ms per step | tokens/s | times as fast |\n|---|---|---:|---:|---:|")
    for each in contestants:
        seconds = statistics.median(each.seconds.values())
        ratio = statistics.median(full.seconds[number] / each.seconds[number] for number in each.seconds)
        rows = "touched rows" if each.has_row_updates else "all rows"
        rate = extent.rows * extent.time / seconds
        print(f"| {each.name} | {rows} | {1000 * seconds:,.0f} | {rate:,.0f} | {ratio:.1f} |", flush=True)


def compare(given: argparse.Namespace) -> list[Claim]:
    """Measure, print the table; the claims that follow."""
    keep_freed_memory()
    torch.set_num_threads(given.threads)
    extent = Extent(symbols=given.symbols, samples=given.samples)
    say(f"building models: {extent}")
    contestants = line_up(extent, is_quick=given.quick)
    measure(contestants, batches(extent, number=8), pairs=given.pairs)
    report(extent, contestants, threads=given.threads)
    full, rounds = contestants[0], range(given.pairs)
    return [
        claim(
            each.rates(rounds),
            full.rates(rounds),
            goal=GOALS[each.name],
            about=f"{each.name} training step vs {FULL}, {extent.symbols:,} symbols",
        )
        for each in contestants
        if each.name in GOALS
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and only what is claimed")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of the arithmetic (default 2)")
    parser.add_argument("--symbols", type=int, default=Extent.symbols, help="size of the vocabulary")
    parser.add_argument("--samples", type=int, default=Extent.samples, help="symbols drawn in a step")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda _folder: Outcome(compare(given)))


if __name__ == "__main__":
    main()
