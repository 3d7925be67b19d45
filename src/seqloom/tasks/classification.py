"""Classification: the summed cross-entropy of the classes of texts, of pairs of texts, or of images.

loss = −Σ_i Σ_c q_i(c) log P(c | example i)       q: 1 − ε for the right class, and ε / classes for each

A model of several parts (`part_scores`) has the sum of their losses. Probabilities are those of the scores divided by a
temperature, which is fitted to the held-out part after training (`metrics.confidence`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches import BatchPlan
from seqloom.data.images import ImageConfig, ImageStore, Scaling, augmented
from seqloom.data.labelled import LabelledStore
from seqloom.metrics.classification import score_labels
from seqloom.metrics.confidence import fit_temperature
from seqloom.models.protocols import CountsTexts, LearnsInParts
from seqloom.tasks.settings import ClassificationConfig
from seqloom.training.task import Chance, Loss

COUNTED_AT_ONCE = 1024
"""Training examples that are counted together."""

# --- what is classified ----------------------------------------------------------------------------------------------


class LabelledBatch(Protocol):
    """Examples on a device, with the class of each."""

    @property
    def labels(self) -> Int[Tensor, " batch"]: ...

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What `class_scores` of the model takes."""
        ...

    def describe(self) -> str:
        """Which examples they are, for messages."""
        ...


class LabelledExamples(Protocol):
    """Examples with their classes, of which batches are made."""

    @property
    def labels(self) -> Integer[np.ndarray, " examples"]: ...

    @property
    def sizes(self) -> Integer[np.ndarray, " examples"]:
        """The places that each takes in a batch."""
        ...

    def batch(
        self, indices: Integer[np.ndarray, " batch"], *, device: torch.device, epoch: int | None = None
    ) -> LabelledBatch:
        """These examples, in this order; varied as in this epoch of training, if one is given."""
        ...

    def fingerprint(self) -> str:
        """A hash of all of them."""
        ...


@dataclass(frozen=True)
class TextBatch:
    """Texts or pairs with BEGIN and END, padded, and the class of each."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    segments: Int[Tensor, "batch time"]
    labels: Int[Tensor, " batch"]
    lines: Int[np.ndarray, " batch"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.ids, self.lengths, self.segments

    def describe(self) -> str:
        return f"{len(self.lines)} texts of up to {self.ids.shape[1]} tokens, lines {_some(self.lines)}"


@dataclass(frozen=True)
class TextExamples:
    """Labelled texts; each takes as many places as it has tokens, BEGIN and END counted."""

    store: LabelledStore

    @property
    def labels(self) -> Integer[np.ndarray, " examples"]:
        return self.store.labels

    @property
    def sizes(self) -> Integer[np.ndarray, " examples"]:
        return self.store.lengths + 1

    def batch(
        self,
        indices: Integer[np.ndarray, " batch"],
        *,
        device: torch.device,
        epoch: int | None = None,  # noqa: ARG002
    ) -> TextBatch:
        framed, labels = self.store.framed(indices), self.labels[indices].astype(np.int64)
        ids, lengths, segments, classes = (torch.from_numpy(each).to(device) for each in (*framed, labels))
        return TextBatch(ids, lengths, segments, classes, self.store.lines[indices])

    def fingerprint(self) -> str:
        return self.store.fingerprint()


@dataclass(frozen=True)
class ImageBatch:
    """Images with scaled values, and the class of each."""

    pixels: Float[Tensor, "batch channels height width"]
    labels: Int[Tensor, " batch"]
    numbers: Int[np.ndarray, " batch"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.pixels,)

    def describe(self) -> str:
        return f"{len(self.numbers)} images, numbers {_some(self.numbers + 1)}"


@dataclass(frozen=True)
class ImageExamples:
    """Labelled images, which are varied in training. What changes in an image depends on seed, epoch and its number."""

    store: ImageStore
    config: ImageConfig
    scaling: Scaling
    seed: int

    @property
    def labels(self) -> Integer[np.ndarray, " examples"]:
        return self.store.labels

    @property
    def sizes(self) -> Integer[np.ndarray, " examples"]:
        return np.ones(len(self.store), np.int64)

    def batch(
        self, indices: Integer[np.ndarray, " batch"], *, device: torch.device, epoch: int | None = None
    ) -> ImageBatch:
        pixels, numbers = self.store.pixels(indices), self.store.numbers[indices]
        if epoch is not None:
            pixels = augmented(pixels, numbers, self.config, seed=self.seed, epoch=epoch)
        values, labels = self.scaling.apply(pixels), self.labels[indices].astype(np.int64)
        return ImageBatch(torch.from_numpy(values).to(device), torch.from_numpy(labels).to(device), numbers)

    def fingerprint(self) -> str:
        return self.store.fingerprint()


def _some(numbers: Int[np.ndarray, " batch"]) -> str:
    return ", ".join(map(str, numbers[:5])) + (" …" if len(numbers) > 5 else "")


# --- the task --------------------------------------------------------------------------------------------------------


class ClassificationTask:
    """Labelled training examples and held-out ones on one device; a batch has at most `per_batch` places."""

    def __init__(
        self,
        train: LabelledExamples,
        dev: LabelledExamples,
        *,
        config: ClassificationConfig,
        per_batch: int,
        seed: int,
        device: torch.device,
        vectors: "WordRows | None" = None,
        mixes_lengths: bool = False,
    ) -> None:
        """`mixes_lengths` draws batches from examples of all sizes; they are within `per_batch` places on average."""
        self.train, self.dev = train, dev
        self.vectors = vectors
        self.config, self.per_batch = config, per_batch
        self.device = device
        sizes = train.sizes
        if mixes_lengths:  # to the plan, all have the same length
            sizes = np.full(len(sizes), max(1, round(float(sizes.mean()))))
        self.plan = BatchPlan(sizes, sizes, tokens_per_batch=per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> LabelledBatch:
        return self.train.batch(self.plan.batch(epoch, index), device=self.device, epoch=epoch)

    def count(self, batch: LabelledBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Loss:
        smoothing = self.config.label_smoothing
        if isinstance(model, LearnsInParts):
            parts: Sequence[Tensor] = model.part_scores(*batch.inputs)
        else:
            parts = [_class_scores(model, batch)]
        each = [F.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing) for scores in parts]
        return Loss(torch.stack(each).sum(), len(batch.labels))

    def prepare(self, model: nn.Module) -> None:
        """Begin with the word vectors that were given, and with what is counted from the training texts."""
        if self.vectors is not None:
            for table in cast("CountsTexts", model).word_tables():
                self.vectors.fill(table.weight)
        if isinstance(model, CountsTexts):
            numbers = np.arange(len(self.train.labels))
            begins = range(0, len(numbers), COUNTED_AT_ONCE)
            some = (numbers[begin : begin + COUNTED_AT_ONCE] for begin in begins)
            batches = (self.train.batch(each, device=self.device) for each in some)
            model.count_texts((batch.inputs, batch.labels) for batch in batches)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per example (without smoothing, at its temperature), accuracy and macro-F1 in percent.

        A model that gets more right may be too sure of it for a while, which its temperature makes up for.
        """
        scores = self.dev_scores(model)
        labels = self.config.labels
        found = [labels[number] for number in scores.argmax(1).tolist()]
        accuracy, macro_f1 = score_labels(found, self.dev_labels())
        return {"loss": self._loss_of(scores), "accuracy": accuracy.value, "macro_f1": macro_f1.value}

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per held-out example, without smoothing, at the temperature that fits these."""
        return self._loss_of(self.dev_scores(model))

    def dev_labels(self) -> list[str]:
        """The right label of each held-out example."""
        return [self.config.labels[number] for number in self.dev.labels.tolist()]

    @torch.no_grad()
    def dev_scores(self, model: nn.Module) -> Float32[Tensor, "examples classes"]:
        """The scores of all held-out examples, in their order."""
        scores = torch.empty(len(self.dev.labels), len(self.config.labels))
        for places in batches_by_length(self.dev.sizes, tokens=self.per_batch):
            batch = self.dev.batch(places, device=self.device)
            scores[places] = _class_scores(model, batch).float().cpu()
        return scores

    @property
    def chance(self) -> Chance:
        # A classifier that has learned few texts by heart is often sure of what is wrong.
        classes = len(self.config.labels)
        return Chance(math.log(classes), f"{classes:,} classes", is_overfit_normal=True, examples=len(self.dev.labels))

    def describe(self, batch: LabelledBatch) -> str:
        return batch.describe()

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _loss_of(self, scores: Float32[Tensor, "examples classes"]) -> float:
        labels = self.dev.labels.astype(np.int64)
        given = scores.double()
        if bool(given.isfinite().all()):
            given = given / fit_temperature(given.numpy(), labels)
        return float(F.cross_entropy(given, torch.from_numpy(labels)))


@dataclass(frozen=True)
class WordRows:
    """Vectors of some words of the vocabulary."""

    rows: Int[np.ndarray, " words"]
    vectors: np.ndarray
    """[words, width]"""

    @torch.no_grad()
    def fill(self, table: Float[Tensor, "symbols width"]) -> None:
        """Write them into the table of a model."""
        table[torch.from_numpy(self.rows)] = torch.from_numpy(self.vectors).to(table)


def _class_scores(model: nn.Module, batch: LabelledBatch) -> Float[Tensor, "batch classes"]:
    scores: Tensor = model.class_scores(*batch.inputs)  # type: ignore[operator]
    return scores


def batches_by_length(
    lengths: Integer[np.ndarray, " texts"] | Sequence[int], *, tokens: int
) -> Iterator[Int64[np.ndarray, " some"]]:
    """Places of texts of similar length, longest first: rows × the longest of them within so many tokens."""
    known = np.asarray(lengths, np.int64)
    order, begin = np.argsort(-known, kind="stable"), 0
    while begin < len(order):
        rows = max(1, tokens // max(1, int(known[order[begin]])))
        yield order[begin : begin + rows]
        begin += rows
