"""Pictures of runs and models. Each takes plain data and draws it; nothing here computes what it shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from seqloom.core.events import Event, read_events

INK, QUIET, FIRST, SECOND = "#222222", "#8a8a8a", "#1f6f8b", "#d1495b"


def plot_learning_curve(events: Path, picture: Path) -> None:
    """Training loss, dev loss and BLEU by step, from the events of a run."""
    history = read_events(events)
    steps = _latest(event for event in history if event.kind == "step" and event["loss"] is not None)
    checks = _latest(event for event in history if event.kind == "validation")
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([e["step"] for e in steps], [e["loss"] for e in steps], color=QUIET, linewidth=1, label="training loss")
    if checks:
        x = [event["step"] for event in checks]
        axes.plot(x, [e["loss"] for e in checks], color=FIRST, marker="o", markersize=3, label="dev loss")
        scored = [event for event in checks if event.values.get("bleu") is not None]
        if scored:
            right = axes.twinx()
            right.plot([e["step"] for e in scored], [e["bleu"] for e in scored], color=SECOND, marker="s", markersize=3)
            right.set_ylabel("dev BLEU, greedy", color=SECOND)
            right.tick_params(axis="y", colors=SECOND)
            right.set_ylim(bottom=0)
            right.spines["top"].set_visible(False)
    axes.set_xlabel("step")
    axes.set_ylabel("loss per target token (nats)", color=INK)
    axes.spines["top"].set_visible(False)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.legend(frameon=False, loc="upper center")
    figure.savefig(picture, dpi=144)


def plot_attention(
    weights: Float[np.ndarray, "target source"],
    picture: Path,
    *,
    source: Sequence[str],
    target: Sequence[str],
    title: str = "",
) -> None:
    """A map of where each target piece (row) looked in the source (columns)."""
    rows, columns = weights.shape
    figure = Figure(figsize=(1.6 + 0.46 * columns, 1.4 + 0.36 * rows), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(columns), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(rows), target)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if title:
        axes.set_title(title, fontsize=10, color=INK)
    figure.savefig(picture, dpi=144)


def _latest(events: Any) -> list[Event]:
    """One event per step, in the order of the steps; after a resume the later one holds."""
    by_step = {event["step"]: event for event in events}
    return [by_step[step] for step in sorted(by_step)]
