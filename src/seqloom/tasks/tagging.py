"""Tagging: the summed cross-entropy of the tags of words, over all columns that are learned.

loss = −Σ_columns Σ_words log P(tag of the word ∣ its sentence)      with a CRF: −Σ_columns Σ_sentences log P(all tags)

A word of the training text is read as unknown with the probability a / (a + its count), drawn in each epoch from
(seed, epoch, sentence): letters and neighbours then have to do, as for words that were never seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor, nn

from seqloom.core.errors import DataError
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import PAD, UNKNOWN
from seqloom.data.batches import BatchPlan
from seqloom.data.tokens import TokenStore
from seqloom.metrics.tagging import score_spans
from seqloom.models.protocols import TaggingModel
from seqloom.models.tagger import TaggerInput
from seqloom.nn.packing import pack
from seqloom.tasks.classification import WordRows, batches_by_length
from seqloom.tasks.settings import TaggingConfig
from seqloom.text.spans import legal_steps
from seqloom.training.task import Chance, Loss


@dataclass(frozen=True)
class TagBatch:
    """Sentences with the tags of their words; −1 for a tag that is not known, and for padding."""

    given: TaggerInput
    tags: Int[Tensor, "batch time columns"]
    lines: Int[np.ndarray, " batch"]


class TaggingTask:
    """Tagged training sentences and held-out ones on one device."""

    def __init__(
        self,
        train: TokenStore,
        dev: TokenStore,
        *,
        config: TaggingConfig,
        words: int,
        seed: int,
        device: torch.device,
        vectors: WordRows | None = None,
    ) -> None:
        """`words` is the size of the vocabulary."""
        self.train, self.dev = train, dev
        self.config, self.seed, self.device = config, seed, device
        self.vectors = vectors
        self.legal = legal_of(config, device=device)
        counts = train.word_counts(words)
        self._drop_rates = config.word_dropout / np.maximum(config.word_dropout + counts, 1e-9)
        lengths = train.lengths
        self.plan = BatchPlan(lengths, lengths, tokens_per_batch=config.tokens_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> TagBatch:
        return self._batch(self.train, self.plan.batch(epoch, index), epoch=epoch)

    def count(self, batch: TagBatch) -> int:
        return int((batch.tags >= 0).sum())

    def loss(self, model: nn.Module, batch: TagBatch) -> Loss:
        totals, counts = zip(*self._losses(model, batch), strict=True)
        return Loss(torch.stack(totals).sum(), sum(counts))

    def prepare(self, model: nn.Module) -> None:
        """Begin with the word vectors that were given."""
        if self.vectors is not None:
            self.vectors.fill(cast("TaggingModel", model).words.weight)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per tag, accuracy of each column in percent, and F1 of spans."""
        loss, found = self._read_dev(model)
        figures = {"loss": loss, "accuracy": 0.0}
        for place, column in enumerate(self.config.columns):
            figures[f"accuracy.{column}"] = 100 * float((found[:, place] == self.dev.tags[:, place]).mean())
            if column in self.config.schemes:
                figures[f"span_f1.{column}"] = self._span_f1(found[:, place], place)
        figures["accuracy"] = float(np.mean([figures[f"accuracy.{column}"] for column in self.config.columns]))
        return figures

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per held-out tag."""
        return self._read_dev(model)[0]

    def dev_tags(self, model: nn.Module) -> Int[np.ndarray, "words columns"]:
        """The numbers of the tags that the model gives the held-out words."""
        return self._read_dev(model)[1]

    @property
    def chance(self) -> Chance:
        sizes = [len(self.config.tags[column]) for column in self.config.columns]
        loss = float(np.mean(np.log(sizes)))
        # A tagger that has learned few sentences by heart is often sure of what is wrong.
        return Chance(loss, f"{sum(sizes):,} tags", is_overfit_normal=True, examples=len(self.dev.forms))

    def describe(self, batch: TagBatch) -> str:
        lines = batch.lines
        shown = ", ".join(map(str, lines[:5])) + (" …" if len(lines) > 5 else "")
        return f"{len(lines)} sentences of up to {batch.tags.shape[1]} words, at lines {shown}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _losses(self, model: nn.Module, batch: TagBatch) -> list[tuple[Tensor, int]]:
        tagger = cast("TaggingModel", model)
        states, packing = tagger(batch.given)
        tags = pack(batch.tags, packing).unbind(1)  # [tokens] of each column
        each = zip(tagger.outputs, tags, self.legal, strict=True)
        return [output.loss(states, known, packing, legal=legal) for output, known, legal in each]

    @torch.no_grad()
    def _read_dev(self, model: nn.Module) -> tuple[float, Int[np.ndarray, "words columns"]]:
        """The loss per tag, and the tags that the model gives."""
        tagger, total, count = cast("TaggingModel", model), 0.0, 0
        found = np.empty(self.dev.tags.shape, np.int64)
        for places in batches_by_length(self.dev.lengths, tokens=self.config.tokens_per_batch):
            batch = self._batch(self.dev, places)
            states, packing = tagger(batch.given)
            tags = pack(batch.tags, packing)  # [tokens, columns]
            words, _ = self.dev.places(places)
            real = words[words >= 0]
            for place, (output, legal) in enumerate(zip(tagger.outputs, self.legal, strict=True)):
                loss, known = output.loss(states, tags[:, place], packing, legal=legal)
                total, count = total + float(loss), count + known
                found[real, place] = output.best(states, packing, legal=legal).cpu().numpy()
        if not count:
            raise DataError("no tag of the dev text is among those of the training text; give other --dev files")
        return total / count, found

    def _span_f1(self, found: Int[np.ndarray, " words"], place: int) -> float:
        column = self.config.columns[place]
        names = (*self.config.tags[column], "O")  # the last one for −1
        expected = self.dev.tags[:, place]
        cuts = np.cumsum(self.dev.lengths)[:-1]
        named = [[[names[tag] for tag in each] for each in np.split(tags, cuts)] for tags in (found, expected)]
        return score_spans(named[0], named[1]).value

    def _batch(
        self, store: TokenStore, indices: Integer[np.ndarray, " batch"], *, epoch: int | None = None
    ) -> TagBatch:
        places, lengths = store.places(indices)  # [batch, time]
        is_real = places >= 0
        of_words = store.forms[places[is_real]].astype(np.int64)
        different, rows = np.unique(of_words, return_inverse=True)
        spelled = store.spelled(different)
        words, forms = np.full(places.shape, PAD, np.int64), np.zeros(places.shape, np.int64)
        words[is_real], forms[is_real] = spelled.words[rows], rows
        if epoch is not None:
            rates = self._drop_rates[words]
            for row, index in enumerate(indices.tolist()):
                drawn = np.random.default_rng(seed_for(self.seed, "unknown words", epoch, index)).random(lengths[row])
                is_dropped = drawn < rates[row, : lengths[row]]
                words[row, : lengths[row]][is_dropped] = UNKNOWN
        tags = np.full((*places.shape, store.tags.shape[1]), -1, np.int64)
        tags[is_real] = store.tags[places[is_real]]
        arrays = (words, forms, lengths, spelled.letters, spelled.lengths, tags)
        *given, labels = (torch.from_numpy(each).to(self.device) for each in arrays)
        return TagBatch(TaggerInput(*given), labels, store.lines[indices])


def legal_of(config: TaggingConfig, *, device: torch.device) -> list[Bool[Tensor, "tags_1 tags_1"] | None]:
    """The legal steps of each column; None where all are."""
    return [
        torch.from_numpy(legal_steps(config.tags[column], scheme=config.schemes[column])).to(device)
        if column in config.schemes
        else None
        for column in config.columns
    ]
