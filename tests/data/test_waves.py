"""Sound: WAV files as Python and scipy read them, resampling as scipy does it, features by a DFT written out."""

import io
import math
import struct
import tarfile
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.data.waves import MelConfig, Wave, decode_wave, log_mel, mel_bank, read_wave, resample


def random() -> np.random.Generator:
    return np.random.default_rng(5)


def pcm(width: int, channels: int, *, rate: int = 8000, frames: int = 50) -> bytes:
    """A WAV file written by Python's own module, of random bytes after the lowest value."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate)
        lowest = bytes(1) if width == 1 else bytes(width - 1) + b"\x80"
        writer.writeframes(lowest * channels + random().bytes(frames * width * channels))
    return file.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def header(code: int, channels: int, bits: int, *, rate: int = 16_000, extra: bytes = b"") -> bytes:
    block = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", code, channels, rate, rate * block, block, bits) + extra)


def extensible(code: int, channels: int, bits: int) -> bytes:
    guid = struct.pack("<H", code) + bytes.fromhex("000000001000800000aa00389b71")
    return header(0xFFFE, channels, bits, extra=struct.pack("<HHI", 22, bits, 3) + guid)


def integers(data: bytes) -> tuple[np.ndarray, int]:
    """The samples of a PCM file by Python's module, number by number: [frames, channels] in [−1, 1], and the rate."""
    with wave.open(io.BytesIO(data)) as reader:
        width, channels, raw = reader.getsampwidth(), reader.getnchannels(), reader.readframes(reader.getnframes())
        rate = reader.getframerate()
    pieces = [raw[place : place + width] for place in range(0, len(raw), width)]
    if width == 1:
        values = [piece[0] - 128 for piece in pieces]
    else:
        values = [int.from_bytes(piece, "little", signed=True) for piece in pieces]
    return np.array(values).reshape(-1, channels) / 2 ** (8 * width - 1), rate


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_whole_numbers_equal_those_of_python(width: int, channels: int) -> None:
    data = pcm(width, channels, rate=11_025, frames=51)
    expected, rate = integers(data)
    found = decode_wave(data, "a.wav")
    assert found.rate == rate
    np.testing.assert_allclose(found.samples, expected.mean(1), rtol=0, atol=6e-8)  # float32 in [−1, 1]
    assert found.samples[0] == -1
    note = chunk(b"LIST", b"odd")  # other chunks, also of odd size, are passed over
    assert np.array_equal(decode_wave(riff(note, data[12:]), "a.wav").samples, found.samples)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["uint8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("is_extensible", [False, True])
def test_files_equal_those_of_scipy(tmp_path: Path, kind: str, is_extensible: bool) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    dtype = np.dtype(kind)
    code = 3 if dtype.kind == "f" else 1
    written = random().uniform(-1, 1, (40, 2)) if code == 3 else random().integers(0, 127, (40, 2))
    path = tmp_path / "a.wav"
    if is_extensible:
        bits = 8 * dtype.itemsize
        path.write_bytes(riff(extensible(code, 2, bits), chunk(b"data", written.astype(dtype).tobytes())))
    else:
        wavfile.write(path, 22_050, written.astype(dtype))
    rate, theirs = wavfile.read(path)
    expected = theirs.astype(np.float64)
    if dtype.kind == "u":
        expected = (expected - 128) / 128
    elif dtype.kind == "i":
        expected /= 2.0 ** (8 * dtype.itemsize - 1)
    ours = read_wave(path)
    assert ours.rate == rate
    np.testing.assert_allclose(ours.samples, expected.mean(1), rtol=0, atol=6e-8)


@given(st.integers(0, 145))
def test_a_file_that_is_cut_anywhere_is_an_error(end: int) -> None:
    with pytest.raises(DataError, match=r"^cut\.wav: "):
        decode_wave(pcm(2, 1)[:end], "cut.wav")


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_named(changes: list[tuple[int, int]]) -> None:
    data = bytearray(pcm(2, 2))
    for place, byte in changes:
        data[place] = byte
    try:
        found = decode_wave(bytes(data), "damaged.wav")
    except DataError as error:
        message = str(error)
    else:
        message = "damaged.wav: read" if len(found.samples) and np.isfinite(found.samples).all() else ""
    assert message.startswith("damaged.wav: ")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    samples = chunk(b"data", bytes(8))
    huge = b"data" + struct.pack("<I", 0xFFFFFFFF) + bytes(8)
    cases = {
        "not a WAV file: it begins with the bytes 4f 67": b"OggS" + bytes(40),
        "(none)": b"",
        "the variant RF64": b"RF64" + bytes(40),
        "0 channels; 1 to 64 are supported": riff(header(1, 0, 16), samples),
        "0 samples per second": riff(header(1, 1, 16, rate=0), samples),
        "4,000,000,000 samples per second": riff(header(1, 1, 8, rate=4_000_000_000), samples),
        "12 bits of whole numbers are not supported": riff(header(1, 1, 12), samples),
        "16 bits of MP3 (code 0x0055) are not supported": riff(header(0x55, 1, 16), samples),
        "does not name a known format": riff(header(0xFFFE, 1, 16), samples),
        "4 bytes for 2 channels of 8 bits do not agree": riff(
            chunk(b"fmt ", struct.pack("<HHIIHH", 1, 2, 8000, 1, 4, 8)), samples
        ),
        "8 bytes of samples are not a multiple of 6": riff(header(1, 2, 24), samples),
        "the recording is empty: 0 samples": riff(header(1, 1, 16), chunk(b"data", b"")),
        "the chunk 'data' is missing": riff(header(1, 1, 16)),
        "the samples come before the chunk 'fmt '": riff(samples, header(1, 1, 16)),
        "its chunk 'data' declares 4,294,967,295 bytes, 8 follow": riff(header(1, 1, 16), huge),
        "sample 1 is not a finite number": riff(
            header(3, 1, 32), chunk(b"data", np.array([0, np.nan], np.float32).tobytes())
        ),
        "samples of up to 1e+300 are too large": riff(header(3, 1, 64), chunk(b"data", np.array([1e300]).tobytes())),
    }
    for message, data in cases.items():
        path = tmp_path / "bad.wav"
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            read_wave(path)
        assert message in str(caught.value)
        assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(UsageError, match="no such file"):
        read_wave(tmp_path / "none.wav")


@pytest.mark.parity
@pytest.mark.parametrize(("rate", "to"), [(8000, 16_000), (44_100, 16_000), (48_000, 8000), (11_025, 16_000), (7, 3)])
def test_resampling_equals_scipy(rate: int, to: int) -> None:
    """The filter is the same, so only rounding differs: a sum of some hundred products of numbers near 1."""
    signal = pytest.importorskip("scipy.signal")
    for count in (1, 2, 997):
        x = random().standard_normal(count)
        common = math.gcd(rate, to)
        theirs = signal.resample_poly(x, to // common, rate // common)
        ours = resample(x, rate, to=to)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("rate", "to"), [(8000, 16_000), (44_100, 16_000), (16_000, 8000)])
def test_a_tone_stays_a_tone_and_one_that_does_not_fit_goes(rate: int, to: int) -> None:
    """Away from the ends, where the recording has no neighbours; the filter is off by 0.2% by its design."""

    def tone(frequency: float, at: int) -> np.ndarray:
        return np.sin(2 * np.pi * frequency * np.arange(at // 4) / at)

    middle = slice(to // 20, -to // 20)
    np.testing.assert_allclose(
        resample(tone(700, rate), rate, to=to)[middle], tone(700, to)[middle], rtol=0, atol=0.004
    )
    if to < rate:
        assert np.abs(resample(tone(0.65 * to, rate), rate, to=to)[middle]).max() < 0.004
    assert resample(tone(700, rate).astype(np.float32), rate, to=to).dtype == np.float32


@pytest.mark.parametrize(
    "config",
    [
        MelConfig(),
        MelConfig(rate=8000, window=0.032, hop=0.016, bands=20, lowest=0, highest=3500),
        MelConfig(rate=11_025, window=0.023, bands=12),
    ],
)
def test_features_equal_a_dft_that_is_written_out(config: MelConfig) -> None:
    window, hop = round(config.window * config.rate), round(config.hop * config.rate)
    x = random().uniform(-1, 1, window + 2 * hop + 3).astype(np.float32)
    size = 2 ** math.ceil(math.log2(window))
    highest = config.highest or config.rate / 2

    def mel(frequency: float) -> float:
        return 2595 * math.log10(1 + frequency / 700)

    def frequency_of(value: float) -> float:
        return 700 * (10 ** (value / 2595) - 1)

    step = (mel(highest) - mel(config.lowest)) / (config.bands + 1)
    corners = [frequency_of(mel(config.lowest) + step * place) for place in range(config.bands + 2)]
    expected = np.zeros((3, config.bands))
    n = np.arange(window)
    for t in range(3):
        part = x[t * hop : t * hop + window] * np.sin(np.pi * n / window) ** 2  # Hann, by another formula
        for k in range(size // 2 + 1):
            angle = 2 * np.pi * k * n / size
            energy = float(part @ np.cos(angle)) ** 2 + float(part @ np.sin(angle)) ** 2
            f = k * config.rate / size
            for b in range(config.bands):
                left, peak, right = corners[b : b + 3]
                if left < f < right:
                    expected[t, b] += energy * (
                        (f - left) / (peak - left) if f <= peak else (right - f) / (right - peak)
                    )
    found = log_mel(Wave(x, config.rate), config)
    assert found.shape == (3, config.bands) == (config.frames(len(x)), config.bands)
    np.testing.assert_allclose(found, np.log(expected), rtol=0, atol=1e-5)  # float32


def test_features_of_short_silent_and_resampled_recordings() -> None:
    config = MelConfig(floor=1e-6)
    silence = log_mel(Wave(np.zeros(3, np.float32), 16_000), config)
    np.testing.assert_allclose(silence, np.full((1, 40), math.log(1e-6)), rtol=1e-6)
    tone = np.sin(2 * np.pi * 1000 * np.arange(8000) / 8000).astype(np.float32)
    found = log_mel(Wave(tone, 8000), config)
    assert len(found) == config.frames(16_000)
    peaks = mel_bank(config).argmax(1) * 16_000 / 512
    assert abs(peaks[found[50].argmax()] - 1000) < 60
    with pytest.raises(ConfigError, match="200 mel bands contain no frequency"):
        mel_bank(MelConfig(bands=200))
    with pytest.raises(ConfigError, match="mel bands from 20 to 9000 Hz do not fit 16,000 samples per second"):
        mel_bank(MelConfig(highest=9000.0))


def test_every_recording_of_spoken_digits_is_read(real_data: Path) -> None:
    archive = real_data / "fsdd" / "recordings.tar.gz"
    if not archive.is_file():
        pytest.skip(f"{archive} is missing")
    count, seconds = 0, 0.0
    with tarfile.open(archive) as recordings:
        for member in recordings:
            if not member.name.endswith(".wav"):
                continue
            file = recordings.extractfile(member)
            assert file is not None
            data = file.read()
            found = decode_wave(data, member.name)
            with wave.open(io.BytesIO(data)) as reader:
                theirs = np.frombuffer(reader.readframes(reader.getnframes()), "<i2")
                assert (reader.getnchannels(), reader.getframerate()) == (1, found.rate)
            assert np.array_equal(found.samples * 32768, theirs)
            count, seconds = count + 1, seconds + found.seconds
    assert count == 2000
    assert 847 < seconds < 849


def test_softer_than_the_dynamic_range_is_all_the_same() -> None:
    """Silence of zeros and faint noise become equal; what is loud keeps its energies."""
    noise = random().normal(size=8000)
    wave = Wave(np.concatenate([0.5 * noise, np.zeros(4000), 1e-5 * noise]).astype(np.float32), 8000)
    whole = log_mel(wave, MelConfig(rate=8000, bands=24))
    bounded = log_mel(wave, MelConfig(rate=8000, bands=24, dynamic_range=9.0))
    np.testing.assert_array_equal(bounded, np.maximum(whole, whole.max() - np.float32(9)))
    assert np.unique(bounded[110:140]).size == np.unique(bounded[160:]).size == 1
    np.testing.assert_array_equal(bounded[:90], whole[:90])
