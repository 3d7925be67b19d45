"""Sound: WAV files of any rate, resampling, and log-mel features.

    read_wave      samples in [−1, 1], the mean of all channels
    resample       y(n) = Σ_k x(k) h(n · from / to − k)              band-limited interpolation with a windowed sinc
    log_mel        X_t(b) = log max(floor, Σ_k M_b(k) |DFT_t(k)|²)   the energy in bands that are as wide as an ear's

A WAV file is a list of chunks, each with a name of four letters and its size. Here `fmt ` says how samples are stored,
`data` has them, and all others are passed over. What is cut or contradicts itself is an error that names the file.
"""

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Float64
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import ConfigError, DataError, Problem, UsageError
from seqloom.core.files import require_file

MAX_FILE_BYTES = 1 << 30
"""Bytes of one file: three hours of stereo at 48 kHz and 16 bits are just above."""

MAX_RATE = 1_000_000
"""Samples per second. Sound cards have up to 768,000; a damaged file can claim any number."""

MAX_CHANNELS = 64

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
FORMATS = {2: "ADPCM", 6: "A-law", 7: "µ-law", 0x11: "IMA ADPCM", 0x31: "GSM", 0x50: "MPEG", 0x55: "MP3", 0xFF: "AAC"}
"""Codes of formats that are not read, for messages."""

GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
"""What follows the code of a format in the extensible header."""

KINDS = {(PCM, 8): "u1", (PCM, 16): "<i2", (PCM, 24): "u1", (PCM, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"}
"""How numpy reads samples of a format and so many bits; those of 24 bits byte by byte."""

REMEDY = "convert it, for example with: ffmpeg -i IN -c:a pcm_s16le OUT.wav"


# --- WAV files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wave:
    """A recording with one channel."""

    samples: Float32[np.ndarray, " samples"]
    """In [−1, 1]; a file of floats may exceed that."""
    rate: int
    """Samples per second."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def read_wave(path: Path) -> Wave:
    """The recording in a WAV file: whole numbers of 8, 16, 24 or 32 bits, or floats of 32 or 64."""
    require_file(path)
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise _error(str(path), f"{size:,} bytes; files of up to {MAX_FILE_BYTES:,} bytes are read: cut it into parts")
    return decode_wave(path.read_bytes(), str(path))


def decode_wave(data: bytes, name: str) -> Wave:
    """The recording in the bytes of a WAV file; `name` is that of the file, for messages."""
    if data[:4] in (b"RIFX", b"RF64"):
        raise _error(name, f"the variant {data[:4].decode()} of WAV is not supported; {REMEDY}")
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _error(name, f"not a WAV file: it begins with the bytes {data[:12].hex(' ') or '(none)'}; {REMEDY}")
    declared = int.from_bytes(data[4:8], "little") + 8
    if declared > len(data) + 1:  # the byte after a last chunk of odd size is often counted, but not written
        raise _error(
            name, f"the file is cut: its header declares {declared:,} bytes, and it has {len(data):,}; copy it again"
        )
    layout, begin = None, 12
    while begin + 8 <= len(data):
        chunk, size = data[begin : begin + 4], int.from_bytes(data[begin + 4 : begin + 8], "little")
        body = data[begin + 8 : begin + 8 + size]
        if len(body) < size:
            shown = chunk.decode("ascii", "backslashreplace").strip()
            raise _error(
                name,
                f"the file is cut: its chunk {shown!r} declares {size:,} bytes, {len(body):,} follow; copy it again",
            )
        if chunk == b"fmt ":
            layout = _layout(body, name)
        elif chunk == b"data":
            if layout is None:
                raise _error(name, f"the samples come before the chunk 'fmt ' that describes them; {REMEDY}")
            return Wave(_samples(body, layout, name), layout.rate)
        begin += 8 + size + size % 2  # chunks begin at even bytes
    raise _error(
        name, f"the file has no samples: the chunk {'fmt' if layout is None else 'data'!r} is missing; {REMEDY}"
    )


@dataclass(frozen=True)
class _Layout:
    """How samples are stored."""

    code: int
    bits: int
    channels: int
    rate: int


def _layout(body: bytes, name: str) -> _Layout:
    """What a chunk `fmt ` says, checked."""
    if len(body) < 16:
        raise _error(name, f"the chunk 'fmt ' has {len(body)} bytes; 16 or more are needed")
    code, channels, rate, _, block, bits = struct.unpack("<HHIIHH", body[:16])
    if code == EXTENSIBLE:
        if len(body) < 40 or body[26:40] != GUID_TAIL:
            raise _error(name, f"the extensible header ({len(body)} bytes) does not name a known format; {REMEDY}")
        code = int.from_bytes(body[24:26], "little")
    if (code, bits) not in KINDS:
        kind = {PCM: "whole numbers", FLOAT: "floats"}.get(code) or f"{FORMATS.get(code, 'format')} (code {code:#06x})"
        raise _error(
            name,
            f"{bits} bits of {kind} are not supported; whole numbers of 8, 16, 24 or 32 bits and floats of 32 or 64 "
            f"are: {REMEDY}",
        )
    if not 1 <= channels <= MAX_CHANNELS:
        raise _error(name, f"{channels} channels; 1 to {MAX_CHANNELS} are supported")
    if not 1 <= rate <= MAX_RATE:
        raise _error(name, f"{rate:,} samples per second; 1 to {MAX_RATE:,} are supported")
    if block != channels * bits // 8:
        raise _error(name, f"{block} bytes for {channels} channels of {bits} bits do not agree: the header is damaged")
    return _Layout(code, bits, channels, rate)


def _samples(body: bytes, layout: _Layout, name: str) -> Float32[np.ndarray, " samples"]:
    """The mean of all channels. Whole numbers of b bits are divided by 2^(b−1); those of 8 bits have their 0 at 128."""
    block = layout.channels * layout.bits // 8
    if len(body) % block:
        raise _error(name, f"{len(body):,} bytes of samples are not a multiple of {block}: the file is cut or damaged")
    if not body:
        raise _error(name, "the recording is empty: 0 samples")
    stored = np.frombuffer(body, KINDS[layout.code, layout.bits])
    if layout.code == FLOAT:
        if not np.isfinite(stored).all():
            raise _error(
                name, f"sample {int(np.argmin(np.isfinite(stored))) // layout.channels:,} is not a finite number"
            )
        values = stored.astype(np.float64)
    elif layout.bits == 8:
        values = (stored.astype(np.float64) - 128) / 128
    elif layout.bits == 24:
        wide = np.zeros((len(stored) // 3, 4), np.uint8)
        wide[:, 1:] = stored.reshape(-1, 3)  # as the upper three of four bytes, which keep the sign
        values = wide.view("<i4")[:, 0] / 2.0**31
    else:
        values = stored / 2.0 ** (layout.bits - 1)
    if np.abs(values).max() > np.finfo(np.float32).max:
        raise _error(name, f"samples of up to {np.abs(values).max():.3g} are too large; the usual range is −1 to 1")
    mixed: Float32[np.ndarray, " samples"] = values.reshape(-1, layout.channels).mean(1).astype(np.float32)
    return mixed


def _error(name: str, message: str) -> DataError:
    return DataError(problems=[Problem(message, name)])


# --- resampling ------------------------------------------------------------------------------------------------------

ZERO_CROSSINGS = 10
"""Of the sinc, at either side."""

KAISER_BETA = 5.0
"""Shape of the window: what should pass or should not is off by about 0.2%."""


def resample(samples: Float[np.ndarray, " samples"], rate: int, *, to: int) -> Float[np.ndarray, " resampled"]:
    """A recording at another rate, with all that the lower of both rates can hold.

        y(n) = Σ_k x(k) h(n · rate / to − k)                         ⌈samples · to / rate⌉ samples
        h(t) ∝ sinc(c t) · kaiser(c t / 10)   for |c t| ≤ 10         c = min(1, to / rate): the lower rate's band

    h is scaled for a constant to keep its value. The filter is that of `scipy.signal.resample_poly`.
    """
    if min(rate, to) < 1:
        raise UsageError(f"cannot resample from {rate} to {to} samples per second; both must be 1 or more")
    if rate == to or not len(samples):
        return samples
    common = math.gcd(rate, to)
    up, down = to // common, rate // common
    table, reach = _phases(up, down)  # [up, 2 · reach + 1]
    # y(n) lies at n · down / up of x. Those of one phase, n = p + m · up, lie `down` samples apart.
    padded = np.pad(samples.astype(np.float64), reach)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)  # window i has its centre at x(i)
    resampled = np.empty(-(-len(samples) * up // down))
    for phase in range(min(up, len(resampled))):
        places = windows[phase * down // up :: down]
        resampled[phase::up] = places[: len(resampled[phase::up])] @ table[phase]
    return resampled.astype(samples.dtype)


@lru_cache(maxsize=4)
def _phases(up: int, down: int) -> tuple[Float64[np.ndarray, "up taps"], int]:
    """h for outputs n = 0 … up − 1, by the place of the input around ⌊n · down / up⌋, and how far it reaches.

    On the grid of both rates, where x is at every `up`-th point and y at every `down`-th.
    """
    widest = max(up, down)
    half = ZERO_CROSSINGS * widest
    grid = np.arange(-half, half + 1)
    h = np.sinc(grid / widest) * np.kaiser(2 * half + 1, KAISER_BETA)
    h *= up / h.sum()
    reach = half // up + 1
    outputs = np.arange(up)[:, None] * down
    distance = outputs - (outputs // up + np.arange(-reach, reach + 1)) * up  # [up, taps] on the grid
    table = np.where(np.abs(distance) <= half, h[np.clip(distance, -half, half) + half], 0.0)
    table.flags.writeable = False  # since it is cached
    return table, reach


# --- log-mel features ------------------------------------------------------------------------------------------------


class MelConfig(Config):
    """How sound becomes frames of log-mel features."""

    rate: int = Field(16_000, ge=1_000, le=MAX_RATE)
    """Samples per second to which recordings are resampled; what is above half of it is lost."""
    window: float = Field(0.025, gt=0, le=1)
    """Length of a frame, in seconds."""
    hop: float = Field(0.01, gt=0, le=1)
    """Time from one frame to the next, in seconds."""
    bands: int = Field(40, ge=1, le=512)
    """Numbers for each frame."""
    lowest: float = Field(20.0, ge=0)
    """Where the lowest band begins, in Hz."""
    highest: float | None = Field(None, gt=0)
    """Where the highest band ends, in Hz; by default half of the rate."""
    floor: float = Field(1e-10, gt=0)
    """The least energy that a band counts as having, so that its logarithm is finite."""
    dynamic_range: float | None = Field(None, gt=0)
    """How far energies lie below the loudest of the recording at most, in nats; what is softer counts as that. So
    pauses without any noise are not different from others. By default there is no limit."""

    @property
    def window_samples(self) -> int:
        return max(1, round(self.window * self.rate))

    @property
    def hop_samples(self) -> int:
        return max(1, round(self.hop * self.rate))

    def frames(self, samples: int) -> int:
        """How many frames so many samples of this rate have."""
        return 1 + max(0, samples - self.window_samples) // self.hop_samples


def log_mel(wave: Wave, config: MelConfig) -> Float32[np.ndarray, "frames bands"]:
    """Log-mel features of a recording, which is resampled first.

        DFT_t(k) = Σ_n w(n) x(t · hop + n) exp(−2πi k n / N)          n < window; N: a power of two, window or more
        w(n)     = ½ − ½ cos(2π n / window)                           Hann
        X_t(b)   = log max(floor, Σ_k M_b(k) |DFT_t(k)|²)             M: `mel_bank`
        X_t(b)  ← max(X_t(b), max_sc X_s(c) − dynamic_range)          if it is set

    Frame t begins at sample t · hop. Frames are whole windows: samples after the last one are left out, and a recording
    that is shorter than a window is filled with zeros.
    """
    bank = mel_bank(config)  # [bands, frequencies]
    samples = resample(wave.samples, wave.rate, to=config.rate).astype(np.float64)
    window = config.window_samples
    samples = np.pad(samples, (0, max(0, window - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[:: config.hop_samples]  # [frames, window]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    energy = np.abs(np.fft.rfft(frames * hann, _transform_size(config), axis=1)) ** 2  # [frames, frequencies]
    log_energy = np.log(np.maximum(config.floor, energy @ bank.T))
    if config.dynamic_range is not None:
        log_energy = np.maximum(log_energy, log_energy.max() - config.dynamic_range)
    features: Float32[np.ndarray, "frames bands"] = log_energy.astype(np.float32)
    return features


@lru_cache(maxsize=16)
def mel_bank(config: MelConfig) -> Float64[np.ndarray, "bands frequencies"]:
    """M_b(k): triangles whose corners are evenly spaced on the mel scale, each from its neighbours' peaks to its own.

    mel(f)  = 2595 log₁₀(1 + f / 700)
    M_b(k)  = max(0, min((f_k − f_b−1) / (f_b − f_b−1), (f_b+1 − f_k) / (f_b+1 − f_b)))      f_k = k · rate / N
    """
    highest = config.rate / 2 if config.highest is None else config.highest
    if not config.lowest < highest <= config.rate / 2:
        raise ConfigError(
            f"mel bands from {config.lowest:g} to {highest:g} Hz do not fit {config.rate:,} samples per second; give "
            f"lowest < highest ≤ {config.rate / 2:g}"
        )
    size = _transform_size(config)
    frequencies = np.arange(size // 2 + 1) * config.rate / size
    first, last = (2595 * math.log10(1 + end / 700) for end in (config.lowest, highest))
    corners = 700 * (10 ** (np.linspace(first, last, config.bands + 2) / 2595) - 1)
    before, peak, after = corners[:-2, None], corners[1:-1, None], corners[2:, None]  # [bands, 1] each
    rising, falling = (frequencies - before) / (peak - before), (after - frequencies) / (after - peak)
    bank: Float64[np.ndarray, "bands frequencies"] = np.maximum(0, np.minimum(rising, falling))
    if empty := int((bank.sum(1) == 0).sum()):
        raise ConfigError(
            f"{empty} of {config.bands} mel bands contain no frequency: at {config.rate:,} samples per second, a "
            f"window of {config.window:g} s tells {config.rate / size:.1f} Hz apart; use fewer bands or a longer window"
        )
    bank.flags.writeable = False  # since it is cached
    return bank


def _transform_size(config: MelConfig) -> int:
    """N: the power of two that is not below the window."""
    return 1 << (config.window_samples - 1).bit_length()
