"""The picture of a forecast: the end of each series, its forecast and the band around it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from seqloom.drawing.figures import FIRST, INK, QUIET, as_written, fonts, tidy

MAX_PANELS = 12
"""Series that are drawn, the first ones."""


def plot_forecast(
    picture: Path,
    *,
    names: Sequence[str],
    times: Sequence[str],
    past: Float[np.ndarray, "time columns"],
    values: Float[np.ndarray, "steps columns"],
    lower: Float[np.ndarray, "steps columns"] | None = None,
    upper: Float[np.ndarray, "steps columns"] | None = None,
    coverage: float | None = None,
) -> None:
    """A panel for each series; `times` has the first and the last time of the forecast."""
    shown = min(len(names), MAX_PANELS)
    figure = Figure(figsize=(7.2, 1.1 + 1.5 * shown), layout="constrained")
    steps = np.arange(1, len(values) + 1)
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
    for at in range(shown):
        axes = figure.add_subplot(shown, 1, at + 1)
        tidy(axes)
        axes.plot(np.arange(1 - len(past), 1), past[:, at], color=INK, linewidth=1, label="past")
        axes.plot(steps, values[:, at], color=FIRST, linewidth=1.4, label="forecast")
        if lower is not None and upper is not None and coverage is not None:
            axes.fill_between(
                steps, lower[:, at], upper[:, at], color=FIRST, alpha=0.2, linewidth=0, label=f"{coverage:.0%} band"
            )
        axes.axvline(0.5, color=QUIET, linewidth=0.8)
        axes.set_ylabel(as_written(names[at])[:24], **plain)
        if at + 1 < shown:
            axes.set_xticklabels([])
        else:
            axes.set_xlabel(as_written(f"steps from the last row; forecast from {times[0]} to {times[-1]}"), **plain)
        if at == 0:
            figure.legend(*axes.get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=3)
    figure.savefig(picture, dpi=144, metadata={"Date": None} if picture.suffix.lower() == ".svg" else None)
