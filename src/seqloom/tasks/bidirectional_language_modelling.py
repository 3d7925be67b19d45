"""Language modelling in both directions: the summed losses of next and previous symbols in whole sentences.

    loss = −Σ_t log P(w_t | w_0 … w_{t−1}) − Σ_t log P(w_t | w_{t+1} … w_{n+1})

Each sentence is read by itself, between BEGIN and END: w_1 … END are predicted forwards, BEGIN … w_n backwards. So a
sentence of n words counts 2 (n + 1) symbols. Lines without words are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqloom.core.errors import DataError
from seqloom.core.seeds import seed_for
from seqloom.data.batches import BatchPlan
from seqloom.data.plain_text import Stream
from seqloom.metrics.perplexity import perplexity
from seqloom.models.elmo import BothWays, frame
from seqloom.nn.outputs import AdaptiveOutput, Output
from seqloom.nn.packing import pack, packing_of
from seqloom.tasks.language_modelling import make_objective
from seqloom.tasks.settings import BidirectionalConfig
from seqloom.training.task import Loss


class BidirectionalModel(Protocol):
    """What a model must offer to be trained in both directions."""

    output: Output | AdaptiveOutput

    def __call__(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> BothWays:
        """Features of every symbol from those before it, and from those after it; sentences come without a frame."""
        ...


@dataclass(frozen=True)
class SentenceBatch:
    """Sentences without their END, padded, with their place in the epoch."""

    ids: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]
    lines: Int[np.ndarray, " batch"]
    epoch: int = 0
    index: int = 0

    @property
    def count(self) -> int:
        """Predicted symbols, in both directions together."""
        return 2 * int((self.lengths + 1).sum())


class BidirectionalTask:
    """A training text and a held-out text on one device, read sentence by sentence."""

    def __init__(
        self, train: Stream, dev: Stream, *, config: BidirectionalConfig, seed: int, device: torch.device
    ) -> None:
        self.train, self.dev = train, dev
        self.config = config
        self.seed = seed
        self.device = device
        self.sentences = sentences_with_words(train, "training")
        self.dev_sentences = sentences_with_words(dev, "held-out")
        lengths = train.lengths[self.sentences]
        self.plan = BatchPlan(lengths, lengths, tokens_per_batch=config.tokens_per_batch, seed=seed)
        self.objective = make_objective(config.objective, train.counts())

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> SentenceBatch:
        chosen = self.sentences[self.plan.batch(epoch, index)]
        return collate_sentences(self.train, chosen, device=self.device, epoch=epoch, index=index)

    def count(self, batch: SentenceBatch) -> int:
        return batch.count

    def loss(self, model: nn.Module, batch: SentenceBatch) -> Loss:
        reader = cast("BidirectionalModel", model)
        found = reader(batch.ids, batch.lengths)  # features of both directions: [tokens, width]
        following, preceding = both_labels(batch.ids, batch.lengths)  # [tokens]
        # Like all noise, the symbols that an objective draws belong to the batch.
        generator = torch.Generator().manual_seed(seed_for(self.seed, "objective", batch.epoch, batch.index))
        total = self.objective(found.following, following, reader.output, generator=generator)
        total = total + self.objective(found.preceding, preceding, reader.output, generator=generator)
        return Loss(total, batch.count)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy per symbol of the held-out text, and the perplexities of both directions and of each."""
        chosen = self.dev_sentences[: self.config.dev_lines or None]
        following, preceding, count = self._dev(model, chosen)
        return {
            "loss": (following + preceding) / (2 * count),
            "perplexity": perplexity(following + preceding, 2 * count).value,
            "forward_perplexity": perplexity(following, count).value,
            "backward_perplexity": perplexity(preceding, count).value,
        }

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy per symbol of the whole held-out text."""
        following, preceding, count = self._dev(model, self.dev_sentences)
        return (following + preceding) / (2 * count)

    def describe(self, batch: SentenceBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        return f"{len(batch.lines)} sentences of up to {batch.ids.shape[1]} tokens, lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def prepare(self, model: nn.Module) -> None:
        """Initialise a new output as the objective needs it."""
        self.objective.prepare(cast("BidirectionalModel", model).output)

    @property
    def touches_rows(self) -> bool:
        """Whether the objective uses some rows of the output only."""
        return self.objective.touches_rows

    @torch.no_grad()
    def _dev(self, model: nn.Module, chosen: Int[np.ndarray, " sentences"]) -> tuple[float, float, int]:
        """−Σ log P of what follows and of what precedes, and the number of symbols of each."""
        reader = cast("BidirectionalModel", model)
        totals, count = [0.0, 0.0], 0
        for some in sentences_by_length(self.dev, chosen, tokens=self.config.tokens_per_batch):
            batch = collate_sentences(self.dev, some, device=self.device)
            found, labels = reader(batch.ids, batch.lengths), both_labels(batch.ids, batch.lengths)
            for way, features in enumerate((found.following, found.preceding)):
                totals[way] += float(reader.output.cross_entropy(features, labels[way]))
            count += batch.count // 2
        return totals[0], totals[1], count


def both_labels(
    ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
) -> tuple[Int[Tensor, " tokens"], Int[Tensor, " tokens"]]:
    """The labels from the symbols before (w_1 … END) and from those after (BEGIN … w_n), packed."""
    framed, packing = frame(ids, lengths), packing_of(lengths + 1, ids.shape[1] + 1)  # [batch, time + 2]
    return pack(framed[:, 1:].contiguous(), packing), pack(framed[:, :-1].contiguous(), packing)


def collate_sentences(
    text: Stream, chosen: Int[np.ndarray, " batch"], *, device: torch.device, epoch: int = 0, index: int = 0
) -> SentenceBatch:
    """These lines of a text as a batch, in this order."""
    lengths = text.lengths[chosen].astype(np.int64) - 1
    ids = np.zeros((len(chosen), int(lengths.max())), dtype=np.int64)
    for row, (line, length) in enumerate(zip(chosen.tolist(), lengths.tolist(), strict=True)):
        ids[row, :length] = text.line(line)[:length]
    tensors = torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device)
    return SentenceBatch(*tensors, lines=text.lines[chosen], epoch=epoch, index=index)


def sentences_with_words(text: Stream, name: str) -> Int[np.ndarray, " sentences"]:
    """The lines with words."""
    found = np.flatnonzero(text.lengths > 1)
    if not len(found):
        raise DataError(f"the {name} text has no line with words")
    return found


def sentences_by_length(
    text: Stream, chosen: Int[np.ndarray, " sentences"], *, tokens: int
) -> Iterator[Int[np.ndarray, " some"]]:
    """Sentences of similar length, rows × the longest of them within `tokens`."""
    order = chosen[np.argsort(-text.lengths[chosen].astype(np.int64), kind="stable")]
    begin = 0
    while begin < len(order):
        rows = max(1, tokens // int(text.lengths[order[begin]]))
        yield order[begin : begin + rows]
        begin += rows
