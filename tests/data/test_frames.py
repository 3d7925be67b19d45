"""Frames of sound, strokes and images: what leaves them unchanged, how they vary, tables, and what is refused."""

import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from seqloom.core.errors import DataError
from seqloom.data.frames import (
    FrameKind,
    FramesConfig,
    Strokes,
    VariationConfig,
    finished,
    image_frames,
    read_frames,
    stroke_frames,
)
from seqloom.data.transcribed import FrameStore, FrameWriter, check_samples, read_tables
from seqloom.data.waves import MelConfig, Wave, log_mel, mel_bank

CONFIG = FramesConfig(mel=MelConfig(rate=8000))


def write_wave(path: Path, samples: int = 4000, rate: int = 8000) -> Path:
    values = np.random.default_rng(samples).integers(-9000, 9000, samples).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(values.tobytes())
    return path


def squiggle(points: int = 60) -> np.ndarray:
    at = np.linspace(0, 4 * np.pi, points)
    return np.stack([at + np.cos(at), np.sin(1.3 * at)], 1)


# --- frames ----------------------------------------------------------------------------------------------------------


def test_log_mel_energies_are_those_of_torch() -> None:
    config = MelConfig(rate=8000)  # windows of 200 samples, transforms of 256
    x = np.random.default_rng(1).uniform(-1, 1, 900).astype(np.float32)

    def energies(before: int) -> np.ndarray:
        """torch puts a window into the middle of its transform, so that 28 samples come before it."""
        padded = torch.nn.functional.pad(torch.from_numpy(x).double(), (before, 28))
        window = torch.hann_window(200, dtype=torch.float64)
        spectrum = torch.stft(padded, 256, 80, 200, window, center=False, return_complex=True)
        return np.log(mel_bank(config) @ (spectrum.abs() ** 2).numpy()).T

    ours = log_mel(Wave(x, 8000), config)
    np.testing.assert_allclose(ours, energies(28), rtol=0, atol=1e-5)
    assert np.abs(ours - energies(29)[: len(ours)]).max() > 0.01


@given(st.floats(0.01, 100), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(-0.3, 0.3), st.integers(2, 6))
def test_strokes_do_not_depend_on_size_place_and_density(
    scale: float, right: float, down: float, slope: float, density: int
) -> None:
    path = squiggle()
    along = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    dense = np.sort(np.concatenate([along, np.random.default_rng(1).uniform(0, along[-1], 60 * density)]))
    resampled = np.stack([np.interp(dense, along, column) for column in path.T], 1)
    moved = scale * resampled + [right, down]
    one, other = (stroke_frames(Strokes((each,)), spacing=0.1) for each in (path, moved))
    assert abs(len(one) - len(other)) <= 1
    if len(one) == len(other):
        np.testing.assert_allclose(one, other, rtol=0, atol=0.02)
    tilted = stroke_frames(Strokes((path + np.outer(path[:, 0], [0, slope]),)), spacing=0.1)
    assert np.abs(tilted[:, 2]).max() < 1.3 * np.abs(one[:, 2]).max() + 0.2  # heights are above the line itself


def test_steps_lead_along_the_path_and_dots_remain() -> None:
    strokes = Strokes.of([[[0, 0], [0, 10]], [[4, 5]], [[8, 0, 17], [8, 10, 18]]])
    frames = stroke_frames(strokes, spacing=0.05)
    dx, dy, above, up = frames.T
    on_paper = up == 0
    assert np.count_nonzero((dx == 0) & (dy == 0) & on_paper) == 1  # the dot
    np.testing.assert_allclose(np.hypot(dx, dy)[on_paper & (dx + dy != 0)], 1, rtol=0.05)
    height = 10 / -dy[on_paper][: 1 + np.flatnonzero(up)[0]][: np.flatnonzero(up)[0]].sum()
    assert (dx.sum() * height, dy.sum() * height) == pytest.approx((8, -10), abs=0.1)
    assert above[0] > 0.3  # y is downwards in files, and upwards in frames


def test_images_become_columns_of_ink(tmp_path: Path) -> None:
    pixels = np.full((20, 50), 250, np.uint8)
    pixels[5:15, 10:14] = 20
    for name, values in (("dark.png", pixels), ("light.png", 255 - pixels)):
        Image.fromarray(values).save(tmp_path / name)
    dark, light = (image_frames(tmp_path / f"{name}.png", height=10) for name in ("dark", "light"))
    assert dark.shape == (25, 10)
    np.testing.assert_allclose(dark, light, rtol=0, atol=0.02)
    assert dark[6, 5] > 0.9
    assert dark[20].max() < 0.05


@settings(max_examples=20)
@given(st.sampled_from(["sound", "strokes", "image"]), st.integers(0, 99), st.integers(30, 60))
def test_variation_is_drawn_from_its_generator_alone(kind: FrameKind, seed: int, fewest: int) -> None:
    frames = np.random.default_rng(3).normal(size=(60, 4 if kind == "strokes" else 20)).astype(np.float32)
    vary, before = VariationConfig(speed=0.5), frames.copy()

    def drawn(seed: int) -> np.ndarray:
        return finished(frames, kind, vary=vary, random=np.random.default_rng(seed), fewest=fewest)

    one = drawn(seed)
    np.testing.assert_array_equal(one, drawn(seed))
    assert one.shape != drawn(seed + 100).shape or not np.array_equal(one, drawn(seed + 100))
    assert fewest <= len(one) <= 90
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(frames, before)
    none = VariationConfig(speed=0, warp=0, noise=0, time_masks=0, feature_masks=0, slant=0, stretch=0, jitter=0)
    same = finished(frames, kind, vary=none, random=np.random.default_rng(seed))
    if kind != "strokes":  # whose pen is either up or down
        np.testing.assert_allclose(same, finished(frames, kind), rtol=0, atol=1e-5)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_in_every_form_name_the_same_samples(tmp_path: Path) -> None:
    write_wave(tmp_path / "a.wav")
    write_wave(tmp_path / "b.wav", 3000, 4000)
    forms = {
        "plain.tsv": "a.wav\tone two\nb.wav\tthree\n",
        "turned.tsv": "one two\ta.wav\nthree\tb.wav\n",
        "headed.tsv": "id\tpath\tsentence\n1\ta.wav\tone two\n2\tb.wav\tthree\n",
        "records.jsonl": '{"file": "a.wav", "text": "one two"}\n{"audio": "b.wav", "transcript": "three"}\n',
    }
    found = []
    for name, content in forms.items():
        (tmp_path / name).write_text(content)
        samples = read_tables([tmp_path / name])
        assert [(sample.source, sample.text) for sample in samples] == [
            (tmp_path / "a.wav", "one two"),
            (tmp_path / "b.wav", "three"),
        ]
        found.append(check_samples(samples, CONFIG))
    assert {each.fingerprint for each in found} == {found[0].fingerprint}
    assert (found[0].kind, found[0].rate, found[0].frames.tolist()) == ("sound", 4000, [50, 75])


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("a.wav\tone\na.wav\t \n", 2, "the transcript of .*a.wav is empty"),
        ("a.wav\tone\ncut.wav\ttwo\n", 2, "cut.wav: the file is cut"),
        ("a.wav\tone\nmissing.wav\ttwo\n", 2, "missing.wav"),
        ("a.wav\tone\n\na.wav\ttwo\n", 2, "blank"),
        ("a.wav\tone\tmore\tcolumns\n", 1, "4 columns; expected two"),
        ("one\ttwo\n", 1, "no columns with a file"),
        ("a.wav\tone\npicture.png\ttwo\n", 2, "is of kind image, but .*a.wav is of kind sound"),
        ("picture.png\ttwo\n", 1, "picture.png: not an image"),
        ('{"strokes": [[[0, 1]]], "text": ""}\n', 1, "the transcript of the strokes is empty"),
        ('{"strokes": [[[0, 1], [2, "x"]]], "text": "a"}\n', 1, "stroke 1 has the point"),
        ('{"strokes": [], "text": "a"}\n', 1, "there are none"),
        ('{"text": "a"}\n', 1, 'neither "strokes" nor "file"'),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, content: str, line: int, message: str) -> None:
    whole = write_wave(tmp_path / "a.wav").read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[:-100])
    (tmp_path / "picture.png").write_text("no image")
    table = tmp_path / ("table.jsonl" if content.startswith("{") else "table.tsv")
    table.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        check_samples(read_tables([table]), CONFIG)
    assert (caught.value.problems[0].file, caught.value.problems[0].line) == (str(table), line)


def test_a_store_gives_back_what_was_stored(tmp_path: Path) -> None:
    (tmp_path / "strokes.json").write_text(json.dumps({"strokes": [squiggle().tolist()]}))
    frames = [read_frames(tmp_path / "strokes.json", CONFIG), read_frames(Strokes((squiggle(9),)), CONFIG)]
    with FrameWriter(tmp_path / "store", symbols=9) as writer:
        for number, each in enumerate(frames):
            writer.append(each, [4, 5, 8][: number + 1], line=number + 7)
    store = FrameStore.open(tmp_path / "store", features=4)
    for number, each in enumerate(frames):
        np.testing.assert_array_equal(store.frames(number), each)
    assert (store.target(1).tolist(), store.lines.tolist()) == ([4, 5], [7, 8])
    with pytest.raises(DataError, match="frames have"):
        FrameStore.open(tmp_path / "store", features=5)
