"""A map of words as a picture, and as one HTML file to move about in that needs nothing else."""

import html
import json
from importlib.resources import files

from matplotlib.figure import Figure

from seqloom.inspection.drawing import FIRST, INK, QUIET, as_written, fonts
from seqloom.inspection.embedding_map import EmbeddingMap

SIZE, DOTS, FONT = 10.0, 72.0, 7.0
"""Of the picture in inches; points in an inch; the height of a letter in points."""

FEW = 30
"""Words up to which each is named, even if names meet."""


def draw_map(found: EmbeddingMap, *, title: str = "") -> Figure:
    """A dot per word, and the names of all if they are few, else of as many as have room, the first words first."""
    figure = Figure(figsize=(SIZE, SIZE * 0.8), layout="constrained")
    axes = figure.add_subplot()
    x, y = found.points.T
    axes.scatter(x, y, s=5, color=FIRST, alpha=0.45, linewidths=0)
    width, height = (float(values.max() - values.min()) or 1.0 for values in (x, y))
    letter, line = width * FONT * 0.55 / (SIZE * DOTS), height * FONT * 1.25 / (SIZE * 0.8 * DOTS)
    taken: list[tuple[float, float, float, float]] = []
    families = fonts()
    for word, right, up in zip(found.words, x.tolist(), y.tolist(), strict=True):
        box = (right, up - line / 2, right + letter * (len(word) + 1), up + line / 2)
        if len(found.words) > FEW and any(
            box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken
        ):
            continue
        taken.append(box)
        axes.annotate(
            as_written(word), (right, up), xytext=(3, 0), textcoords="offset points", va="center", fontsize=FONT,
            color=INK, family=families, parse_math=False,
        )  # fmt: skip
    axes.margins(x=0.08, y=0.04)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(QUIET)
        spine.set_linewidth(0.5)
    named = "" if len(taken) == len(found.words) else f"; {len(taken):,} have room for their names"
    shown = as_written(title or f"{found.describe()}{named}")
    axes.set_title(shown, fontsize=10, color=INK, family=families, parse_math=False)
    return figure


def map_page(found: EmbeddingMap, *, title: str = "A map of words") -> str:
    """The page: drag to move, turn the wheel to come nearer, type to find a word, click for its neighbours."""
    x, y = found.points.T
    scale = 1000 / max(float(x.max() - x.min()), float(y.max() - y.min()), 1e-12)
    data = [
        {"word": word, "x": round(float((a - x.min()) * scale), 1), "y": round(float((y.max() - b) * scale), 1),
         "near": list(near)}
        for word, a, b, near in zip(found.words, x, y, found.neighbours, strict=True)
    ]  # fmt: skip
    parts = {
        "TITLE": html.escape(title),
        "SENTENCE": html.escape(found.describe()),
        # Such JSON cannot end the element that it stands in.
        "DATA": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    opening, *rest = (files("seqloom.inspection") / "embedding_map.html").read_text(encoding="utf-8").split("{{")
    pieces = [opening]
    for section in rest:
        name, _, after = section.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)
