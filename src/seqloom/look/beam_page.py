"""A beam search as a self-contained HTML page: an interactive tree, a replay, and the n-best list with scores.

The tree is drawn here, as SVG, and can be read without the script; the script (beam_page.js) adds the replay, the panel
of a node and the keys. Whatever comes from a model is escaped where it enters the page.
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
from seqloom.look.beam_tree import MARKER, BeamTree, cells, describe, number, percent

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


CHARACTER, LINE, MARGIN, HEAD = 7.4, 22.0, 12.0, 30.0
"""Pixels: a character of the fixed-width font of 12 pixels, a line, the edge, and the row with the numbers of steps."""

FATES = {
    "kept": "kept: continued",
    "pruned": "pruned: others of its step were better",
    "finished": "finished",
    "cut": "cut at the maximum length",
    "left": "left when the sentence was decided",
}
DIGITS = 6
"""After the point of each score and term, so that the terms of the table add up to its scores."""


def beam_page(tree: BeamTree, *, source: str, settings: str = "") -> str:
    """The page of a search for translations of `source`; `settings` say in a line how it was searched."""
    by_parent: dict[int | None, list[int]] = {}
    for place in sorted(tree.places, key=lambda place: place.rank):
        by_parent.setdefault(place.node.parent, []).append(place.node.number)
    nodes = {
        str(place.node.number): {
            "symbol": place.symbol,
            "step": place.node.step,
            "parent": place.node.parent,
            "children": by_parent.get(place.node.number, []),
            "rank": place.rank,
            "fate": FATES[place.node.fate],
            "others": place.others,
            "logProbability": place.node.token_log_prob,
            "terms": dict(place.node.terms),
            "score": place.node.score,
        }
        for place in tree.places
    }
    parts = {
        "TITLE": escape(f"Beam search: {source}"),
        "SOURCE": escape(source),
        "SETTINGS": escape(settings),
        "SENTENCE": escape(describe(tree)),
        "STEPS": str(tree.steps),
        "LEGEND": _legend(tree),
        "TREE": _tree(tree),
        "LEAVES": _table(tree),
        "DATA": script_data(nodes),
        "STYLE": read_template("beam_page.css"),
        "SCRIPT": read_template("beam_page.js"),
    }
    return fill_page("beam_page.html", parts)


def _tree(tree: BeamTree) -> str:
    above, below = tree.span

    def right(characters: float) -> str:
        return f"{MARGIN + CHARACTER * characters:.1f}"

    def down(lines: float) -> float:
        return round(MARGIN + HEAD + LINE * (lines - above + 0.5), 1)

    width, height = 2 * MARGIN + CHARACTER * tree.columns[-1], 2 * MARGIN + HEAD + LINE * (below - above + 1)
    parts = [
        f'<svg id="tree" width="{width:.0f}" height="{height:.0f}" role="group" aria-label="The tree of the search">'
    ]
    parts += [
        f'<text class="step" data-step="{step}" x="{right(tree.columns[step])}" y="{MARGIN + 12}">step {step}</text>'
        for step in range(1, tree.steps + 1)
    ]
    nodes = [f'<circle class="root" cx="{right(0.6)}" cy="{down(tree.root)}" r="4"/>']
    for place in tree.places:
        step, fate, reach = place.node.step, place.node.fate, place.x + 0.4
        # Level to the end of the parent's column, then in one curve over to the child; under the winner a band.
        start, y, middle = down(place.start[1]), down(place.y), right((place.bend + reach) / 2)
        curve = f"M{right(place.start[0])} {start}L{right(place.bend)} {start}C{middle} {start} {middle} {y} "
        curve += f"{right(reach)} {y}"
        if place.is_winner:
            parts.append(f'<path class="band" data-step="{step}" d="{curve}H{right(place.x + place.width)}"/>')
        thickness = 0.6 if fate == "pruned" else 0.6 + 4.4 * place.probability
        parts.append(f'<path class="{fate}" data-step="{step}" d="{curve}" stroke-width="{thickness:.2f}"/>')
        label = escape(f"{place.symbol}, probability {percent(place.probability)}, {FATES[fate]}")
        nodes.append(
            f'<g class="node {fate}{" winner" if place.is_winner else ""}" data-step="{step}" '
            f'data-number="{place.node.number}" role="button" tabindex="-1" aria-label="{label}">'
            f'<title>{label}</title><rect x="{right(place.x - 0.4)}" y="{y - LINE / 2:.1f}" '
            f'width="{CHARACTER * (place.width + 0.6):.1f}" height="{LINE:.0f}"/>'
            f'{_mark(fate, float(right(place.x + 0.6)), y)}<text x="{right(place.x + MARKER)}" y="{y + 4:.1f}">'
            f'{escape(place.label)}<tspan x="{right(place.x + MARKER + cells(place.label) + 1)}">{escape(place.note)}'
            "</tspan></text></g>"
        )
    return "\n".join([*parts, *nodes, "</svg>"])


def _mark(fate: str, x: float, y: float) -> str:
    """Each fate has its own shape and colour."""
    outlines = {
        "pruned": f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6",
        "finished": f"M{x - 5:.1f} {y - 5:.1f}h10v10h-10z",
        "cut": f"M{x - 5:.1f} {y - 4:.1f}h10l-5 9z",
        "left": f"M{x:.1f} {y - 6:.1f}l5 6l-5 6l-5 -6z",
    }
    if fate == "kept":
        return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
    return f'<path class="mark" d="{outlines[fate]}"/>'


def _legend(tree: BeamTree) -> str:
    entries = ['<li><svg width="34" height="16" aria-hidden="true"><path class="band" d="M0 8H34"/></svg>the best</li>']
    entries += [
        f'<li><svg width="16" height="16" aria-hidden="true"><g class="node {fate}">{_mark(fate, 8.0, 8.0)}</g></svg>'
        f"{escape(meaning)}</li>"
        for fate, meaning in FATES.items()
        if fate in tree.fates
    ]
    return "".join([*entries, "<li>wider lines are more probable; +n: with n pruned siblings that are not shown</li>"])


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
            FATES["cut"] if node.fate == "cut" else "",
        ]
        rows.append(
            f'<tr><td>{rank}</td><td><button type="button" data-path="{node.number}">{escape(leaf.text) or "(empty)"}'
            f"</button></td><td>{node.step}</td>{''.join(f'<td>{number(figure, DIGITS)}</td>' for figure in figures)}"
            f"<td>{escape(', '.join(filter(None, remarks)))}</td></tr>"
        )
    return f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
