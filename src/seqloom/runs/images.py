"""Labelled images for classifiers: opened, split, stored, trained on and measured.

run/data/train/     the values of the training images with their classes, memory-mapped
run/data/dev/       the held-out images likewise

Labels, size, channels and scaling are found when sizes are chosen, and are part of the settings (`task.labels`,
`model.image_size`, `model.channels`, `model.mean`, `model.deviation`). Without dev images, some of each class, drawn by
the seed, are held out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from jaxtyping import Int64

from seqloom.core.declaration import ImageFacts
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, ignore, notice, progress
from seqloom.core.seeds import seed_for
from seqloom.data.images import (
    ImageStore,
    LabelledImages,
    Scaling,
    Size,
    hold_out_images,
    read_images,
    store_images,
)
from seqloom.metrics.classification import score_labels
from seqloom.models.vision import ImageModelSettings
from seqloom.runs.config import RunConfig
from seqloom.runs.labelled import measure_dev
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import Sizing, choose_image_sizes
from seqloom.runs.twins import TwinScores, twins_text
from seqloom.tasks.classification import ClassificationTask, ImageExamples
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.tokenizer import NoTokenizers, Tokenizers


def size_images(
    config: RunConfig,
    files: Sequence[Path],
    *,
    formats: object = (),  # noqa: ARG001
    listener: Listener = ignore,
) -> Sizing:
    """Sizes for the images at this place, their labels and their scaling.

    The images stay in memory until the run that is prepared next has opened them: they are decoded once.
    """
    model, _ = image_settings(config)
    size = model.image_size if "image_size" in model.model_fields_set else None
    names = [str(file) for file in files]
    _waiting.clear()
    images = _read(config, "train", names, size=size, listener=listener)
    _waiting.append((_version(names), images))
    _held_out(config, len(images))
    if size is not None and images.size != size:
        raise UsageError(
            f"data.images.size={list(images.size)}, but model.image_size={list(size)}; leave one of them out"
        )
    facts = ImageFacts(len(images), len(images.classes), images.size, images.channels)
    sizing = sizes_for(config, facts)
    scaling = {"mean": list(images.scaling.mean), "deviation": list(images.scaling.deviation)}
    defaults = sizing.defaults
    found = {"image_size": list(images.size), "channels": images.channels, **scaling}
    return replace(
        sizing,
        defaults={
            **defaults,
            "data": {"images": {**defaults["data"]["images"], "channels": images.channels}},
            "model": {**defaults["model"], **found, **config.model.classifier_settings(len(images.classes))},
            "task": {**defaults["task"], "labels": list(images.classes)},
        },
    )


_waiting: list[tuple[object, LabelledImages]] = []
"""The images that sizes were chosen for, and when their files were written: one at most."""


def _version(names: Sequence[str]) -> tuple[object, ...]:
    """Changes when an image of these folders or files does."""
    places = [place for name in names for place in (Path(name), *sorted(Path(name).glob("*/*"))) if place.is_file()]
    return tuple((str(place), (status := place.stat()).st_size, status.st_mtime_ns) for place in places)


def sizes_for(config: RunConfig, facts: ImageFacts) -> Sizing:
    """Sizes for such images, given the settings that were set."""
    training = config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_image_sizes(facts, config.model, steps=steps, is_started=training.start_from is not None)


def open_images(config: RunConfig, *, listener: Listener) -> "ImageFiles":
    """Open and check the images of a run. Without dev images, some of the training images are held out."""
    model, task = image_settings(config)
    version, train = _waiting.pop() if _waiting else (None, None)
    is_same = train is not None and version == _version(config.data.train)
    found = None if train is None else (train.classes, train.size, train.channels)
    if train is None or not is_same or found != (task.labels, model.image_size, model.channels):
        train = _read(config, "train", config.data.train, size=model.image_size, listener=listener)
    counts = np.bincount(train.labels, minlength=len(train.classes))
    shown = ", ".join(f"{train.classes[at]} {counts[at]:,}" for at in np.argsort(-counts, kind="stable")[:10])
    more = ", …" if len(counts) > 10 else ""
    notice(listener, f"{len(train):,} images of {len(counts):,} classes: {shown}{more}")
    fingerprints, everything = {"train": train.fingerprint}, np.arange(len(train))
    if config.data.dev:
        dev = _read(config, "dev", config.data.dev, size=model.image_size, listener=listener)
        parts = {"train": (train, everything), "dev": (dev, np.arange(len(dev)))}
        return ImageFiles(parts, {**fingerprints, "dev": dev.fingerprint})
    count = _held_out(config, len(train))
    is_held = hold_out_images(train.labels, count, seed=seed_for(config.seed, "held-out images"))
    if not is_held.any():
        raise DataError("each class has 1 image, so that none can be held out for validation; give a --dev folder")
    parts = {"train": (train, everything[~is_held]), "dev": (train, everything[is_held])}
    notice(listener, f"no dev images: {is_held.sum():,} of {len(train):,} are held out for validation")
    return ImageFiles(parts, fingerprints)


def image_settings(config: RunConfig) -> tuple[ImageModelSettings, ClassificationConfig]:
    """The settings of a model that reads images, and of its task."""
    assert isinstance(config.task, ClassificationConfig)
    return cast("ImageModelSettings", config.model), config.task


def scaling_of(config: RunConfig) -> Scaling:
    """How the values of images are scaled for a model."""
    model, _ = image_settings(config)
    return Scaling(mean=model.mean, deviation=model.deviation)


def _read(
    config: RunConfig, side: Literal["train", "dev"], names: Sequence[str], *, size: Size | None, listener: Listener
) -> LabelledImages:
    """The images of the one folder or .npz file that is named."""
    if len(names) != 1:
        raise UsageError(
            f"--{side} {' '.join(names[:3])}: images come from one folder with a subfolder per class, or from one .npz "
            f"file; give one of the {len(names)}"
        )
    model, task = image_settings(config)
    images, given = config.data.images, model.model_fields_set
    if "channels" in given and model.channels not in (1, 3):
        raise UsageError(f"model.channels={model.channels}, but images have 1 channel or 3; leave out model.channels")
    if "channels" in given and images.channels not in (None, model.channels):
        raise UsageError(
            f"data.images.channels={images.channels}, but model.channels={model.channels}; leave out model.channels"
        )
    channels = cast("Literal[1, 3]", model.channels) if "channels" in given else images.channels
    return read_images(
        Path(names[0]),
        images.model_copy(update={"channels": channels}),
        classes=task.labels,
        size=size,
        progress=partial(progress, listener, f"reading {names[0]}"),
    )


def _held_out(config: RunConfig, images: int) -> int:
    """Images that are held out for validation: none where there are dev images."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, images // 10)
    if count == 0:
        few = "1 image is" if images == 1 else f"{images} images are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev folder or .npz file")
    return count


@dataclass(frozen=True)
class ImageFiles:
    """The labelled images of a run."""

    parts: Mapping[str, tuple[LabelledImages, Int64[np.ndarray, " chosen"]]]
    """Training images and held-out ones: a set, and which of its images."""
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"images": len(self.parts["train"][1])}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:  # noqa: ARG002
        """There is no text."""
        return NoTokenizers()

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:  # noqa: ARG002
        """Store the images below `run`/data."""
        for name, (images, chosen) in self.parts.items():
            store_images(
                images, chosen, run / "data" / name, progress=partial(progress, listener, f"storing {name} images")
            )
            listener(Event("encoded", {"name": name, "images": len(chosen)}))


@dataclass(frozen=True)
class ImageData:
    """The labelled images of a run, stored: what a classifier learns from."""

    tokenizers: Tokenizers
    train: ImageStore
    dev: ImageStore

    @staticmethod
    def load(run: Path, config: RunConfig) -> "ImageData":
        """What `ImageFiles.encode` stored. A DataError names a file that is missing or damaged."""
        _waiting.clear()  # on ranks that store no images
        model, task = image_settings(config)
        train, dev = (
            ImageStore.open(
                run / "data" / name, channels=model.channels, size=model.image_size, classes=len(task.labels)
            )
            for name in ("train", "dev")
        )
        return ImageData(NoTokenizers(), train, dev)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> ClassificationTask:
        """What the model is trained for. The scores of the most frequent class are reported first."""
        _, task = image_settings(config)
        notice(listener, f"dev scores by counting: {twins_text(self._majority(config))}")
        train, dev = (
            ImageExamples(store, config.data.images, scaling_of(config), config.seed)
            for store in (self.train, self.dev)
        )
        return ClassificationTask(
            train, dev, config=task, per_batch=task.images_per_batch, seed=config.seed, device=device
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {"files": list(config.data.train), "images": len(self.train), "data": self.train.fingerprint()}

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return ()

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Accuracy and macro-F1 of the dev images; beside them those of the most frequent class."""
        task = self.task(loaded.config, device=loaded.device, listener=ignore)
        return measure_dev(task, loaded, twins=self._majority(loaded.config), listener=listener)

    def _majority(self, config: RunConfig) -> TwinScores:
        """The scores of the most frequent class of the training images."""
        _, task = image_settings(config)
        expected = [task.labels[at] for at in self.dev.labels.tolist()]
        given = task.labels[int(np.bincount(self.train.labels, minlength=len(task.labels)).argmax())]
        scores = score_labels([given] * len(expected), expected)
        return {each.name: {"most frequent class": each.value} for each in scores}
