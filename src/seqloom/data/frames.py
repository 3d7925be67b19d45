"""Frames: sound, pen strokes and images as sequences of vectors, and how they are varied in training.

    sound     a frame every 10 ms: log-mel energies (`data/waves.py`), each band with mean 0 and deviation 1
    strokes   a frame for each step of equal length along the path of the pen: (Δx, Δy, y, is the pen up?)
    image     a frame for each column of pixels: ink between 0 and 1, from top to bottom

A model that reads frames (`models/ctc.py`) does not know which of them it reads. `read_frames` gives them as they are
stored, and `finished` as they are read: varied in training, and normalised. What changes in a sample is drawn from a
generator that its caller makes from seed, epoch and sample, so that neither batches nor their order matter and nothing
has to be saved to resume.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Float64
from PIL import Image
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import DataError, Problem
from seqloom.core.files import parse_json, require_file
from seqloom.data.images import read_image
from seqloom.data.waves import MelConfig, log_mel, read_wave

Frames = Float32[np.ndarray, "_ features"]
"""As many frames as there are, each of so many numbers."""
Stroke = Float64[np.ndarray, "_ 2"]

FrameKind = Literal["sound", "strokes", "image"]

SUFFIXES: dict[str, FrameKind] = {
    ".wav": "sound", ".wave": "sound", ".json": "strokes",
    ".png": "image", ".jpg": "image", ".jpeg": "image", ".bmp": "image", ".gif": "image", ".tif": "image",
    ".tiff": "image", ".webp": "image", ".pgm": "image", ".ppm": "image",
}  # fmt: skip
"""What files with these endings hold."""

STROKE_FEATURES = 4

MAX_POINTS = 1_000_000
"""Points of the strokes of one sample."""

MAX_COORDINATE = 1e9

MAX_FRAMES = 1_000_000
"""Frames of one sample: nearly three hours of sound."""

MIN_DEVIATION = 0.5
"""Of a band of log-mel energies, in nats: silence is not amplified beyond this."""


# --- settings --------------------------------------------------------------------------------------------------------


class VariationConfig(Config):
    """How training samples are varied, each time in another way. All are limits: what is drawn lies between."""

    speed: float = Field(0.15, ge=0, lt=1)
    """Sound and image columns are faster or slower, strokes smaller or larger, by up to this share."""
    warp: float = Field(0.15, ge=0, lt=1)
    """Sound: frequencies are higher or lower by up to this share of the mel scale, as voices differ. Images: the same
    of heights."""
    noise: float = Field(0.3, ge=0, le=10)
    """Sound: loudness of noise, as a share of the loudest parts. Images: its standard deviation, of ink between 0 and
    1, is up to a tenth of this."""
    time_masks: int = Field(2, ge=0, le=100)
    """Spans of time that are blanked out."""
    time_mask: int = Field(8, ge=0, le=1_000)
    """Frames of each such span."""
    feature_masks: int = Field(2, ge=0, le=100)
    """Spans of frequency or of height that are blanked out; none of strokes."""
    feature_mask: float = Field(0.15, ge=0, lt=1)
    """Share of all features in each such span."""
    slant: float = Field(0.4, ge=0, le=2)
    """Strokes: how far they lean, in widths per height."""
    stretch: float = Field(0.25, ge=0, lt=1)
    """Strokes: by what share they are wider or narrower."""
    jitter: float = Field(0.15, ge=0, le=1)
    """Strokes: standard deviation of the noise of each step, in steps."""


class FramesConfig(Config):
    """How recordings, strokes or images become frames."""

    kind: FrameKind | None = None
    """What samples are; by default what the training files are."""
    mel: MelConfig = MelConfig()
    """Sound: the frames. The rate is by default the lowest of the training files, up to 16,000."""
    spacing: float = Field(0.1, gt=0, le=1)
    """Strokes: length of a step along the path, in heights of the writing."""
    height: int = Field(32, ge=4, le=512)
    """Images: pixels to which their height is scaled; the width follows."""
    vary: VariationConfig = VariationConfig()
    """How training samples are varied."""

    def features(self, kind: FrameKind) -> int:
        """Numbers of each frame."""
        return {"sound": self.mel.bands, "strokes": STROKE_FEATURES, "image": self.height}[kind]


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Strokes:
    """What a pen has written: its points from each time that it touches the paper to the next time it is lifted."""

    strokes: tuple[Stroke, ...]

    @staticmethod
    def of(value: Any) -> "Strokes":
        """From JSON, [[[x, y], …], …] with y downwards; a time after each x and y is left out. A DataError says what
        is wrong."""
        if not isinstance(value, list) or not value:
            raise DataError("strokes must be a list of strokes, each a list of points [x, y]; there are none")
        strokes, points = [], 0
        for number, stroke in enumerate(value, start=1):
            if not isinstance(stroke, list) or not stroke:
                raise DataError(f"stroke {number} has no points; a stroke is a list of points [x, y]")
            points += len(stroke)
            if points > MAX_POINTS:
                raise DataError(f"more than {MAX_POINTS:,} points; split the writing")
            for point in stroke:
                if (
                    not isinstance(point, list)
                    or len(point) not in (2, 3)
                    or not all(type(each) in (int, float) and abs(each) <= MAX_COORDINATE for each in point[:2])
                ):
                    raise DataError(f"stroke {number} has the point {str(point)[:40]}; a point is [x, y], two numbers")
            strokes.append(np.array([point[:2] for point in stroke], np.float64))
        return Strokes(tuple(strokes))


Source = Path | Strokes
"""A sample: a file, or strokes that were given in a table."""


def kind_of(source: Source) -> FrameKind | None:
    """What a sample is, by the ending of its file; None if that is not known."""
    return "strokes" if isinstance(source, Strokes) else SUFFIXES.get(source.suffix.lower())


def read_strokes(path: Path) -> Strokes:
    """The strokes in a file: a JSON list, or an object with the member `strokes`."""
    require_file(path)
    try:
        value = parse_json(path.read_bytes())
    except ValueError as error:
        raise DataError(problems=[Problem(f"not JSON: {error}", str(path))]) from error
    try:
        return Strokes.of(value.get("strokes") if isinstance(value, dict) else value)
    except DataError as error:
        raise DataError(problems=[Problem(str(error), str(path))]) from error


def read_frames(source: Source, config: FramesConfig) -> Frames:
    """The frames of a sample, neither varied nor normalised yet. A DataError says what is wrong with it."""
    kind = kind_of(source)
    if isinstance(source, Strokes):
        frames = stroke_frames(source, spacing=config.spacing)
    elif kind == "sound":
        frames = log_mel(read_wave(source), config.mel)
    elif kind == "strokes":
        frames = stroke_frames(read_strokes(source), spacing=config.spacing)
    elif kind == "image":
        frames = image_frames(source, height=config.height)
    else:
        known = ", ".join(SUFFIXES)
        raise DataError(problems=[Problem(f"the ending {source.suffix!r} is not one of {known}", str(source))])
    if len(frames) > MAX_FRAMES:
        raise DataError(f"{source if isinstance(source, Path) else 'strokes'}: more than {MAX_FRAMES:,} frames")
    return frames


def stroke_frames(strokes: Strokes, *, spacing: float) -> Frames:
    """Steps of equal length along the path of the pen, on the paper and in the air between strokes.

        step t    (Δx, Δy) / spacing, y, u       y: height above the middle of the line; u: 1 in the air, 0 on paper

    Lengths are in heights of the writing: four standard deviations of the ink around its line, which need not be level.
    This changes less than the distance from top to bottom if there are few tall letters. x is to the right and y
    upwards, which JSON has downwards.
    """
    paths = [stroke * (1.0, -1.0) for stroke in strokes.strokes]
    middle, slope, height = _line_of(paths)
    steps: list[np.ndarray] = []
    pen = paths[0][0]
    for number, path in enumerate(paths):
        if number:
            steps.append(_steps(np.stack([pen, path[0]]), spacing * height, is_up=1.0))
        steps.append(_steps(path, spacing * height, is_up=0.0))
        pen = path[-1]
    points = np.concatenate(steps)  # x, y and u at the end of each step
    before = np.concatenate([paths[0][:1], points[:-1, :2]])
    offsets = (points[:, :2] - before) / (spacing * height)
    above = (points[:, 1] - middle - slope * points[:, 0]) / height
    return np.column_stack([offsets, above, points[:, 2]]).astype(np.float32)


def _line_of(paths: Sequence[Stroke]) -> tuple[float, float, float]:
    """The line on which strokes are written, y = middle + slope · x, and their height."""
    rough = max(float(np.ptp(np.concatenate(paths), axis=0).max()), 1e-9)
    # Points at equal distances: pens record more of them where they are slow.
    ink = np.concatenate([_steps(path, rough / 256, is_up=0.0)[:, :2] for path in paths])
    x, y = ink.T
    slope = 0.0
    if np.ptp(x) > 2 * np.ptp(y):  # a line of writing, and not a few letters, whose shapes would tilt it
        slope = float(np.cov(x, y, bias=True)[0, 1] / x.var())
    rest = y - slope * x
    height = 4 * float(rest.std())
    # Of a single bar the height is not known; it is taken as short.
    return float(rest.mean()), slope, height if height > rough / 64 else rough


def _steps(path: Stroke, length: float, *, is_up: float) -> Float64[np.ndarray, "steps 3"]:
    """Points at about equal distances along a path, without its first; one for a path without length."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    count = min(MAX_FRAMES, max(1, round(along[-1] / length)))
    at = np.linspace(0, along[-1], count + 1)[1:]
    x, y = (np.interp(at, along, column) for column in path.T)
    return np.column_stack([x, y, np.full(count, is_up)])


def image_frames(path: Path, *, height: int) -> Frames:
    """The columns of an image of this height: ink between 0, the background, and 1.

    Light writing on a dark ground is inverted: most pixels are background.
    """
    pixels = read_image(path)  # [height, width, channels]
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("L")
    width = max(1, round(picture.width * height / picture.height))
    if width > MAX_FRAMES:
        raise DataError(problems=[Problem(f"{picture.width} x {picture.height} pixels are too wide", str(path))])
    values = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / max(high - low, 1.0)
    ink = 1 - scaled if np.median(scaled) > 0.5 else scaled
    return np.ascontiguousarray(ink.T)


# --- variation and normalisation -------------------------------------------------------------------------------------


def finished(
    frames: Frames,
    kind: FrameKind,
    *,
    vary: VariationConfig | None = None,
    random: np.random.Generator | None = None,
    fewest: int = 1,
) -> Frames:
    """Frames as a model reads them: varied if `vary` and `random` are given, and normalised.

    `fewest` is the number of frames that must remain, for their transcript to fit.
    """
    if vary is None or random is None:
        return _normalised(frames, kind)
    varied = frames.astype(np.float64)
    varied = _stretched(varied, _factor(random, vary.speed), fewest=fewest)
    if kind == "strokes":
        varied = _slanted(varied, vary, random)
    else:
        varied = _warped(varied, _factor(random, vary.warp))
        varied = _noisy(varied, kind, vary.noise, random)
    normal = _normalised(varied.astype(np.float32), kind)
    for _ in range(vary.time_masks):
        length = int(random.integers(0, vary.time_mask + 1))
        begin = int(random.integers(0, max(1, len(normal) - length)))
        normal[begin : begin + length] = 0
    for _ in range(vary.feature_masks if kind != "strokes" else 0):
        features = normal.shape[1]
        length = int(random.integers(0, round(vary.feature_mask * features) + 1))
        begin = int(random.integers(0, features - length + 1))
        normal[:, begin : begin + length] = 0
    return normal


def _normalised(frames: Frames, kind: FrameKind) -> Frames:
    """Sound: (X_t(b) − mean_b) / deviation_b over the recording, which removes loudness, microphone and room."""
    if kind != "sound":
        return frames.copy()
    normal: Frames = (frames - frames.mean(0)) / np.maximum(frames.std(0), MIN_DEVIATION)
    return normal


def _factor(random: np.random.Generator, share: float) -> float:
    """Between 1 / (1 + share) and 1 + share, above and below 1 alike."""
    return float(math.exp(random.uniform(-1, 1) * math.log1p(share)))


def _stretched(frames: Float64[np.ndarray, "frames features"], factor: float, *, fewest: int) -> np.ndarray:
    """Time by a factor, by linear interpolation."""
    count = max(round(len(frames) * factor), min(fewest, len(frames)), 1)
    return _interpolated(frames, np.linspace(0, len(frames) - 1, count))


def _warped(frames: Float64[np.ndarray, "frames features"], factor: float) -> np.ndarray:
    """Features by a factor: feature b is what was at b · factor; beyond the last, the last."""
    places = np.minimum(np.arange(frames.shape[1]) * factor, frames.shape[1] - 1)
    return _interpolated(frames.T, places).T


def _interpolated(rows: np.ndarray, places: Float64[np.ndarray, " places"]) -> np.ndarray:
    """Rows at places between them."""
    below = np.floor(places).astype(np.int64)
    above, share = np.minimum(below + 1, len(rows) - 1), (places - below)[:, None]
    mixed: np.ndarray = rows[below] * (1 - share) + rows[above] * share
    return mixed


def _noisy(
    frames: Float64[np.ndarray, "frames features"], kind: FrameKind, noise: float, random: np.random.Generator
) -> np.ndarray:
    """Sound: log(exp(X) + exp(N)), energies of speech and noise added; N is steady but for a flutter of one nat.

    N is at most `noise`² of the energy of the loud parts of each band, and in most draws far below. Its spectrum is
    that of the speech itself, tilted at random.
    """
    if noise == 0:
        return frames
    if kind == "image":
        return frames + random.uniform(0, noise / 10) * random.standard_normal(frames.shape)
    loud = np.quantile(frames, 0.9, axis=0)  # [features]
    tilt = random.uniform(-2, 2) * np.linspace(-1, 1, frames.shape[1])
    level = 2 * math.log(noise) - random.exponential(4)
    steady = loud.mean() + 0.5 * (loud - loud.mean()) + tilt + level
    added: np.ndarray = np.logaddexp(frames, steady + random.standard_normal(frames.shape))
    return added


def _slanted(
    frames: Float64[np.ndarray, "frames 4"], vary: VariationConfig, random: np.random.Generator
) -> Float64[np.ndarray, "frames 4"]:
    """Steps that lean, are wider or narrower, and tremble; on the paper and in the air alike."""
    dx, dy, above, up = frames.T
    up = np.rint(up)  # which a change of speed has smoothed
    lean, wide = random.uniform(-vary.slant, vary.slant), _factor(random, vary.stretch)
    noise = vary.jitter * random.uniform() * random.standard_normal((2, len(frames)))
    is_moved = np.hypot(dx, dy) > 0  # not dots
    return np.column_stack([wide * (dx + lean * dy) + noise[0] * is_moved, dy + noise[1] * is_moved, above, up])
