"""A beam search as a self-contained HTML page: an interactive tree, a replay, and the n-best list with scores.

The tree, its replay and its keys are those of beam_tree.js, which the page of `seqloom serve` imports too; the list of
hypotheses can be read without a script. Whatever comes from a model is escaped where it enters the page.
"""

import textwrap
from html import escape
from typing import Any

from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from seqloom.drawing.figures import FIFTH, FIRST, INK, QUIET, SECOND, SIXTH, THIRD, as_written, fonts
from seqloom.drawing.pages import fill_page, read_template, script_data
from seqloom.look.beam_tree import MARKER, BeamTree, cells, describe, number, tree_record

# The picture of a beam search: steps from left to right, a line's width for its probability, the winner on a band.

SIZE = 8.0
"""Of the text, in points."""

CHARACTER_INCHES, LINE_INCHES = 0.603 * SIZE / 72, 0.2
"""Inches: the width of a character of the fixed-width font, and the distance of two lines of text."""

LOOKS = {
    "kept": (FIRST, "o", "kept"),
    "pruned": (QUIET, "x", "pruned (+n: with n siblings that are not shown)"),
    "finished": (SECOND, "s", "finished, with its score"),
    "cut": (SIXTH, "v", "cut at the maximum length"),
    "left": (FIFTH, "D", "left when the sentence was decided"),
}
"""Colour, shape and name of each fate; the shapes distinguish them without colour."""


PALE = 0.5
"""How much is seen of the lines of pruned candidates."""


def draw_beam(tree: BeamTree, *, source: str, target: str) -> Figure:
    """A search for the translation `target` of `source`."""
    above, below = tree.span
    width = max(7.2, CHARACTER_INCHES * (tree.columns[-1] + MARKER))
    characters = max(30, int(width / (0.62 * 9 / 72)))
    title = textwrap.wrap(as_written(f"{source} → {target}"), width=characters) or [""]
    legend = _picture_legend(tree)
    columns = max(1, int(width // 3.6))
    head, foot = 0.45 + 0.19 * len(title), 0.25 + 0.22 * -(-len(legend) // columns)
    height = head + LINE_INCHES * (below - above + 1) + foot
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    # A unit is a character to the right and a line downwards; the axes fill the figure.
    axes.set_xlim(-MARKER, -MARKER + width / CHARACTER_INCHES)
    top = above - 0.5 - head / LINE_INCHES
    axes.set_ylim(top + height / LINE_INCHES, top)
    axes.text(
        0, top + 0.12 / LINE_INCHES, "\n".join(title), va="top", fontsize=9, color=INK, family=fonts(), parse_math=False
    )
    for step in range(1, tree.steps + 1):
        axes.text(tree.columns[step] - 0.6, above - 1, f"step {step}", fontsize=SIZE - 1, color=QUIET, va="center")
    text: dict[str, Any] = {
        "fontsize": SIZE,
        "va": "center_baseline",
        "family": ["DejaVu Sans Mono", *fonts()],
        "parse_math": False,
        "zorder": 4,
    }
    for place in tree.places:
        colour, shape, _ = LOOKS[place.node.fate]
        x, y, is_pruned, weight = place.x, place.y, place.node.fate == "pruned", "bold" if place.is_winner else "normal"
        # Level to the end of the column, then in one curve over to the child.
        middle, level = (place.bend + x) / 2, place.start[1]
        points = [place.start, (place.bend, level), (middle, level), (middle, y), (x, y)]
        path = Path(points, [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
        if place.is_winner:
            axes.add_patch(PathPatch(path, fill=False, edgecolor=THIRD, alpha=0.55, linewidth=9, zorder=1))
            band = x, x + place.width + 0.3
            axes.plot(band, [y, y], color=THIRD, alpha=0.55, linewidth=9, solid_capstyle="butt", zorder=1)
        axes.add_patch(
            PathPatch(
                path,
                fill=False,
                edgecolor=colour,
                alpha=PALE if is_pruned else None,
                linewidth=line_width(0.0 if is_pruned else place.probability),
                zorder=1.5 if is_pruned else 2,  # pruned candidates are drawn below what was kept
                capstyle="butt",
            )
        )
        ms, alpha = (3.5, PALE) if is_pruned else (6, 1.0)
        axes.plot([x + 0.6], [y], marker=shape, ms=ms, alpha=alpha, color=colour, zorder=3, ls="")
        axes.text(x + MARKER, y, place.label, color=QUIET if is_pruned else INK, weight=weight, **text)
        after = x + MARKER + cells(place.label) + 1
        quiet = INK if place.has_ended or place.is_winner else QUIET
        axes.text(after, y, place.note, color=quiet, weight=weight if place.has_ended else "normal", **text)
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


def _picture_legend(tree: BeamTree) -> list[tuple[Line2D | tuple[Line2D, ...], str]]:
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


DIGITS = 6
"""After the point of each score and term, so that the terms of the table add up to its scores."""


def beam_page(tree: BeamTree, *, source: str, settings: str = "") -> str:
    """The page of a search for translations of `source`; `settings` say in a line how it was searched."""
    parts = {
        "TITLE": escape(f"Beam search: {source}"),
        "SOURCE": escape(source),
        "SETTINGS": escape(settings),
        "SENTENCE": escape(describe(tree)),
        "LEAVES": _table(tree),
        "DATA": script_data(tree_record(tree)),
        "STYLE": read_template("beam_page.css") + read_template("beam_tree.css"),
        "SCRIPT": read_template("beam_tree.js") + read_template("beam_page.js"),
    }
    return fill_page("beam_page.html", parts)


def _table(tree: BeamTree) -> str:
    names = list(dict.fromkeys(name for leaf in tree.leaves for name in leaf.node.terms))
    heads = ["", "hypothesis", "symbols", "score", *names, ""]
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    rows = []
    for rank, leaf in enumerate(tree.leaves, start=1):
        node = leaf.node
        figures = [node.score, *(node.terms.get(name, 0.0) for name in names)]
        remarks = [
            "returned" if leaf.is_returned else "",
            "proven complete" if leaf.is_complete else "",
            "cut at the maximum length" if node.fate == "cut" else "",
        ]
        rows.append(
            f'<tr><td>{rank}</td><td><button type="button" data-path="{node.number}">{escape(leaf.text) or "(empty)"}'
            f"</button></td><td>{node.step}</td>{''.join(f'<td>{number(figure, DIGITS)}</td>' for figure in figures)}"
            f"<td>{escape(', '.join(filter(None, remarks)))}</td></tr>"
        )
    return f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
