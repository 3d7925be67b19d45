"""The class of a text, of a pair of texts, or of an image, from a model that was trained on labelled ones.

    classifier = Classifier.load("run/model")
    classifier.classify(["How far is it?"])[0].label
    classifier.classify([("A man sleeps.", "A man is awake.")])        # a model of pairs
    classifier.classify(["cat.png", array])                            # a model of images

Texts are read in order of length. What is beside a text or an image in a batch changes nothing of its result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_whole_number, require_callable, shown
from seqloom.core.errors import DataError, ModelError, Problem, UsageError, warn
from seqloom.data.images import checked_values, prepared, read_image
from seqloom.data.labelled import JoinedIds, frame_texts, join_texts
from seqloom.metrics.calibration import Reliability, measure_reliability
from seqloom.metrics.classification import confusion_counts, score_labels
from seqloom.metrics.confidence import softmax_at
from seqloom.metrics.scoring import Bootstrap, CorpusScore, check_counts
from seqloom.models.protocols import ClassificationModel, ImageClassificationModel
from seqloom.runs.images import image_settings, scaling_of
from seqloom.runs.loading import Loaded, in_words, load_any, require_loaded
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer

TOKENS_PER_BATCH = 1024
"""Tokens that are read together: enough for the products, few enough for the processor's cache."""

IMAGES_PER_BATCH = 64
"""Images that are decoded and read together."""

Text = str | tuple[str, str]
"""A text, or a pair for a model of pairs."""

Picture = Path | str | np.ndarray
"""A file, or an array: [height, width] or [height, width, channels], bytes or values in 0 … 1."""


def ignore_lines(_done: int, _all: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Classification:
    """The class of a text or an image."""

    label: str
    """The most probable label; empty for a text that is blank."""
    probability: float
    """Its probability."""
    probabilities: Mapping[str, float]
    """The probability of each label, in the order of the labels; none for a text that is blank."""


@dataclass(frozen=True)
class ClassifierScores:
    """How well a classifier predicts known labels."""

    accuracy: CorpusScore
    macro_f1: CorpusScore
    labels: tuple[str, ...]
    confusion: Int64[np.ndarray, "right predicted"]
    """How often each label (row) was predicted as each label (column), in the order of `labels`."""
    reliability: Reliability
    """How far the probabilities can be trusted: the expected calibration error, with ten groups of examples."""


class Classifier:
    """Gives each text or image one of the labels it was trained with.

    classifier = Classifier.load("run/model")
    classifier.classify(["a delightful film"])[0].label
    """

    def __init__(self, loaded: Loaded) -> None:
        require_loaded(loaded, [], caller="Classifier")
        task = loaded.config.task
        if not isinstance(task, ClassificationConfig):
            raise UsageError(by_origin(f"{loaded.folder} is not a classifier: {in_words(loaded.config)}"))
        self.loaded = loaded
        self.config, self.card = loaded.config, loaded.card
        self.labels, self.is_paired, self.reads_images = task.labels, task.is_paired, loaded.config.model.reads_images
        reading = loaded.config.model.classifier_input
        self.longest, self._is_lowercase = reading.longest or loaded.config.data.longest, reading.lowercase
        self._model = loaded.model.eval()
        self.temperature = float(loaded.card.trained_on.get("temperature", 1.0))

    def __repr__(self) -> str:
        return f"Classifier({self.loaded.summary()})"

    @property
    def tokenizer(self) -> Tokenizer:
        """That of a model of texts."""
        return self.loaded.tokenizers.target

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None) -> "Classifier":
        """Read the directory of a classifier, or the run in which it was trained."""
        return Classifier(load_any(folder, device=device))

    def classify(
        self,
        lines: Iterable[Text] | Iterable[Picture],
        *,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        images_per_batch: int = IMAGES_PER_BATCH,
        progress: Callable[[int, int], None] = ignore_lines,
    ) -> list[Classification]:
        """The class of each text, of each pair, or of each image; a text that is blank has none.

        A text that is longer than `longest` symbols is read up to there, and a SeqloomWarning counts such texts.
        `progress` gets the lines or images done, and all of them.
        """
        require_callable(progress, "progress")
        if self.reads_images:
            images = as_pictures(lines)
            rows = self._of_images(images, as_whole_number(images_per_batch, "images_per_batch", least=1), progress)
            return [self._classification(row) for row in rows.tolist()]
        texts = self._texts(lines)
        visible = [at for at, each in enumerate(texts) if not any(map(is_blank, each))]
        probabilities = self._of_texts([texts[at] for at in visible], tokens_per_batch, progress)
        found = [Classification("", 0.0, {})] * len(texts)
        for at, row in zip(visible, probabilities.tolist(), strict=True):
            found[at] = self._classification(row)
        return found

    def _classification(self, row: Sequence[float]) -> Classification:
        best = max(range(len(row)), key=row.__getitem__)
        return Classification(self.labels[best], row[best], dict(zip(self.labels, row, strict=True)))

    def evaluate(
        self,
        lines: Iterable[Text] | Iterable[Picture],
        labels: Iterable[str],
        *,
        bootstrap: Bootstrap | None = None,
        progress: Callable[[int, int], None] = ignore_lines,
    ) -> ClassifierScores:
        """How well the labels of these texts or images are predicted; by default with 1,000 resamples from its seed."""
        inputs: Any = as_pictures(lines) if self.reads_images else list(lines)
        right = as_lines(labels, "labels")
        check_counts([""] * len(inputs), right)
        if unknown := [at for at, label in enumerate(right) if label not in self.labels]:
            known = ", ".join(map(repr, self.labels[:8])) + (", …" if len(self.labels) > 8 else "")
            message = f"the label {right[unknown[0]]!r} is not among those of the model ({known})"
            raise DataError(problems=[Problem(message, "labels", unknown[0] + 1)])
        classified = self.classify(inputs, progress=progress)
        found = [each.label for each in classified]
        if "" in found:
            raise DataError(problems=[Problem("the text is blank, and has no class", "lines", found.index("") + 1)])
        config = self.config
        drawn = bootstrap or Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        accuracy, macro_f1 = score_labels(found, right, bootstrap=drawn)
        counts = confusion_counts(found, right, labels=self.labels)
        is_right = [float(one == other) for one, other in zip(found, right, strict=True)]
        trust = measure_reliability([each.probability for each in classified], is_right, rows=10)
        return ClassifierScores(accuracy, macro_f1, self.labels, counts, trust)

    def _of_images(
        self, images: Sequence[Picture], at_once: int, progress: Callable[[int, int], None]
    ) -> Float64[np.ndarray, "images classes"]:
        """Probabilities of images, a batch of which is decoded at a time."""
        model, scaling = cast("ImageClassificationModel", self._model), scaling_of(self.config)
        probabilities = np.empty((len(images), len(self.labels)))
        for begin in range(0, len(images), at_once):
            some = range(begin, min(begin + at_once, len(images)))
            pixels = scaling.apply(np.stack([self._pixels(images[at], number=at + 1) for at in some]))
            with torch.inference_mode():
                scores = model.class_scores(torch.from_numpy(pixels).to(self.loaded.device))
                probabilities[some.start : some.stop] = softmax_at(scores.double().cpu().numpy(), self.temperature)
            progress(some.stop, len(images))
        return self._finite(probabilities)

    def _pixels(self, image: Picture, *, number: int) -> Float32[np.ndarray, "channels height width"]:
        """The values of an image in the size that the model reads."""
        place = f"image {number}" if isinstance(image, np.ndarray) else str(image)
        raw = as_raw_image(image, place) if isinstance(image, np.ndarray) else read_image(Path(image))
        model, _ = image_settings(self.config)
        (height, width), found = model.image_size, raw.shape[:2]
        if found != model.image_size and self.config.data.images.size is None:
            message = f"{found[0]} x {found[1]} pixels, but the model reads {height} x {width}; resize it"
            raise DataError(problems=[Problem(message, place)])
        return prepared(raw, channels=1 if model.channels == 1 else 3, size=model.image_size)

    def _texts(self, lines: Any) -> list[tuple[str, ...]]:
        """The one or two texts of each line."""
        given = lines if isinstance(lines, str | bytes | Mapping) or not isinstance(lines, Iterable) else list(lines)
        for number, line in enumerate(given if isinstance(given, list) else [], start=1):
            if isinstance(line, Path | np.ndarray):
                raise UsageError(
                    f"the model reads texts, and line {number} is {shown(line)}; images are read by models of kind vit "
                    "and swin"
                )
        if not self.is_paired:
            return [(line,) for line in as_lines(given, "lines")]
        if not isinstance(given, list):
            raise UsageError(f"lines takes a list of pairs of texts; got {shown(lines)}")
        pairs = given
        for number, pair in enumerate(pairs, start=1):
            is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
            if not is_pair:
                raise UsageError(
                    f"lines takes pairs of texts, since the model was trained on pairs; line {number} is {shown(pair)}"
                )
        return [tuple(pair) for pair in pairs]

    def _of_texts(
        self, texts: Sequence[tuple[str, ...]], tokens_per_batch: int, progress: Callable[[int, int], None]
    ) -> Float64[np.ndarray, "texts classes"]:
        at_once, model = as_whole_number(tokens_per_batch, "tokens_per_batch", least=1), self._model
        joined = self._joined(texts)
        probabilities, done = np.empty((len(texts), len(self.labels))), 0
        for places in batches_by_length([1 + len(each.ids) for each in joined], tokens=at_once):
            framed = frame_texts([(joined[at].ids, joined[at].first) for at in places.tolist()])
            with torch.inference_mode():
                inputs = (torch.from_numpy(each).to(self.loaded.device) for each in framed)
                scores = cast("ClassificationModel", model).class_scores(*inputs)
                probabilities[places] = softmax_at(scores.double().cpu().numpy(), self.temperature)
            done += len(places)
            progress(done, len(texts))
        return self._finite(probabilities)

    def _finite(self, probabilities: Float64[np.ndarray, "rows classes"]) -> Float64[np.ndarray, "rows classes"]:
        if not np.isfinite(probabilities).all():
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(f"{folder} gives probabilities that are not numbers; its weights are damaged")
        return probabilities

    def ids(self, lines: Sequence[str]) -> list[list[int]]:
        """The symbols that a model of single texts reads of each line after BEGIN, with their END."""
        return [each.ids for each in self._joined([(line,) for line in lines])]

    def _joined(self, texts: Sequence[tuple[str, ...]]) -> list[JoinedIds]:
        """The ids of texts as they are read."""
        flat = [text.lower() if self._is_lowercase else text for each in texts for text in each]
        ids = iter(self.tokenizer.encode_many(flat) if flat else [])
        joined = [join_texts([next(ids) for _ in each], longest=self.longest) for each in texts]
        if any(each.cut for each in joined):
            cut, tokens = sum(each.cut > 0 for each in joined), sum(each.cut for each in joined)
            warn(
                f"{cut:,} of {len(joined):,} texts are longer than the {self.longest} symbols that this model reads; "
                f"{tokens:,} tokens at their ends were not read"
            )
        return joined


def as_pictures(images: Any) -> Sequence[Picture]:
    """The argument of a model of images: paths or arrays, in a list or in one array."""
    if isinstance(images, str | bytes | Path) or not isinstance(images, Iterable):
        raise UsageError(f"images takes a list of paths or arrays, such as ['cat.png']; got {shown(images)}")
    found = list(images)
    for number, image in enumerate(found, start=1):
        if not isinstance(image, str | Path | np.ndarray):
            raise UsageError(
                f"images takes paths or arrays, since the model reads images; image {number} is {shown(image)}"
            )
    return found


def as_raw_image(image: np.ndarray, place: str) -> np.ndarray:
    """An array with its channels last."""
    array = image[:, :, None] if image.ndim == 2 else image
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise DataError(
            f"{place} has the shape {list(image.shape)}; needed are [height, width] or [height, width, channels] with "
            "1 or 3 channels"
        )
    return checked_values(array, place)
