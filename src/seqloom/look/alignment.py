"""Links between words as a page and as a picture.

The page is one HTML file without anything from elsewhere: each pair as two rows of words with curves between linked
ones, drawn here, so that it can be read without its script (alignment_page.js), which shows the partners of a word that
is pointed at and the table of probabilities. Compared with gold links, links differ in colour and dashes.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from seqloom.apps.align import LinkedPair
from seqloom.drawing.figures import INK, QUIET, SECOND, THIRD, as_written, fonts
from seqloom.drawing.pages import fill_page, read_template, script_data
from seqloom.look.beam_tree import cells
from seqloom.text.formats.pharaoh import GoldLinks, Link
from seqloom.text.marks import JOINER

LEAST = 0.005
"""Probabilities below this are left out of a page."""

CHARACTER, GAP, MARGIN = 8.45, 14.0, 10.0
"""Pixels: a character of the fixed-width font of 14 pixels, between two words, and at the edge."""
SOURCE_LINE, TARGET_LINE, HEIGHT = 20.0, 112.0, 128.0
"""Pixels from the top: the two lines of text, and the whole."""

LinkKind = Literal["found", "sure", "possible", "wrong", "missed"]

MEANINGS: dict[LinkKind, str] = {
    "found": "link",
    "sure": "right: a sure gold link",
    "possible": "right: a possible gold link",
    "wrong": "not among the gold links",
    "missed": "a sure gold link that was not found",
}


def kinds_of_links(links: Sequence[Link], gold: GoldLinks | None) -> dict[Link, LinkKind]:
    """What each link is, compared with gold links if there are any; sure ones that were not found come last."""
    if gold is None:
        return dict.fromkeys(links, "found")
    kinds: dict[Link, LinkKind] = {
        link: "sure" if link in gold.sure else "possible" if link in gold.possible else "wrong" for link in links
    }
    return kinds | dict.fromkeys(sorted(gold.sure - set(links)), "missed")


def shown_word(word: str) -> str:
    """A word as it is written, without the sign of a mark that touches its neighbour."""
    return word.removeprefix(JOINER).removesuffix(JOINER) or word


def alignment_page(
    pairs: Sequence[LinkedPair], gold: Sequence[GoldLinks] | None = None, *, name: str, facts: str = ""
) -> str:
    """The page of some pairs; `name` says of which text, and `facts` in a line how good the links are."""
    rows, data = [], []
    seen: set[LinkKind] = set()
    for number, pair in enumerate(pairs, start=1):
        kinds = kinds_of_links(pair.links, None if gold is None else gold[number - 1])
        seen |= set(kinds.values())
        rows.append(_pair(number, pair, kinds))
        data.append(_data(pair, kinds))
    legend = "".join(
        f'<li><svg width="34" height="14" aria-hidden="true"><path class="link {kind}" d="M2 7H32"/></svg>'
        f"{meaning}</li>"
        for kind, meaning in MEANINGS.items()
        if kind in seen
    )
    has_faults = bool(seen & {"wrong", "missed"})
    errors = '<label><input type="checkbox" id="errors"> only pairs with errors</label>' if has_faults else ""
    parts = {
        "TITLE": escape(f"Word alignment: {name}"),
        "NAME": escape(name),
        "FACTS": escape(facts),
        "LEGEND": legend,
        "ERRORS": errors,
        "PAIRS": "\n".join(rows),
        "DATA": script_data(data),
        "STYLE": read_template("alignment_page.css"),
        "SCRIPT": read_template("alignment_page.js"),
    }
    return fill_page("alignment_page.html", parts)


def _data(pair: LinkedPair, kinds: dict[Link, LinkKind]) -> dict[str, Any]:
    """What the script shows of a pair: its words, its links, and the probabilities in thousandths."""
    table = _table(pair)
    likely = np.argwhere(table >= LEAST).tolist()
    return {
        "words": [[shown_word(word) for word in side] for side in (pair.source, pair.target)],
        "links": [[i, j, kind] for (i, j), kind in kinds.items()],
        "likely": [[i, j, round(1000 * float(table[i, j]))] for i, j in likely],
    }


def _table(pair: LinkedPair) -> np.ndarray:
    """Probabilities [source, target]; without any, 1 for each link."""
    if pair.probabilities is not None:
        return pair.probabilities
    table = np.zeros((len(pair.source), len(pair.target)))
    for link in pair.links:
        table[link] = 1.0
    return table


def _places(words: Sequence[str], width: float) -> list[tuple[float, float]]:
    """The left edge and the width of each word, spread over a line of this width."""
    widths = [CHARACTER * max(1, cells(shown_word(word))) for word in words]
    gap = (width - sum(widths)) / (len(words) - 1) if len(words) > 1 else 0.0
    places, at = [], MARGIN
    for each in widths:
        places.append((at, each))
        at += each + gap
    return places


def _pair(number: int, pair: LinkedPair, kinds: dict[Link, LinkKind]) -> str:
    """Two rows of words, and a curve for each link."""
    sides, table = (pair.source, pair.target), _table(pair)
    natural = [sum(CHARACTER * max(1, cells(shown_word(word))) + GAP for word in side) - GAP for side in sides]
    width = max(*natural, 0.0)
    # A row of few words is not spread over the whole line.
    places = [_places(side, min(width, 1.8 * own)) for side, own in zip(sides, natural, strict=True)]
    faulty = " faulty" if {"wrong", "missed"} & set(kinds.values()) else ""
    parts = [
        f'<section class="pair{faulty}" data-pair="{number - 1}"><h2>{number}</h2><div class="scroll">',
        f'<svg width="{width + 2 * MARGIN:.0f}" height="{HEIGHT:.0f}" role="group" aria-label="Pair {number}">',
    ]
    top, bottom = SOURCE_LINE + 7, TARGET_LINE - 15
    for (i, j), kind in kinds.items():
        probability = 0.0 if kind == "missed" else float(table[i, j])
        x, y = (left + size / 2 for left, size in (places[0][i], places[1][j]))
        curve = f"M{x:.1f} {top}C{x:.1f} {top + 38} {y:.1f} {bottom - 38} {y:.1f} {bottom}"
        parts.append(
            f'<path class="link {kind}" data-link="{i}-{j}" d="{curve}" stroke-width="{1.2 + 1.8 * probability:.1f}"/>'
        )
    for side, (words, line) in enumerate(zip(sides, (SOURCE_LINE, TARGET_LINE), strict=True)):
        for at, (word, (left, size)) in enumerate(zip(words, places[side], strict=True)):
            label = escape(_partners(pair, kinds, side, at))
            parts.append(
                f'<g class="word" data-side="{side}" data-at="{at}" role="button" tabindex="0" aria-label="{label}">'
                f'<title>{label}</title><rect x="{left - 4:.1f}" y="{line - 16}" width="{size + 8:.1f}" height="23" '
                f'rx="3"/><text x="{left + size / 2:.1f}" y="{line}">{escape(shown_word(word))}</text></g>'
            )
    parts.append(
        '</svg></div><p class="panel" aria-live="polite"></p><details><summary>probabilities</summary>'
        '<div class="scroll matrix"></div></details></section>'
    )
    return "".join(parts)


def _partners(pair: LinkedPair, kinds: dict[Link, LinkKind], side: int, at: int) -> str:
    """A word with the words it is linked to."""
    table, own, other = _table(pair), (pair.source, pair.target)[side], (pair.source, pair.target)[1 - side]
    partners = [
        f"{shown_word(other[link[1 - side]])} {table[link]:.2f}"
        for link, kind in kinds.items()
        if link[side] == at and kind != "missed"
    ]
    return f"{shown_word(own[at])} {'↔' if partners else 'has no link'} {', '.join(partners)}".strip()


def draw_alignment(pair: LinkedPair, gold: GoldLinks | None, picture: Path) -> None:
    """A picture of one pair, PNG or SVG by its ending: probabilities by shade, links as dots, gold links as frames."""
    table = _table(pair).T  # [target, source]
    rows, columns = table.shape
    figure = Figure(figsize=(2.2 + 0.42 * max(columns, 4), 1.9 + 0.32 * max(rows, 3)), layout="constrained")
    axes = figure.add_subplot()
    plain: dict[str, Any] = {"family": fonts(), "parse_math": False}
    sources, targets = ([as_written(shown_word(word)) for word in side] for side in (pair.source, pair.target))
    handles: list[Line2D | Rectangle] = []
    if rows and columns:
        image = axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, ticks=[0, 0.5, 1])
        bar.set_label("probability", fontsize=9)
        bar.outline.set_visible(False)
    for link, kind in kinds_of_links(pair.links, gold).items():
        if kind != "missed":
            colour = SECOND if kind == "wrong" else INK
            edge = "white" if table[link[1], link[0]] > 0.6 else colour
            axes.plot(link[0], link[1], "o", ms=6, color=colour, mec=edge, mew=0.8)
    handles.append(Line2D([], [], marker="o", ls="", color=INK, label="link"))
    if gold is not None:
        handles.append(Line2D([], [], marker="o", ls="", color=SECOND, label="link that is not in the reference"))
        for links, dashes, name in ((gold.sure, "-", "sure"), (gold.possible - gold.sure, ":", "possible")):
            look: dict[str, Any] = {"fill": False, "ec": THIRD, "ls": dashes, "lw": 2}
            for source, target in links:
                axes.add_patch(Rectangle((source - 0.45, target - 0.45), 0.9, 0.9, **look))
            handles.append(Rectangle((0, 0), 1, 1, label=f"reference, {name}", **look))
    axes.set_xticks(range(columns), sources, rotation=60, ha="left", rotation_mode="anchor", **plain)
    axes.set_yticks(range(rows), targets, **plain)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_color(QUIET)
        spine.set_visible(False)
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=144, metadata={"Date": None} if picture.suffix == ".svg" else None)
