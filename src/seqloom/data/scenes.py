"""Scenes with captions: coloured shapes on small images, described in the languages of the phrasebook.

    a small red circle above a large blue square
    un petit cercle rouge au-dessus d'un grand carré bleu
    ein kleiner roter Kreis über einem großen blauen Quadrat
    一个小的红色圆形在一个大的蓝色正方形的上方

A scene has two shapes, one beside or above the other, or three in a row or a column, of which the middle one is between
the others. Each scene has two right captions: of two shapes either may come first, and of three either outer one.

A combination is a shape with its colour and its place: (circle, red, above). Some of them are held out. No training
image shows them; each image of a test shows at least one. Shape with colour, colour with place, and shape with place
are all in the training images, so that only a model that has learned what each of them looks like names all three.

    table = write_scenes(Path("scenes"), "train", count=4000, languages=["en"])["en"]

Everything that is drawn is a function of the seed, the split and the number of the scene.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64, UInt8
from PIL import Image

from seqloom.core.errors import UsageError
from seqloom.core.seeds import seed_for
from seqloom.data.phrasebook import LANGUAGES

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

Place: TypeAlias = Literal["above", "below", "left", "right", "between"]
PLACES: tuple[Place, ...] = ("above", "below", "left", "right", "between")

SIDE = 64
"""Height and width of an image, in pixels."""

RADII: Mapping[str, tuple[float, float]] = {"small": (6.0, 7.0), "large": (9.0, 10.0)}
"""Pixels from the centre of a shape to its farthest points, from and to."""

MAX_TILT = 3.0
"""Pixels by which the shapes of a row or column are moved across it."""

FINENESS = 4
"""Points in each pixel, in each direction, of which it is the mean."""

HELD_OUT_PAIRS = 12
"""Pairs of shape and colour, of 36, that have one held-out place in the test; as many others have one in dev."""

BETWEEN_SHARE = 0.25
"""Share of scenes with three shapes."""

Rgb: TypeAlias = tuple[int, int, int]

COLOURS: Mapping[str, Rgb] = {
    "red": (210, 40, 40),
    "green": (50, 160, 60),
    "blue": (40, 70, 200),
    "yellow": (235, 205, 40),
    "purple": (140, 60, 170),
    "black": (25, 25, 25),
}


# --- shapes ----------------------------------------------------------------------------------------------------------


def _polygon(*corners: tuple[float | int, float | int]) -> Float64[np.ndarray, "corners 2"]:
    return np.array(corners, np.float64)


def _star(points: int, inner: float) -> Float64[np.ndarray, "corners 2"]:
    angles = np.arange(2 * points) * math.pi / points - math.pi / 2
    radii = np.where(np.arange(2 * points) % 2 == 0, 1.0, inner)
    return np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)


OUTLINES: Mapping[str, Float64[np.ndarray, "corners 2"]] = {
    "circle": _star(32, 1.0),
    "square": 0.8 * _polygon((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle": _polygon((0, -1), (0.95, 0.8), (-0.95, 0.8)),
    "star": _star(5, 0.4),
    "cross": _polygon(
        *((-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3)),
        *((0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)),
    ),
    "diamond": _polygon((0, -1), (0.75, 0), (0, 1), (-0.75, 0)),
}
"""Corners x, y of each shape in a circle of radius 1, y downwards."""


def is_inside(
    corners: Float64[np.ndarray, "corners 2"], x: Float64[np.ndarray, "*points"], y: Float64[np.ndarray, "*points"]
) -> Bool[np.ndarray, "*points"]:
    """Whether points are inside a polygon: a ray from each to the right crosses an odd number of sides."""
    inside = np.zeros(x.shape, bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y1 != y2:
            inside ^= ((y1 > y) != (y2 > y)) & (x < x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    return inside


# --- scenes ----------------------------------------------------------------------------------------------------------


class Thing(NamedTuple):
    """A shape with its size and colour."""

    size: str
    colour: str
    shape: str


@dataclass(frozen=True)
class Scene:
    """Two things side by side or one above the other, or three, of which the second is in the middle."""

    things: tuple[Thing, ...]
    """From left to right, or from top to bottom."""
    is_row: bool

    @property
    def places(self) -> tuple[Place | None, ...]:
        """The place of each thing; that of the outer ones of three has no name."""
        if len(self.things) == 3:
            return None, "between", None
        return ("left", "right") if self.is_row else ("above", "below")

    @property
    def combinations(self) -> set[tuple[str, str, Place]]:
        """Shape, colour and place of each thing that has a place."""
        pairs = zip(self.things, self.places, strict=True)
        return {(thing.shape, thing.colour, place) for thing, place in pairs if place is not None}

    def captions(self, language: str) -> tuple[str, str]:
        """Both right captions."""
        describe = GRAMMARS[language]
        first, *_, last = self.things
        if len(self.things) == 3:
            middle = self.things[1]
            return describe("between", middle, (first, last)), describe("between", middle, (last, first))
        one, other = (place for place in self.places if place is not None)
        return describe(one, first, (last,)), describe(other, last, (first,))


@cache
def held_out(seed: int) -> Mapping[Split, frozenset[tuple[str, str, Place]]]:
    """The combinations of dev and test, which no training scene shows."""
    random = np.random.default_rng(seed_for(seed, "held-out combinations"))
    pairs = list(product(OUTLINES, COLOURS))
    order = random.permutation(len(pairs))
    found = [(*pairs[at], PLACES[number % len(PLACES)]) for number, at in enumerate(order.tolist())]
    test, dev = found[:HELD_OUT_PAIRS], found[HELD_OUT_PAIRS : 2 * HELD_OUT_PAIRS]
    return {"train": frozenset(), "dev": frozenset(dev), "test": frozenset(test)}


def draw_scene(number: int, *, split: Split, seed: int = 1) -> Scene:
    """The scene of this number: one of the test shows a combination of the test, and none of dev, and so on."""
    random = np.random.default_rng(seed_for(seed, f"scene {split}", number))
    kept = held_out(seed)
    hidden = frozenset[tuple[str, str, Place]]().union(*(kept[name] for name in SPLITS if name != split))
    while True:
        is_row, count = bool(random.random() < 0.5), 3 if random.random() < BETWEEN_SHARE else 2
        names = [tuple(OUTLINES), tuple(COLOURS), tuple(RADII)]
        drawn = [[options[at] for at in random.integers(len(options), size=count)] for options in names]
        things = tuple(Thing(size, colour, shape) for shape, colour, size in zip(*drawn, strict=True))
        scene = Scene(things, is_row)
        shown = scene.combinations
        are_different = len({(thing.shape, thing.colour) for thing in things}) == count
        if are_different and not shown & hidden and (split == "train" or shown & kept[split]):
            return scene


def draw_image(scene: Scene, random: np.random.Generator) -> UInt8[np.ndarray, "height width 3"]:
    """The image of a scene: places, sizes and shades are drawn at random within what its captions say."""
    radii = np.array([random.uniform(*RADII[thing.size]) for thing in scene.things])
    free = SIDE - 2 * radii.sum() - len(radii)  # a pixel of it after each shape
    gaps = free * random.dirichlet(np.ones(len(radii) + 1))  # before each, and at the end
    along = np.cumsum(gaps[:-1] + 2 * radii + 1) - radii - 1
    across = random.uniform(radii.max() + MAX_TILT, SIDE - radii.max() - MAX_TILT)
    across = across + random.uniform(-MAX_TILT, MAX_TILT, len(radii))
    canvas = np.full((SIDE, SIDE, 3), random.uniform(225, 255, 3))
    for thing, radius, place, beside in zip(scene.things, radii, along, across, strict=True):
        x, y = (place, beside) if scene.is_row else (beside, place)
        window = np.s_[int(y - radius) : int(y + radius) + 1, int(x - radius) : int(x + radius) + 1]
        down, right = ((np.arange(side.start * FINENESS, side.stop * FINENESS) + 0.5) / FINENESS for side in window)
        u, v = np.meshgrid((right - x) / radius, (down - y) / radius)
        fine = is_inside(OUTLINES[thing.shape], u, v)
        rows, columns = (size // FINENESS for size in fine.shape)
        cover = fine.reshape(rows, FINENESS, columns, FINENESS).mean((1, 3))[:, :, None]  # [rows, columns, 1]
        shade = np.array(COLOURS[thing.colour]) + random.uniform(-15, 15, 3)
        canvas[window] += cover * (shade - canvas[window])
    return np.clip(np.rint(canvas + random.normal(0, 3, canvas.shape)), 0, 255).astype(np.uint8)


def write_scenes(
    folder: Path, split: Split, *, count: int, languages: Sequence[str] = LANGUAGES, seed: int = 1
) -> dict[str, Path]:
    """Images and, for each language, a table that names each image with its two captions, in two lines.

    They are `folder`/images/`split`-000001.png and so on, and `folder`/`split`.en.tsv and so on.
    """
    if unknown := [each for each in languages if each not in GRAMMARS]:
        raise UsageError(f"scenes have no captions in {unknown[0]!r}; languages: {', '.join(LANGUAGES)}")
    if split not in SPLITS or count < 1:
        raise UsageError(f"cannot draw {count} scenes of {split!r}; draw 1 or more of {', '.join(SPLITS)}")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {language: ["image\tcaption"] for language in languages}
    for number in range(1, count + 1):
        scene = draw_scene(number, split=split, seed=seed)
        image = draw_image(scene, np.random.default_rng(seed_for(seed, f"image {split}", number)))
        name = f"images/{split}-{number:06}.png"
        Image.fromarray(image).save(folder / name)
        for language, lines in rows.items():
            lines += [f"{name}\t{caption}" for caption in scene.captions(language)]
    tables = {language: folder / f"{split}.{language}.tsv" for language in languages}
    for language, path in tables.items():
        path.write_text("".join(f"{line}\n" for line in rows[language]), encoding="utf-8")
    return tables


# --- captions: a small grammar for each language ----------------------------------------------------------------------


def _english(place: Place, thing: Thing, others: Sequence[Thing]) -> str:
    words = {"above": "above", "below": "below", "left": "to the left of", "right": "to the right of"}
    named, *rest = (f"a {each.size} {each.colour} {each.shape}" for each in (thing, *others))
    return f"{named} {words.get(place, 'between')} {' and '.join(rest)}"


FRENCH_SHAPES: Mapping[str, tuple[str, int]] = {
    "circle": ("cercle", 0),
    "square": ("carré", 0),
    "triangle": ("triangle", 0),
    "star": ("étoile", 1),
    "cross": ("croix", 1),
    "diamond": ("losange", 0),
}
"""Nouns, and 1 where they are feminine."""

FRENCH_ADJECTIVES: Mapping[str, tuple[str, str]] = {
    "small": ("petit", "petite"),
    "large": ("grand", "grande"),
    "red": ("rouge", "rouge"),
    "green": ("vert", "verte"),
    "blue": ("bleu", "bleue"),
    "yellow": ("jaune", "jaune"),
    "purple": ("violet", "violette"),
    "black": ("noir", "noire"),
}


def _french(place: Place, thing: Thing, others: Sequence[Thing]) -> str:
    def named(each: Thing) -> str:
        noun, gender = FRENCH_SHAPES[each.shape]
        size, colour = (FRENCH_ADJECTIVES[word][gender] for word in (each.size, each.colour))
        return f"{('un', 'une')[gender]} {size} {noun} {colour}"

    words = {"above": "au-dessus d'", "below": "au-dessous d'", "left": "à gauche d'", "right": "à droite d'"}
    return f"{named(thing)} {words.get(place, 'entre ')}{' et '.join(map(named, others))}"


GERMAN_SHAPES: Mapping[str, tuple[str, Literal["m", "f", "n"]]] = {
    "circle": ("Kreis", "m"),
    "square": ("Quadrat", "n"),
    "triangle": ("Dreieck", "n"),
    "star": ("Stern", "m"),
    "cross": ("Kreuz", "n"),
    "diamond": ("Raute", "f"),
}
GERMAN_ADJECTIVES: Mapping[str, str] = {
    "small": "klein",
    "large": "groß",
    "red": "rot",
    "green": "grün",
    "blue": "blau",
    "yellow": "gelb",
    "purple": "violett",
    "black": "schwarz",
}
GERMAN_ENDINGS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("nominative", "m"): ("ein", "er"),
    ("nominative", "f"): ("eine", "e"),
    ("nominative", "n"): ("ein", "es"),
    ("dative", "m"): ("einem", "en"),
    ("dative", "f"): ("einer", "en"),
    ("dative", "n"): ("einem", "en"),
}
"""The article, and the ending of adjectives after it, by case and gender."""


def _german(place: Place, thing: Thing, others: Sequence[Thing]) -> str:
    def named(each: Thing, case: str) -> str:
        noun, gender = GERMAN_SHAPES[each.shape]
        article, ending = GERMAN_ENDINGS[case, gender]
        adjectives = " ".join(GERMAN_ADJECTIVES[word] + ending for word in (each.size, each.colour))
        return f"{article} {adjectives} {noun}"

    words = {"above": "über", "below": "unter", "left": "links von", "right": "rechts von", "between": "zwischen"}
    return f"{named(thing, 'nominative')} {words[place]} {' und '.join(named(each, 'dative') for each in others)}"


CHINESE: Mapping[str, str] = {
    "small": "小",
    "large": "大",
    "red": "红色",
    "green": "绿色",
    "blue": "蓝色",
    "yellow": "黄色",
    "purple": "紫色",
    "black": "黑色",
    "circle": "圆形",
    "square": "正方形",
    "triangle": "三角形",
    "star": "星形",
    "cross": "十字形",
    "diamond": "菱形",
    "above": "的上方",
    "below": "的下方",
    "left": "的左边",
    "right": "的右边",
    "between": "之间",
}


def _chinese(place: Place, thing: Thing, others: Sequence[Thing]) -> str:
    named, *rest = (
        f"一个{CHINESE[each.size]}的{CHINESE[each.colour]}{CHINESE[each.shape]}" for each in (thing, *others)
    )
    return f"{named}在{'和'.join(rest)}{CHINESE[place]}"


GRAMMARS = {"en": _english, "fr": _french, "de": _german, "zh": _chinese}
"""Each describes a thing by its place beside one other, or between two."""
