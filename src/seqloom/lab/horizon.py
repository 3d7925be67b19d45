"""How far back each cell remembers: the longest lag of delayed recall that it learns within one budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.seeds import seed_for
from seqloom.drawing.figures import FIRST, INK, QUIET, SECOND, Finding, new_axes
from seqloom.lab.bench import Countdown, Say, generator_for, legend_above, output_layer, silent, take_step
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import CoupledCell, LSTMCell, PeepholeCell
from seqloom.nn.cells.rnn import ElmanCell
from seqloom.nn.init import seeded
from seqloom.nn.recurrent import MakeCell

# Delayed recall: how many steps after a symbol was shown can a cell still learn to recall it?
#
#     step      0          1 … L − 1                L
#     input     a symbol   other symbols            "recall now"
#               marked     drawn from the same set
#     answer                                        the symbol of step 0
#
# L is the lag. The symbols in between look like the one that counts, so that they cannot simply be left unread: a cell
# has to keep what came with the mark and to keep out the rest. New data are drawn for every batch, so a network
# is never tested on what it was trained on, and guessing is right once in `symbols` times.

RECENT = 4
"""Batches evaluated before a full test."""


@dataclass(frozen=True)
class RecallBudget:
    """What every network gets, whatever its cell."""

    width: int = 32
    """Of the state."""
    symbols: int = 8
    sequences: int = 32
    """In a batch."""
    updates: int = 400
    """Of the weights, by Adam."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0
    threshold: float = 0.9
    """The share of right answers from which on a lag is solved."""
    tested: int = 256
    """Sequences by which a lag is tested."""
    longest: int = 500
    """The largest lag that is tried."""


@dataclass(frozen=True)
class Attempt:
    """The result of training at one lag."""

    lag: int
    is_solved: bool
    updates: int
    """Made until then, at this lag."""
    accuracy: float
    """On fresh sequences: of the test that was passed, or of the last batches before the updates ran out."""


@dataclass(frozen=True)
class Horizon:
    """The longest lag that was solved, 0 if none was, and how it was found."""

    lag: int
    attempts: tuple[Attempt, ...]
    is_capped: bool
    """Whether the largest lag that was tried is solved, so that the horizon may lie beyond it."""


class RecallNetwork(nn.Module):
    """A cell that reads symbols, and a linear layer that predicts one from its last hidden state."""

    def __init__(self, make: MakeCell, *, symbols: int, width: int) -> None:
        super().__init__()
        self.cell = make(symbols + 2, width)
        self.output = output_layer(width, symbols)

    def forward(self, inputs: Float[Tensor, "batch time inputs"]) -> Float[Tensor, "batch symbols"]:
        """Scores of the answer, after the last step."""
        begin = self.cell.begin(inputs.new_zeros(len(inputs), self.cell.width))
        hidden, _ = self.cell.run(inputs, begin)
        scores: Tensor = self.output(hidden[:, -1])
        return scores


def draw_recall(
    lag: int, *, sequences: int, symbols: int, generator: torch.Generator
) -> tuple[Float[Tensor, "sequences steps inputs"], Int[Tensor, " sequences"]]:
    """Inputs of lag + 1 steps and the answers. Column `symbols` says "recall now", the one after it is the mark."""
    shown = torch.randint(symbols, (sequences, lag + 1), generator=generator)
    answers = shown[:, 0].clone()
    shown[:, -1] = symbols
    inputs = F.one_hot(shown, symbols + 2).float()
    inputs[:, 0, symbols + 1] = 1
    return inputs, answers


def horizon_growing(make: MakeCell, budget: RecallBudget, *, seed: int) -> Horizon:
    """One network for all lags: whenever one is solved, the lag grows by a quarter, until the updates are used up.

    So a network first learns to recall a symbol at once, then after one step, and each lag starts from the last one.
    """
    trainer = _Trainer(make, budget, seed=seed)
    attempts: list[Attempt] = []
    lag, left = 1, budget.updates
    while left > 0:
        attempt = trainer.attempt(lag, left)
        attempts.append(attempt)
        left -= attempt.updates
        if not attempt.is_solved or lag == budget.longest:
            break
        lag = min(max(lag + 1, round(1.25 * lag)), budget.longest)
    return _horizon(attempts, budget)


def horizon_at_once(make: MakeCell, budget: RecallBudget, *, seed: int) -> Horizon:
    """A new network for each lag, which has to find a dependence over that many steps from the start.

    The lag is doubled until one is not solved; the gap is then halved until its ends are within a quarter. Should
    a larger lag be solved by luck where a smaller one was not, this search does not see it.
    """
    attempts: list[Attempt] = []

    def is_solved(lag: int) -> bool:
        trainer = _Trainer(make, budget, seed=seed_for(seed, "lag", lag))
        attempts.append(trainer.attempt(lag, budget.updates))
        return attempts[-1].is_solved

    longest_solved(is_solved, longest=budget.longest)
    return _horizon(attempts, budget)


def longest_solved(is_solved: Callable[[int], bool], *, longest: int) -> int:
    """The largest lag that is solved, to a quarter: doubling, then bisection. 0 if lag 1 is not.

    Right wherever all lags below a solved one are solved too.
    """
    solved, failed = 0, None
    lag = 1
    while failed is None and solved < longest:
        if is_solved(lag):
            solved, lag = lag, min(2 * lag, longest)
        else:
            failed = lag
    while failed is not None and failed > max(solved + 1, round(1.25 * solved)):
        lag = (solved + failed) // 2
        if is_solved(lag):
            solved = lag
        else:
            failed = lag
    return solved


class _Trainer:
    """A network, its optimiser and the stream of sequences it is shown."""

    def __init__(self, make: MakeCell, budget: RecallBudget, *, seed: int) -> None:
        self.budget = budget
        with seeded(seed_for(seed, "recall network")):
            self.network = RecallNetwork(make, symbols=budget.symbols, width=budget.width)
        self.generator = generator_for(seed, "recall sequences")
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=budget.learning_rate)

    def attempt(self, lag: int, updates: int) -> Attempt:
        """Train at one lag until it is solved or so many updates are made."""
        budget, right = self.budget, []
        for update in range(1, updates + 1):
            scores, answers = self._answer(lag, budget.sequences)
            take_step(self.optimiser, F.cross_entropy(scores, answers), clip_norm=budget.clip_norm)
            right.append(_accuracy(scores, answers))  # before the update, on a batch that was never seen
            if len(right) >= RECENT and fmean(right[-RECENT:]) >= budget.threshold:
                with torch.no_grad():
                    accuracy = _accuracy(*self._answer(lag, budget.tested))
                if accuracy >= budget.threshold:
                    return Attempt(lag, is_solved=True, updates=update, accuracy=accuracy)
        return Attempt(lag, is_solved=False, updates=updates, accuracy=fmean(right[-RECENT:]))

    def _answer(self, lag: int, sequences: int) -> tuple[Tensor, Tensor]:
        """The scores and the answers of new sequences."""
        symbols = self.budget.symbols
        inputs, answers = draw_recall(lag, sequences=sequences, symbols=symbols, generator=self.generator)
        return self.network(inputs), answers


def _accuracy(scores: Tensor, answers: Tensor) -> float:
    return float((scores.argmax(1) == answers).float().mean())


def _horizon(attempts: list[Attempt], budget: RecallBudget) -> Horizon:
    lag = max((attempt.lag for attempt in attempts if attempt.is_solved), default=0)
    return Horizon(lag, tuple(attempts), is_capped=lag == budget.longest)


Teaching = Literal["growing", "at once"]
"""One network whose lags grow, or a new network for each lag."""
TEACHINGS: tuple[Teaching, ...] = ("growing", "at once")

NOTES = {"RNN": 7, "LSTM": 100}
"""The horizons that the lecture notes report."""

CELLS: Mapping[str, MakeCell] = {
    "RNN": partial(ElmanCell, start="xavier"),
    "orthogonal RNN": ElmanCell,
    "LSTM": LSTMCell,
    "peephole LSTM": PeepholeCell,
    "coupled LSTM": CoupledCell,
    "GRU": GRUCell,
}
"""The cells compared: a tanh RNN with Glorot's start and with an orthogonal one; forget biases start at 1."""


@dataclass(frozen=True)
class MeasuredHorizon:
    """The horizons of one cell, a seed each."""

    cell: str
    teaching: Teaching
    horizons: tuple[Horizon, ...]
    symbols: int | None = None
    """The number of symbols to distinguish, if it differs between measurements."""

    @property
    def name(self) -> str:
        return self.cell if self.symbols is None else f"{self.cell}, {self.symbols} symbols"

    @property
    def lags(self) -> list[int]:
        return sorted(horizon.lag for horizon in self.horizons)

    @property
    def middle(self) -> float:
        return float(median(self.lags))

    def in_words(self, longest: int) -> str:
        """The median and, where there is one, the range; the largest lag that was tried is only a lower bound."""
        low, high = self.lags[0], self.lags[-1]
        bound = "at least " if self.middle >= longest else ""
        return f"{bound}{self.middle:g}" + ("" if low == high else f" [{low} to {high}]")


def run(*, seed: int = 1, quick: bool = False, say: Say = silent) -> list[Finding]:
    """Longest lags solved, for each cell and seed: one network with growing lags, and a new one for each lag."""
    budget = RecallBudget(updates=80, longest=24, symbols=4, learning_rate=0.01) if quick else RecallBudget(updates=300)
    cells = {name: CELLS[name] for name in ("RNN", "LSTM")} if quick else CELLS
    seeds: dict[Teaching, int] = {"growing": 1, "at once": 1} if quick else {"growing": 5, "at once": 3}
    countdown = Countdown(say, len(cells) * sum(seeds.values()))
    measured = []
    for teaching in TEACHINGS:
        find = horizon_growing if teaching == "growing" else horizon_at_once
        for name, make in cells.items():
            horizons = []
            for number in range(seeds[teaching]):
                horizons.append(find(make, budget, seed=seed_for(seed, "horizon", number)))
                countdown.done(f"{name}, {teaching}: lag {horizons[-1].lag} is solved")
            measured.append(MeasuredHorizon(name, teaching, tuple(horizons)))
    return [horizon_finding(measured, budget, seed=seed)]


def horizon_finding(measured: Sequence[MeasuredHorizon], budget: RecallBudget, *, seed: int) -> Finding:
    """The horizons of some cells as a finding."""
    data: dict[str, Any] = {
        "seed": seed,
        "budget": asdict(budget),
        "notes": NOTES,
        "cells": [
            {
                "cell": one.cell,
                "symbols": one.symbols or budget.symbols,
                "teaching": one.teaching,
                "lags": [horizon.lag for horizon in one.horizons],
                "median": one.middle,
                "is_capped": [horizon.is_capped for horizon in one.horizons],
                "attempts": [[asdict(attempt) for attempt in horizon.attempts] for horizon in one.horizons],
            }
            for one in measured
        ],
    }
    form = ", as the median over seeds [lowest to highest]" if {len(one.horizons) for one in measured} != {1} else ""
    listed = [
        f"Given are the longest lags recalled with {budget.threshold:.0%} right within {budget.updates} updates{form}."
    ]
    methods = {"growing": "One network whose lags grow", "at once": "A new network for each lag"}
    for teaching in TEACHINGS:
        found = [one for one in measured if one.teaching == teaching]
        if found:
            seeds = len(found[0].horizons)
            lags = ", ".join(f"{one.in_words(budget.longest)} ({one.name})" for one in found)
            comparison = _comparison({one.cell: one for one in found if one.symbols in (None, budget.symbols)})
            listed.append(f"{methods[teaching]}, {seeds} seed{'' if seeds == 1 else 's'}: {lags}{comparison}.")
    notes = " and ".join(f"about {lag} for the {cell}" for cell, lag in NOTES.items())
    sentence = f"{' '.join(listed)} Lecture notes say {notes}."
    title = "The longest lag of delayed recall that a cell learns"
    return Finding("memory-horizon", title, sentence, data, lambda: _draw(measured, budget))


def _comparison(found: Mapping[str, MeasuredHorizon]) -> str:
    """How the RNN and the LSTM compare, as strongly as the seeds allow."""
    if not {"RNN", "LSTM"} <= set(found):
        return ""
    rnn, lstm = found["RNN"], found["LSTM"]
    if len(rnn.horizons) == 1:
        return "; one seed is not enough to compare"
    if rnn.lags[-1] < lstm.lags[0]:
        return "; the RNN stays below the LSTM, whatever their seeds"
    if lstm.lags[-1] < rnn.lags[0]:
        return "; the LSTM stays below the RNN, whatever their seeds"
    if rnn.lags == lstm.lags:
        return "; RNN and LSTM come equally far"
    return "; the ranges of RNN and LSTM overlap"


def _draw(measured: Sequence[MeasuredHorizon], budget: RecallBudget) -> Figure:
    names = list(dict.fromkeys(one.name for one in measured))
    figure, axes = new_axes(height=1.6 + 0.55 * len(names))
    labels = {"growing": "one network, growing lags", "at once": "a new network for each lag"}
    looks = {"growing": (FIRST, FIRST, -0.14), "at once": (SECOND, "white", 0.14)}
    for one in measured:
        colour, fill, shift = looks[one.teaching]
        y = names.index(one.name) + shift
        lags = [max(lag, 0.7) for lag in one.lags]  # a horizon of 0 has no place on a logarithmic axis
        axes.plot([lags[0], lags[-1]], [y, y], color=colour, linewidth=1.2, alpha=0.6)
        axes.scatter(lags, [y] * len(lags), s=16, color=colour, alpha=0.5, linewidths=0)
        capped = one.middle >= budget.longest
        label = labels.pop(one.teaching, None)
        axes.scatter([max(one.middle, 0.7)], [y], s=58, marker=">" if capped else "o", edgecolors=colour,
                     facecolors=fill, linewidths=1.6, zorder=3, label=label)  # fmt: skip
    for cell, lag in NOTES.items():
        axes.axvline(lag, color=QUIET, linestyle=(0, (4, 3)), linewidth=1, zorder=1)
        axes.text(lag, 1.01, f"notes: {cell} ≈ {lag}", transform=axes.get_xaxis_transform(), ha="center",
                  va="bottom", fontsize=9, color=INK)  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(0.6, 1.35 * max(budget.longest, *NOTES.values()))
    ticks = [lag for lag in (1, 2, 5, 10, 20, 50, 100, 200, 500) if lag <= max(budget.longest, *NOTES.values())]
    axes.set_xticks(ticks, [str(lag) for lag in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_ylabel("cell" if measured[0].symbols is None else "cell, number of symbols")
    axes.set_xlabel(
        f"longest lag solved (steps)\nlarge: median, small: seeds; ▶ {budget.longest}, the largest tried, or more"
    )
    axes.grid(axis="y", visible=False)
    legend_above(figure, 2)
    return figure
