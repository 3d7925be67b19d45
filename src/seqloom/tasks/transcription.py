"""Transcription: the summed CTC loss of transcripts, given the frames of recordings, handwriting or images.

    loss = −Σ_i log P(y_i ∣ x_i)          over all paths of each transcript (`nn/ctc.py`); its count are the symbols

Training samples are varied (`data/frames.py`): how, is a function of seed, epoch and sample alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Integer
from torch import Tensor, nn

from seqloom.core.seeds import seed_for
from seqloom.data.batches import BatchPlan
from seqloom.data.frames import FrameKind, Frames, VariationConfig, finished
from seqloom.data.transcribed import FrameStore
from seqloom.metrics.error_rate import ErrorRate
from seqloom.models.protocols import TranscriptionModel
from seqloom.nn.ctc import ctc_loss, frames_needed
from seqloom.search.ctc import greedy_labellings
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import TranscriptionConfig
from seqloom.training.task import Loss


@dataclass(frozen=True)
class FrameBatch:
    """Samples and their transcripts, both padded with zeros."""

    frames: Float[Tensor, "batch time features"]
    lengths: Int[Tensor, " batch"]
    targets: Int[Tensor, "batch longest"]
    target_lengths: Int[Tensor, " batch"]
    lines: Int64[np.ndarray, " batch"]


def pad_frames(samples: Sequence[Frames]) -> tuple[Float[Tensor, "batch time features"], Int[Tensor, " batch"]]:
    """Frames of several samples in one tensor, and how many each has."""
    lengths = torch.tensor([len(each) for each in samples])
    frames = torch.zeros(len(samples), int(lengths.max()), samples[0].shape[1])
    for row, each in enumerate(samples):
        frames[row, : len(each)] = torch.from_numpy(np.ascontiguousarray(each))
    return frames, lengths


class TranscriptionTask:
    """Training samples and held-out ones on one device; a batch has at most `config.frames_per_batch` places.

    `stride` is the number of frames that the model reads as one, and `decode` makes text of symbols.
    """

    def __init__(
        self,
        train: FrameStore,
        dev: FrameStore,
        *,
        config: TranscriptionConfig,
        kind: FrameKind,
        vary: VariationConfig,
        stride: int,
        decode: Callable[[Sequence[int]], str],
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config, self.kind, self.vary, self.stride = config, kind, vary, stride
        self.decode, self.seed, self.device = decode, seed, device
        self.plan = BatchPlan(train.lengths, train.lengths, tokens_per_batch=config.frames_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> FrameBatch:
        return self._collate(self.train, self.plan.batch(epoch, index), epoch=epoch)

    def count(self, batch: FrameBatch) -> int:
        return int(batch.target_lengths.clamp(min=1).sum())

    def loss(self, model: nn.Module, batch: FrameBatch) -> Loss:
        scores, lengths = cast("TranscriptionModel", model)(batch.frames, batch.lengths)
        found = ctc_loss(scores, lengths, targets=batch.targets, target_lengths=batch.target_lengths)
        return Loss(found.total, found.count)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Loss per symbol of all held-out samples, WER and CER of greedy transcripts in percent."""
        total, count, outputs = 0.0, 0, [""] * len(self.dev)
        for places, scores, lengths, batch in self._dev_scores(model):
            loss = self._loss_of(scores, lengths, batch)
            total, count = total + float(loss.total), count + loss.count
            for place, symbols in zip(places.tolist(), greedy_labellings(scores, lengths), strict=True):
                outputs[place] = self.decode(symbols)
        references = self.dev_texts()
        rates = {
            name: ErrorRate(unit).statistics(outputs, references).value
            for name, unit in (("wer", "word"), ("cer", "character"))
        }
        return {"loss": total / count, **rates}

    def dev_loss(self, model: nn.Module) -> float:
        """Loss per symbol of all held-out samples."""
        losses = [self._loss_of(scores, lengths, batch) for _, scores, lengths, batch in self._dev_scores(model)]
        return sum(float(loss.total) for loss in losses) / sum(loss.count for loss in losses)

    def dev_outputs(self, model: nn.Module) -> list[str]:
        """The greedy transcripts of all held-out samples."""
        outputs = [""] * len(self.dev)
        for places, scores, lengths, _ in self._dev_scores(model):
            for place, symbols in zip(places.tolist(), greedy_labellings(scores, lengths), strict=True):
                outputs[place] = self.decode(symbols)
        return outputs

    def dev_texts(self) -> list[str]:
        """The right transcripts of all held-out samples."""
        return [self.decode(self.dev.target(place).tolist()) for place in range(len(self.dev))]

    def describe(self, batch: FrameBatch) -> str:
        some = ", ".join(map(str, batch.lines[:5])) + (" …" if len(batch.lines) > 5 else "")
        return f"{len(batch.lines)} samples of up to {batch.frames.shape[1]} frames, numbers {some}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    @torch.no_grad()
    def _dev_scores(self, model: nn.Module) -> Iterator[tuple[Int64[np.ndarray, " batch"], Tensor, Tensor, FrameBatch]]:
        """Scores of all held-out samples, by length: their places, scores, lengths and targets."""
        for places in batches_by_length(self.dev.lengths, tokens=self.config.frames_per_batch):
            batch = self._collate(self.dev, places)
            scores, lengths = cast("TranscriptionModel", model)(batch.frames, batch.lengths)
            yield places, scores.float(), lengths, batch

    @staticmethod
    def _loss_of(scores: Tensor, lengths: Tensor, batch: FrameBatch) -> Loss:
        found = ctc_loss(scores, lengths, targets=batch.targets, target_lengths=batch.target_lengths)
        return Loss(found.total, found.count)

    def _collate(
        self, store: FrameStore, places: Integer[np.ndarray, " batch"], *, epoch: int | None = None
    ) -> FrameBatch:
        """These samples, varied as in this epoch of training, if one is given."""
        samples, targets = [], [store.target(int(place)) for place in places]
        for place, target in zip(places.tolist(), targets, strict=True):
            random = None
            if epoch is not None:
                random = np.random.default_rng(seed_for(self.seed, "frames", epoch, int(store.lines[place])))
            fewest = self.stride * (frames_needed(target.tolist()) - 1) + 1
            samples.append(finished(store.frames(place), self.kind, vary=self.vary, random=random, fewest=fewest))
        store.drop_pages()
        frames, lengths = pad_frames(samples)
        symbols = torch.zeros(len(targets), max(map(len, targets)), dtype=torch.long)
        for row, target in enumerate(targets):
            symbols[row, : len(target)] = torch.from_numpy(target)
        counts = torch.tensor([len(target) for target in targets])
        moved = (each.to(self.device) for each in (frames, lengths, symbols, counts))
        return FrameBatch(*moved, lines=store.lines[places])
