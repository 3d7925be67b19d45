"""Classification: the summed cross-entropy of the classes of texts, or of pairs of texts.

loss = −Σ_i Σ_c q_i(c) log P(c | text i)          q: 1 − ε for the right class, and ε / classes for each
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.data.batches import BatchPlan
from seqloom.data.labelled import LabelledStore
from seqloom.metrics.classification import score_labels
from seqloom.models.protocols import ClassificationModel
from seqloom.tasks.settings import ClassificationConfig
from seqloom.training.task import Loss


@dataclass(frozen=True)
class LabelledBatch:
    """Texts or pairs with BEGIN and END, padded, and the class of each."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    segments: Int[Tensor, "batch time"]
    labels: Int[Tensor, " batch"]
    lines: Int[np.ndarray, " batch"]


class ClassificationTask:
    """Labelled training texts and held-out ones on one device."""

    def __init__(
        self,
        train: LabelledStore,
        dev: LabelledStore,
        *,
        config: ClassificationConfig,
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config = config
        self.device = device
        lengths = train.lengths + 1  # with BEGIN
        self.plan = BatchPlan(lengths, lengths, tokens_per_batch=config.tokens_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> LabelledBatch:
        return collate_labelled(self.train, self.plan.batch(epoch, index), device=self.device)

    def count(self, batch: LabelledBatch) -> int:
        return len(batch.labels)

    def loss(self, model: nn.Module, batch: LabelledBatch) -> Loss:
        scores = cast("ClassificationModel", model).class_scores(batch.ids, batch.lengths, batch.segments)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing)
        return Loss(total, len(batch.labels))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per text (without smoothing), accuracy and macro-F1 in percent."""
        scores = self.dev_scores(model)
        labels = self.config.labels
        found = [labels[number] for number in scores.argmax(1).tolist()]
        accuracy, macro_f1 = score_labels(found, self.dev_labels())
        return {"loss": self._loss_of(scores), "accuracy": accuracy.value, "macro_f1": macro_f1.value}

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per held-out text, without smoothing."""
        return self._loss_of(self.dev_scores(model))

    def dev_labels(self) -> list[str]:
        """The right label of each held-out text."""
        return [self.config.labels[number] for number in self.dev.labels.tolist()]

    @torch.no_grad()
    def dev_scores(self, model: nn.Module) -> Float32[Tensor, "texts classes"]:
        """The scores of all held-out texts, in their order."""
        scores = torch.empty(len(self.dev), len(self.config.labels))
        reader = cast("ClassificationModel", model)
        for places in batches_by_length(self.dev.lengths + 1, tokens=self.config.tokens_per_batch):
            batch = collate_labelled(self.dev, places, device=self.device)
            scores[places] = reader.class_scores(batch.ids, batch.lengths, batch.segments).float().cpu()
        return scores

    def describe(self, batch: LabelledBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        return f"{len(batch.lines)} texts of up to {batch.ids.shape[1]} tokens, lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _loss_of(self, scores: Float32[Tensor, "texts classes"]) -> float:
        labels = torch.from_numpy(self.dev.labels.astype(np.int64))
        return float(F.cross_entropy(scores.double(), labels))


def collate_labelled(
    store: LabelledStore, indices: Integer[np.ndarray, " batch"], *, device: torch.device
) -> LabelledBatch:
    """These examples of a store as a batch, in this order."""
    framed, labels = store.framed(indices), store.labels[indices].astype(np.int64)
    ids, lengths, segments, classes = (torch.from_numpy(each).to(device) for each in (*framed, labels))
    return LabelledBatch(ids, lengths, segments, classes, store.lines[indices])


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
