"""The reader of images: folders and arrays, what it refuses, scaling and variation."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.data.images import MAX_PIXELS, ImageConfig, LabelledImages, Scaling, augmented, prepared, read_images

GREY = ImageConfig(channels=1)
COLOUR = ImageConfig(channels=3)
RANDOM = np.random.default_rng(1)


def picture(height: int = 4, width: int = 5, channels: int = 3) -> np.ndarray:
    return RANDOM.integers(0, 256, (height, width, channels), np.uint8)


def write_folder(folder: Path, count: int = 3, classes: tuple[str, ...] = ("cats", "dogs")) -> Path:
    """A folder with some pictures of 4 x 5 pixels in each class."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(picture()).save(folder / name / f"{number}.png")
    return folder


def all_pixels(images: LabelledImages) -> np.ndarray:
    return images.pixels(np.arange(len(images)))


def test_a_folder_is_read_with_one_class_per_subfolder(tmp_path: Path) -> None:
    write_folder(tmp_path, 2)
    for name in (".hidden", "Thumbs.db", "desktop.ini"):
        (tmp_path / "cats" / name).write_text("left out")
    images = read_images(tmp_path, COLOUR)
    assert (images.classes, images.labels.tolist(), images.size) == (("cats", "dogs"), [0, 0, 1, 1], (4, 5))
    expected = np.asarray(Image.open(tmp_path / "dogs" / "1.png")).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(images.pixels(np.array([3]))[0], expected, rtol=0, atol=1e-7)
    again = read_images(tmp_path, COLOUR)
    np.testing.assert_array_equal(all_pixels(images)[::-1], again.pixels(np.array([3, 2, 1, 0])))
    assert again.fingerprint == images.fingerprint
    Image.fromarray(picture()).save(tmp_path / "dogs" / "1.png")
    assert read_images(tmp_path, COLOUR).fingerprint != images.fingerprint


@pytest.mark.parametrize(
    "config", [GREY, COLOUR, ImageConfig(channels=1, size=(3, 7)), ImageConfig(channels=3, size=(8, 2))]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_and_arrays_of_bytes_or_floats_give_the_same(
    tmp_path: Path, config: ImageConfig, channels: int
) -> None:
    pictures = np.stack([picture(channels=channels) for _ in range(4)])
    for number, each in enumerate(pictures):
        home = tmp_path / "folder" / "ab"[number % 2]
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(each.squeeze()).save(home / f"{number}.png")
    order = [0, 2, 1, 3]
    labels = np.array(["a", "a", "b", "b"])
    np.savez(tmp_path / "bytes.npz", images=pictures[order].squeeze(), labels=labels)
    np.savez_compressed(tmp_path / "floats.npz", images=pictures[order] / 255, labels=labels)
    folder, whole, floats = (read_images(tmp_path / name, config) for name in ("folder", "bytes.npz", "floats.npz"))
    np.testing.assert_array_equal(all_pixels(folder), all_pixels(whole))
    assert (
        (folder.labels.tolist(), folder.classes) == (whole.labels.tolist(), whole.classes) == ([0, 0, 1, 1], ("a", "b"))
    )
    # Resized bytes are rounded, along columns and along rows.
    np.testing.assert_allclose(all_pixels(floats), all_pixels(whole), rtol=0, atol=1.01 / 255 if config.size else 1e-6)
    assert all_pixels(whole).shape == (4, config.channels, *(config.size or (4, 5)))


@pytest.mark.parametrize(
    ("mode", "suffix"), [("1", "png"), ("P", "gif"), ("LA", "png"), ("RGBA", "webp"), ("CMYK", "jpg")]
)
def test_every_kind_of_bytes_becomes_grey_or_colour(tmp_path: Path, mode: str, suffix: str) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        image = Image.fromarray(np.full((6, 6, 3), 128, np.uint8)).convert("L" if mode == "1" else "RGB").convert(mode)
        image.save(tmp_path / name / f"0.{suffix}")
    for config in (GREY, COLOUR):
        values = all_pixels(read_images(tmp_path, config))
        assert values.shape == (2, config.channels, 6, 6)
        assert np.abs(values.mean() - 128 / 255) < 0.02


def test_grey_is_that_of_pillow_and_resizing_keeps_a_ramp() -> None:
    image = picture(7, 9)
    expected = np.asarray(Image.fromarray(image).convert("L")) / 255
    np.testing.assert_allclose(prepared(image, channels=1, size=(7, 9))[0], expected, rtol=0, atol=0.5 / 255 + 1e-6)
    ramp = np.linspace(0, 1, 8, dtype=np.float32)[:, None, None].repeat(8, 1)
    doubled = prepared(ramp, channels=3, size=(16, 4))
    # A pixel of the larger image lies at (i + ½) / 2 − ½ of the smaller one, which does not end before its borders.
    along = np.clip((np.arange(16) + 0.5) / 2 - 0.5, 0, 7) / 7
    np.testing.assert_allclose(doubled, np.broadcast_to(along[:, None], (3, 16, 4)), rtol=0, atol=1e-6)


def test_scaling_is_that_of_the_training_set_and_can_be_stored(tmp_path: Path) -> None:
    images = read_images(write_folder(tmp_path), COLOUR)
    values = all_pixels(images)
    np.testing.assert_allclose(images.scaling.mean, values.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(images.scaling.deviation, values.std((0, 2, 3)), rtol=1e-6)
    stored = Scaling.model_validate_json(images.scaling.model_dump_json())
    scaled = stored.apply(values)
    np.testing.assert_allclose(scaled.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std((0, 2, 3)), 1, rtol=1e-5)
    np.savez(tmp_path / "flat.npz", images=np.full((2, 3, 3), 51, np.uint8), labels=[0, 1])
    flat = read_images(tmp_path / "flat.npz", GREY)
    assert (flat.scaling.mean, flat.scaling.deviation) == ((pytest.approx(0.2),), (1.0,))
    assert np.abs(flat.scaling.apply(all_pixels(flat))).max() < 1e-6


def test_other_sets_get_the_classes_of_the_training_set(tmp_path: Path) -> None:
    images = np.zeros((3, 2, 2), np.uint8)
    np.savez(tmp_path / "train.npz", images=images, labels=[10, 9, 2])
    np.savez(tmp_path / "dev.npz", images=images, labels=["9", "9", "10"])
    train = read_images(tmp_path / "train.npz", GREY)
    assert (train.classes, train.labels.tolist()) == (("2", "9", "10"), [2, 1, 0])
    assert read_images(tmp_path / "dev.npz", GREY, classes=train.classes).labels.tolist() == [1, 1, 2]
    np.savez(tmp_path / "dev.npz", images=images, labels=[9, 2, 7])
    with pytest.raises(DataError, match=r"dev.npz: image 3: the label '7' is not among the 3 .*: 2, 9, 10"):
        read_images(tmp_path / "dev.npz", GREY, classes=train.classes)


# --- what is refused -------------------------------------------------------------------------------------------------


def huge_png(height: int, width: int) -> bytes:
    """A few bytes that claim so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def break_png(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def claim_pixels(path: Path) -> None:
    path.write_bytes(huge_png(60_000, 60_000))


def claim_somewhat_more(path: Path) -> None:
    path.write_bytes(huge_png(10_000, 10_000))  # of which Pillow only warns


def claim_few_more(path: Path) -> None:
    path.write_bytes(huge_png(1 << 13, (1 << 13) + 1))  # which Pillow would decode


def write_text(path: Path) -> None:
    path.write_text("no image")


def write_postscript(path: Path) -> None:
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\n")


def write_other_size(path: Path) -> None:
    Image.fromarray(picture(6, 5)).save(path)


def write_sixteen_bits(path: Path) -> None:
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_png, "damaged image"),
        (claim_pixels, f"more than {MAX_PIXELS:,} pixels"),
        (claim_somewhat_more, f"more than {MAX_PIXELS:,} pixels"),
        (claim_few_more, f"more than {MAX_PIXELS:,} pixels"),
        (write_text, "not an image.* PNG"),
        (write_postscript, "not an image"),
        (write_other_size, r"6 x 5 pixels, but .*cats/0.png has 4 x 5; resize it, or train"),
        (write_sixteen_bits, "I;16 are not supported; convert them to 8 bits"),
        (make_folder, "not a file"),
    ],
)
def test_a_bad_file_is_refused_with_its_path(tmp_path: Path, damage: object, message: str) -> None:
    path = write_folder(tmp_path) / "dogs" / "1.png"
    assert callable(damage)
    damage(path)
    with pytest.raises(DataError, match=rf"^\S*dogs/1.png: .*{message}") as found:
        read_images(tmp_path, COLOUR)
    assert found.value.exit_code == 3
    assert len(found.value.problems) == 1


def test_all_bad_files_are_listed_and_a_size_admits_every_size(tmp_path: Path) -> None:
    write_folder(tmp_path)
    write_other_size(tmp_path / "cats" / "2.png")
    assert len(read_images(tmp_path, ImageConfig(size=(3, 3)))) == 6
    write_text(tmp_path / "dogs" / "0.png")
    with pytest.raises(DataError) as found:
        read_images(tmp_path, COLOUR)
    assert [Path(str(each.file)).name for each in found.value.problems] == ["2.png", "0.png"]


def test_images_are_held_decoded_if_they_are_few_and_otherwise_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for config in (COLOUR, ImageConfig(size=(3, 3))):
        folder = write_folder(tmp_path / f"{config.size}")
        held = read_images(folder, config)
        with monkeypatch.context() as patch:
            patch.setattr("seqloom.data.images.MAX_HELD_BYTES", 0)
            images = read_images(folder, config)
        assert np.array_equal(all_pixels(held), all_pixels(images))
        assert (held.fingerprint, held.scaling) == (images.fingerprint, images.scaling)
        break_png(folder / "dogs" / "0.png")
        all_pixels(held)
        with pytest.raises(DataError, match=r"dogs/0.png: damaged image"):
            all_pixels(images)


def test_folders_without_images_or_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_images(tmp_path / "none", COLOUR)
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(UsageError, match=r"text.txt: images are read from a folder .* or from an .npz file"):
        read_images(tmp_path / "text.txt", COLOUR)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DataError, match="folder: no images; one subfolder for each class"):
        read_images(folder, COLOUR)
    write_folder(folder, classes=("cats",))
    with pytest.raises(DataError, match="all images have the class 'cats'; 2 or more classes are needed"):
        read_images(folder, COLOUR)
    (folder / "dogs").mkdir()
    (folder / "stray.png").write_text("")
    with pytest.raises(DataError) as found:
        read_images(folder, COLOUR)
    assert "folder/dogs: a class without images" in str(found.value)
    assert "stray.png: not in the folder of a class" in str(found.value)


def test_a_shift_out_of_view_and_an_impossible_size_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    with pytest.raises(ConfigError, match="shift=4 moves images of 4 x 5 pixels out of view; use 3 or less"):
        read_images(tmp_path, ImageConfig(shift=4))
    with pytest.raises(ConfigError, match="cannot be resized to 0 x 5"):
        read_images(tmp_path, ImageConfig(size=(0, 5)))


IMAGES = np.zeros((2, 3, 3), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, "no array named 'labels'; found: images"),
        ({"images": IMAGES, "labels": np.arange(3)}, "2 images, but 3 labels"),
        ({"images": IMAGES, "labels": np.zeros(2)}, r"labels has the shape \[2\] and the type float64"),
        ({"images": IMAGES, "labels": np.zeros((2, 1), int)}, r"labels has the shape \[2, 1\]"),
        ({"images": IMAGES[0], "labels": np.arange(2)}, r"images has the shape \[3, 3\]"),
        ({"images": np.zeros((2, 3, 3, 2), np.uint8), "labels": np.arange(2)}, "1 or 3 channels"),
        ({"images": IMAGES[:0], "labels": np.arange(0)}, r"the shape \[0, 3, 3\]"),
        ({"images": IMAGES.astype(int), "labels": np.arange(2)}, "the type int64; needed are bytes"),
        ({"images": IMAGES + 16.0, "labels": np.arange(2)}, "from 16 to 16; scale them to 0 … 1"),
        ({"images": IMAGES * np.nan, "labels": np.arange(2)}, "from nan to nan"),
        ({"images": IMAGES, "labels": np.array(["a", "b"], object)}, "Python objects, which are never loaded"),
        ({"images": IMAGES, "labels": np.arange(2), **{str(n): IMAGES for n in range(20)}}, "22 arrays of"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=f"images.npz: .*{message}"):
        read_images(path, GREY)


def test_a_damaged_archive_and_false_sizes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    np.savez(path, images=np.arange(18, dtype=np.uint8).reshape(2, 3, 3), labels=[0, 1])
    whole = path.read_bytes()
    read_images(path, GREY)
    for content in (b"", b"no archive", whole[:-20], whole.replace(bytes(range(18)), bytes(18))):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"images.npz: not an .npz file that can be read"):
            read_images(path, GREY)
    # A header of 128 bytes that claims an array of terabytes, from which memory must not be taken.
    claim = np.lib.format.magic(1, 0) + struct.pack("<H", 118)
    claim += b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 3000, 3000), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", claim)
        archive.writestr("labels.npy", claim)
    with pytest.raises(DataError, match="another number of bytes"):
        read_images(path, GREY)


# --- variation -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.integers(0, 100), st.permutations(range(6)), st.integers(0, 3), st.booleans())
def test_a_change_depends_on_seed_epoch_and_sample_alone(
    seed: int, epoch: int, order: list[int], shift: int, flip: bool
) -> None:
    config = ImageConfig(channels=1, shift=shift, flip=flip)
    samples, pixels = np.arange(6), np.random.default_rng(0).random((6, 1, 4, 5), np.float32) + 0.1
    together = augmented(pixels, samples, config, seed=seed, epoch=epoch)
    apart = augmented(pixels[order], samples[order], config, seed=seed, epoch=epoch)
    np.testing.assert_array_equal(together[order], apart)
    if not (shift or flip):
        np.testing.assert_array_equal(together, pixels)
    for before, after in zip(pixels[:, 0], together[:, 0], strict=True):
        assert any(
            np.array_equal(after, moved(image, down, right))
            for image in ([before, before[:, ::-1]] if flip else [before])
            for down in range(-shift, shift + 1)
            for right in range(-shift, shift + 1)
        )


def moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    height, width = image.shape
    around = np.pad(image, 10)
    return around[10 - down : 10 - down + height, 10 - right : 10 - right + width]


def test_changes_differ_between_epochs_and_have_all_directions() -> None:
    config = ImageConfig(channels=1, shift=1, flip=True)
    pixels = np.zeros((1, 1, 3, 4), np.float32)
    pixels[0, 0, 1, 1] = 1
    seen = {
        tuple(np.argwhere(augmented(pixels, np.array([5]), config, seed=1, epoch=epoch)[0, 0])[0].tolist())
        for epoch in range(300)
    }
    assert seen == {(row, column) for row in range(3) for column in range(4)}
