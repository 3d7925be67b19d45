"""Word vectors as points on a plane, near to each other where the vectors are.

    pca     the two directions along which the vectors differ most; distances on the plane are never too large
    tsne    neighbours stay neighbours, at the price of all else (van der Maaten and Hinton, 2008)

Both are a pure function of the vectors: t-SNE begins at the plane of PCA and draws no random number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64
from matplotlib.figure import Figure

from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import UsageError
from seqloom.core.files import require_folders_above, write_atomically
from seqloom.drawing.figures import FIRST, INK, QUIET, as_written, fonts
from seqloom.drawing.pages import fill_page, script_data

Method = Literal["pca", "tsne"]

MAX_TSNE_WORDS = 2000
"""Words that t-SNE can lay out in a minute: its time grows with their square."""
MIN_WORDS = 3
"""Words that a map needs."""
NEIGHBOURS = 6
"""Shown for a word on the page of a map."""
MAP_ENDINGS = (".html", ".png", ".svg")
EXAGGERATION, EXAGGERATED, ITERATIONS = 12.0, 250, 750
"""How much and how long neighbours attract each other more than they should at first, and all steps."""


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Words and their places, as a picture or a page shows them."""

    words: tuple[str, ...]
    points: Float64[np.ndarray, "words 2"]
    method: Method
    neighbours: tuple[tuple[str, ...], ...]
    """The nearest words of each by all numbers of their vectors, not by the plane."""
    shares: tuple[float, float] | None = None
    """The share of the variance that each axis of PCA explains."""

    def describe(self) -> str:
        """What is seen, in a sentence."""
        if self.shares is not None:
            return (
                f"{len(self.words):,} words by the two directions in which they differ most, which explain "
                f"{self.shares[0]:.1%} and {self.shares[1]:.1%} of the variance"
            )
        return f"{len(self.words):,} words by t-SNE: neighbours are near, larger distances say little"


def lay_out(
    words: Sequence[str],
    vectors: Float[np.ndarray, "words width"],
    *,
    neighbours: Sequence[Sequence[str]],
    method: Method = "pca",
    progress: Callable[[int], None] = lambda _steps: None,
) -> EmbeddingMap:
    """Put words on a plane. `progress` gets the number of steps of t-SNE that are done."""
    if len(words) < MIN_WORDS:
        raise UsageError(f"a map needs {MIN_WORDS} words or more, but {len(words)} were given")
    if method == "tsne" and len(words) > MAX_TSNE_WORDS:
        raise UsageError(
            f"t-SNE lays out {MAX_TSNE_WORDS:,} words at most, and {len(words):,} were given; take fewer or pca"
        )
    exact = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    units = exact / np.where(lengths > 0, lengths, 1.0)
    named, near = tuple(words), tuple(tuple(each) for each in neighbours)
    points, shares = principal_plane(units)
    if method == "pca":
        return EmbeddingMap(named, points, method, near, shares)
    return EmbeddingMap(named, tsne(units, start=points, progress=progress), method, near)


def principal_plane(
    vectors: Float64[np.ndarray, "words width"],
) -> tuple[Float64[np.ndarray, "words 2"], tuple[float, float]]:
    """The first two principal components and their shares of the variance; the largest number of each axis is positive,
    which makes the signs the same everywhere."""
    centred = vectors - vectors.mean(axis=0)
    if centred.shape[1] == 1:
        centred = np.hstack([centred, np.zeros_like(centred)])
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[np.arange(2), np.abs(axes[:2]).argmax(axis=1)])[:, None]
    energy = sizes**2
    total = float(energy.sum()) or 1.0
    return centred @ axes.T, (float(energy[0]) / total, float(energy[1]) / total)


# --- t-SNE ------------------------------------------------------------------------------------------------------------


def tsne(
    vectors: Float64[np.ndarray, "words width"],
    *,
    start: Float64[np.ndarray, "words 2"],
    perplexity: float = 30.0,
    iterations: int = ITERATIONS,
    progress: Callable[[int], None] = lambda _steps: None,
) -> Float64[np.ndarray, "words 2"]:
    """Points whose neighbourhoods are like those of the vectors.

    p_ij = (p_j∣i + p_i∣j) / 2n,   p_j∣i ∝ exp(−‖v_i − v_j‖² / 2σ_i²),  σ_i such that 2^entropy is the perplexity
    q_ij ∝ 1 / (1 + ‖y_i − y_j‖²)
    dC/dy_i = 4 Σ_j (p_ij − q_ij) (y_i − y_j) / (1 + ‖y_i − y_j‖²)        of C = KL(p ‖ q)
    """
    count = len(vectors)
    affinities = joint_affinities(vectors, min(perplexity, (count - 1) / 3))
    points = start / (start.std() or 1.0) * 1e-2
    velocity, gains = np.zeros_like(points), np.ones_like(points)
    rate = max(50.0, count / EXAGGERATION)
    for step in range(iterations):
        factor = EXAGGERATION if step < min(EXAGGERATED, iterations // 3) else 1.0
        gradient = _gradient(affinities * factor, points)
        # Larger steps where the direction stays the same, smaller ones where it turns (Jacobs, 1988).
        gains = np.maximum(np.where(gradient * velocity < 0, gains + 0.2, gains * 0.8), 0.01)
        velocity = (0.5 if step < 250 else 0.8) * velocity - rate * gains * gradient
        points = points + velocity
        points = points - points.mean(axis=0)
        progress(step + 1)
    return points


def joint_affinities(
    vectors: Float64[np.ndarray, "words width"], perplexity: float
) -> Float64[np.ndarray, "words words"]:
    """p_ij, each row's σ found by halving an interval, all rows at the same time."""
    squares = _squared_distances(vectors)
    count = len(squares)
    np.fill_diagonal(squares, np.inf)
    nearest = squares.min(axis=1, keepdims=True)
    low, high = np.zeros((count, 1)), np.full((count, 1), np.inf)
    sharpness = np.ones((count, 1))
    for _ in range(64):
        weights = np.exp(-(squares - nearest) * sharpness)
        chances = weights / weights.sum(axis=1, keepdims=True)
        entropy = -np.sum(chances * np.log(np.maximum(chances, 1e-300)), axis=1, keepdims=True)
        is_wide = entropy > np.log(perplexity)
        low, high = np.where(is_wide, sharpness, low), np.where(is_wide, high, sharpness)
        sharpness = np.where(np.isinf(high), sharpness * 2, (low + np.where(np.isinf(high), low, high)) / 2)
    joint: Float64[np.ndarray, "words words"] = (chances + chances.T) / (2 * count)
    return joint


def _gradient(
    affinities: Float64[np.ndarray, "words words"], points: Float64[np.ndarray, "words 2"]
) -> Float64[np.ndarray, "words 2"]:
    closeness = 1 / (1 + _squared_distances(points))
    np.fill_diagonal(closeness, 0.0)
    pull = (affinities - closeness / closeness.sum()) * closeness
    gradient: Float64[np.ndarray, "words 2"] = 4 * (pull.sum(axis=1, keepdims=True) * points - pull @ points)
    return gradient


def _squared_distances(points: Float64[np.ndarray, "words width"]) -> Float64[np.ndarray, "words words"]:
    lengths = (points**2).sum(axis=1)
    squares: Float64[np.ndarray, "words words"] = np.maximum(
        lengths[:, None] + lengths[None] - 2 * points @ points.T, 0.0
    )
    return squares


def draw_words(
    vectors: WordVectors,
    out: Path,
    *,
    words: Sequence[str] = (),
    count: int = 500,
    method: Method = "pca",
    progress: Callable[[int], None] = lambda _steps: None,
) -> EmbeddingMap:
    """A map of these words, or of the most frequent ones, as a page (.html) or a picture (.png, .svg)."""
    if out.suffix not in MAP_ENDINGS:
        raise UsageError(f"{out} ends in none of {', '.join(MAP_ENDINGS)}; name it with one of these endings")
    require_folders_above(out)
    chosen = tuple(dict.fromkeys(words)) or _ordinary(vectors, count)
    rows = [vectors.row(word) for word in chosen]
    near = vectors.nearest(chosen, count=NEIGHBOURS)
    found = lay_out(
        chosen,
        vectors.vectors[rows],
        neighbours=[[each.word for each in some] for some in near],
        method=method,
        progress=progress,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".html":
        write_atomically(out, map_page(found))
    else:
        draw_map(found).savefig(out, dpi=144)
    return found


def _ordinary(vectors: WordVectors, count: int) -> tuple[str, ...]:
    """The most frequent words with a letter; others only if there are too few of these."""
    found = [word for word in vectors.words if any(character.isalpha() for character in word)]
    return tuple((found if len(found) >= MIN_WORDS else vectors.words)[:count])


# A map of words as a picture, and as one HTML file to move about in that needs nothing else.

SIZE, DOTS, FONT = 10.0, 72.0, 7.0
"""Of the picture in inches; points in an inch; the height of a letter in points."""

MAX_ALL_NAMED = 30
"""Words up to which each is named, even if names overlap."""


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
        if len(found.words) > MAX_ALL_NAMED and any(
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
        "TITLE": escape(title),
        "SENTENCE": escape(found.describe()),
        "DATA": script_data(data),
    }
    return fill_page("embedding_map.html", parts)
