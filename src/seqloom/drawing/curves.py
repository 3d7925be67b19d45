"""Pictures of runs and models. Each takes plain data and draws it; nothing here computes what it shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from seqloom.core.events import Event, read_events
from seqloom.drawing.figures import FIRST, GRID, INK, QUIET, SECOND, as_written, fonts
from seqloom.metrics.translation import LABELS


def plot_learning_curve(events: Path, picture: Path) -> None:
    """Training loss, dev loss and BLEU (or another metric) by step, from the events of a run."""
    history = read_events(events)
    steps = _latest(event for event in history if event.kind == "step" and event["loss"] is not None)
    checks = _latest(event for event in history if event.kind == "validation")
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    lines = axes.plot([e["step"] for e in steps], [e["loss"] for e in steps], color=QUIET, linewidth=1)
    labels = ["training loss, with dropout and smoothing"]
    if checks:
        lines += axes.plot([e["step"] for e in checks], [e["loss"] for e in checks], color=FIRST, marker="o", ms=3)
        labels.append("dev loss")
    metrics = {name.replace("-", "_"): label for name, label in LABELS.items()}
    known = [name for name in metrics if any(event.values.get(name) is not None for event in checks)]
    for name in known[:1]:
        scored = [event for event in checks if event.values.get(name) is not None]
        right = axes.twinx()
        lines += right.plot([e["step"] for e in scored], [e[name] for e in scored], color=SECOND, marker="s", ms=3)
        labels.append(f"dev {metrics[name]}, greedy")
        right.set_ylabel(metrics[name], color=SECOND)
        right.tick_params(axis="y", colors=SECOND)
        right.set_ylim(0, max(10.0, 1.05 * max(e[name] for e in scored)))
        right.spines["top"].set_visible(False)
    axes.set_xlabel("step")
    axes.set_ylabel("loss per target token (nats)", color=INK)
    axes.set_ylim(bottom=0)
    axes.spines["top"].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    figure.legend(lines, labels, frameon=False, loc="outside upper center", ncols=3, fontsize=9)
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
    figure = Figure(figsize=(2.4 + 0.46 * columns, 1.6 + 0.36 * rows), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
    axes.set_xticks(
        range(columns), list(map(as_written, source)), rotation=60, ha="left", rotation_mode="anchor", **plain
    )
    axes.set_yticks(range(rows), list(map(as_written, target)), **plain)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xlabel("source piece", color=INK)
    axes.set_ylabel("target piece", color=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("attention weight", fontsize=9)
    bar.outline.set_visible(False)
    if title:
        axes.set_title(as_written(title), fontsize=10, color=INK, **plain)
    figure.savefig(picture, dpi=144)


def _latest(events: Any) -> list[Event]:
    """One event per step, in the order of the steps; after a resume the later one holds."""
    by_step = {event["step"]: event for event in events}
    return [by_step[step] for step in sorted(by_step)]
