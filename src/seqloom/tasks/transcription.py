"""Transcription: the summed CTC loss of transcripts, given the frames of recordings, handwriting or images.

    loss = −Σ_i log P(y_i ∣ x_i)          over all paths of each transcript (`nn/ctc.py`); its count are the symbols
           λ CTC − (1 − λ) Σ_i Σ_t log P(y_it ∣ y_i,<t, x_i)          of a model with a decoder (`models/listener.py`)

Training samples are varied (`data/frames.py`): how, is a function of seed, epoch and sample alone.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import BEGIN, END
from seqloom.data.batches import BatchPlan
from seqloom.data.frames import FrameKind, Frames, VariationConfig, finished
from seqloom.data.transcribed import FrameStore
from seqloom.metrics.error_rate import ErrorRate, Unit
from seqloom.models.listener import FrameMemory
from seqloom.models.protocols import AttendsToFrames, TranscriptionModel
from seqloom.nn.ctc import ctc_loss, frames_needed
from seqloom.nn.packing import pack, packing_of
from seqloom.search.ctc import CtcStepper, greedy_labellings
from seqloom.search.ensemble import Ensemble
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import TranscriptionConfig
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.task import Chance, Loss

UNITS: tuple[Unit, Unit] = ("word", "character")
"""What errors of transcripts are counted in."""


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

    `frames_left` is how many frames the model gives symbols for, of so many that it reads.
    """

    def __init__(
        self,
        train: FrameStore,
        dev: FrameStore,
        *,
        config: TranscriptionConfig,
        kind: FrameKind,
        vary: VariationConfig,
        frames_left: Callable[[int], int],
        tokenizer: Tokenizer,
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config, self.kind, self.vary, self.frames_left = config, kind, vary, frames_left
        self.tokenizer, self.seed, self.device = tokenizer, seed, device
        self.plan = BatchPlan(train.lengths, train.lengths, tokens_per_batch=config.frames_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> FrameBatch:
        return self._collate(self.train, self.plan.batch(epoch, index), epoch=epoch)

    def count(self, batch: FrameBatch) -> int:
        return int(batch.target_lengths.sum())

    def loss(self, model: nn.Module, batch: FrameBatch) -> Loss:
        return self._read(model, batch).loss

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Loss per symbol of all held-out samples, WER and CER of greedy transcripts in percent."""
        found, references = self._transcribed(model), self.dev_texts()
        wer, cer = (ErrorRate(unit).statistics(found.outputs, references).value for unit in UNITS)
        return {"loss": found.loss, "wer": wer, "cer": cer}

    def dev_loss(self, model: nn.Module) -> float:
        """Loss per symbol of all held-out samples."""
        return self._transcribed(model).loss

    def dev_outputs(self, model: nn.Module) -> list[str]:
        """The greedy transcripts of all held-out samples, in their order."""
        return self._transcribed(model).outputs

    def dev_texts(self) -> list[str]:
        """The right transcripts of all held-out samples."""
        return [self.tokenizer.decode(self.dev.target(place).tolist()) for place in range(len(self.dev))]

    @property
    def chance(self) -> Chance:
        """The loss if all symbols and the blank are equally probable in each frame."""
        losses = []
        for places in batches_by_length(self.dev.lengths, tokens=self.config.frames_per_batch):
            batch = self._collate(self.dev, places)
            left = torch.tensor([self.frames_left(length) for length in batch.lengths.tolist()], device=self.device)
            even = torch.zeros(len(left), int(left.max()), self.tokenizer.size, device=self.device)
            losses.append(_loss_of(even, left, batch))
        return Chance(_mean(losses), f"{self.tokenizer.size:,} symbols in each frame", is_overfit_normal=True)

    def describe(self, batch: FrameBatch) -> str:
        some = ", ".join(map(str, batch.lines[:5])) + (" …" if len(batch.lines) > 5 else "")
        return f"{len(batch.lines)} samples of up to {batch.frames.shape[1]} frames, numbers {some}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    @torch.no_grad()
    def _transcribed(self, model: nn.Module) -> "_Transcribed":
        losses, outputs = [], [""] * len(self.dev)
        for places in batches_by_length(self.dev.lengths, tokens=self.config.frames_per_batch):
            batch = self._collate(self.dev, places)
            read = self._read(model, batch)
            losses.append(read.loss)
            for place, symbols in zip(places.tolist(), read.greedy(), strict=True):
                outputs[place] = self.tokenizer.decode(symbols)
        return _Transcribed(_mean(losses), outputs)

    @staticmethod
    def _read(model: nn.Module, batch: FrameBatch) -> "_Read":
        if not isinstance(model, AttendsToFrames):
            scores, lengths = cast("TranscriptionModel", model).frame_scores(batch.frames, batch.lengths)
            return _Read(_loss_of(scores, lengths, batch), partial(greedy_labellings, scores, lengths))
        memory, share = model.remember(batch.frames, batch.lengths), model.ctc_share
        loss = _decoder_loss(model, memory, batch)
        if share:
            blank = _loss_of(model.blank_scores(memory), memory.lengths, batch)
            loss = Loss(share * blank.total + (1 - share) * loss.total, blank.count)
        return _Read(loss, partial(_greedy_by_steps, model, memory))

    def _collate(
        self, store: FrameStore, places: Integer[np.ndarray, " batch"], *, epoch: int | None = None
    ) -> FrameBatch:
        """These samples, varied as in this epoch of training, if one is given."""
        samples, targets = [], [store.target(int(place)) for place in places]
        for place, target in zip(places.tolist(), targets, strict=True):
            stored = store.frames(place)
            if epoch is None:
                samples.append(finished(stored, self.kind))
                continue
            random = np.random.default_rng(seed_for(self.seed, "frames", epoch, int(store.lines[place])))
            fewest = self._fewest(len(stored), frames_needed(target.tolist()))
            samples.append(finished(stored, self.kind, vary=self.vary, random=random, fewest=fewest))
        store.drop_pages()
        frames, lengths = pad_frames(samples)
        symbols = torch.zeros(len(targets), max(map(len, targets)), dtype=torch.long)
        for row, target in enumerate(targets):
            symbols[row, : len(target)] = torch.from_numpy(target)
        counts = torch.tensor([len(target) for target in targets])
        device = self.device
        return FrameBatch(
            frames.to(device), lengths.to(device), symbols.to(device), counts.to(device), store.lines[places]
        )

    def _fewest(self, frames: int, needed: int) -> int:
        """How many of these frames at least have a path for a transcript: it had one when it was stored."""
        return bisect_left(range(frames), needed, key=self.frames_left)


@dataclass(frozen=True)
class _Read:
    """A batch, read by a model."""

    loss: Loss
    greedy: Callable[[], Sequence[tuple[int, ...]]]
    """Finds the greedy transcripts."""


@dataclass(frozen=True)
class _Transcribed:
    """All held-out samples, read by a model."""

    loss: float
    """Per symbol."""
    outputs: list[str]


def _loss_of(scores: Float[Tensor, "batch shorter symbols"], lengths: Int[Tensor, " batch"], batch: FrameBatch) -> Loss:
    found = ctc_loss(scores, lengths, targets=batch.targets, target_lengths=batch.target_lengths)
    return Loss(found.total, found.count)


def _decoder_loss(model: AttendsToFrames, memory: FrameMemory, batch: FrameBatch) -> Loss:
    """−Σ_t log P(y_t ∣ y_<t, x) with the end, over all transcripts; its count are the symbols without it."""
    read = torch.cat([torch.full_like(batch.targets[:, :1], BEGIN), batch.targets], 1)  # [batch, longest + 1]
    written = F.pad(batch.targets, (0, 1)).scatter(1, batch.target_lengths[:, None], END)
    lengths = batch.target_lengths + 1
    labels = pack(written, packing_of(lengths, written.shape[1]))  # [tokens]
    total = model.output.cross_entropy(model(memory, read, lengths), labels)
    return Loss(total, int(batch.target_lengths.sum()))


def frame_search(model: AttendsToFrames, memory: FrameMemory) -> tuple[Stepper, Source]:
    """Decoder and CTC as one stepper, and a row for each sample."""
    share, stepper = model.decoding_share, model.stepper(memory)
    ends = torch.full((len(memory.lengths), int(memory.lengths.max())), END, device=memory.lengths.device)
    if share:
        stepper = Ensemble([stepper, CtcStepper(model.blank_scores(memory), memory.lengths)], [1 - share, share])
    return stepper, Source(ends, memory.lengths)


def _greedy_by_steps(model: AttendsToFrames, memory: FrameMemory) -> list[tuple[int, ...]]:
    stepper, source = frame_search(model, memory)
    return [found.symbols for found in greedy_search(stepper, source, SearchConfig())]


def _mean(losses: Sequence[Loss]) -> float:
    return sum(float(loss.total) for loss in losses) / sum(loss.count for loss in losses)
