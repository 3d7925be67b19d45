"""The picture of similarities: for each layer a map of how alike the uses of words are."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from seqloom.inspection.drawing import INK, as_written, fonts


def draw_similarities(
    similarities: Float[np.ndarray, "layers uses uses"], *, labels: Sequence[str], names: Sequence[str]
) -> Figure:
    """A map per layer, a row and a column per use, with the cosines written into it."""
    layers, uses, _ = similarities.shape
    side = max(1.6, 0.62 * uses)
    figure = Figure(figsize=(2.9 + layers * (side + 0.3), side + 1.0), layout="constrained")
    for axes, values, name in zip(figure.subplots(1, layers, squeeze=False)[0], similarities, names, strict=True):
        image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(name, fontsize=10, color=INK)
        axes.set_xticks([])
        is_first = name == names[0]
        written = list(map(as_written, labels)) if is_first else [""] * uses
        axes.set_yticks(range(uses), written, family=fonts(), fontsize=9, parse_math=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for row, column in np.ndindex(uses, uses):
            value = float(values[row, column])
            colour = "white" if value > 0.6 else INK
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    bar = figure.colorbar(image, ax=figure.axes, fraction=0.03, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("cosine", fontsize=9)
    bar.outline.set_visible(False)
    return figure
