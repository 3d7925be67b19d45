"""Images with captions: opened, split, stored, trained on and measured.

run/data/train/            the values of the training images and the ids of their captions, memory-mapped
run/data/dev/              the held-out images likewise
run/data/references.txt    all captions of the held-out images, as text

Size, channels and scaling of images are found when sizes are chosen, and are part of the settings (`model.image_size`,
`model.channels`, `model.mean`, `model.deviation`). Without dev tables, images drawn by the seed are held out, with all
of their captions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from seqloom.classical.captions import most_frequent, nearest_images
from seqloom.core.declaration import CaptionFacts
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, notice, progress
from seqloom.core.files import write_atomically
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import UNKNOWN
from seqloom.data.captioned import (
    CaptionedImage,
    CaptionedStore,
    CaptionedWriter,
    CheckedImages,
    check_captioned,
    read_captioned,
    read_pixels,
)
from seqloom.data.images import Scaling
from seqloom.data.store import read_stored_lines
from seqloom.metrics.scoring import Bootstrap
from seqloom.models.captioner import CaptionerConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.detection import sample_text
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import Sizing, choose_caption_sizes
from seqloom.runs.twins import TwinScores, beside, report_unbeaten, twins_text
from seqloom.search.decode import decode
from seqloom.tasks.captioning import METRICS, CaptioningTask, output_limit, score_captions
from seqloom.tasks.settings import CaptioningConfig
from seqloom.text.marks import is_unsegmented
from seqloom.text.tokenizer import Tokenizers, word_cutter
from seqloom.text.tokenizer_training import train_tokenizer

REFERENCES = "references.txt"

MAX_SCORED_IMAGES = 1_000
"""Held-out images that are described with the full search at the end of a run."""


def size_captions(config: RunConfig, files: Sequence[Path], *, listener: Listener) -> Sizing:
    """Sizes for the images that these tables name, and how they are scaled."""
    checked = _read(config, "train", [str(file) for file in files], listener=listener)
    _held_out(config, len(checked))
    captions = [caption for image in checked.images for caption in image.captions]
    are_unsegmented = is_unsegmented(captions)
    cut = word_cutter("characters" if are_unsegmented else "words")
    words = {word for caption in captions for word in cut(config.text.normaliser(caption))}
    facts = CaptionFacts(
        len(checked), len(captions), len(words), checked.size, checked.channels, are_unsegmented=are_unsegmented
    )
    sizing = sizes_for(config, facts)
    scaling = {"mean": list(checked.scaling.mean), "deviation": list(checked.scaling.deviation)}
    found = {"image_size": list(checked.size), "channels": checked.channels, **scaling}
    return replace(sizing, defaults={**sizing.defaults, "model": {**sizing.defaults["model"], **found}})


def sizes_for(config: RunConfig, facts: CaptionFacts) -> Sizing:
    """Sizes for such images, given the settings that were set."""
    training = config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_caption_sizes(facts, config.model, steps=steps, is_started=training.start_from is not None)


def open_captions(config: RunConfig, *, listener: Listener) -> "CaptionFiles":
    """Open and check the images of a run. Without dev tables, some of the training images are held out."""
    train = _read(config, "train", config.data.train, listener=listener)
    fingerprints = {"train": train.fingerprint}
    if config.data.dev:
        dev = _read(config, "dev", config.data.dev, listener=listener)
        return CaptionFiles(train.images, dev.images, {**fingerprints, "dev": dev.fingerprint})
    count = _held_out(config, len(train))
    random = np.random.default_rng(seed_for(config.seed, "held-out images"))
    held = set(random.choice(len(train), count, replace=False).tolist())
    notice(listener, f"no dev table: {count:,} of {len(train):,} images are held out for validation")
    parts = [[each for at, each in enumerate(train.images) if (at in held) == is_dev] for is_dev in (False, True)]
    return CaptionFiles(tuple(parts[0]), tuple(parts[1]), fingerprints)


def caption_settings(config: RunConfig) -> CaptionerConfig:
    """The settings of a model that describes images."""
    assert isinstance(config.task, CaptioningConfig)
    return cast("CaptionerConfig", config.model)


def channels_of(config: RunConfig) -> Literal[1, 3]:
    """The channels that such a model reads."""
    return cast("Literal[1, 3]", caption_settings(config).channels)


def caption_scaling(config: RunConfig) -> Scaling:
    """How the values of images are scaled for such a model."""
    model = caption_settings(config)
    return Scaling(mean=model.mean, deviation=model.deviation)


def _read(
    config: RunConfig, side: Literal["train", "dev"], names: Sequence[str], *, listener: Listener
) -> CheckedImages:
    data, model = config.data, caption_settings(config)
    if folder := next((name for name in names if Path(name).is_dir()), None):
        raise UsageError(f"--{side} {folder} is a folder; give a table that names its images and their captions")
    given = model.model_fields_set
    if "channels" in given and model.channels not in (1, 3):
        raise UsageError(f"model.channels={model.channels}, but images have 1 channel or 3; leave out model.channels")
    images = read_captioned([Path(name) for name in names], encoding=data.encoding, on_bad=data.on_bad_utf8)
    return check_captioned(
        images,
        data.images,
        size=model.image_size if "image_size" in given else None,
        channels=channels_of(config) if "channels" in given else None,
        progress=partial(progress, listener, f"reading {side} images"),
    )


def _held_out(config: RunConfig, images: int) -> int:
    """Images that are held out for validation: none where there are dev tables."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, images // 10)
    if count == 0:
        few = "1 image is" if images == 1 else f"{images} images are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev table")
    return count


@dataclass(frozen=True)
class CaptionFiles:
    """The images of a run."""

    train: tuple[CaptionedImage, ...]
    dev: tuple[CaptionedImage, ...]
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"images": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split captions into pieces."""
        captions = (caption for image in self.train for caption in image.captions)
        tokenizer = train_tokenizer(captions, config.text, listener=listener)
        return Tokenizers(tokenizer, tokenizer)

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store images and captions below `run`/data."""
        tokenizer, size = tokenizers.target, caption_settings(config).image_size
        for name, images in (("train", self.train), ("dev", self.dev)):
            tokens = unknown = lines = 0
            with CaptionedWriter(run / "data" / name, symbols=tokenizer.size) as writer:
                for number, image in enumerate(images, start=1):
                    ids = tokenizer.encode_many(list(image.captions))
                    writer.append(
                        read_pixels([image.path], channels=channels_of(config), size=size), ids, number=number
                    )
                    tokens, unknown = tokens + sum(map(len, ids)), unknown + sum(each.count(UNKNOWN) for each in ids)
                    lines += len(ids)
                    progress(listener, f"storing {name} images", number, len(images))
            share = unknown / max(1, tokens)
            listener(Event("encoded", {"name": name, "lines": lines, "tokens": tokens, "unknown": share}))
        normalise = config.text.normaliser
        references = "".join(f"{normalise(caption)}\n" for image in self.dev for caption in image.captions)
        write_atomically(run / "data" / REFERENCES, references)


@dataclass(frozen=True)
class CaptionData:
    """The images of a run, stored: what a model that describes images learns from."""

    tokenizers: Tokenizers
    train: CaptionedStore
    dev: CaptionedStore
    references: list[str]
    """All captions of the held-out images, as text."""

    @staticmethod
    def load(run: Path, config: RunConfig) -> "CaptionData":
        """What `CaptionFiles.encode` stored. A DataError names a file that is missing or damaged."""
        size, channels = caption_settings(config).image_size, channels_of(config)
        train, dev = (
            CaptionedStore.open(run / "data" / name, channels=channels, size=size) for name in ("train", "dev")
        )
        references = read_stored_lines(run / "data" / REFERENCES, len(dev.symbols))
        return CaptionData(Tokenizers.load(run / "text"), train, dev, references)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> CaptioningTask:
        """What the model is trained for. The scores of captions without learning are reported first."""
        notice(listener, f"dev scores without learning: {twins_text(self._twins)}")
        return self._task(config, device=device)

    def _task(self, config: RunConfig, *, device: torch.device) -> CaptioningTask:
        assert isinstance(config.task, CaptioningConfig)
        return CaptioningTask(
            self.train,
            self.dev,
            self.references,
            config=config.task,
            images=config.data.images,
            scaling=caption_scaling(config),
            tokenizer=self.tokenizers.target,
            language=config.data.target,
            seed=config.seed,
            device=device,
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(config.data.train),
            "images": len(self.train),
            "captions": len(self.train.symbols),
            "data": self.train.fingerprint(),
            "output_limit": asdict(output_limit(self.train)),
            "tokenizers": [self.tokenizers.target.fingerprint],
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return [sample_text(self.train.ids, self.tokenizers.target)]

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Exact match, BLEU and chrF of the captions that the full search finds; beside them those without learning."""
        config, task = loaded.config, self._task(loaded.config, device=loaded.device)
        count, outputs, settings = min(MAX_SCORED_IMAGES, len(self.dev)), list[str](), loaded.search_settings()
        for begin in range(0, count, task.config.images_per_batch):
            images = np.arange(begin, min(begin + task.config.images_per_batch, count))
            with torch.inference_mode():
                source = loaded.model.source(torch.from_numpy(task.dev_pixels(images)).to(loaded.device))
                found = decode(loaded.model.stepper(), source, settings, keys=images.tolist())
            outputs += [self.tokenizers.target.decode(best.symbols) for best, *_ in found]
            progress(listener, "describing dev images", len(outputs), count)
        bootstrap = Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        shown = beside(task.score(outputs, bootstrap=bootstrap), self._twins)
        listener(Event("scores", {"data": "dev", "lines": count, "scores": [asdict(each) for each in shown]}))
        report_unbeaten(shown, remedy="train for more steps, or give more images with captions", listener=listener)
        return DevResult(shown, count)

    @cached_property
    def _twins(self) -> TwinScores:
        """The scores of the most frequent caption, and of a caption of the nearest training image."""
        decoded = partial(self._caption, self.train)
        frequent = most_frequent([decoded(place) for place in range(len(self.train.symbols))])
        count = min(MAX_SCORED_IMAGES, len(self.dev))
        nearest = nearest_images(self.train.pixels, len(self.train), asked=self.dev.pixels, asked_count=count)
        answers = [[self.references[at] for at in self.dev.of_image(image)] for image in range(count)]
        outputs = {
            "most frequent caption": [frequent] * count,
            "nearest image": [decoded(self.train.of_image(image)[0]) for image in nearest.tolist()],
        }
        scores = {name: score_captions(each, answers) for name, each in outputs.items()}
        names = [score.name for score in next(iter(scores.values()))]
        assert len(names) == len(METRICS)
        return {metric: {name: found[at].value for name, found in scores.items()} for at, metric in enumerate(names)}

    def _caption(self, store: CaptionedStore, place: int) -> str:
        return self.tokenizers.target.decode(store.caption(place).tolist())
