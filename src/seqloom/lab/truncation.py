"""Full, chunked, sliding and random truncation side by side: what each does to the gradient and to learning."""

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIRST, INK, QUIET, SECOND, Finding
from seqloom.lab.bench import Countdown, Say, frames, generator_for, output_layer, rounded, silent, take_step
from seqloom.nn.bptt.truncation import FULL, Truncation, run_cell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import seeded
from seqloom.nn.recurrent import MakeCell

# What truncation does to a gradient and to learning, on a task whose dependence has a known length.
#
# Echo: at every step, predict the symbol shown `distance` steps before. A gradient that reaches back less far than
# that cannot teach it, other than by luck. For an estimate ĝ of the exact gradient g of the cell's weights:
#
#     bias    ‖E ĝ − g‖ / ‖g‖               of all draws of the truncation; a fixed one has a single draw
#     spread  √(E ‖ĝ − E ĝ‖²) / ‖g‖         how far a single draw lies from their mean
#     along   E (ĝ · g) / ‖g‖²              1 for an unbiased estimate; known to a standard error
#
# The mean of N draws is itself known to spread/√N only: a bias of that size is what no bias looks like.


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
    """A cell with its manual backward pass, and a linear layer that predicts a symbol at every step."""

    def __init__(self, make: MakeCell, task: EchoTask) -> None:
        super().__init__()
        self.task = task
        self.cell = make(task.symbols, task.width)
        self.output = output_layer(task.width, task.symbols)

    def forward(
        self,
        shown: Int[Tensor, "sequences steps"],
        *,
        truncation: Truncation = FULL,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, ""]:
        """Nats per echo; the truncation changes nothing but its gradient."""
        inputs = F.one_hot(shown, self.task.symbols).to(self.output.weight.dtype)
        begin = self.cell.begin(inputs.new_zeros(len(shown), self.task.width))
        hidden, _ = run_cell(self.cell, inputs, begin, truncation=truncation, generator=generator)
        distance = self.task.distance
        return F.cross_entropy(self.output(hidden[:, distance:]).flatten(0, 1), shown[:, :-distance].flatten())


def train_echo(make: MakeCell, task: EchoTask, *, truncation: Truncation, seed: int) -> tuple[EchoNetwork, float]:
    """The network after the updates, and its test loss. Equal seeds give the same initial weights and sequences."""
    with seeded(seed_for(seed, "echo network")):
        network = EchoNetwork(make, task)
    sequences, chances, tests = (generator_for(seed, f"echo {use}") for use in ("sequences", "chances", "test"))
    optimiser = torch.optim.Adam(network.parameters(), lr=task.learning_rate)
    for _ in range(task.updates):
        shown = draw_symbols(task, task.sequences, generator=sequences)
        take_step(optimiser, network(shown, truncation=truncation, generator=chances), clip_norm=task.clip_norm)
    with torch.no_grad():
        return network, float(network(draw_symbols(task, task.tested, generator=tests)))


def draw_symbols(task: EchoTask, sequences: int, *, generator: torch.Generator) -> Int[Tensor, "sequences steps"]:
    """Symbols, each independent of all others."""
    return torch.randint(task.symbols, (sequences, task.steps), generator=generator)


def measure_estimates(
    network: EchoNetwork, truncations: Sequence[Truncation], *, draws: int, seed: int
) -> list[Estimate]:
    """Bias and spread of each truncation on one batch, in double precision; the random kind is drawn so many times."""
    network = deepcopy(network).double()
    weights, generator = list(network.cell.parameters()), generator_for(seed, "estimates")
    shown = draw_symbols(network.task, network.task.sequences, generator=generator)

    def gradient(truncation: Truncation) -> Float[Tensor, " weights"]:
        loss = network(shown, truncation=truncation, generator=generator)
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, weights)])

    exact, found = gradient(FULL), []
    for truncation in truncations:
        count = draws if truncation.kind == "random" else 1
        found.append(estimate_of(torch.stack([gradient(truncation) for _ in range(count)]), exact))
    return found


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


WINDOWS = (4, 12)
"""One shorter and one longer than the echo; random truncation keeps runs that are as long on average."""
CLAIM = "random truncation is no better in practice"
"""What lecture notes say."""


@dataclass(frozen=True)
class Row:
    """One truncation: its estimate of the gradient, and the test losses it leads to, a seed each."""

    name: str
    truncation: Truncation
    window: int | None
    """Steps that a gradient reaches back, at most or on average; None for all of them."""
    estimate: Estimate
    losses: tuple[float, ...]


def truncations(windows: Sequence[int] = WINDOWS) -> dict[str, tuple[Truncation, int | None]]:
    """Those that are compared, each with the steps it looks back: 1/(1 − p) on average at a keep rate of p."""
    found: dict[str, tuple[Truncation, int | None]] = {"full": (FULL, None)}
    for window in windows:
        found[f"chunked, {window} steps"] = Truncation("chunked", window=window), window
        found[f"sliding, {window} steps"] = Truncation("sliding", window=window), window
        found[f"random, {window} on average"] = Truncation("random", keep_rate=1 - 1 / window), window
    return found


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Bias and spread of each truncation early in training, and the loss after equal training."""
    task = EchoTask(steps=24, width=16, updates=30, sequences=8, tested=32) if quick else EchoTask()
    seeds, draws = (2, 40) if quick else (7, 400)
    make, chosen = ElmanCell, truncations()
    countdown = Countdown(say, len(chosen) * seeds)
    # Measured during training: the first weights know nothing of the echo, the last leave little gradient.
    early = replace(task, updates=task.updates // 4)
    network, early_loss = train_echo(make, early, truncation=FULL, seed=seed)
    estimates = measure_estimates(network, [truncation for truncation, _ in chosen.values()], draws=draws, seed=seed)
    losses: dict[str, list[float]] = {name: [] for name in chosen}
    for number in range(seeds):
        for name, (truncation, _) in chosen.items():
            _, loss = train_echo(make, task, truncation=truncation, seed=seed_for(seed, "truncation", number))
            losses[name].append(loss)
            countdown.done(name)
    rows = [
        Row(name, truncation, window, estimate, tuple(losses[name]))
        for (name, (truncation, window)), estimate in zip(chosen.items(), estimates, strict=True)
    ]
    return [truncation_finding(rows, task, early_updates=early.updates, early_loss=early_loss, seed=seed)]


def truncation_finding(
    rows: Sequence[Row], task: EchoTask, *, early_updates: int, early_loss: float, seed: int
) -> Finding:
    """Truncations side by side: one table, one picture. Gradients were taken after the early updates."""
    data: dict[str, Any] = {
        "seed": seed,
        "task": asdict(task),
        "gradients_at": {"updates": early_updates, "loss": early_loss},
        "claim_of_the_notes": CLAIM,
        "table": [
            {
                "truncation": row.name,
                **asdict(row.truncation),
                **{name: float(f"{value:.6g}") for name, value in asdict(row.estimate).items()},
                "losses": rounded(row.losses),
                "median_loss": float(f"{median(row.losses):.6g}"),
            }
            for row in rows
        ],
    }
    fixed = [row for row in rows if row.truncation.kind in ("chunked", "sliding")]
    drawn = [row for row in rows if row.truncation.kind == "random"]
    biases = _listed(f"{row.estimate.bias:.2f} ({row.name})" for row in fixed)
    means = _listed(f"{row.estimate.along:.3f} ± {row.estimate.along_error:.3f} ({row.name})" for row in drawn)
    spreads = _listed(f"{row.estimate.spread:.2f}" for row in drawn)
    verdicts = "; ".join(_verdict(row, [other for other in fixed if other.window == row.window]) for row in drawn)
    seeds = len(rows[0].losses)
    sentence = (
        f"The task is an echo over {task.distance} steps. Fixed windows give the gradient a bias, in multiples of its "
        f"norm, of {biases}. Along the exact gradient, where 1 is unbiased, the means of random windows are {means}; "
        f"single draws spread by {spreads}. After {task.updates} updates the full gradient leaves a loss of "
        f"{median(rows[0].losses):.3f} nats{f' (losses are medians over {seeds} seeds)' if seeds > 1 else ''}. "
        f"Compared with the better fixed windows of their length, random windows leave {verdicts}. "
        f"Lecture notes say that {CLAIM}."
    )
    title = "Truncated gradients through time: bias, spread and what is learnt"
    return Finding("truncation", title, sentence, data, lambda: _draw(rows, task))


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _verdict(row: Row, fixed: Sequence[Row]) -> str:
    """Compare a random truncation with the better fixed one of the same length, over the seeds."""
    best = min(fixed, key=lambda other: median(other.losses))
    if len(row.losses) == 1:
        how = "one seed is not enough to compare"
    elif max(row.losses) < min(best.losses):
        how = "all seeds of the first are below all of the second"
    elif min(row.losses) > max(best.losses):
        how = "all seeds of the first are above all of the second"
    else:
        how = "the ranges of their seeds overlap"
    return f"{median(row.losses):.3f} ({row.name}) against {median(best.losses):.3f} ({best.name}), where {how}"


def _draw(rows: Sequence[Row], task: EchoTask) -> Figure:
    figure, (left, right) = frames(2, height=1.7 + 0.42 * len(rows), shares_y=True)
    places = range(len(rows))
    biases = [row.estimate.bias for row in rows]
    left.hlines(places, 0, biases, color=QUIET, linewidth=0.8)
    left.scatter(biases, places, s=42, color=SECOND, zorder=3, label="bias")
    drawn = [row for row in rows if row.estimate.draws > 1]
    left.scatter([row.estimate.spread for row in drawn], [rows.index(row) for row in drawn], s=42, edgecolors=FIRST,
                 facecolors="none", linewidths=1.6, zorder=3, label="spread of one draw")  # fmt: skip
    left.scatter([row.estimate.bias_error for row in drawn], [rows.index(row) for row in drawn], s=90, marker="|",
                 color=INK, zorder=4, label="bias that chance alone would show")  # fmt: skip
    left.set_xscale("symlog", linthresh=0.1)  # a bias of 0 has its place
    left.set_xlim(left=-0.01)
    ticks = [0.0, 0.1, 1.0, *([10.0] if max(row.estimate.spread for row in rows) > 5 else [])]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_xlabel("relative to the norm of the exact gradient")
    left.set_yticks(places, [row.name for row in rows])
    left.set(ylim=(len(rows) - 0.5, -0.5), ylabel="truncation")
    left.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1.2)
    losses = [loss for row in rows for loss in row.losses]
    for place, row in zip(places, rows, strict=True):
        right.plot([min(row.losses), max(row.losses)], [place, place], color=FIRST, linewidth=1.2, alpha=0.6)
        right.scatter(row.losses, [place] * len(row.losses), s=14, color=FIRST, alpha=0.5, linewidths=0,
                      label=None if place else "one seed")  # fmt: skip
        right.scatter([median(row.losses)], [place], s=52, color=FIRST, zorder=3, label=None if place else "median")
    if max(losses) > 5 * min(losses):
        right.set_xscale("log")
        right.xaxis.set_major_formatter("{x:g}")
        right.xaxis.set_minor_formatter("")
    right.set_xlabel(f"test loss after {task.updates} updates (nats)")
    right.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure
