"""Translation without parallel text (Lample et al., 2018): two texts that are not translations of each other.

For a line y of one language, x̃ its first translation by phrases or a dictionary, c(y) the line with noise:

    start              −log P(y ∣ x̃)                             what made x̃ is the first model
    denoising          −λ log P(y ∣ c(y))                        the model of each language
    back-translation   −log P(y ∣ x̂),  x̂ = argmax P(x ∣ y)       the model is its own source of pairs

One model has all four directions: the symbol of a language before the source and at the beginning of the target says
which. Translation steps take no gradient. What is back-translated depends on the weights alone, and all noise on the
position in the data, so that a resumed run gives the same bits.

Validation translates held-out lines and translates them back. The chrF between a line and what came back is the
criterion where there are no dev pairs. A line that was only copied counts as lost: copying twice is a perfect round
trip.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, Integer
from torch import Tensor, nn

from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.data.batches import BatchPlan, PairBatch, collate
from seqloom.data.corrupt import WordBorders, WordNoise, corrupt
from seqloom.data.store import Store
from seqloom.metrics.scoring import score
from seqloom.metrics.translation import Chrf
from seqloom.models.frames import FrameConfig
from seqloom.models.protocols import TranslationModel
from seqloom.nn.dropout import evaluating
from seqloom.nn.embeddings import Embedding
from seqloom.nn.framing import Framing
from seqloom.search.greedy import greedy_search
from seqloom.search.sampling import sample_search
from seqloom.search.settings import SearchConfig
from seqloom.tasks.settings import UnsupervisedConfig
from seqloom.tasks.translation import DevSet, batches_by_length, figure_of, pair_loss
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.fsdp import gathered
from seqloom.training.task import Guard, Loss

ROUND_TRIP = "round_trip"
"""The name of the round-trip chrF among the figures of a validation."""


@dataclass(frozen=True)
class MonolingualText:
    """The text of one language. In its stores, targets are the lines and sources their words by the dictionary."""

    train: Store
    dev: Store
    dev_lines: Sequence[str]
    """The lines of `dev` as text."""


@dataclass(frozen=True)
class TextBatch:
    """Lines of one language."""

    side: int
    """0 for the first language, 1 for the second."""
    pairs: PairBatch
    """The lines as targets, their words by the dictionary as sources."""
    noisy: Source
    """The lines with noise."""
    keys: Int64[np.ndarray, " batch"]
    """What sampled translations of the lines are drawn with."""
    is_translated: Bool[np.ndarray, " batch"]
    """Lines with a source in the other language, by the dictionary or by the model."""
    is_back_translated: Bool[np.ndarray, " batch"]
    """Those among them whose source the model makes."""


@dataclass(frozen=True)
class UnsupervisedBatch:
    """Lines of both languages."""

    texts: tuple[TextBatch, TextBatch]
    denoising: float
    """Weight of restoring the lines from noise."""


class UnsupervisedTask:
    """Two texts on one device, and dev pairs if there are some."""

    def __init__(
        self,
        texts: tuple[MonolingualText, MonolingualText],
        *,
        pairs: DevSet | None,
        twins: tuple[Int64[np.ndarray, "words 2"], Float64[np.ndarray, " words"]],
        config: UnsupervisedConfig,
        tokenizer: Tokenizer,
        blank: int,
        frame: FrameConfig,
        languages: tuple[str, str],
        tokens_per_batch: int,
        batches_per_step: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.texts, self.pairs, self.config = texts, pairs, config
        self.twins = twins
        """Symbols of words of the first language and of their translations by the dictionary, and the share of each
        among the translations of a word of the second language."""
        self.tokenizer = tokenizer
        self.seed, self.device = seed, device
        self.tokens_per_batch, self.batches_per_step = tokens_per_batch, batches_per_step
        self._noise = WordNoise(config.drop_rate, config.blank_rate, config.shuffle_distance, blank)
        self._borders = WordBorders.of(tokenizer)
        self._framings = {
            (one, other): framing_of(frame, languages[one], languages[other]) for one in (0, 1) for other in (0, 1)
        }
        # A batch reads the lines of each text twice: with noise, and from the other language.
        self._plans = [
            BatchPlan(
                text.train.source_lengths,
                text.train.target_lengths,
                tokens_per_batch=max(1, tokens_per_batch // 4),
                seed=seed_for(seed, "text", side),
            )
            for side, text in enumerate(texts)
        ]
        lengths = [float(np.mean(text.train.target_lengths)) for text in texts]
        self._searches = [_search(lengths[1 - side] / lengths[side], seed=seed) for side in (0, 1)]
        self._round_trip_metric = Chrf(lowercase=tokenizer.config.lowercase)

    @property
    def guard(self) -> Guard:
        """Training ends when translations there and back become worse and worse."""
        return Guard(ROUND_TRIP, "round-trip chrF", self.config.falls)

    def prepare(self, model: nn.Module) -> None:
        """Begin with similar vectors for words that translate each other: e_y ← (e_y + Σ_x w_x e_x) / √2, ‖w‖ = 1.

        A model with unrelated vectors would first have to learn the dictionary by heart.
        """
        tables = {id(module.weight): module.weight for module in model.modules() if isinstance(module, Embedding)}
        pairs, shares = self.twins
        if not len(pairs):
            return
        squares = np.bincount(pairs[:, 1], weights=shares**2)
        weights = torch.from_numpy(shares / np.sqrt(squares[pairs[:, 1]])).to(self.device)  # [words]
        first, second = torch.from_numpy(pairs).to(self.device).unbind(1)
        with torch.no_grad():
            for table in tables.values():
                mean = torch.zeros_like(table).index_add_(0, second, table[first] * weights[:, None].to(table.dtype))
                changed = second.unique()
                table[changed] = (table[changed] + mean[changed]) * math.sqrt(0.5)

    # --- batches -----------------------------------------------------------------------------------------------------

    def batches(self, epoch: int) -> int:
        """As many as the longer text has; the shorter one is read repeatedly."""
        return max(len(plan.batches(epoch)) for plan in self._plans)

    def batch(self, epoch: int, index: int) -> UnsupervisedBatch:
        # A plan has equally many batches in every epoch, because the lengths are the same.
        step = (epoch * self.batches(epoch) + index) // self.batches_per_step
        share = self.share(step)
        weight = self.config.denoising + share * (self.config.final_denoising - self.config.denoising)
        first, second = (self._text_batch(side, epoch, index, share=share) for side in (0, 1))
        return UnsupervisedBatch((first, second), weight)

    def share(self, step: int) -> float:
        """The share of sources that the model makes itself."""
        past, mix = step - self.config.start_steps, self.config.mix_steps
        return min(1.0, max(0.0, past / mix)) if mix else float(past >= 0)

    def _text_batch(self, side: int, epoch: int, index: int, *, share: float) -> TextBatch:
        plan, store, seed = self._plans[side], self.texts[side].train, seed_for(self.seed, "text", side)
        count = len(plan.batches(epoch))
        pass_, place = divmod(index, count)
        # The passes of the shorter text are numbered over all epochs: each has its own noise.
        pass_ += epoch * -(-self.batches(epoch) // count)
        indices = plan.batch(pass_, place)
        pairs = collate(store, indices)
        lines = [row[: length - 1].numpy() for row, length in zip(pairs.target, pairs.target_lengths, strict=True)]
        noisy = corrupt(lines, self._noise, borders=self._borders, seed=seed, epoch=pass_, samples=indices)
        generator = np.random.default_rng(seed_for(seed, "back-translation", pass_, place))
        is_back_translated = generator.random(len(indices)) < share
        has_source = np.full(len(indices), self.config.dictionary is not None)
        return TextBatch(
            side,
            pairs.to(self.device),
            ended(noisy, device=self.device),
            keys=generator.integers(1 << 62, size=len(indices)),
            is_translated=is_back_translated | has_source,
            is_back_translated=is_back_translated,
        )

    def count(self, batch: UnsupervisedBatch) -> int:
        total = 0
        for text in batch.texts:
            lengths = text.pairs.target_lengths.cpu().numpy()
            total += int(lengths.sum()) * (batch.denoising > 0) + int(lengths[text.is_translated].sum())
        return total

    def describe(self, batch: UnsupervisedBatch) -> str:
        lines = [f"{len(text.keys)} (from line {text.pairs.lines[0]} on)" for text in batch.texts]
        return f"lines of both texts: {' and '.join(lines)}"

    def fingerprint(self) -> str:
        return " ".join(text.train.fingerprint() for text in self.texts)

    # --- losses ------------------------------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: UnsupervisedBatch) -> Loss:
        smoothing = self.config.label_smoothing
        total, count = torch.zeros((), device=self.device), 0
        for text in batch.texts:
            if text.is_translated.any():
                with self._direction(model, 1 - text.side, text.side):
                    found = pair_loss(model, self._with_translations(model, text), smoothing=smoothing)
                total, count = total + found.total, count + found.count
            if batch.denoising > 0:
                noisy = PairBatch(text.noisy, text.pairs.target, text.pairs.target_lengths, text.pairs.lines)
                with self._direction(model, text.side, text.side):
                    found = pair_loss(model, noisy, smoothing=smoothing)
                total, count = total + batch.denoising * found.total, count + found.count
        return Loss(total, count)

    def _with_translations(self, model: nn.Module, text: TextBatch) -> PairBatch:
        """The lines that have a source in the other language, with it."""
        pairs = text.pairs
        sources = [row[: length - 1] for row, length in zip(*_on_cpu(pairs.source), strict=True)]
        places = np.flatnonzero(text.is_back_translated)
        if len(places):
            rows = torch.from_numpy(places).to(self.device)
            lines = Source(pairs.target[rows], pairs.target_lengths[rows])
            keys = text.keys[places] if self.config.back_translation == "sample" else None
            for place, ids in zip(places, self.translations(model, lines, side=text.side, keys=keys), strict=True):
                sources[place] = np.array(ids, dtype=np.int64)
        chosen = np.flatnonzero(text.is_translated)
        rows = torch.from_numpy(chosen).to(self.device)
        target_lengths = pairs.target_lengths[rows]
        return PairBatch(
            ended([sources[place] for place in chosen], device=self.device),
            pairs.target[rows][:, : int(target_lengths.max())],
            target_lengths,
            pairs.lines[chosen],
        )

    @contextmanager
    def _direction(self, model: nn.Module, source: int, target: int) -> Iterator[None]:
        """Inside, the model translates from one language into another, or the same one."""
        framed: Any = model
        before = framed.framing
        framed.framing = self._framings[source, target]
        try:
            yield
        finally:
            framed.framing = before

    def translations(
        self, model: nn.Module, lines: Source, *, side: int, keys: Integer[np.ndarray, " batch"] | None = None
    ) -> list[Sequence[int]]:
        """Translations of lines of one language into the other, ids without END: the best, or samples with `keys`."""
        with self._direction(model, side, 1 - side), gathered(model), evaluating(model):
            stepper = cast("TranslationModel", model).stepper()
            settings = self._searches[side]
            if keys is None:
                return [found.symbols for found in greedy_search(stepper, lines, settings)]
            drawn = sample_search(stepper, lines, settings, keys=keys.tolist())
            return [samples[0].symbols for samples in drawn]

    # --- validation --------------------------------------------------------------------------------------------------

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Round-trip chrF, the metric of dev pairs if there are some, and 1 − chrF/100 of the one that decides."""
        figures = {ROUND_TRIP: self.round_trip(model)}
        if self.pairs is None:
            return {"loss": 1 - figures[ROUND_TRIP] / 100, **figures}
        translated, references = self._translated_pairs(model, self.pairs), self.pairs.references
        references = references[: len(translated)]
        value = self.pairs.score(translated)
        chrf = score(self._round_trip_metric, translated, references=references).value
        return {"loss": 1 - chrf / 100, figure_of(self.pairs.metric): value, **figures}

    @torch.no_grad()
    def dev_loss(self, model: nn.Module) -> float:
        """1 − chrF/100 of dev pairs, or of the round trip where there are none."""
        if self.pairs is None:
            return 1 - self.round_trip(model) / 100
        translated = self._translated_pairs(model, self.pairs)
        found = score(self._round_trip_metric, translated, references=self.pairs.references[: len(translated)])
        return 1 - found.value / 100

    @torch.no_grad()
    def round_trip(self, model: nn.Module) -> float:
        """The mean over both texts of the chrF between held-out lines and what two translations make of them."""
        return float(np.mean([self._round_trip(model, side) for side in (0, 1)]))

    def _round_trip(self, model: nn.Module, side: int) -> float:
        text = self.texts[side]
        count = min(self.config.dev_lines, len(text.dev))
        back = [""] * count
        for indices in batches_by_length(text.dev, tokens=self.tokens_per_batch, examples=count):
            lines = collate(text.dev, indices).to(self.device)
            there = self.translations(model, Source(lines.target, lines.target_lengths), side=side)
            again = self.translations(model, ended(there, device=self.device), side=1 - side)
            for row, (place, ids) in enumerate(zip(indices, again, strict=True)):
                own = lines.target[row, : int(lines.target_lengths[row]) - 1].tolist()
                back[place] = "" if list(there[row]) == own else self.tokenizer.decode(ids)
        return score(self._round_trip_metric, back, references=text.dev_lines[:count]).value

    def _translated_pairs(self, model: nn.Module, pairs: DevSet) -> list[str]:
        count = min(self.config.dev_lines, len(pairs.store))
        translated = [""] * count
        for indices in batches_by_length(pairs.store, tokens=self.tokens_per_batch, examples=count):
            batch = collate(pairs.store, indices).to(self.device)
            for place, ids in zip(indices, self.translations(model, batch.source, side=0), strict=True):
                translated[place] = self.tokenizer.decode(ids)
        return translated


def framing_of(frame: FrameConfig, source: str, target: str) -> Framing:
    """The symbols around texts of these languages."""
    found = frame.model_copy(update={"source": source, "target": target}).symbols()
    return Framing(found.source_before, found.source_after, found.target_before or (BEGIN,))


def ended(rows: Sequence[Sequence[int] | Integer[np.ndarray, " tokens"]], *, device: torch.device) -> Source:
    """Sentences without END as a padded source, with it."""
    lengths = torch.tensor([len(row) + 1 for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), PAD)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.as_tensor(np.asarray(row, dtype=np.int64))
        ids[place, len(row)] = END
    return Source(ids.to(device), lengths.to(device))


def _on_cpu(source: Source) -> tuple[np.ndarray, np.ndarray]:
    ids: Tensor = source.ids.cpu()
    return ids.numpy(), source.lengths.cpu().numpy()


def _search(ratio: float, *, seed: int) -> SearchConfig:
    """How lines are translated whose translations are about `ratio` times as long.

    A model that has learned little often never ends: its outputs are cut soon.
    """
    return SearchConfig(length_factor=1.3 * max(1.0, ratio), length_constant=5, length_overrun=1.0, seed=seed)
