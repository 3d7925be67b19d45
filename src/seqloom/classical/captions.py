"""Captions without learning: the most frequent one, and that of the nearest image.

    most frequent    argmax_y count(y)                        the same for every image
    nearest image    y of argmin_i ‖t(x) − t(x_i)‖²            t: the image in at most 16 x 16 pixels, each a mean

A model that describes images is compared with both.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32, Int64

THUMBNAIL = 16
"""Pixels of a row or column, at most, by which images are compared."""

MAX_COMPARED = 20_000
"""Training images, the first ones, among which the nearest is found: that takes seconds."""

AT_ONCE = 256
"""Images that are compared at a time."""

Pixels = Float32[np.ndarray, "images channels height width"]


def most_frequent(captions: Sequence[str]) -> str:
    """The caption that most images have; of equally frequent ones, the first."""
    return Counter(captions).most_common(1)[0][0]


def thumbnails(pixels: Pixels) -> Float32[np.ndarray, "images numbers"]:
    """Images as means of blocks of pixels; what a block does not fill at the bottom and right is left out."""
    images, channels, height, width = pixels.shape
    down, right = -(-height // THUMBNAIL), -(-width // THUMBNAIL)
    rows, columns = height // down, width // right
    cut = pixels[:, :, : rows * down, : columns * right].reshape(images, channels, rows, down, columns, right)
    small: np.ndarray = cut.mean((3, 5)).reshape(images, -1)
    return small


def nearest_images(
    known: Callable[[np.ndarray], Pixels], count: int, *, asked: Callable[[np.ndarray], Pixels], asked_count: int
) -> Int64[np.ndarray, " asked"]:
    """The nearest of the first `count` known images for each of those asked for; both are read in parts."""
    table = np.concatenate([thumbnails(known(part)) for part in _parts(min(count, MAX_COMPARED))])
    squares = np.square(table).sum(1)
    found = []
    for part in _parts(asked_count):
        found.append((squares - 2 * thumbnails(asked(part)) @ table.T).argmin(1))
    return np.concatenate(found).astype(np.int64)


def _parts(count: int) -> list[np.ndarray]:
    return [np.arange(begin, min(begin + AT_ONCE, count)) for begin in range(0, count, AT_ONCE)]
