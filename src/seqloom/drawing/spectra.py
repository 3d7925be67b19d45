"""Spectra of matrices as pictures: eigenvalues in the complex plane, and singular values by rank."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqloom.drawing.figures import INK, QUIET, SERIES, tidy
from seqloom.nn.jacobians import Spectrum


def draw_spectra(groups: Mapping[str, Sequence[Spectrum]], *, columns: int = 3) -> Figure:
    """For each group its eigenvalues in the complex plane around the unit circle, and its singular values below."""
    across = min(columns, len(groups))
    blocks = -(-len(groups) // across)
    heights = [1.5, 1.0] * blocks
    figure = Figure(figsize=(0.3 + 3.4 * across, 5.4 * blocks), layout="constrained")
    grid = figure.subplots(2 * blocks, across, squeeze=False, height_ratios=heights)
    for number, (name, spectra) in enumerate(groups.items()):
        row, column = 2 * (number // across), number % across
        draw_plane(grid[row, column], spectra)
        grid[row, column].set_title(name, fontsize=10, color=INK)
        draw_singular_values(grid[row + 1, column], spectra)
        grid[row, column].set_ylabel("imaginary part of λ")
        grid[row + 1, column].set_ylabel("singular value")
    for unused in range(len(groups), blocks * across):
        for row in (2 * (unused // across), 2 * (unused // across) + 1):
            grid[row, unused % across].set_axis_off()
    return figure


def draw_plane(axes: Axes, spectra: Sequence[Spectrum]) -> None:
    """Eigenvalues in the complex plane, with the circle inside which they fade."""
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(turn), np.sin(turn), color=QUIET, linewidth=1)
    for spectrum, colour in zip(spectra, _colours(len(spectra)), strict=True):
        label = f"{spectrum.name}  ρ = {spectrum.radius:.2f}"
        axes.scatter(
            spectrum.eigenvalues.real, spectrum.eigenvalues.imag, s=9, color=colour, alpha=0.75, lw=0, label=label
        )
    farthest = 1.15 * max(1.0, *(spectrum.radius for spectrum in spectra))
    axes.set_xlim(-farthest, farthest)
    axes.set_ylim(-farthest, farthest)
    axes.set_aspect("equal")
    tidy(axes)
    axes.set_xlabel("real part of λ")
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, handletextpad=0.2)


def draw_singular_values(axes: Axes, spectra: Sequence[Spectrum]) -> None:
    """Singular values from the largest to the smallest, with the line at 1 above which a step can let a change grow."""
    axes.axhline(1, color=QUIET, linewidth=1)
    for spectrum, colour in zip(spectra, _colours(len(spectra)), strict=True):
        order = np.arange(1, len(spectrum.singular_values) + 1)
        axes.plot(order, spectrum.singular_values, color=colour, linewidth=1.5)
    tidy(axes)
    axes.set_ylim(0, 1.08 * max(1.0, *(spectrum.gain for spectrum in spectra)))  # a rotation's line is not the frame
    axes.set_xlabel("rank")


def _colours(count: int) -> list[str]:
    return [SERIES[number % len(SERIES)] for number in range(count)]
