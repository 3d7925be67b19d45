"""Translation: the summed cross-entropy of the next target symbols, given a source and the target so far.

Validation reports loss and BLEU; for targets that BLEU does not suit, another metric (`dev_names_for`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source
from seqloom.data.batches import BatchPlan, PairBatch, PairSampling, collate
from seqloom.data.store import Store
from seqloom.metrics.scoring import score
from seqloom.metrics.translation import ERRORS, LABELS, CorpusMetric, MetricName, dev_names_for, metric_named
from seqloom.models.protocols import TranslationModel
from seqloom.nn.dropout import evaluating
from seqloom.nn.packing import pack, packing_of
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import OutputLimit, SearchConfig
from seqloom.tasks.settings import TranslationConfig
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.fsdp import gathered
from seqloom.training.task import Guard, Loss


@dataclass(frozen=True)
class MixedBatch(PairBatch):
    """Sentence pairs whose targets the decoder reads in part as they are, and in part as it predicts them."""

    is_gold: Bool[Tensor, "batch target"]
    """Where the previous symbol is read as it is. The first position always reads BEGIN."""


@dataclass(frozen=True)
class DevSet:
    """Held-out pairs: as ids for the loss, and the reference lines for a metric of translations."""

    store: Store
    references: Sequence[str]
    """The target text of each example of the store."""
    tokenizer: Tokenizer
    """That of the target side."""
    language: str | None
    """The target language, by which BLEU chooses how to find words."""
    sources: Sequence[str] = ()
    """The source text of each example, by which references of one source are its answers; none leaves each by
    itself."""
    metrics: Sequence[MetricName] = ()
    """The metrics that are requested; none chooses one that suits the references."""

    @property
    def metric(self) -> CorpusMetric:
        """The metric of a validation: the first requested one that compares lines, or the one that suits them."""
        compares = [name for name in self.metrics if name != "distinct-1" and name != "distinct-2"]
        return compares[0] if compares else dev_names_for(self.references, self.sources)[0]

    def score(self, translations: Sequence[str]) -> float:
        """The value of the metric for translations of the first examples."""
        count, lowercase = len(translations), self.tokenizer.config.lowercase
        references, sources = self.references[:count], self.sources[:count]
        # A lower-casing model is not penalised for the capitals of its references.
        metric = metric_named(
            self.metric, language=self.language, lowercase=lowercase, references=references, sources=sources
        )
        return score(metric, translations, references=references).value


def figure_of(metric: CorpusMetric) -> str:
    """The name of a metric among the figures of a validation."""
    return metric.replace("-", "_")


class TranslationTask:
    """Training pairs and held-out pairs on one device."""

    def __init__(
        self,
        train: Store,
        dev: DevSet,
        *,
        config: TranslationConfig,
        tokens_per_batch: int,
        seed: int,
        device: torch.device,
        falls: int = 0,
        sampling: PairSampling | None = None,
    ) -> None:
        self.train = train
        self.dev = dev
        self.config = config
        self.device = device
        self.seed = seed
        self.tokens_per_batch = tokens_per_batch
        self.metric = dev.metric
        self.falls = falls
        """Validations in a row with a lower score after which training ends; 0 never ends it."""
        self.sampling = sampling
        """How training sentences are cut in each epoch; None leaves them as they are stored."""
        self.plan = BatchPlan(train.source_lengths, train.target_lengths, tokens_per_batch=tokens_per_batch, seed=seed)

    @property
    def guard(self) -> Guard | None:
        """The score of the dev text, where training pairs are not all genuine."""
        if not self.falls or not self.config.dev_lines or self.metric in ERRORS:
            return None
        return Guard(figure_of(self.metric), f"dev {LABELS[self.metric]}", self.falls)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> PairBatch:
        batch = collate(self.train, self.plan.batch(epoch, index), sampling=self.sampling, epoch=epoch).to(self.device)
        share = self.config.teacher_forcing
        if share == 1:
            return batch
        # Like all noise, the choice belongs to the batch: it is the same after a resume and on any rank.
        generator = torch.Generator().manual_seed(seed_for(self.seed, "teacher_forcing", epoch, index))
        is_gold = (torch.rand(batch.target.shape, generator=generator) < share).to(self.device)  # [batch, target]
        return MixedBatch(batch.source, batch.target, batch.target_lengths, batch.lines, is_gold)

    def count(self, batch: PairBatch) -> int:
        return int(batch.target_lengths.sum())

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        previous = with_guesses(model, batch) if isinstance(batch, MixedBatch) else None
        smoothing, consistency = self.config.label_smoothing, self.config.consistency
        return pair_loss(model, batch, smoothing=smoothing, previous=previous, consistency=consistency)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per target token (without smoothing), its perplexity, and the metric of greedy search."""
        loss = self.dev_loss(model)
        figures = {"loss": loss, "perplexity": float(np.exp(min(loss, 700.0)))}
        if self.config.dev_lines:
            figures[figure_of(self.metric)] = self._score(model)
        return figures

    @torch.no_grad()
    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per target token of the held-out pairs, without smoothing."""
        total, count = 0.0, 0
        for indices in batches_by_length(self.dev.store, tokens=self.tokens_per_batch):
            loss = pair_loss(model, collate(self.dev.store, indices).to(self.device), smoothing=0.0)
            total, count = total + float(loss.total), count + loss.count
        return total / count

    def describe(self, batch: PairBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        longest = max(batch.source.ids.shape[1], batch.target.shape[1])
        return f"{len(batch.lines)} pairs of up to {longest} tokens, lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _score(self, model: nn.Module) -> float:
        dev = self.dev
        stepper = cast("TranslationModel", model).stepper()
        # A model that has learned little often never ends; a longer search would not improve its figure.
        limit = OutputLimit.covering(self.train.source_lengths, self.train.target_lengths)
        settings = SearchConfig(length_overrun=1.0).with_output_limit(limit)
        chosen = min(self.config.dev_lines, len(dev.store))
        translations = [""] * chosen
        for indices in batches_by_length(dev.store, tokens=self.tokens_per_batch, examples=chosen):
            batch = collate(dev.store, indices).to(self.device)
            for index, hypothesis in zip(indices, greedy_search(stepper, batch.source, settings), strict=True):
                translations[index] = dev.tokenizer.decode(hypothesis.symbols)
        return dev.score(translations)


def pair_loss(
    model: nn.Module,
    batch: PairBatch,
    *,
    smoothing: float,
    previous: Int[Tensor, "batch target"] | None = None,
    consistency: float = 0.0,
) -> Loss:
    """−Σ log P(target | source), smoothed, over the target tokens of a batch.

    At each position the model has read `previous` up to there: left open, the right symbols (teacher forcing). With a
    weight for `consistency` the batch is read twice, side by side and with different dropout (R-Drop, Liang et al.,
    2021): the loss is the mean of both passes and that weight times their divergence.
    """
    translator = cast("TranslationModel", model)
    read = batch.previous if previous is None else previous  # [batch, target]
    labels = pack(batch.target, packing_of(batch.target_lengths, batch.target.shape[1]))  # [tokens]
    if not consistency:
        features = translator(batch.source, read, batch.target_lengths)  # [tokens, width]
        return Loss(translator.output.cross_entropy(features, labels, smoothing=smoothing), len(labels))
    source = Source(batch.source.ids.repeat(2, 1), batch.source.lengths.repeat(2))
    features = translator(source, read.repeat(2, 1), batch.target_lengths.repeat(2))  # [2 · tokens, width]
    both = features.unflatten(0, (2, len(labels)))  # [2, tokens, width]
    total = translator.output.consistent_cross_entropy(both, labels, smoothing=smoothing, consistency=consistency)
    return Loss(total, len(labels))


def with_guesses(model: nn.Module, batch: MixedBatch) -> Int[Tensor, "batch target"]:
    """What the decoder reads at each position t, from left to right (Bengio et al., 2015, with the best symbol).

        read_1 = BEGIN
        read_t = y_{t−1}                                                where is_gold[t]
                 argmax_y P(y | read_1 … read_{t−1}, source)            elsewhere

    No gradient flows through a predicted symbol; so the predictions are made first, without dropout, and the loss is
    then computed as usual. This works for any model that can be decoded.
    """
    read = batch.previous  # [batch, target]
    with gathered(model), evaluating(model):
        stepper = cast("TranslationModel", model).stepper()
        state = stepper.start(batch.source)
        for position in range(1, read.shape[1]):
            step = stepper.step(state, read[:, position - 1])
            best = step.log_probs.argmax(1)  # [batch, symbols] → [batch]
            guess = best if step.symbols is None else step.symbols[best]
            read[:, position] = torch.where(batch.is_gold[:, position], read[:, position], guess)
            state = step.state
    return read


def batches_by_length(
    store: Store, *, tokens: int, examples: int | None = None
) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """All examples (or the first few) in batches of similar length, longest last."""
    longer = np.maximum(store.source_lengths, store.target_lengths)[:examples].astype(np.int64)
    order = np.argsort(longer, kind="stable")
    batches, begin = [], 0
    while begin < len(order):
        # Sorted by length, so the last one of a batch is its longest: grow while rows × longest fits.
        end = begin + 1
        while end < len(order) and (end + 1 - begin) * longer[order[end]] <= tokens:
            end += 1
        batches.append(order[begin:end])
        begin = end
    return batches
