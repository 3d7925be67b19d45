"""The picture of a beam search: steps from left to right, a line's width for its probability, the winner on a band."""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from seqloom.inspection.beam_tree import GAP, MARKER, BeamTree, Place, cells
from seqloom.inspection.drawing import FIFTH, FIRST, INK, QUIET, SECOND, SIXTH, THIRD, as_written, fonts

SIZE = 8.0
"""Of the text, in points."""

CHARACTER, LINE = 0.603 * SIZE / 72, 0.2
"""Inches: the width of a character of the fixed-width font, and the distance of two lines of text."""

LOOKS = {
    "kept": (FIRST, "o", "kept"),
    "pruned": (QUIET, "x", "pruned (+n: with n siblings that are not shown)"),
    "finished": (SECOND, "s", "finished, with its score"),
    "cut": (SIXTH, "v", "cut at the maximum length"),
    "left": (FIFTH, "D", "left when the sentence was decided"),
}
"""Colour, shape and name of each fate; shapes tell them apart where colours do not."""


PALE = 0.5
"""How much is seen of the lines of pruned candidates."""


def draw_beam(tree: BeamTree, *, source: str, target: str) -> Figure:
    """A search for the translation `target` of `source`."""
    above, below = tree.span
    width = max(7.2, CHARACTER * (tree.columns[-1] + MARKER))
    title = _wrapped(as_written(f"{source} → {target}"), width)
    legend = _legend(tree)
    columns = max(1, int(width // 3.6))
    head, foot = 0.45 + 0.19 * len(title), 0.25 + 0.22 * -(-len(legend) // columns)
    height = head + LINE * (below - above + 1) + foot
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    # A unit is a character to the right and a line downwards; the axes fill the figure.
    axes.set_xlim(-MARKER, -MARKER + width / CHARACTER)
    top = above - 0.5 - head / LINE
    axes.set_ylim(top + height / LINE, top)
    families = ["DejaVu Sans Mono", *fonts()]
    axes.text(0, top + 0.12 / LINE, "\n".join(title), va="top", fontsize=9, color=INK, family=fonts(), parse_math=False)
    for step in range(1, tree.steps + 1):
        axes.text(tree.columns[step] - 0.6, above - 1, f"step {step}", fontsize=SIZE - 1, color=QUIET, va="center")
    _draw_lines(axes, tree)
    for place in tree.places:
        _draw_node(axes, place, families)
    axes.plot([0.6], [tree.root], marker="o", ms=6, mfc="white", mec=INK, zorder=3)
    handles: list[Any] = [mark for mark, _ in legend]  # whose types know nothing of the tuples that a handler takes
    figure.legend(
        handles,
        [name for _, name in legend],
        loc="lower left",
        ncols=columns,
        frameon=False,
        fontsize=SIZE,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.6)},
    )
    return figure


def line_width(probability: float) -> float:
    """In points: an improbable symbol still has a line."""
    return 0.5 + 3.0 * probability


def _wrapped(text: str, width: float) -> list[str]:
    return textwrap.wrap(text, width=max(30, int(width / (0.62 * 9 / 72)))) or [""]


def _draw_lines(axes: Axes, tree: BeamTree) -> None:
    by_number = {place.node.number: place for place in tree.places}
    for place in tree.places:
        parent = None if place.node.parent is None else by_number[place.node.parent]
        if parent is None:
            begin, height = MARKER, tree.root
        else:
            begin, height = parent.x + MARKER + cells(parent.label) + 1 + cells(parent.note), parent.y
        path = _way((begin + 0.3, height), bend=tree.columns[place.node.step] - GAP, to=(place.x, place.y))
        colour = LOOKS[place.node.fate][0]
        if place.is_winner:
            axes.add_patch(PathPatch(path, fill=False, edgecolor=THIRD, alpha=0.55, linewidth=9, zorder=1))
        is_pruned = place.node.fate == "pruned"
        axes.add_patch(
            PathPatch(
                path,
                fill=False,
                edgecolor=colour,
                alpha=PALE if is_pruned else None,
                linewidth=line_width(0.0 if is_pruned else place.probability),
                zorder=1.5 if is_pruned else 2,  # below what was kept, so that it draws no eye
                capstyle="butt",
            )
        )


def _way(start: tuple[float, float], *, bend: float, to: tuple[float, float]) -> Path:
    """Level to the end of the column, then in one curve over to the child."""
    middle = (bend + to[0]) / 2
    points = [start, (bend, start[1]), (middle, start[1]), (middle, to[1]), to]
    return Path(points, [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])


def _draw_node(axes: Axes, place: Place, families: list[str]) -> None:
    colour, shape, _ = LOOKS[place.node.fate]
    is_pruned = place.node.fate == "pruned"
    ms, alpha = (3.5, PALE) if is_pruned else (6, 1.0)
    axes.plot([place.x + 0.6], [place.y], marker=shape, ms=ms, alpha=alpha, color=colour, zorder=3, ls="")
    label: dict[str, Any] = {
        "fontsize": SIZE,
        "va": "center_baseline",
        "family": families,
        "parse_math": False,
        "zorder": 4,
    }
    weight = "bold" if place.is_winner else "normal"
    if place.is_winner:
        ends = place.x, place.x + MARKER + cells(place.label) + 1 + cells(place.note) + 0.3
        axes.plot(ends, [place.y] * 2, color=THIRD, alpha=0.55, linewidth=9, solid_capstyle="butt", zorder=1)
    axes.text(place.x + MARKER, place.y, place.label, color=QUIET if is_pruned else INK, weight=weight, **label)
    axes.text(
        place.x + MARKER + cells(place.label) + 1,
        place.y,
        place.note,
        color=INK if place.has_ended or place.is_winner else QUIET,
        weight=weight if place.has_ended else "normal",
        **label,
    )


def _legend(tree: BeamTree) -> list[tuple[Line2D | tuple[Line2D, ...], str]]:
    """What is to be seen, and what it means."""
    entries: list[tuple[Line2D | tuple[Line2D, ...], str]] = [
        (Line2D([], [], color=THIRD, alpha=0.55, linewidth=9), "the best hypothesis")
    ]
    for fate, (colour, shape, name) in LOOKS.items():
        if fate in tree.fates:
            is_pruned = fate == "pruned"
            look: dict[str, Any] = {"ms": 4, "lw": line_width(0.0), "alpha": PALE} if is_pruned else {"ms": 5, "lw": 1}
            entries.append((Line2D([], [], color=colour, marker=shape, **look), name))
    widths = tuple(Line2D([], [], color=INK, linewidth=line_width(share)) for share in (0.01, 0.5, 1.0))
    entries.append((widths, "probability 1%, 50%, 100%"))
    return entries
