"""The picture of a classifier's confusions: which labels it predicts for which, and how far its confidence is right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from matplotlib.figure import Figure

from seqloom.drawing.figures import FIRST, INK, QUIET, as_written, fonts, tidy
from seqloom.metrics.calibration import Reliability

MAX_LABELS = 30
"""Labels that are drawn, the most frequent ones; the others are counted in the title."""

MAX_NUMBERED = 15
"""Labels up to which each cell has its number."""

LIGHT, DARK = 0.55, 24
"""The share of a row above which numbers are white, and characters of a label that are shown."""


def plot_confusion(
    picture: Path, *, labels: Sequence[str], counts: Int64[np.ndarray, "right predicted"], reliability: Reliability
) -> None:
    """Rows are right labels, coloured by the share of their row; beside them, how often each confidence is right."""
    order = sorted(range(len(labels)), key=lambda at: (-int(counts[at].sum() + counts[:, at].sum()), at))[:MAX_LABELS]
    order = sorted(order)
    shown = counts[np.ix_(order, order)]
    rows = np.maximum(1, counts[order].sum(axis=1, keepdims=True))
    names = [as_written(labels[at])[:DARK] for at in order]
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}

    side = max(3.0, 0.34 * len(order) + 1.6)
    figure = Figure(figsize=(side + 3.6, max(3.2, side)), layout="constrained")
    table, trust = figure.subplots(1, 2, width_ratios=[side, 3.0])
    table.imshow(shown / rows, cmap="Blues", vmin=0, vmax=1)
    table.set_xticks(range(len(order)), names, rotation=90 if len(order) > 8 else 0, fontsize=8, **plain)
    table.set_yticks(range(len(order)), names, fontsize=8, **plain)
    table.set_xlabel("predicted")
    table.set_ylabel("right")
    hidden = len(labels) - len(order)
    right = int(np.trace(counts))
    title = f"{right:,} of {int(counts.sum()):,} right" + (f"; {hidden:,} rarer labels not shown" if hidden else "")
    table.set_title(title, fontsize=9, color=INK)
    if len(order) <= MAX_NUMBERED:
        for at, to in np.ndindex(shown.shape):
            if shown[at, to]:
                color = "white" if shown[at, to] > LIGHT * rows[at, 0] else INK
                table.text(to, at, f"{shown[at, to]:,}", ha="center", va="center", fontsize=8, color=color)

    tidy(trust)
    trust.plot([0, 1], [0, 1], color=QUIET, linewidth=0.8)
    trust.plot(
        [row.confidence for row in reliability.rows], [row.reached for row in reliability.rows], "o-", color=FIRST
    )
    trust.set_xlim(0, 1)
    trust.set_ylim(0, 1)
    trust.set_aspect("equal")
    trust.set_xlabel("confidence")
    trust.set_ylabel("share of right labels")
    trust.set_title(f"calibration error {reliability.error:.3f}", fontsize=9, color=INK)
    figure.savefig(picture, dpi=144, metadata={"Date": None} if picture.suffix.lower() == ".svg" else None)
