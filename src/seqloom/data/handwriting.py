"""Handwriting from a pen-stroke font: any text in any number of styles, as strokes that a model can learn to read.

A glyph is a few polylines on a grid: the baseline is at 0, small letters end at 5, tall ones at 9, and tails at −4. A
style is drawn once from a seed and belongs to one writer: slant, width, size, roundness, how the writer deforms each
glyph, how far letters stand apart and are joined, how the line drifts and the hand trembles. Each letter that is
written deviates from it once more.

    point     (x, y) ← glyph + habit(style, letter) + deviation                on the grid
    curve     corners are cut: p, q → (1 − c) p + c q, c p + (1 − c) q         Chaikin; c ≤ ¼ is the roundness
    page      X = size · (width · x + slant · y),  Y = size · (y + drift)      letters one after the other

    strokes = write("four two", draw_style(7), np.random.default_rng(1))
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from seqloom.core.errors import DataError
from seqloom.core.seeds import seed_for
from seqloom.data.frames import Stroke, Strokes

FONT = {
    "a": "5,4 3,5 1,4 0,2 1,0 3,0 5,2 5,5 5,1 6,0",
    "b": "0,9 0,0 0,3 2,5 4,5 5,3 5,2 4,0 2,0 0,1",
    "c": "5,4 3,5 1,4 0,2 1,0 3,0 5,1",
    "d": "5,4 3,5 1,4 0,2 1,0 3,0 5,2 5,9 5,1 6,0",
    "e": "0,2 5,3 5,4 3,5 1,4 0,2 1,0 3,0 5,1",
    "f": "5,8 4,9 3,8 2,6 2,0 | 0,5 4,5",
    "g": "5,4 3,5 1,4 0,2 1,0 3,0 5,2 5,5 5,-2 4,-4 2,-4 0,-3",
    "h": "0,9 0,0 0,3 2,5 4,5 5,3 5,0",
    "i": "0,5 0,1 1,0 | 0,7",
    "j": "3,5 3,-2 2,-4 1,-4 0,-3 | 3,7",
    "k": "0,9 0,0 | 4,5 0,2 4,0",
    "l": "0,9 0,1 1,0",
    "m": "0,5 0,0 0,3 2,5 3,4 3,0 3,3 5,5 6,4 6,0",
    "n": "0,5 0,0 0,3 2,5 4,5 5,3 5,0",
    "o": "3,5 1,4 0,2 1,0 3,0 5,1 5,3 3,5",
    "p": "0,5 0,-4 0,3 2,5 4,5 5,3 5,2 4,0 2,0 0,1",
    "q": "5,4 3,5 1,4 0,2 1,0 3,0 5,2 5,5 5,-4 6,-3",
    "r": "0,5 0,0 0,3 1,5 3,5 4,4",
    "s": "5,4 3,5 1,5 0,4 1,3 4,2 5,1 3,0 1,0 0,1",
    "t": "2,8 2,1 3,0 4,0 | 0,5 4,5",
    "u": "0,5 0,2 1,0 3,0 5,2 5,5 5,1 6,0",
    "v": "0,5 2,0 4,5",
    "w": "0,5 1,0 3,4 5,0 6,5",
    "x": "0,5 4,0 | 4,5 0,0",
    "y": "0,5 0,2 1,1 3,1 5,2 | 5,5 5,-2 4,-4 2,-4 0,-3",
    "z": "0,5 4,5 0,0 4,0",
    "0": "3,9 1,8 0,5 1,1 3,0 5,1 5,8 3,9",
    "1": "0,7 2,9 2,0",
    "2": "0,7 1,9 4,9 5,7 4,5 0,0 5,0",
    "3": "0,8 2,9 4,9 5,7 2,5 5,3 4,0 2,0 0,1",
    "4": "4,0 4,9 0,3 6,3",
    "5": "5,9 1,9 0,5 3,6 5,4 5,2 3,0 0,1",
    "6": "4,9 1,6 0,3 1,0 3,0 5,2 4,4 2,5 0,3",
    "7": "0,9 5,9 2,0 | 1,5 5,5",
    "8": "3,5 0,7 2,9 5,8 3,5 0,2 2,0 5,1 3,5",
    "9": "5,6 3,5 1,6 1,8 3,9 5,8 5,6 5,3 4,0",
    ".": "0,0 0,0.4",
    ",": "1,0.5 0,-2",
    "!": "0,9 0,3 | 0,0 0,0.4",
    "?": "0,7 1,9 4,9 5,7 3,5 2,3 | 2,0 2,0.4",
    "'": "0,9 0,7",
    "-": "0,3 3,3",
    ":": "0,4 0,4.4 | 0,1 0,1.4",
    ";": "1,4 1,4.4 | 1,0.5 0,-2",
    "(": "2,9 0,6 0,2 2,-2",
    ")": "0,9 2,6 2,2 0,-2",
    "/": "0,-1 4,9",
    "+": "0,3 5,3 | 2.5,5.5 2.5,0.5",
    "=": "0,4 4,4 | 0,2 4,2",
}
"""The points x,y of each glyph, its strokes separated by bars, in the order in which a pen makes them."""

SPACE_WIDTH = 4.0

X_HEIGHT = 5.0

Glyph = tuple[Stroke, ...]


def _parsed(points: str) -> Glyph:
    return tuple(
        np.array([[float(number) for number in point.split(",")] for point in stroke.split()])
        for stroke in points.split("|")
    )


GLYPHS: dict[str, Glyph] = {letter: _parsed(points) for letter, points in FONT.items()}


@dataclass(frozen=True)
class Style:
    """How one writer writes."""

    slant: float
    """How far letters lean to the right, in widths per height."""
    width: float
    """Of letters, as a factor."""
    size: float
    """Units of the page for one of the grid."""
    roundness: float
    """How much of each side of a corner is cut off, up to ¼."""
    spacing: float
    """Between letters, on the grid."""
    joined_rate: float
    """Share of letters that the pen does not leave before the next one."""
    drift: float
    """Rise of the line, in heights per width."""
    wave: float
    """How far the line moves up and down, on the grid."""
    deviation: float
    """Of the points of each letter that is written, on the grid."""
    tremble: float
    """Of each recorded point, on the grid."""
    pace: float
    """Distance between recorded points, on the grid."""
    habits: int
    """The seed of how the writer deforms each glyph."""
    habit: float
    """How far, on the grid."""

    def glyph(self, letter: str) -> Glyph:
        """The glyph of a letter in this hand: the same each time."""
        random = np.random.default_rng(seed_for(self.habits, "habit", ord(letter)))
        bent = random.normal(0, 1, (2, 2)) * 0.5 * self.habit / X_HEIGHT + np.eye(2)  # of the glyph as a whole
        return tuple(
            stroke @ bent + random.normal(0, self.habit, stroke.shape) * _freedom(stroke) for stroke in GLYPHS[letter]
        )


def _freedom(stroke: Stroke) -> float:
    """Points of short strokes, such as dots, move less."""
    return min(1.0, float(np.ptp(stroke, axis=0).max()) / X_HEIGHT)


def draw_style(seed: int) -> Style:
    """The style of a writer. Other seeds are other writers."""
    random = np.random.default_rng(seed_for(seed, "style"))
    return Style(
        slant=random.uniform(-0.2, 0.5),
        width=random.uniform(0.7, 1.3),
        size=math.exp(random.uniform(math.log(2), math.log(20))),
        roundness=random.uniform(0.08, 0.25),
        spacing=random.uniform(1.2, 2.8),
        joined_rate=random.choice([0.0, random.uniform(0.2, 0.9)]),
        drift=random.uniform(-0.04, 0.04),
        wave=random.uniform(0, 0.4),
        deviation=random.uniform(0.05, 0.3),
        tremble=random.uniform(0, 0.08),
        pace=random.uniform(0.3, 1.2),
        habits=int(random.integers(0, 1 << 62)),
        habit=random.uniform(0.1, 0.4),
    )


def write(text: str, style: Style, random: np.random.Generator) -> Strokes:
    """A text in a style. Capital letters are written small; what the font does not have is a DataError."""
    text = text.lower()
    if unknown := sorted({letter for letter in text if letter != " " and letter not in GLYPHS}):
        raise DataError(f"the font has no glyph for {', '.join(map(repr, unknown[:5]))}; it has {''.join(GLYPHS)}")
    if not text.strip():
        raise DataError("a blank text has no strokes")
    phase, pen_x, is_joined = random.uniform(0, 2 * math.pi), 0.0, False
    strokes: list[Stroke] = []
    for letter in text:
        if letter == " ":
            pen_x += SPACE_WIDTH * style.width * random.uniform(0.8, 1.3)
            is_joined = False
            continue
        glyph = [
            stroke + random.normal(0, style.deviation, stroke.shape) * _freedom(stroke)
            for stroke in style.glyph(letter)
        ]
        left = min(float(stroke[:, 0].min()) for stroke in glyph)
        right = max(float(stroke[:, 0].max()) for stroke in glyph)
        line = style.wave * math.sin(0.15 * pen_x + phase) + style.drift * pen_x
        placed = [
            np.column_stack([pen_x + style.width * (stroke[:, 0] - left), stroke[:, 1] + line]) for stroke in glyph
        ]
        if is_joined and letter.isalpha():
            strokes[-1] = np.concatenate([strokes[-1], placed.pop(0)])
        strokes += placed
        pen_x += style.width * (right - left + style.spacing * random.uniform(0.8, 1.2))
        is_joined = letter.isalpha() and len(glyph) == 1 and random.random() < style.joined_rate
    return Strokes(tuple(_drawn(stroke, style, random) for stroke in strokes))


def _drawn(stroke: Stroke, style: Style, random: np.random.Generator) -> Stroke:
    """What the pen records of a stroke on the page, y downwards as in files."""
    curve = stroke
    for _ in range(3):
        curve = _cut_corners(curve, style.roundness)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(curve, axis=0).T))])
    count = max(2, round(along[-1] / style.pace) + 1)
    points = np.column_stack([np.interp(np.linspace(0, along[-1], count), along, column) for column in curve.T])
    points += random.normal(0, style.tremble, points.shape)
    x, y = points.T
    return style.size * np.column_stack([x + style.slant * y, -y])


def _cut_corners(curve: Stroke, share: float) -> Stroke:
    """Each corner becomes two points on its sides; the ends stay."""
    if len(curve) < 3:
        return curve
    first, second = curve[:-1], curve[1:]
    sides = np.stack([(1 - share) * first + share * second, share * first + (1 - share) * second], 1)
    inner: Float64[np.ndarray, "points 2"] = sides.reshape(-1, 2)[1:-1]
    return np.concatenate([curve[:1], inner, curve[-1:]])


def handwriting(texts: Iterable[str], *, styles: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """Records as `seqloom train` reads them from JSONL: each text in a style drawn from those of these seeds."""
    known = {number: draw_style(number) for number in styles}
    for place, text in enumerate(texts):
        random = np.random.default_rng(seed_for(seed, "handwriting", place))
        style = known[styles[int(random.integers(len(styles)))]]
        strokes = [np.round(stroke, 2).tolist() for stroke in write(text, style, random).strokes]
        yield {"strokes": strokes, "text": text.lower()}


def handwriting_lines(texts: Iterable[str], *, styles: Sequence[int], seed: int) -> Iterator[str]:
    """The same as lines of a file."""
    return (json.dumps(record, ensure_ascii=False) for record in handwriting(texts, styles=styles, seed=seed))
