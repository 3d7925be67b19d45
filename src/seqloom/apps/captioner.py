"""Captions of images, from a model that was trained on images with captions.

    captioner = Captioner.load("run/model")
    captioner.caption(["scene.png"])[0].text
    captioner.caption(["scene.png"], beam=8, nbest=3)[0].others

Images are files, or arrays [height, width] or [height, width, channels] of bytes or of numbers in 0 … 1. What is beside
an image in a batch changes nothing of its caption. Several captioners of one vocabulary describe images together: the
mean of their log-probabilities, as translators do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from seqloom.apps.classifier import Picture, as_pictures, as_raw_image
from seqloom.apps.search_settings import search_with
from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_whole_number, require_callable
from seqloom.core.errors import DataError, ModelError, Problem, UsageError
from seqloom.core.stepping import SourceImages, Stepper
from seqloom.data.images import Pixels, Raw, prepared, read_image
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.models.protocols import CaptioningModel
from seqloom.runs.captioning import caption_scaling, caption_settings, channels_of
from seqloom.runs.loading import Loaded, LoadedModel, in_words, load_any, require_loaded
from seqloom.runs.translator import model_stepper
from seqloom.search.candidates import DeadEnd
from seqloom.search.decode import decode
from seqloom.search.ensemble import Ensemble
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.tasks.captioning import score_captions
from seqloom.tasks.settings import CaptioningConfig
from seqloom.text.tokenizer import Tokenizer

IMAGES_PER_BATCH = 64
"""Images that are described together."""


def ignore_images(_done: int, _all: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Caption:
    """What a model says of an image."""

    text: str
    score: float
    """What the search ranks captions by: log P(caption ∣ image), normalised by its length unless set otherwise."""
    terms: Mapping[str, float]
    """What the score is the sum of."""
    is_complete: bool
    """Whether no wider beam finds a caption with a better score."""
    others: tuple["Caption", ...] = ()
    """The next best captions of the image, if several are requested."""
    hit_limit: bool = False
    """Whether it may be incomplete because the search ended at the maximum length."""


@dataclass(frozen=True)
class CaptionScores:
    """How well captions agree with right ones."""

    scores: tuple[CorpusScore, ...]
    """Exact match with the best of the right captions, BLEU and chrF."""
    outputs: tuple[str, ...]


class Captioner:
    """Describes images.

    captioner = Captioner.load("run/model")
    captioner.caption(["scene.png"])[0].text
    """

    def __init__(self, loaded: Loaded, companions: Sequence[Loaded] = ()) -> None:
        """One model, or several that decide together: the mean of their log-probabilities, renormalised."""
        members = [loaded, *require_loaded(loaded, companions, caller="Captioner")]
        for each in members:
            if not isinstance(each.config.task, CaptioningConfig):
                raise UsageError(by_origin(f"{each.folder} is not a captioner: {in_words(each.config)}"))
            if each.tokenizers.target != loaded.tokenizers.target:
                raise UsageError(
                    f"{each.folder} has another vocabulary than {loaded.folder}; models that describe images together "
                    f"must share it: train the second with data.tokenizers_from={loaded.folder}"
                )
            if (one := self._reading(each)) != (other := self._reading(loaded)):
                raise UsageError(f"{each.folder} reads images of {one}; {loaded.folder} reads images of {other}")
        self.loaded, self.config, self.card = loaded, loaded.config, loaded.card
        self._members = [cast("LoadedModel", each) for each in members]

    def __repr__(self) -> str:
        return f"Captioner({', with '.join(each.summary() for each in self._members)})"

    @staticmethod
    def _reading(loaded: Loaded) -> str:
        """How a model reads images, in words."""
        settings = caption_settings(loaded.config)
        return (
            f"{settings.image_size[0]} x {settings.image_size[1]} pixels with {settings.channels} channels, in patches "
            f"of {settings.patch}, scaled by {settings.mean} and {settings.deviation}"
        )

    @property
    def tokenizer(self) -> Tokenizer:
        """That of the captions."""
        return self.loaded.tokenizers.target

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Captioner":
        """Read the directory of a captioner, or the run in which it was trained."""
        return Captioner(load_any(folder, device=device))

    def caption(
        self,
        images: Iterable[Picture],
        *,
        search: SearchConfig | Mapping[str, Any] | None = None,
        images_per_batch: int = IMAGES_PER_BATCH,
        progress: Callable[[int, int], None] = ignore_images,
        **changes: Any,
    ) -> list[Caption]:
        """The best caption of each image, with the next best ones if `nbest` is above 1.

        `changes` are settings of `SearchConfig` for this call, such as `caption(images, beam=8)`. `progress` gets the
        images done, and all.
        """
        require_callable(progress, "progress")
        own = search_with(self.config.search, search, changes, method=self.caption)
        settings, at_once = (
            self.loaded.search_settings(own),
            as_whole_number(images_per_batch, "images_per_batch", least=1),
        )
        given, found = as_pictures(images), list[Caption]()
        for begin in range(0, len(given), at_once):
            some = range(begin, min(begin + at_once, len(given)))
            pixels = np.stack([self._pixels(given[at], number=at + 1) for at in some])
            found += [self._rendered(each) for each in self._search(pixels, settings, keys=some)]
            progress(some.stop, len(given))
        return found

    def evaluate(
        self,
        images: Iterable[Picture],
        captions: Iterable[Sequence[str]],
        *,
        bootstrap: Bootstrap | None = None,
        **options: Any,
    ) -> CaptionScores:
        """How well captions of these images agree with the right ones, of which each has one or more.

        `options` are what `caption` takes.
        """
        given, right = as_pictures(images), [[each] if isinstance(each, str) else list(each) for each in captions]
        if len(given) != len(right) or not all(right):
            raise UsageError(
                f"got {len(given)} images and right captions of {sum(map(bool, right))}; give some for each"
            )
        outputs = [each.text for each in self.caption(given, **options)]
        config = self.config
        answers = [[config.text.normaliser(caption) for caption in several] for several in right]
        scores = score_captions(
            outputs,
            answers,
            language=config.data.target,
            lowercase=self.tokenizer.config.lowercase,
            bootstrap=bootstrap or Bootstrap(seed=config.seed, resamples=config.evaluation.resamples),
        )
        return CaptionScores(scores, tuple(outputs))

    def stepper(self, *, attention: bool = False) -> Stepper:
        """The model, or all of them together, as a search sees them."""
        steppers = [model_stepper(each.model, attention=attention) for each in self._members]
        return steppers[0] if len(steppers) == 1 else Ensemble(steppers)

    def source(self, images: Iterable[Picture]) -> SourceImages:
        """Images as the models read them."""
        given = as_pictures(images)
        pixels = np.stack([self._pixels(image, number=number) for number, image in enumerate(given, start=1)])
        return self._source(pixels)

    def _source(self, pixels: Pixels) -> SourceImages:
        values = torch.from_numpy(caption_scaling(self.config).apply(pixels)).to(self.loaded.device)
        return cast("CaptioningModel", self._members[0].model).source(values)

    @torch.inference_mode()
    def _search(self, pixels: Pixels, settings: SearchConfig, *, keys: Sequence[int]) -> list[list[Hypothesis]]:
        """The hypotheses of images, best first."""
        stepper = self.stepper(attention=settings.coverage > 0)
        try:
            return decode(stepper, self._source(pixels), settings, keys=list(keys))
        except DeadEnd as error:
            raise ModelError(f"image {keys[error.sentence] + 1} {error.reason}") from error

    def _rendered(self, hypotheses: Sequence[Hypothesis]) -> Caption:
        first, *others = (
            Caption(
                self.tokenizer.decode(each.symbols),
                each.score,
                dict(each.terms),
                each.is_complete,
                hit_limit=each.hit_limit or not each.is_finished,
            )
            for each in hypotheses
        )
        return Caption(first.text, first.score, first.terms, first.is_complete, tuple(others), first.hit_limit)

    def _pixels(self, image: Picture, *, number: int) -> np.ndarray:
        """The values of an image in [0, 1], as the model reads them but for their scaling."""
        size = caption_settings(self.config).image_size
        place = f"image {number}" if isinstance(image, np.ndarray) else str(image)
        raw: Raw = as_raw_image(image, place) if isinstance(image, np.ndarray) else read_image(Path(image))
        height, width = raw.shape[:2]
        if self.config.data.images.size is None and (height, width) != tuple(size):
            message = f"{height} x {width} pixels, but the model reads {size[0]} x {size[1]}; resize it"
            raise DataError(problems=[Problem(message, place)])
        return prepared(raw, channels=channels_of(self.config), size=size)
