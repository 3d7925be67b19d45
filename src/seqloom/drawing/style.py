"""How every picture looks: colours, frames, fonts."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from seqloom.core.terminal import visible

INK, QUIET, GRID = "#222222", "#8a8a8a", "#e6e6e6"
FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH = "#1f6f8b", "#d1495b", "#edae49", "#5b8e7d", "#7a5195", "#8d6346"
SERIES = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH)
"""Colours of series; they also differ in lightness, so that they are distinguishable in greyscale."""

OTHER_SCRIPTS = ("Noto Sans CJK SC", "WenQuanYi Zen Hei", "Arial Unicode MS", "PingFang SC", "Microsoft YaHei")
"""Fonts with Chinese characters, by their names on several systems."""


def new_axes(*, width: float = 7.2, height: float = 4.2) -> tuple[Figure, Axes]:
    """A figure of one frame, in inches, without the lines that say nothing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    tidy(axes)
    return figure, axes


def tidy(axes: Axes) -> None:
    """No upper and right frame, a quiet grid along y."""
    axes.spines["top"].set_visible(False)
    axes.spines["right"].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def as_written(text: str) -> str:
    """Text from models and data as a picture may show it; draw it with `parse_math=False`.

    Otherwise text between two dollar signs is treated as a formula, and a control character breaks an SVG file.
    """
    return visible(text)


def fonts() -> list[str]:
    """The usual font, then whichever font for other scripts this machine has."""
    known = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in OTHER_SCRIPTS if name in known)]
