"""Images with labels, from a folder with one subfolder per class or from one .npz file.

    value     v = byte / 255                          in [0, 1], channel by channel
    scaled    x = (v − mean) / deviation              of each channel, over the training set

`read_images` checks every file and decodes every image once, before anything slow: nothing is skipped. Images of a
folder are then held in memory in the size in which they are used, as bytes; if they are too many for that
(`MAX_HELD_BYTES`), they are decoded again when they are asked for. A run stores their values (`store_images`), so that
it can be resumed without the files. Orientation tags of cameras are not applied.

In training, images are moved and mirrored at random. The random numbers are a function of seed, epoch and the index of
the image alone, so that neither the batches nor the order matter and nothing has to be saved to resume.
"""

import hashlib
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Int64, Integer, UInt, UInt8
from PIL import Image, UnidentifiedImageError
from pydantic import Field

from seqloom.core.arrays import ArrayFolder, ArrayFolderWriter, ArrayLayout, damaged, open_folder
from seqloom.core.config import Config
from seqloom.core.errors import ConfigError, DataError, Problem, UsageError
from seqloom.core.files import require_file
from seqloom.core.seeds import seed_for

Size = tuple[int, int]
"""Height and width."""

Pixels = Float32[np.ndarray, "batch channels height width"]
Planes = Float32[np.ndarray, "channels height width"]
Raw = UInt8[np.ndarray, "height width channels"] | Float32[np.ndarray, "height width channels"]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
"""Formats that are read. Pillow knows more, some of which start other programs."""

MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"}
"""Pixels of eight bits, in the names of Pillow."""

GREY_MODES = ("1", "L", "LA")
"""Those without colours."""

MAX_PIXELS = 1 << 26
"""Pixels of one image. Cameras have up to 64 million; a file of a few bytes can claim any number."""

MAX_MEMBERS = 16
"""Arrays in an .npz file."""

MAX_ARRAY_BYTES = 1 << 32
"""Bytes of all arrays of an .npz file, decompressed."""

MAX_HELD_BYTES = 1 << 30
"""Bytes of all images of a folder that are held decoded."""

MAX_NAMED_CLASSES = 10
"""Classes that a message lists."""

GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Shares of red, green and blue in the brightness of a pixel (ITU-R BT.601)."""

T = TypeVar("T")


# --- settings and values ---------------------------------------------------------------------------------------------


class ImageConfig(Config):
    """How images are read and, in training, varied."""

    channels: Literal[1, 3] | None = None
    """Numbers for each pixel: 3 for colours, 1 for grey; images of the other kind are converted. By default 1 if all
    training images are grey, and otherwise 3."""
    size: tuple[int, int] | None = None
    """Height and width to which images are resized, in pixels; without it, all must have the same size."""
    shift: int = Field(0, ge=0, le=10_000)
    """Pixels by which a training image is moved at most, up or down and left or right; what moves in is black."""
    flip: bool = False
    """Whether half of the training images are mirrored, left to right."""


class Scaling(Config):
    """Mean and deviation of each channel, stored with the model that was trained on them."""

    mean: tuple[float, ...]
    """Mean of the values in [0, 1], for each channel."""
    deviation: tuple[float, ...]
    """Standard deviation of the same; 1 where all values are equal."""

    def apply(self, pixels: Pixels) -> Pixels:
        """(v − mean) / deviation"""
        mean, deviation = (np.array(each, np.float32).reshape(-1, 1, 1) for each in (self.mean, self.deviation))
        scaled: np.ndarray = (pixels - mean) / deviation
        return scaled


class ImageSource(Protocol):
    """Images by number, as they are stored: height, width, 1 or 3 channels, bytes or numbers in [0, 1]."""

    @property
    def pictures(self) -> Sequence[Path | Raw]:
        """The images as they are stored: files that are not decoded yet, or arrays."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Raw: ...


@dataclass(frozen=True)
class LabelledImages:
    """Images of one size with their classes, all of which could be decoded."""

    classes: tuple[str, ...]
    """Names of the classes; a label is a place among them."""
    labels: Int64[np.ndarray, " images"]
    source: ImageSource
    size: Size
    channels: Literal[1, 3]
    scaling: Scaling
    """Of these images."""
    fingerprint: str
    """A hash of classes, labels and values."""
    are_bytes: bool
    """Whether all values are whole 255ths."""

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, indices: Integer[np.ndarray, " batch"]) -> Pixels:
        """The values of these images, in [0, 1]."""
        found = np.empty((len(indices), self.channels, *self.size), np.float32)
        for place, index in enumerate(indices):
            found[place] = prepared(self.source[int(index)], channels=self.channels, size=self.size)
        return found


# --- reading ---------------------------------------------------------------------------------------------------------


def read_images(
    path: Path,
    config: ImageConfig,
    *,
    classes: Sequence[str] = (),
    size: Size | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> LabelledImages:
    """The images of a folder or an .npz file. Those of a dev or test set get `classes` and `size` of the training set.

    `progress` gets the images that were decoded, and all of them.
    """
    if path.is_dir():
        found = _read_folder(path, None if config.size else size, has_size=config.size is not None)
    else:
        require_file(path)
        if path.suffix.lower() != ".npz":
            raise UsageError(
                f"{path}: images are read from a folder with one subfolder per class, or from an .npz file", file=path
            )
        found = _read_arrays(path)
        if size is not None and config.size is None and found.size != size:
            raise DataError(problems=[Problem(_other_size(found.size, f"the model reads {_shown(size)}"), str(path))])
    known = tuple(classes) or tuple(sorted(set(found.names), key=_class_order))
    if len(known) < 2:
        raise DataError(f"{path}: all images have the class {known[0]!r}; 2 or more classes are needed")
    number = {name: place for place, name in enumerate(known)}
    first = dict(zip(found.names[::-1], found.places[::-1], strict=True))  # the first place of each class
    known_text = f"the {len(known)} labels of the training images: {_listed(known)}"
    if problems := [
        Problem(f"the label {name!r} is not among {known_text}", first[name])
        for name in sorted(set(found.names) - number.keys(), key=_class_order)
    ]:
        raise DataError(problems=problems)
    size, channels = config.size or found.size, config.channels or found.channels
    if min(size) < 1 or math.prod(size) > MAX_PIXELS:
        raise ConfigError(f"images cannot be resized to {_shown(size)} pixels; use 1 to {MAX_PIXELS:,} pixels")
    if config.shift >= min(size):
        raise ConfigError(
            f"shift={config.shift} moves images of {_shown(size)} pixels out of view; use {min(size) - 1} or less"
        )
    labels = np.array([number[name] for name in found.names], np.int64)
    digest = hashlib.sha256(repr(known).encode() + labels.tobytes())
    source, scaling, are_bytes = _measured(
        found.source, channels=channels, size=size, digest=digest.update, progress=progress
    )
    return LabelledImages(known, labels, source, size, channels, scaling, digest.hexdigest(), are_bytes)


@dataclass(frozen=True)
class _Found:
    """What a folder or a file holds, before its images are decoded."""

    names: list[str]
    """The class of each image."""
    places: list[str]
    """Where each class is written, for messages."""
    source: ImageSource
    size: Size
    """Of the first image."""
    channels: Literal[1, 3]
    """1 if all images are grey."""


def _shown(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _other_size(size: Size, wanted: str) -> str:
    return f"{_shown(size)} pixels, but {wanted}; resize it, or train with data.images.size to resize all images"


def _class_order(name: str) -> tuple[bool, int, str]:
    """Numbers by value and before all other names."""
    is_number = name.isascii() and name.removeprefix("-").isdecimal() and len(name) < 20
    return not is_number, int(name) if is_number else 0, name


def _listed(classes: Sequence[str]) -> str:
    more = "" if len(classes) <= MAX_NAMED_CLASSES else f" and {len(classes) - MAX_NAMED_CLASSES} more"
    return ", ".join(classes[:MAX_NAMED_CLASSES]) + more


def _measured(
    source: ImageSource,
    *,
    channels: Literal[1, 3],
    size: Size,
    digest: Callable[[bytes], None],
    progress: Callable[[int, int], None],
) -> tuple[ImageSource, Scaling, bool]:
    """Decode all images once, for mean and deviation of the channels, and to find the damaged ones.

    Returned are the images, those of files in this size if they can be held, and whether all values are whole 255ths.
    """
    total, squares, are_bytes = np.zeros(channels), np.zeros(channels), True
    problems: list[Problem] = []
    is_held = isinstance(source, _ImageFiles) and len(source) * math.prod(size) * 3 <= MAX_HELD_BYTES
    held: list[Raw] = []
    for index in range(len(source)):
        try:
            image = source[index]
        except DataError as error:
            problems += error.problems
            continue
        if is_held:
            image = resized(image, size)
            held.append(image)
        values = prepared(image, channels=channels, size=size)
        digest(values.tobytes())
        total += values.sum((1, 2), dtype=np.float64)
        squares += np.square(values, dtype=np.float64).sum((1, 2))
        are_bytes = are_bytes and np.array_equal(np.rint(255 * values) / np.float32(255), values)
        progress(index + 1, len(source))
    if problems:
        raise DataError(problems=problems)
    mean = total / (len(source) * math.prod(size))
    deviation = np.sqrt(np.maximum(squares / (len(source) * math.prod(size)) - mean**2, 0))
    deviation[deviation < 1e-6] = 1  # rounding leaves about 1e-8 where all values are equal
    scaling = Scaling(mean=tuple(map(float, mean)), deviation=tuple(map(float, deviation)))
    return _HeldImages(tuple(held)) if is_held else source, scaling, are_bytes


def resized(
    image: Raw, size: Size
) -> UInt8[np.ndarray, "new_height new_width channels"] | Float32[np.ndarray, "new_height new_width channels"]:
    """One image in this size, with its channels and values as they are stored."""
    if image.shape[:2] == size:
        return image
    planes = [Image.fromarray(np.ascontiguousarray(image[:, :, channel])) for channel in range(image.shape[2])]
    return np.stack([np.asarray(each.resize(size[::-1], Image.Resampling.BILINEAR)) for each in planes], axis=-1)


def prepared(
    image: Raw, *, channels: Literal[1, 3], size: Size
) -> Float32[np.ndarray, "wanted wanted_height wanted_width"]:
    """One image in this size, values in [0, 1], channels first."""
    values = np.array(resized(image, size).transpose(2, 0, 1), np.float32, order="C")  # [channels, height, width]
    if image.dtype == np.uint8:
        values /= 255
    if channels < len(values):
        values = np.tensordot(GREY, values, 1)[None]
    elif channels > len(values):
        values = values.repeat(channels, axis=0)
    return values


# --- folders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ImageFiles:
    """Image files, decoded when they are asked for."""

    pictures: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Raw:
        return read_image(self.pictures[index])


@dataclass(frozen=True)
class _HeldImages:
    """Images of files, decoded."""

    pictures: tuple[Raw, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Raw:
        return self.pictures[index]


def _read_folder(folder: Path, size: Size | None, *, has_size: bool) -> _Found:
    """What a folder with one subfolder per class holds; only headers are read.

    All images must have one size, which is `size` if it is given, unless they are resized (`has_size`).
    """
    paths: list[Path] = []
    problems: list[Problem] = []
    wanted = None if size is None else f"the model reads {_shown(size)}"
    are_grey = True
    for path, fault in _listed_files(folder):
        if fault is not None:
            problems.append(Problem(fault, str(path)))
            continue
        try:
            own_size, is_grey = _with_image(path, _header_of)
        except DataError as error:
            problems += error.problems
            continue
        paths.append(path)
        are_grey = are_grey and is_grey
        size, wanted = size or own_size, wanted or f"{path} has {_shown(own_size)}"
        if own_size != size and not has_size:
            problems.append(Problem(_other_size(own_size, wanted), str(path)))
    if problems:
        raise DataError(problems=problems)
    if not paths or size is None:
        raise DataError(f"{folder}: no images; one subfolder for each class is needed, with its images inside")
    homes = [path.parent for path in paths]
    source = _ImageFiles(tuple(paths))
    return _Found([home.name for home in homes], list(map(str, homes)), source, size, 1 if are_grey else 3)


def _is_hidden(name: str) -> bool:
    """Whether a file is hidden, or one that Windows adds to folders of images."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini")


def _listed_files(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """All files of the classes, sorted, and what is wrong with their places. Hidden and system files are left out."""

    def visible(within: Path) -> list[Path]:
        try:
            return sorted(each for each in within.iterdir() if not _is_hidden(each.name))
        except OSError as error:
            raise UsageError(f"{within} cannot be read: {error.strerror}", file=within) from error

    for home in visible(folder):
        if not home.is_dir():
            yield home, "not in the folder of a class; images are in one subfolder per class"
            continue
        files = visible(home)
        if not files:
            yield home, "a class without images; add some or remove the folder"
        for path in files:
            yield path, None if path.is_file() else "not a file; the images of a class are directly in its folder"


def _with_image(path: Path, read: Callable[[Image.Image], T]) -> T:
    """What `read` finds in an image file; whatever is wrong with the file is a DataError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                if image.mode not in MODES:
                    message = f"pixels of the kind {image.mode} are not supported; convert them to 8 bits"
                    raise DataError(problems=[Problem(message, str(path))])
                return read(image)
    except (DataError, MemoryError):
        raise
    except UnidentifiedImageError:
        message = f"not an image, or a damaged one; supported formats: {', '.join(FORMATS)}"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        message = f"more than {MAX_PIXELS:,} pixels; scale the image down"
    except OSError as error:
        message = f"damaged image ({error})" if error.errno is None else f"cannot be read: {error.strerror}"
    except Exception as error:  # decoders raise nearly anything for damaged bytes: SyntaxError, struct.error …
        message = f"damaged image ({error})"
    raise DataError(problems=[Problem(message, str(path))])


def read_image(path: Path) -> Raw:
    """A decoded image file; one that is damaged, or no image, is a DataError."""
    require_file(path)
    return _with_image(path, _bytes_of)


def _header_of(image: Image.Image) -> tuple[Size, bool]:
    """Size, and whether it is grey."""
    return (image.height, image.width), image.mode in GREY_MODES


def _bytes_of(image: Image.Image) -> UInt8[np.ndarray, "height width channels"]:
    """Decoded, in 1 or 3 channels; transparency is left out."""
    if image.mode in ("P", "PA", "RGBa"):  # to RGB, Pillow warns of palettes with transparency and converts no RGBa
        image = image.convert("RGBA")
    image = image.convert("L" if image.mode in GREY_MODES else "RGB")
    values = np.asarray(image, np.uint8)
    return values if values.ndim == 3 else values[:, :, None]


# --- arrays ----------------------------------------------------------------------------------------------------------


def _read_arrays(path: Path) -> _Found:
    """What an .npz file with images and labels holds."""
    arrays = _load_arrays(path, ("images", "labels"))
    images, labels = _checked_images(path, arrays["images"]), arrays["labels"]
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: labels has the shape {list(labels.shape)} and the type {labels.dtype}; needed is one whole "
            "number or string for each image"
        )
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(images):,} images, but {len(labels):,} labels")
    names = [str(label) for label in labels.tolist()]
    for number, name in enumerate(names, start=1):
        if not name.strip() or any(sign in name for sign in "\t\n\r"):
            raise DataError(f"{path}: image {number}: the label {name!r} is blank, or has a tab or a line end in it")
    places = [f"{path}: image {number}" for number in range(1, 1 + len(names))]
    _, height, width, channels = images.shape
    return _Found(names, places, _ImageArray(images), (height, width), 1 if channels == 1 else 3)


def read_unlabelled(path: Path) -> ImageSource:
    """The images of an .npz file, whether it has labels or not."""
    require_file(path)
    return _ImageArray(_checked_images(path, _load_arrays(path, ("images",))["images"]))


def _checked_images(path: Path, found: np.ndarray) -> np.ndarray:
    """The array `images` of a file, with its channels; floats have 32 bits."""
    images = found[:, :, :, None] if found.ndim == 3 else found
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
        raise DataError(
            f"{path}: images has the shape {list(found.shape)}; needed are [images, height, width] or "
            "[images, height, width, channels] with 1 or 3 channels, none of them 0"
        )
    if math.prod(images.shape[1:3]) > MAX_PIXELS:
        raise DataError(f"{path}: images of more than {MAX_PIXELS:,} pixels; scale them down")
    return checked_values(images, str(path))


def checked_values(images: np.ndarray, place: str) -> np.ndarray:
    """Bytes, or values in 0 … 1 as floats of 32 bits; anything else is a DataError."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise DataError(f"{place}: images has the type {images.dtype}; needed are bytes (uint8) or floats in 0 … 1")
    smallest, largest = float(images.min()), float(images.max())
    if not 0 <= smallest <= largest <= 1:  # false for NaN, too
        raise DataError(
            f"{place}: values of images are from {smallest:g} to {largest:g}; scale them to 0 … 1, or store bytes "
            "(uint8)"
        )
    return images.astype(np.float32)


@dataclass(frozen=True)
class _ImageArray:
    """Images in memory."""

    pictures: Any
    """[images, height, width, channels], bytes or floats of 32 bits."""

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Raw:
        image: np.ndarray = self.pictures[index]
        return image


def _load_arrays(path: Path, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    """These arrays of an .npz file, never pickled ones. Sizes are compared before memory is taken for them."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > MAX_MEMBERS or size > MAX_ARRAY_BYTES:
                raise DataError(
                    f"{path}: {len(members):,} arrays of {size:,} bytes; at most {MAX_MEMBERS} arrays and "
                    f"{MAX_ARRAY_BYTES:,} bytes are read"
                )
            missing = [name for name in wanted if f"{name}.npy" not in archive.namelist()]
            if missing:
                found = ", ".join(member.filename.removesuffix(".npy") for member in members) or "none"
                raise DataError(f"{path}: no array named {missing[0]!r}; found: {found}")
            return {name: _load_array(archive, archive.getinfo(f"{name}.npy")) for name in wanted}
    except (DataError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy have many errors for damaged bytes
        raise DataError(f"{path}: not an .npz file that can be read ({error})") from error


def _load_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"{member.filename} has version {version} of the format")
        shape, _, dtype = read_header[version](file)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects, which are never loaded")
        if file.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{member.filename} has the shape {list(shape)}, and another number of bytes")
    with archive.open(member) as file:
        loaded: Any = np.lib.format.read_array(file, allow_pickle=False)
    array: np.ndarray = loaded
    return array


# --- variation in training -------------------------------------------------------------------------------------------


def augmented(
    pixels: Pixels, samples: Integer[np.ndarray, " batch"], config: ImageConfig, *, seed: int, epoch: int
) -> Pixels:
    """Images moved and mirrored at random, as `config` says, before they are scaled.

    The change of an image is a function of seed, epoch and its number among `samples` alone.
    """
    if not (config.shift or config.flip):
        return pixels
    height, width = pixels.shape[2:]
    changed = np.empty_like(pixels)
    for place, sample in enumerate(samples):
        random = np.random.default_rng(seed_for(seed, "images", epoch, int(sample)))
        down, right = random.integers(-config.shift, config.shift + 1, 2)
        image = pixels[place, :, :, ::-1] if random.random() < 0.5 and config.flip else pixels[place]
        changed[place] = 0
        changed[place, :, max(down, 0) : height + down, max(right, 0) : width + right] = image[
            :, max(-down, 0) : height - down, max(-right, 0) : width - right
        ]
    return changed


# --- images of a run -------------------------------------------------------------------------------------------------


def hold_out_images(labels: Int64[np.ndarray, " images"], count: int, *, seed: int) -> Bool[np.ndarray, " images"]:
    """True for about so many images that are held out, of each class in proportion; no class loses its last."""
    random = np.random.default_rng(seed)
    share = np.empty(len(labels))  # of its class that comes before an image, in random order
    for label in np.unique(labels):
        (places,) = np.nonzero(labels == label)
        share[random.permutation(places)] = (np.arange(len(places)) + 0.5) / len(places)
        share[places[share[places].argmax()]] = math.inf
    order = np.lexsort((random.random(len(labels)), share))[:count]
    is_held = np.zeros(len(labels), bool)
    is_held[order] = np.isfinite(share[order])
    return is_held


# A folder with raw little-endian arrays and a header, as `data.store` writes its own:
#
#     pixels      the values of each image, channel by channel: bytes, or floats where these are not exact
#     labels      its class (uint32)
#     numbers     its number in the folder or file it comes from (int64)

BYTES, FLOATS = (
    ArrayLayout(
        "store of images",
        header,
        1,
        lambda _ids, kind=kind: {"pixels": kind, "labels": "<u4", "numbers": "<i8"},  # type: ignore[misc]
    )
    for header, kind in (("bytes.json", "u1"), ("floats.json", "<f4"))
)

STORED_AT_ONCE = 64
"""Images that are stored at a time."""


def store_images(
    images: LabelledImages,
    indices: Integer[np.ndarray, " chosen"],
    folder: Path,
    *,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Store these images in a new folder. `progress` gets the images done and the total."""
    writer, is_good = (
        ArrayFolderWriter(folder, BYTES if images.are_bytes else FLOATS, symbols=len(images.classes)),
        False,
    )
    try:
        for begin in range(0, len(indices), STORED_AT_ONCE):
            some = indices[begin : begin + STORED_AT_ONCE]
            pixels = images.pixels(some)
            if images.are_bytes:
                pixels = np.rint(255 * pixels)
            writer.append({"pixels": pixels, "labels": images.labels[some], "numbers": some})
            progress(begin + len(some), len(indices))
        is_good = True
    finally:
        writer.end(len(indices), is_good=is_good, nothing="no images are left to store")


class ImageStore:
    """The images of a folder that `store_images` has made, mapped into memory."""

    labels: UInt[np.ndarray, " images"]
    numbers: Int64[np.ndarray, " images"]

    def __init__(self, folder: ArrayFolder, shape: tuple[int, int, int]) -> None:
        self.labels, self.numbers = folder.arrays["labels"], folder.arrays["numbers"]
        self._pixels = folder.arrays["pixels"].reshape(len(self.labels), *shape)
        self._folder = folder

    @staticmethod
    def open(folder: Path, *, channels: int, size: Size, classes: int) -> "ImageStore":
        """Map a store into memory, after its hashes were compared with the header."""
        layout = BYTES if (folder / BYTES.header).is_file() else FLOATS
        found = open_folder(folder, layout, verify=True)
        pixels, labels, numbers = (found.arrays[name] for name in ("pixels", "labels", "numbers"))
        if len(pixels) != len(labels) * channels * math.prod(size) or len(labels) != len(numbers):
            raise damaged(folder, layout, f"{len(labels):,} images have {len(pixels):,} values")
        if int(labels.max()) >= classes:
            raise damaged(folder, layout, f"class {int(labels.max())} of {classes} classes")
        return ImageStore(found, (channels, *size))

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, indices: Integer[np.ndarray, " batch"]) -> Pixels:
        """The values of these images, in [0, 1]."""
        values: np.ndarray = self._pixels[indices].astype(np.float32)
        if self._pixels.dtype == np.uint8:
            values /= 255
        self._folder.drop_pages()  # so that the memory of a run does not grow with its images
        return values

    def fingerprint(self) -> str:
        """A hash of all that is stored."""
        return self._folder.fingerprint()
