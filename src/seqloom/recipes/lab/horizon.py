"""How far back each cell remembers: the longest lag of delayed recall that it can be taught within one budget."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from matplotlib.figure import Figure

from seqloom.core.seeds import seed_for
from seqloom.inspection.delayed_recall import Horizon, RecallBudget, horizon_at_once, horizon_growing
from seqloom.inspection.drawing import FIRST, INK, QUIET, SECOND, new_axes
from seqloom.inspection.findings import Finding
from seqloom.nn.cell_kinds import cell_maker
from seqloom.nn.recurrent import MakeCell
from seqloom.recipes.lab.progress import Countdown, Say, silent

Teaching = Literal["growing", "at once"]
"""One network whose lags grow, or a new network for each lag."""
TEACHINGS: tuple[Teaching, ...] = ("growing", "at once")

NOTES = {"RNN": 7, "LSTM": 100}
"""The horizons that lecture notes tell as experience."""

CELLS: Mapping[str, MakeCell] = {
    "RNN": cell_maker("rnn", start="xavier"),
    "orthogonal RNN": cell_maker("rnn"),
    "LSTM": cell_maker("lstm"),
    "peephole LSTM": cell_maker("peephole"),
    "coupled LSTM": cell_maker("coupled"),
    "GRU": cell_maker("gru"),
}
"""Those of the family: a tanh RNN with Glorot's start and with an orthogonal one; forget biases begin at 1."""


@dataclass(frozen=True)
class Measured:
    """The horizons of one cell, a seed each."""

    cell: str
    teaching: Teaching
    horizons: tuple[Horizon, ...]
    symbols: int | None = None
    """How many there were to tell apart, where that is not the same for all."""

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
            measured.append(Measured(name, teaching, tuple(horizons)))
    return [horizon_finding(measured, budget, seed=seed)]


def horizon_finding(measured: Sequence[Measured], budget: RecallBudget, *, seed: int) -> Finding:
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
    return Finding(
        "memory-horizon",
        "The longest lag of delayed recall that a cell can be taught",
        _sentence(measured, budget),
        data,
        lambda: _draw(measured, budget),
    )


def _sentence(measured: Sequence[Measured], budget: RecallBudget) -> str:
    counts = {len(one.horizons) for one in measured}
    form = ", as the median over seeds [lowest to highest]" if counts != {1} else ""
    told = [
        f"Given are the longest lags recalled with {budget.threshold:.0%} right within {budget.updates} updates{form}."
    ]
    ways = {"growing": "One network whose lags grow", "at once": "A new network for each lag"}
    for teaching in TEACHINGS:
        found = [one for one in measured if one.teaching == teaching]
        if found:
            seeds = len(found[0].horizons)
            lags = ", ".join(f"{one.in_words(budget.longest)} ({one.name})" for one in found)
            alike = {one.cell: one for one in found if one.symbols in (None, budget.symbols)}
            told.append(f"{ways[teaching]}, {seeds} seed{'' if seeds == 1 else 's'}: {lags}{_comparison(alike)}.")
    notes = " and ".join(f"about {lag} for the {cell}" for cell, lag in NOTES.items())
    return f"{' '.join(told)} The notes say {notes}."


def _comparison(found: Mapping[str, Measured]) -> str:
    """How the RNN and the LSTM compare, as strongly as the seeds allow."""
    if not {"RNN", "LSTM"} <= set(found):
        return ""
    rnn, lstm = found["RNN"], found["LSTM"]
    if len(rnn.horizons) == 1:
        return "; one seed tells no order"
    if rnn.lags[-1] < lstm.lags[0]:
        return "; the RNN stays below the LSTM, whatever their seeds"
    if lstm.lags[-1] < rnn.lags[0]:
        return "; the LSTM stays below the RNN, whatever their seeds"
    if rnn.lags == lstm.lags:
        return "; RNN and LSTM come equally far"
    return "; the ranges of RNN and LSTM overlap"


def _draw(measured: Sequence[Measured], budget: RecallBudget) -> Figure:
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
    axes.set_ylabel("cell" if measured[0].symbols is None else "cell, symbols to tell apart")
    axes.set_xlabel(
        f"longest lag solved (steps)\nlarge: median, small: seeds; ▶ {budget.longest}, the largest tried, or more"
    )
    axes.grid(axis="y", visible=False)
    figure.legend(frameon=False, loc="outside upper center", ncols=2, fontsize=9)
    return figure
