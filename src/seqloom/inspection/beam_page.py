"""A beam search as one HTML file that needs nothing else: the tree to touch, to replay, and the n-best list in figures.

The tree is drawn here, as SVG, and can be read without the script; the script (beam_page.js) adds the replay, the panel
of a node and the keys. Whatever comes from a model is escaped where it enters the page.
"""

import json
from typing import Any

from seqloom.inspection.beam_tree import GAP, MARKER, BeamTree, Leaf, Place, cells, describe, number, percent
from seqloom.inspection.pages import as_text, beside, fill_page

CHARACTER, LINE, MARGIN, HEAD = 7.4, 22.0, 12.0, 30.0
"""Pixels: a character of the fixed-width font of 12 pixels, a line, the edge, and the row with the numbers of steps."""

FATES = {
    "kept": "kept: it went on",
    "pruned": "pruned: others of its step were better",
    "finished": "finished",
    "cut": "cut at the maximum length",
    "left": "left when the sentence was decided",
}
DIGITS = 6
"""After the point of each score and term, so that the terms of the table add up to its scores."""


def beam_page(tree: BeamTree, *, source: str, settings: str = "") -> str:
    """The page of a search for translations of `source`; `settings` say in a line how it was searched."""
    parts = {
        "TITLE": as_text(f"Beam search: {source}"),
        "SOURCE": as_text(source),
        "SETTINGS": as_text(settings),
        "SENTENCE": as_text(describe(tree)),
        "STEPS": str(tree.steps),
        "LEGEND": _legend(tree),
        "TREE": _tree(tree),
        "LEAVES": _table(tree),
        "DATA": _data(tree),
        "STYLE": beside("beam_page.css"),
        "SCRIPT": beside("beam_page.js"),
    }
    return fill_page("beam_page.html", parts)


def _data(tree: BeamTree) -> str:
    """What the script shows, as JSON that cannot end its element."""
    by_parent: dict[int | None, list[int]] = {}
    for place in sorted(tree.places, key=lambda place: place.rank):
        by_parent.setdefault(place.node.parent, []).append(place.node.number)
    values = {
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
    text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- the tree ---------------------------------------------------------------------------------------------------------


def _tree(tree: BeamTree) -> str:
    above, below = tree.span
    width = 2 * MARGIN + CHARACTER * tree.columns[-1]
    height = 2 * MARGIN + HEAD + LINE * (below - above + 1)
    by_number = {place.node.number: place for place in tree.places}
    parts = [
        f'<svg id="tree" width="{width:.0f}" height="{height:.0f}" role="group" aria-label="The tree of the search">'
    ]
    parts += [
        f'<text class="step" data-step="{step}" x="{_x(tree.columns[step])}" y="{MARGIN + 12}">step {step}</text>'
        for step in range(1, tree.steps + 1)
    ]
    for place in tree.places:
        parent = None if place.node.parent is None else by_number[place.node.parent]
        parts.append(_line(tree, place, parent))
    parts.append(f'<circle class="root" cx="{_x(0.6)}" cy="{_y(tree, tree.root)}" r="4"/>')
    parts += [_node(tree, place) for place in tree.places]
    return "\n".join([*parts, "</svg>"])


def _x(characters: float) -> str:
    return f"{MARGIN + CHARACTER * characters:.1f}"


def _y(tree: BeamTree, lines: float) -> str:
    return f"{MARGIN + HEAD + LINE * (lines - tree.span[0] + 0.5):.1f}"


def _width(place: Place) -> float:
    return MARKER + cells(place.label) + 1 + cells(place.note)


def _line(tree: BeamTree, place: Place, parent: Place | None) -> str:
    """Level to the end of the parent's column, then in one curve over to the child; under the winner a band."""
    begin = MARKER if parent is None else parent.x + _width(parent)
    start, end = _y(tree, tree.root if parent is None else parent.y), _y(tree, place.y)
    bend, reach = tree.columns[place.node.step] - GAP, place.x + 0.4
    middle = _x((bend + reach) / 2)
    way = f"M{_x(begin + 0.3)} {start}L{_x(bend)} {start}C{middle} {start} {middle} {end} {_x(reach)} {end}"
    step = place.node.step
    band = f'<path class="band" data-step="{step}" d="{way}H{_x(place.x + _width(place))}"/>' if place.is_winner else ""
    thickness = 0.6 if place.node.fate == "pruned" else 0.6 + 4.4 * place.probability
    return f'{band}<path class="{place.node.fate}" data-step="{step}" d="{way}" stroke-width="{thickness:.2f}"/>'


def _node(tree: BeamTree, place: Place) -> str:
    x, y = _x(place.x + 0.6), _y(tree, place.y)
    told = f"{place.symbol}, probability {percent(place.probability)}, {FATES[place.node.fate]}"
    classes = f"node {place.node.fate}{' winner' if place.is_winner else ''}"
    middle = float(y)
    return (
        f'<g class="{classes}" data-step="{place.node.step}" data-number="{place.node.number}" role="button" '
        f'tabindex="-1" aria-label="{as_text(told)}"><title>{as_text(told)}</title>'
        f'<rect x="{_x(place.x - 0.4)}" y="{middle - LINE / 2:.1f}" width="{CHARACTER * (_width(place) + 0.6):.1f}" '
        f'height="{LINE:.0f}"/>{_mark(place.node.fate, float(x), middle)}'
        f'<text x="{_x(place.x + MARKER)}" y="{middle + 4:.1f}">{as_text(place.label)}'
        f'<tspan x="{_x(place.x + MARKER + cells(place.label) + 1)}">{as_text(place.note)}</tspan></text></g>'
    )


def _mark(fate: str, x: float, y: float) -> str:
    """Each fate has a shape of its own as well as a colour."""
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
        f"{as_text(meaning)}</li>"
        for fate, meaning in FATES.items()
        if fate in tree.fates
    ]
    return "".join([*entries, "<li>wider lines are more probable; +n: with n pruned siblings that are not shown</li>"])


# --- the list ---------------------------------------------------------------------------------------------------------


def _table(tree: BeamTree) -> str:
    names = list(dict.fromkeys(name for leaf in tree.leaves for name in leaf.node.terms))
    heads = ["", "hypothesis", "symbols", "score", *names, ""]
    head = "".join(f'<th scope="col">{as_text(name)}</th>' for name in heads)
    rows = [_row(place, leaf, names) for place, leaf in enumerate(tree.leaves, start=1)]
    return f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"


def _row(place: int, leaf: Leaf, names: list[str]) -> str:
    terms: dict[str, Any] = dict(leaf.node.terms)
    figures = [leaf.node.score, *(terms.get(name, 0.0) for name in names)]
    remarks = [
        "returned" if leaf.is_returned else "",
        "proven complete" if leaf.is_complete else "",
        FATES["cut"] if leaf.node.fate == "cut" else "",
    ]
    cells_of_row = [
        f"<td>{place}</td>",
        f'<td><button type="button" data-path="{leaf.node.number}">{as_text(leaf.text) or "(empty)"}</button></td>',
        f"<td>{leaf.node.step}</td>",
        *(f"<td>{number(figure, DIGITS)}</td>" for figure in figures),
        f"<td>{as_text(', '.join(remark for remark in remarks if remark))}</td>",
    ]
    return f"<tr>{''.join(cells_of_row)}</tr>"
