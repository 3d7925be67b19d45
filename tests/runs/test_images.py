"""From labelled images to a classifier: trained, resumed, started from, used and refused, by the commands."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from cli.calling import call
from seqloom import Classifier
from seqloom.core.declaration import ImageFacts
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.events import Event
from seqloom.data.images import ImageConfig, ImageStore, Scaling, hold_out_images, read_image, read_images, store_images
from seqloom.models.vision import ImageModelSettings, SwinConfig, VitConfig
from seqloom.runs.model_dir import read_card, read_settings
from seqloom.runs.prepare import choose_config, general_config
from seqloom.runs.train import average, resume, train
from seqloom.tasks.classification import ImageExamples

CLASSES = ("columns", "rows", "squares")
CPU = torch.device("cpu")
TINY = (
    *("model.width=16", "model.heads=2", "model.feed_forward=32", "model.dropout_rate=0.0", "evaluation.resamples=40"),
    *("training.validate_every=20", "training.save_every=20", "training.learning_rate=0.01", "training.warmup=5"),
)
VIT = ("model.kind=vit", "model.layers=1", *TINY)


def picture(kind: str, random: np.random.Generator) -> np.ndarray:
    """Noise, and a bright row, a bright column or a bright square."""
    image = random.integers(0, 60, (8, 8), np.uint8)
    first, second = random.integers(1, 6, 2)
    if kind == "squares":
        image[first : first + 3, second : second + 3] = 230
    elif kind == "rows":
        image[first] = 230
    else:
        image[:, first] = 230
    return image


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many images of each class, in turn, with their labels."""
    random = np.random.default_rng(seed)
    labels = np.array(CLASSES * count)
    return np.stack([picture(kind, random) for kind in labels]), labels


def write_folder(folder: Path, count: int, seed: int) -> Path:
    for number, (image, label) in enumerate(zip(*pictures(count, seed), strict=True)):
        (folder / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / label / f"{number:03}.png")
    return folder


def write_arrays(path: Path, count: int, seed: int, *, labels: np.ndarray | None = None) -> Path:
    images, right = pictures(count, seed)
    np.savez(path, images=images, labels=right if labels is None else labels)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training and test images, and a ViT that was trained by the command."""
    place = tmp_path_factory.mktemp("images")
    write_folder(place / "train", 40, seed=1)
    write_folder(place / "test", 10, seed=2)
    write_arrays(place / "test.npz", 30, seed=3)
    found = call("train", *VIT, "training.steps=60", "--train", place / "train", "--out", place / "run")
    assert found.code == 0, found.err
    assert f"seqloom classify {place / 'run' / 'model'} FILE" in found.out
    for sentence in (
        "120 images of 3 classes, so:",
        "patches of 2 x 2 pixels: 4 x 4 of an image of 8 x 8",
        "no dev images: 12 of 120 are held out",
        "passes over the training images",
        "images/s",
    ):
        assert sentence in found.err
    return place


def test_a_run_leaves_all_it_needs_in_its_model(place: Path) -> None:
    config, card = read_settings(place / "run" / "model"), read_card(place / "run" / "model")
    model = config.model
    assert isinstance(model, VitConfig)
    assert (model.image_size, model.channels, model.classes, model.patch) == ((8, 8), 1, 3, 2)
    images = read_images(place / "train", ImageConfig())
    assert (model.mean, model.deviation) == (images.scaling.mean, images.scaling.deviation)
    assert (config.purpose, config.task.labels) == ("classifier", CLASSES)  # type: ignore[union-attr]
    assert (card.trained_on["images"], card.trained_on["images_read"]) == (108, 30 * 108)
    assert not (place / "run" / "model" / "text").exists()
    stored = ImageStore.open(place / "run" / "data" / "dev", channels=1, size=(8, 8), classes=3)
    assert np.bincount(stored.labels).tolist() == [4, 4, 4]  # of each class in proportion


def test_what_was_learned_is_there_and_nothing_is_learned_from_shuffled_labels(place: Path, tmp_path: Path) -> None:
    test, right = pictures(30, seed=3)
    learned = Classifier.load(place / "run").evaluate(test, right.tolist())
    assert learned.accuracy.value > 90
    assert learned.confusion.sum() == 90
    shuffled = np.random.default_rng(4).permutation(pictures(40, seed=1)[1])
    path = write_arrays(tmp_path / "shuffled.npz", 40, seed=1, labels=shuffled)
    dev = write_arrays(tmp_path / "dev.npz", 4, seed=5)
    trained = train(None, [*VIT, "training.steps=40"], out=tmp_path / "run", train=[str(path)], dev=[str(dev)])
    assert trained is not None
    chance = Classifier.load(trained.model).evaluate(test, right.tolist())
    assert chance.accuracy.value < 60  # 33.3 by chance; 90 images have a standard error of 5


def test_classes_of_files_folders_and_arrays_are_printed_and_scored(place: Path, tmp_path: Path) -> None:
    run, files = place / "run", sorted((place / "test" / "rows").iterdir())
    rows = [line.split("\t") for line in call("classify", run, *files[:3]).lines]
    assert rows == [["rows", str(file)] for file in files[:3]]
    assert call("classify", run, place / "test" / "rows").lines[:3] == ["\t".join(row) for row in rows]
    (row,) = (line.split("\t") for line in call("classify", run, files[0], "--probabilities").lines)
    assert row[:2] == ["rows", str(files[0])]
    assert sorted(field.split("=")[0] for field in row[2:]) == list(CLASSES)
    assert row[2].startswith("rows=")
    (record,) = call("classify", run, files[0], "--json").records
    assert (record["file"], record["label"]) == (str(files[0]), "rows")
    assert sum(record["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    labels = call("classify", run, place / "test.npz").lines
    assert len(labels) == 90
    assert set(labels) <= set(CLASSES)
    assert call("classify", run, place / "test.npz", "--json").records[89]["image"] == 90
    by_reference = call("classify", run, "--reference", place / "test.npz")
    assert by_reference.lines[0].startswith("accuracy")
    (scores,) = call("classify", run, "--reference", place / "test.npz", "--json").records
    right = sum(one == other for one, other in zip(labels, pictures(30, seed=3)[1], strict=True))
    assert scores["scores"][0]["value"] == pytest.approx(100 * right / 90)
    folder = call("classify", run, place / "test")  # a folder per class
    assert folder.lines[0].startswith("accuracy")
    assert folder.lines[4].split() == ["right", "\\", "predicted", *CLASSES, "recall"]


def test_paths_and_arrays_give_the_same_and_batches_change_nothing(place: Path) -> None:
    classifier = Classifier.load(place / "run")
    files = sorted((place / "test").rglob("*.png"))
    arrays = [np.asarray(Image.open(file)) for file in files]
    together = classifier.classify(files)
    for inputs, size in (([str(file) for file in files], 7), (arrays, 1), ([each / 255 for each in arrays], 64)):
        for one, other in zip(together, classifier.classify(inputs, images_per_batch=size), strict=True):
            assert one.label == other.label
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert classifier.classify([]) == []
    colour = np.repeat(arrays[0][:, :, None], 3, axis=2)
    assert classifier.classify([colour])[0].probabilities == pytest.approx(together[0].probabilities, abs=1e-4)
    for images, error, message in (
        (["a.png", ("a", "b")], UsageError, r"paths or arrays, since the model reads images; image 2 is \('a', 'b'\)"),
        ("cat.png", UsageError, r"images takes a list of paths or arrays, such as \['cat.png'\]"),
        ([arrays[0], np.zeros((4, 8), np.uint8)], DataError, "image 2: 4 x 8 pixels, but the model reads 8 x 8"),
        ([np.zeros(64)], DataError, r"image 1 has the shape \[64\]"),
        ([np.full((8, 8), 7.0)], DataError, "image 1: values of images are from 7 to 7"),
    ):
        with pytest.raises(error, match=message):
            classifier.classify(images)


def test_other_commands_work_or_refuse_by_name(place: Path, tmp_path: Path) -> None:
    run = place / "run"
    shown = call("info", run).out
    for sentence in (
        "classifier",
        "3, of images: columns, rows, squares",
        "108 images, fingerprint",
        "Images   channels",
    ):
        assert sentence in shown
    assert call("info", run, "--json").records[0]["trained_on"]["images"] == 108
    checked = call("selfcheck", run, "--count", "3")
    assert (checked.code, "are broken" in checked.out) == (0, False)
    assert call("pack", run, tmp_path / "model.zip").code == 0
    file = next((place / "test" / "rows").iterdir())
    assert call("classify", tmp_path / "model.zip", file).out == call("classify", run, file).out
    steps = [run / "checkpoints" / f"step-{step}" for step in (40, 60)]
    mean = load_file(average(steps, tmp_path / "mean") / "model.safetensors")
    one, other = (load_file(step / "model.safetensors") for step in steps)
    torch.testing.assert_close(mean["norm.weight"], (one["norm.weight"] + other["norm.weight"]) / 2)
    text = tmp_path / "text.txt"
    text.write_text("a house\n")
    for words, message in (
        (["translate", run, text], "it is a classifier of kind vit; use seqloom classify"),
        (["info", run, "--text", text], "reads images and has no tokeniser"),
        (["selfcheck", run, "--lines", text], "is checked with random images"),
        (["serve", run], "classif"),
    ):
        found = call(*words)
        assert (found.code, message in found.err) == (2, True), found.err


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "train.npz", 8, seed=1)
    words = [
        *("model.kind=swin", "model.depths=[1,1]", "model.heads=[1,2]", "model.width=8", "data.images.flip=true"),
        *(
            "task.images_per_batch=8",
            "training.save_every=2",
            "training.validate_every=4",
            "training.schedule=constant",
        ),
        *("evaluation.resamples=40", "training.warmup=0"),
    ]
    whole, half = tmp_path / "whole", tmp_path / "half"
    train(None, [*words, "training.steps=6"], out=whole, train=[str(path)])
    train(None, [*words, "training.steps=4"], out=half, train=[str(path)])  # in the second epoch
    path.rename(tmp_path / "moved.npz")  # a run keeps its images
    resume(half, ["training.steps=6"], exact=True)
    one, other = (load_file(each / "checkpoints" / "step-6" / "model.safetensors") for each in (whole, half))
    assert all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(UsageError, match=r"data\.images\.shift is 1 in .* and cannot become 2"):
        resume(half, ["data.images.shift=2"])


def test_images_vary_by_seed_epoch_and_number_in_training_alone(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "train.npz", 4, seed=1)
    images = read_images(path, ImageConfig())
    store_images(images, np.array([7, 3, 5, 0]), tmp_path / "store")
    store = ImageStore.open(tmp_path / "store", channels=1, size=(8, 8), classes=3)
    np.testing.assert_array_equal(store.pixels(np.arange(4)), images.pixels(np.array([7, 3, 5, 0])))
    assert (tmp_path / "store" / "pixels").stat().st_size == 4 * 64  # bytes
    examples = ImageExamples(store, ImageConfig(shift=2, flip=True), Scaling(mean=(0.0,), deviation=(1.0,)), seed=1)
    together = examples.batch(np.array([0, 1, 2, 3]), device=CPU, epoch=1).pixels
    apart = torch.cat([examples.batch(np.array([at]), device=CPU, epoch=1).pixels for at in (3, 1, 0, 2)])
    assert torch.equal(together[[3, 1, 0, 2]], apart)
    assert not torch.equal(together, examples.batch(np.arange(4), device=CPU, epoch=2).pixels)
    plain = examples.batch(np.arange(4), device=CPU)
    assert torch.equal(plain.pixels, torch.from_numpy(store.pixels(np.arange(4))))
    assert plain.describe() == "4 images, numbers 8, 4, 6, 1"


def test_each_class_is_held_out_in_proportion_and_keeps_an_image() -> None:
    labels = np.repeat([0, 1, 2, 3], [60, 30, 9, 1])
    held = hold_out_images(labels, 10, seed=1)
    assert np.bincount(labels[held], minlength=4).tolist() == [6, 3, 1, 0]
    assert not np.array_equal(held, hold_out_images(labels, 10, seed=2))
    assert np.array_equal(held, hold_out_images(labels, 10, seed=1))
    assert not hold_out_images(np.arange(20), 2, seed=1).any()


def test_a_new_head_starts_from_the_trunk_of_other_classes(place: Path, tmp_path: Path) -> None:
    images, labels = pictures(12, seed=6)
    np.savez(
        tmp_path / "two.npz", images=images[labels != "squares"], labels=(labels[labels != "squares"] == "rows") * 1
    )
    events: list[Event] = []
    words = [f"training.start_from={place / 'run'}", "training.steps=1", "training.learning_rate=1e-9"]
    trained = train(None, words, out=tmp_path / "run", train=[str(tmp_path / "two.npz")], listener=events.append)
    assert trained is not None
    messages = [str(event.values.get("message")) for event in events]
    heads = "classifier.output.bias, classifier.output.weight"
    assert f"new: {heads} (other labels)" in messages
    assert any(each.startswith(f"starting from {place / 'run'}: images and model as there") for each in messages)
    before, after = (load_file(each / "model.safetensors") for each in (place / "run" / "model", trained.model))
    assert after["classifier.output.weight"].shape == (2, 16)
    torch.testing.assert_close(after["layers.0.attention.qkv.weight"], before["layers.0.attention.qkv.weight"])
    config, start = read_settings(trained.model).model, read_settings(place / "run" / "model").model
    assert isinstance(config, ImageModelSettings)
    assert isinstance(start, ImageModelSettings)
    assert (config.mean, config.classes) == (start.mean, 2)  # images are scaled as the trunk knows them
    np.savez(tmp_path / "large.npz", images=np.zeros((20, 16, 16), np.uint8), labels=np.arange(20) % 2)
    for given, code, message in (
        ([], 3, "large.npz: 16 x 16 pixels, but the model reads 8 x 8; resize it, or train with data.images.size"),
        (["data.images.size=[8,8]", "model.width=32"], 4, "cannot be the start of this model"),
    ):
        found = call("train", words[0], *given, "--train", tmp_path / "large.npz", "--out", tmp_path / "new")
        assert (found.code, (tmp_path / "new").exists()) == (code, False), found.err
        assert message in found.err


def test_an_adapter_and_its_base_are_the_model_of_the_run(place: Path, tmp_path: Path) -> None:
    words = [f"training.start_from={place / 'run'}", "training.lora.rank=2", "training.steps=4"]
    trained = train(None, [*VIT, *words], out=tmp_path / "lora", train=[str(place / "train")])
    assert trained is not None
    found = call("merge", tmp_path / "lora" / "adapter", "--out", tmp_path / "merged")
    assert found.code == 0, found.err
    files = [each.relative_to(trained.model) for each in trained.model.rglob("*") if each.is_file()]
    for name in files:
        assert (tmp_path / "merged" / name).read_bytes() == (trained.model / name).read_bytes()


def test_every_image_is_decoded_once_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Path] = []

    def count(path: Path) -> np.ndarray:
        decoded.append(path)
        return read_image(path)

    monkeypatch.setattr("seqloom.data.images.read_image", count)
    files = [str(write_folder(tmp_path / "train", 4, seed=1))], [str(write_folder(tmp_path / "dev", 1, seed=2))]
    assert train(None, [*VIT, "training.steps=1"], out=tmp_path / "run", train=files[0], dev=files[1]) is not None
    assert len(decoded) == len(set(decoded)) == 15


def test_sizes_follow_from_the_images(tmp_path: Path) -> None:
    for size, images, patch, width in (
        ((8, 8), 1_000, 2, 64),
        ((28, 28), 50_000, 4, 128),
        ((224, 224), 10**6, 16, 192),
    ):
        found = VitConfig().sizes_for_images(ImageFacts(images, 10, size, 3)).settings
        assert (found["patch"], found["width"]) == (patch, width)
    for side, patch, window, stages in ((8, 2, 2, 2), (28, 2, 7, 2), (32, 2, 4, 3), (224, 4, 7, 4)):
        found = SwinConfig().sizes_for_images(ImageFacts(1_000, 10, (side, side), 3)).settings
        assert (found["patch"], found["window"], len(found["depths"]), len(found["heads"])) == (
            patch,
            window,
            stages,
            stages,
        )
        SwinConfig.model_validate_json(json.dumps(found)).build(seed=1)
    with pytest.raises(ConfigError, match=r"images of 223 x 227 pixels .* data.images.size='\[224, 224\]'"):
        VitConfig().sizes_for_images(ImageFacts(1_000, 10, (223, 227), 3))
    path = write_arrays(tmp_path / "train.npz", 10, seed=1)
    words = ["model.kind=vit", "model.patch=4", "model.width=48", "data.images.size=[12,20]", "data.images.channels=3"]
    config = choose_config(None, words, train=[str(path)], dev=(), listener=lambda _event: None)
    assert isinstance(config.model, VitConfig)
    assert (config.model.image_size, config.model.channels, config.model.heads, config.model.patch) == (
        (12, 20),
        3,
        3,
        4,
    )
    assert (config.data.images.shift, len(config.model.mean)) == (1, 3)
    assert general_config(None, ["model.kind=swin"]).task.kind == "classification"


def damaged(folder: Path) -> None:
    file = folder / "rows" / "001.png"
    file.write_bytes(file.read_bytes()[:-30])


def of_another_size(folder: Path) -> None:
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(folder / "rows" / "001.png")


def bomb(folder: Path) -> None:
    Image.new("1", (60_000, 2_000)).save(folder / "rows" / "001.png")


def empty_class(folder: Path) -> None:
    (folder / "circles").mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged, "rows/001.png: damaged image"),
        (of_another_size, "rows/001.png: 9 x 8 pixels, but "),
        (bomb, "rows/001.png: more than 67,108,864 pixels; scale the image down"),
        (empty_class, "circles: a class without images; add some or remove the folder"),
    ],
)
def test_bad_images_are_refused_in_training_and_use(place: Path, tmp_path: Path, damage: object, message: str) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(place / "test", folder)
    assert callable(damage)
    damage(folder)
    runs = tmp_path / "run"
    for words in (
        ["train", "model.kind=vit", "--train", folder, "--out", runs],
        ["train", "model.kind=vit", "--train", place / "train", "--dev", folder, "--out", runs],
        ["classify", place / "run", "--reference", folder],
    ):
        found = call(*words)
        assert (found.code, found.out, runs.exists()) == (3, "", False), found.err
        assert message in found.err
        assert "Traceback" not in found.err
    if damage is not empty_class:
        found = call("classify", place / "run", folder / "rows" / "001.png")
        assert (found.code, found.out) == (3, "")
        assert message.split("but")[0] in found.err


def test_what_does_not_fit_is_refused_with_its_values(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "test", tmp_path / "other")
    (tmp_path / "other" / "rows").rename(tmp_path / "other" / "lines")
    labels = pictures(10, seed=2)[1]
    labels[4] = "lines"
    write_arrays(tmp_path / "other.npz", 10, seed=2, labels=labels)
    write_arrays(tmp_path / "few.npz", 2, seed=2)
    text = tmp_path / "reviews.tsv"
    text.write_text("".join(f"a {word} film {n}\t{word}\n" for n in range(20) for word in ("good", "bad")))
    images, run, new = place / "train", place / "run", tmp_path / "new"
    vit, bert = ["train", "model.kind=vit", "--out", new], ["train", "task.kind=classification", "--out", new]
    unknown = "the label 'lines' is not among the 3 labels of the training images: columns, rows, squares"
    for words, code, message in (
        ([*vit, "--train", images, "--dev", tmp_path / "other"], 3, f"other/lines: {unknown}"),
        ([*vit, "--train", images, "--dev", tmp_path / "other.npz"], 3, f"other.npz: image 5: {unknown}"),
        (["classify", run, tmp_path / "other"], 3, f"other/lines: {unknown}"),
        (["classify", run, "--reference", tmp_path / "other.npz"], 3, f"other.npz: image 5: {unknown}"),
        ([*vit, "--train", tmp_path / "few.npz"], 3, "6 images are too few to hold some out"),
        (
            [*vit, "--train", text],
            2,
            "images are read from a folder with one subfolder per class, or from an .npz file",
        ),
        ([*vit, "--train", images, "--train", images], 2, "images come from one folder"),
        ([*vit, "--train", images, "model.classes=5"], 2, "model.classes=5, but task.labels has 3"),
        ([*vit, "--train", images, "model.image_size=[16,16]"], 3, "8 x 8 pixels, but the model reads 16 x 16"),
        ([*vit, "--train", images, "model.channels=2"], 2, "model.channels=2, but images have 1 channel or 3"),
        ([*vit], 2, "no training files: give --train FOLDER with a subfolder of images per class"),
        ([*bert, "--train", images], 2, "Images are read by model.kind=vit or swin"),
        ([*bert, "--train", place / "test.npz"], 3, "test.npz"),
        (["train", "model.kind=vit", "task.kind=translation", "--train", images, "--out", new], 2, "classification"),
        (["classify", run, text], 3, "reviews.tsv: not an image, or a damaged one"),
        (["classify", run], 2, "a model of kind vit reads images: name some"),
        (["classify", run, tmp_path / "none.png"], 2, "none.png: no such file"),
        (["classify", run, place / "test", "--probabilities"], 2, "a folder per class, which is scored"),
    ):
        found = call(*words)
        assert (found.code, found.out, new.exists()) == (code, "", False), (words, found.err)
        assert message in found.err


def test_a_model_of_texts_refuses_images(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "reviews.tsv"
    path.write_text("".join(f"a {word} film {n}\t{word}\n" for n in range(20) for word in ("good", "bad")))
    words = ["model.kind=bert", "task.kind=classification", "model.width=8", "model.heads=1", "training.steps=1"]
    trained = train(
        None,
        [*words, "model.feed_forward=8", "text.size=60", "evaluation.resamples=40"],
        out=tmp_path / "run",
        train=[str(path)],
    )
    assert trained is not None
    image = next((place / "test" / "rows").iterdir())
    found = call("classify", trained.model, image)
    assert (found.code, found.out) == (3, "")
    assert f"{image}: this is an image (PNG), not a text; images are read by models of kind vit and swin" in found.err
    found = call("classify", trained.model, "--reference", image)
    assert (found.code, "this is an image (PNG)" in found.err) == (3, True)
    for words in ([], ["--reference"]):
        found = call("classify", trained.model, *words, place / "test.npz")
        assert (found.code, found.out) == (3, "")
        assert f"{place / 'test.npz'}: this is a ZIP archive (.zip, .npz, .docx …), not a text" in found.err
    found = call(
        "train", "model.kind=vit", f"training.start_from={trained.model}", "--train", place / "train", "--out", "x"
    )
    assert (found.code, Path("x").exists()) == (4, False)
    assert "is a model of kind bert, which cannot be the start of one of kind vit" in found.err
