"""Images with captions: tables that name them, and the images of a run with their captions, stored.

    images/17.png<tab>a red circle above a blue square            TSV; the other order will do as well
    {"image": "images/17.png", "caption": "a red circle …"}       JSONL
    {"image": "images/17.png", "captions": ["a …", "two …"]}      JSONL; several right answers

Names of files are relative to the table. An image that is named in several lines has all of their captions. Every file
is decoded when a table is opened, so that all that is wrong is known, with its line, before anything slow.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64, Integer, UInt

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, borders, damaged, open_folder
from seqloom.core.errors import ConfigError, DataError, Problems, UsageError
from seqloom.core.text_files import OnBad
from seqloom.data.frames import kind_of
from seqloom.data.images import MAX_PIXELS, ImageConfig, Pixels, Scaling, Size, prepared, read_image
from seqloom.data.transcribed import TEXT_HEADINGS, Sample, TextForm, read_tables

CAPTIONS = TextForm(
    "caption",
    ("caption", "captions", *TEXT_HEADINGS),
    'a table with the name of an image, a tab and its caption in each line, or JSON records with "image" and "caption"',
    "write what it shows",
    has_several=True,
)


@dataclass(frozen=True)
class CaptionedImage:
    """An image file with its captions, all of which are right."""

    path: Path
    captions: tuple[str, ...]
    table: Path
    line: int
    """Where it is named first."""


# --- tables ----------------------------------------------------------------------------------------------------------


def read_captioned(
    paths: Sequence[Path], *, encoding: str = "utf-8", on_bad: OnBad = "error", needs_captions: bool = True
) -> list[CaptionedImage]:
    """The images that tables name, in their order, each once. A DataError names all lines that are wrong.

    No image is read yet.
    """
    samples = read_tables(paths, encoding=encoding, on_bad=on_bad, needs_text=needs_captions, form=CAPTIONS)
    problems, by_path = Problems(), dict[Path, list[Sample]]()
    for sample in samples:
        if not isinstance(sample.source, Path) or kind_of(sample.source) != "image":
            message = f"{sample.name()} is not an image; captions are of .png, .jpg and the like"
            problems.add(message, Path(sample.file), sample.line)
            continue
        by_path.setdefault(sample.source, []).append(sample)
    problems.require_none()
    return [
        CaptionedImage(
            path, tuple(dict.fromkeys(each.text or "" for each in named)), Path(named[0].file), named[0].line
        )
        for path, named in by_path.items()
    ]


@dataclass(frozen=True)
class CheckedImages:
    """Images that can all be decoded."""

    images: tuple[CaptionedImage, ...]
    size: Size
    """Of all of them, or to which they are resized."""
    channels: Literal[1, 3]
    scaling: Scaling
    """Of these images."""
    fingerprint: str
    """A hash of values and captions."""

    def __len__(self) -> int:
        return len(self.images)


def check_captioned(
    images: Sequence[CaptionedImage],
    config: ImageConfig,
    *,
    size: Size | None = None,
    channels: Literal[1, 3] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> CheckedImages:
    """Decode all images once. A DataError names those that cannot be used, with the lines of their tables.

    `size` and `channels` are those of a model, if there is one; without them, those of the first image, and 1 channel
    if all images are grey.
    """
    if not images:
        raise UsageError("no images were given")
    wanted, digest, problems = config.size or size, hashlib.sha256(), Problems()
    if wanted is not None and not 1 <= min(wanted) <= math.prod(wanted) <= MAX_PIXELS:
        raise ConfigError(
            f"images cannot be resized to {wanted[0]} x {wanted[1]} pixels; use 1 to {MAX_PIXELS:,} pixels"
        )
    origin = "the model reads" if size is not None else ""
    total, squares, are_grey, count = np.zeros(3), np.zeros(3), True, 0
    for place, image in enumerate(images):
        try:
            raw = read_image(image.path)
        except (DataError, UsageError) as error:
            problems.add(str(error), image.table, image.line)
            continue
        height, width, own = raw.shape
        if wanted is None:
            wanted, origin = (height, width), f"{image.path} has"
        if config.size is None and (height, width) != wanted:
            problems.add(
                f"{image.path} has {height} x {width} pixels, but {origin} {wanted[0]} x {wanted[1]}; resize it, or "
                "train with data.images.size to resize all images",
                image.table,
                image.line,
            )
            continue
        are_grey, count = are_grey and own == 1, count + 1
        values = prepared(raw, channels=3, size=wanted)
        digest.update(values.tobytes() + "\n".join(image.captions).encode("utf-8", "surrogatepass"))
        total += values.mean((1, 2), dtype=np.float64)
        squares += np.square(values, dtype=np.float64).mean((1, 2))
        progress(place + 1, len(images))
    problems.require_none()
    assert wanted is not None
    used = channels or config.channels or (1 if are_grey else 3)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    deviation[deviation < 1e-6] = 1  # rounding leaves about 1e-8 where all values are equal
    numbers = (tuple(map(float, each[:1] if used == 1 and are_grey else each)) for each in (mean, deviation))
    means, deviations = numbers
    if used == 1 and not are_grey:  # of colours as one number, which is not needed more exactly
        means, deviations = (float(np.mean(means)),), (float(np.mean(deviations)),)
    return CheckedImages(tuple(images), wanted, used, Scaling(mean=means, deviation=deviations), digest.hexdigest())


def read_pixels(paths: Sequence[Path], *, channels: Literal[1, 3], size: Size) -> Pixels:
    """The values of images in this size, in [0, 1]."""
    return np.stack([prepared(read_image(path), channels=channels, size=size) for path in paths])


# --- images of a run -------------------------------------------------------------------------------------------------

# A folder with raw little-endian arrays and a header, as `data.store` writes its own:
#
#     pixels      the values of each image, channel by channel, as bytes
#     captions    how many captions each has (uint32)
#     numbers     its number among the images of its tables, counted from 1 (int64)
#     ids         symbols of all captions, without BEGIN and END
#     symbols     how many each has (uint32)

LAYOUT = ArrayLayout(
    "store of images with captions",
    "captions.json",
    1,
    lambda ids: {"pixels": "u1", "captions": "<u4", "numbers": "<i8", "ids": ids, "symbols": "<u4"},
)


class CaptionedWriter:
    """Appends images to a new store. The folder appears when all of it is on disk."""

    def __init__(self, folder: Path, *, symbols: int) -> None:
        self._writer = ArrayFolderWriter(folder, LAYOUT, symbols=symbols)
        self.images = 0

    def append(self, pixels: Pixels, captions: Sequence[Sequence[int]], *, number: int) -> None:
        """Add an image, as a batch of one, with its captions."""
        self._writer.append(
            {
                "pixels": np.rint(255 * pixels),
                "captions": np.array([len(captions)]),
                "numbers": np.array([number]),
                "ids": self._writer.ids(captions),
                "symbols": np.array([len(ids) for ids in captions]),
            }
        )
        self.images += 1

    def __enter__(self) -> "CaptionedWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._writer.end(self.images, is_good=kind is None, nothing="no images are left to store")


class CaptionedStore:
    """The images of a folder that a CaptionedWriter has made, mapped into memory."""

    numbers: Int64[np.ndarray, " images"]
    captions: UInt[np.ndarray, " images"]
    symbols: UInt[np.ndarray, " captions"]

    def __init__(self, folder: ArrayFolder, shape: tuple[int, int, int]) -> None:
        arrays = folder.arrays
        self.captions, self.numbers, self.symbols = (arrays[name] for name in ("captions", "numbers", "symbols"))
        self.ids: UInt[np.ndarray, " symbols"] = arrays["ids"]
        self._pixels = arrays["pixels"].reshape(-1, *shape)
        self._first, self._begins = borders(self.captions), borders(self.symbols)
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, channels: int, size: Size) -> "CaptionedStore":
        """Map a store into memory, after its hashes were compared with the header."""
        found = open_folder(folder, LAYOUT, verify=True)
        arrays = found.arrays
        images, captions = len(arrays["captions"]), int(arrays["captions"].sum(dtype=np.int64))
        if len(arrays["pixels"]) != images * channels * math.prod(size) or len(arrays["numbers"]) != images:
            raise damaged(folder, LAYOUT, f"{images:,} images have {len(arrays['pixels']):,} values")
        if captions != len(arrays["symbols"]) or int(arrays["symbols"].sum(dtype=np.int64)) != len(arrays["ids"]):
            raise damaged(folder, LAYOUT, f"{len(arrays['symbols']):,} captions are not as many as are counted")
        return CaptionedStore(found, (channels, *size))

    def __len__(self) -> int:
        return len(self.captions)

    def pixels(self, indices: Integer[np.ndarray, " batch"]) -> Pixels:
        """The values of these images, in [0, 1]."""
        values: np.ndarray = self._pixels[indices].astype(np.float32) / 255
        self._folder.drop_pages()
        return values

    def of_image(self, image: int) -> range:
        """The captions of an image, by their places among all captions."""
        return range(int(self._first[image]), int(self._first[image + 1]))

    def caption(self, place: int) -> Int64[np.ndarray, " symbols"]:
        """The symbols of a caption."""
        return self.ids[self._begins[place] : self._begins[place + 1]].astype(np.int64)

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()
