"""Figures: colours, frames and fonts of every picture, and findings saved with their numbers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from seqloom.core.files import write_atomically
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


@dataclass(frozen=True)
class Finding:
    """One measurement in three forms."""

    name: str
    """The stem of its files, such as `gradient-by-lag`."""
    title: str
    sentence: str
    """What the numbers say, with the numbers; written by the code that measured them."""
    data: Mapping[str, Any]
    """Settings and results, all of it such that JSON can hold it."""
    draw: Callable[[], Figure]
    """Draws the picture."""


def save_finding(finding: Finding, folder: Path) -> list[Path]:
    """Write NAME.json, NAME.png and NAME.svg into a folder that exists, each of them whole; return what was written."""
    values = {"name": finding.name, "title": finding.title, "sentence": finding.sentence, **finding.data}
    data = folder / f"{finding.name}.json"
    write_atomically(data, json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    figure = finding.draw()
    pictures = [folder / f"{finding.name}.{suffix}" for suffix in ("png", "svg")]
    for picture in pictures:
        drawn = BytesIO()
        date = {"Date": None} if picture.suffix == ".svg" else None
        figure.savefig(drawn, format=picture.suffix[1:], dpi=144, metadata=date)
        write_atomically(picture, drawn.getvalue())
    return [data, *pictures]
