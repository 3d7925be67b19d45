"""Denoising: an encoder-decoder model restores text from noise, which trains both of its halves on plain text.

    loss = −Σ_t log P(y_t | y_1 … y_{t−1}, x̃)        x̃, y = noise(x): `data.corrupt`

The noise is that of BART (y is the whole text), that of T5 (y is what sentinels hide), or masked words of questions and
answers (y is what the masks hide). A sample is a line, or a window that continues over the ends of lines, each of which
is an END. Its noise is a pure function of (seed, epoch, first token of the sample).

In text of several languages each line begins with the symbol of its language. The encoder reads it before the sample,
and the decoder in place of BEGIN (mBART; Liu et al., 2020). A translator that starts from the model reads the symbol of
one language before its sources and begins its outputs with that of another, so it writes the right language from the
first step on.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor, nn

from seqloom.core.errors import DataError, UsageError
from seqloom.data.batches import BatchPlan, PairBatch
from seqloom.data.corrupt import BartNoise, HiddenWords, Noise, SpanCorruption, WordBorders, generator_for, span_count
from seqloom.data.plain_text import Stream
from seqloom.data.windows import RandomWindows
from seqloom.nn.framing import Framing
from seqloom.tasks.masked_language_modelling import (
    DEV_SEED,
    MASK_MARK,
    Spans,
    line_spans,
    mask_symbol,
    window_spans,
    without_ends,
)
from seqloom.tasks.settings import DenoisingConfig, InfillingConfig, QuestionAnswerConfig, SpansConfig
from seqloom.tasks.translation import pair_loss
from seqloom.tasks.unsupervised import ended
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.task import Loss

PUBLISHED_SENTINEL = "<extra_id_{}>"
"""The sentinels of T5, by their numbers."""


def marks_of_noise(config: DenoisingConfig) -> tuple[str, ...]:
    """The symbols that the noise needs. They have spaces in them: no text becomes one."""
    if not isinstance(config.noise, SpansConfig):
        return (MASK_MARK,)
    _, count = span_count(config.length, rate=config.noise.hidden_rate, mean_span=config.noise.mean_span)
    return tuple(f"<hidden span {number}>" for number in range(count))


def noise_of(config: DenoisingConfig, tokenizer: Tokenizer) -> Noise:
    """The noise of a task, with the symbols of a tokeniser; one that lacks them is refused."""
    noise = config.noise
    if isinstance(noise, InfillingConfig):
        return BartNoise(
            mask_symbol(tokenizer),
            rate=noise.hidden_rate,
            mean_span=noise.mean_span,
            permutes_sentences=noise.permute_sentences,
            deletion_rate=noise.deletion_rate,
            mask_rate=noise.mask_rate,
        )
    if isinstance(noise, QuestionAnswerConfig):
        return HiddenWords(mask_symbol(tokenizer), WordBorders.of(tokenizer), rate=noise.hidden_rate)
    names, published = marks_of_noise(config), tokenizer.published
    if published is not None:
        names = tuple(PUBLISHED_SENTINEL.format(number) for number in range(len(names)))
    known = {
        piece: number for number, piece in enumerate(tokenizer.vocabulary if published is None else published.tokens)
    }
    missing = [name for name in names if name not in known]
    if missing:
        raise UsageError(
            f"the tokeniser ({tokenizer.kind}, {tokenizer.size:,} pieces) has {len(names) - len(missing)} of the "
            f"{len(names)} sentinels that hide spans of task.length={config.length} tokens: {missing[0]} is missing; "
            "leave out data.tokenizers_from, make task.length smaller, or start from a model that has them"
        )
    return SpanCorruption(tuple(known[name] for name in names), rate=noise.hidden_rate, mean_span=noise.mean_span)


@dataclass(frozen=True)
class NoisyBatch(PairBatch):
    """Samples with noise as sources, and what the model is to write."""

    languages: Int[Tensor, " batch"] | None
    """The symbol of the language of each sample, which its source begins with; None in text of one language."""

    @property
    def previous(self) -> Int[Tensor, "batch target"]:
        """What the decoder is fed: the symbol of the language, or BEGIN, then at each place the label before it."""
        shifted = super().previous
        if self.languages is not None:
            shifted[:, 0] = self.languages
        return shifted


class DenoisingTask:
    """A training text and a held-out text on one device."""

    def __init__(
        self,
        train: Stream,
        dev: Stream,
        *,
        config: DenoisingConfig,
        noise: Noise,
        languages: tuple[int, ...] = (),
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config, self.noise, self.seed, self.device = config, noise, seed, device
        self.languages = languages
        """The symbols of languages, one of which begins each line; none in text of one language."""
        self.windows: RandomWindows | None = None
        if config.windows == "packed":
            rows = max(1, config.tokens_per_batch // (config.length + 1))
            self.windows = RandomWindows(train.tokens, rows=rows, length=config.length, seed=seed)
            self.dev_spans = window_spans(dev.tokens, config.length)
        else:
            first = min(1, len(languages))
            self.lines, self.dev_spans = (line_spans(text, config.length, first=first) for text in (train, dev))
            for name, spans in (("training", self.lines), ("held-out", self.dev_spans)):
                if not len(spans):
                    raise DataError(f"the {name} text has no line with words")
            self.plan = self._plan(self.lines, seed=seed)
        count = min(config.dev_lines or len(self.dev_spans), len(self.dev_spans))
        self.validation_spans = self.dev_spans.take(np.linspace(0, len(self.dev_spans) - 1, count).astype(np.int64))

    def _plan(self, spans: Spans, *, seed: int) -> BatchPlan:
        lengths = spans.lengths + 1 + min(1, len(self.languages))
        return BatchPlan(lengths, lengths, tokens_per_batch=self.config.tokens_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch)) if self.windows is None else self.windows.batches(epoch)

    def batch(self, epoch: int, index: int) -> NoisyBatch:
        if self.windows is None:
            spans = self.lines.take(self.plan.batch(epoch, index))
        else:
            places = self.windows.batch(epoch, index)
            spans = Spans(places.starts, places.starts + places.length)
        return self._collate(self.train, spans, seed=self.seed, epoch=epoch)

    def count(self, batch: NoisyBatch) -> int:
        return int(batch.target_lengths.sum())

    def loss(self, model: nn.Module, batch: NoisyBatch) -> Loss:
        return self._loss(model, batch, smoothing=self.config.label_smoothing)

    def _loss(self, model: nn.Module, batch: NoisyBatch, *, smoothing: float) -> Loss:
        if batch.languages is None:
            return pair_loss(model, batch, smoothing=smoothing)
        with _unframed(model):
            return pair_loss(model, batch, smoothing=smoothing)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per token of what is to be written for held-out text (without smoothing), and perplexity."""
        total, count = self.measure(model, self.validation_spans)
        return {"loss": total / count, "perplexity": math.exp(min(total / count, 700.0))}

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per token of what is to be written for the whole held-out text."""
        total, count = self.measure(model)
        return total / count

    @torch.no_grad()
    def measure(self, model: nn.Module, spans: Spans | None = None) -> tuple[float, int]:
        """Σ −log P of what is to be written for held-out text, and its tokens. The noise is the same in every call."""
        some = self.dev_spans if spans is None else spans
        total, count = 0.0, 0
        for indices in self._plan(some, seed=DEV_SEED).batches(0):
            batch = self._collate(self.dev, some.take(indices), seed=DEV_SEED, epoch=0)
            found = self._loss(model, batch, smoothing=0.0)
            total, count = total + float(found.total), count + found.count
        return total, count

    def signature(self, count: int) -> str:
        """How the figures of held-out text were counted, to be printed with them."""
        config, noise = self.config, self.config.noise
        span = "" if isinstance(noise, QuestionAnswerConfig) else f"|span:{noise.mean_span:g}"
        return (
            f"unit:token|count:{count}|noise:{noise.kind}|hidden:{noise.hidden_rate:g}{span}|windows:{config.windows}|"
            f"length:{config.length}|seed:{DEV_SEED}"
        )

    def describe(self, batch: NoisyBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        longest = max(batch.source.ids.shape[1], batch.target.shape[1])
        return f"{len(batch.lines)} samples of up to {longest} tokens, from lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _collate(self, text: Stream, spans: Spans, *, seed: int, epoch: int) -> NoisyBatch:
        """These spans of a text as a batch, with the noise of each in this epoch."""
        lines: Int64[np.ndarray, " batch"] = np.searchsorted(text.offsets, spans.begins, side="right") - 1
        languages = text.ids[text.offsets[lines]].astype(np.int64) if self.languages else None
        sources, targets = [], []
        for row, (begin, end) in enumerate(zip(spans.begins.tolist(), spans.ends.tolist(), strict=True)):
            ids = text.ids[begin:end]
            if self.windows is not None:
                ids = without_ends(ids[~np.isin(ids, self.languages)])
            noisy = self.noise(ids, generator_for(seed, epoch, begin))
            sources.append(noisy.read if languages is None else np.insert(noisy.read, 0, languages[row]))
            targets.append(noisy.target)
        target = ended(targets, device=self.device)
        return NoisyBatch(
            source=ended(sources, device=self.device),
            target=target.ids,
            target_lengths=target.lengths,
            lines=text.lines[lines],
            languages=None if languages is None else torch.from_numpy(languages).to(self.device),
        )


@contextmanager
def _unframed(model: nn.Module) -> Iterator[None]:
    """Inside, the model reads nothing around its texts: each sample brings the symbol of its own language."""
    framed: Any = model
    before = framed.framing
    framed.framing = Framing()
    try:
        yield
    finally:
        framed.framing = before
