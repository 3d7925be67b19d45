"""Contrastive learning: a sentence and its translation have nearer vectors than sentences of different pairs.

    s_ij = cos(f(x_i), f(y_j)) / τ                                      one encoder f reads both sides
    loss = −½ Σ_i (log softmax_j(s_ij) + log softmax_j(s_ji)) at j = i

The other pairs of a batch are the negatives of a pair (van den Oord et al., 2018; Feng et al., 2022), except those that
have the same source or the same target: these are translations too. A batch is drawn from all of the text, so that
its negatives differ in length as lines in a search do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import DataError
from seqloom.core.seeds import seed_for
from seqloom.data.store import Side, Store
from seqloom.metrics.retrieval import score_parallel
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.models.protocols import SentenceModel
from seqloom.tasks.classification import batches_by_length
from seqloom.tasks.settings import ContrastiveConfig
from seqloom.training.task import Chance, Loss

DEV_TOKENS_PER_BATCH = 4096
"""Tokens of held-out text that are read together."""


@dataclass(frozen=True)
class ContrastiveBatch:
    """Sentence pairs: all sources, then all targets, padded, without BEGIN and END."""

    ids: Int[Tensor, "texts time"]
    lengths: Int[Tensor, " texts"]
    is_repeated: Bool[Tensor, "pairs pairs"]
    """Where two different pairs have the same source or the same target."""
    lines: Int64[np.ndarray, " pairs"]


@dataclass(frozen=True)
class PairVectors:
    """Vectors of held-out pairs."""

    sources: Float32[Tensor, "pairs width"]
    targets: Float32[Tensor, "pairs width"]


def contrastive_loss(
    sources: Float[Tensor, "pairs width"],
    targets: Float[Tensor, "pairs width"],
    *,
    temperature: float,
    is_repeated: Bool[Tensor, "pairs pairs"],
) -> Float[Tensor, ""]:
    """The summed loss of pairs, each of which has all others as negatives but those that are `is_repeated`."""
    scores = F.normalize(sources, dim=1) @ F.normalize(targets, dim=1).T / temperature  # [source, target]
    scores = scores.masked_fill(is_repeated, float("-inf"))
    right = torch.arange(len(scores), device=scores.device)
    both = F.cross_entropy(scores, right, reduction="sum") + F.cross_entropy(scores.T, right, reduction="sum")
    return both / 2


class ContrastiveTask:
    """Training pairs and held-out pairs on one device."""

    def __init__(self, train: Store, dev: Store, *, config: ContrastiveConfig, seed: int, device: torch.device) -> None:
        self.train, self.dev = train, dev
        self.config, self.seed, self.device = config, seed, device
        self.dev_pairs = min(config.dev_pairs, len(dev))
        if min(len(train), self.dev_pairs) < 2:
            few = f"{len(train):,} training pairs and {self.dev_pairs:,} held-out pairs"
            raise DataError(f"{few} are too few: a pair is compared with others, so at least two are needed of each")
        self._latest: tuple[int, list[Int64[np.ndarray, " pairs"]]] | None = None

    def batches(self, epoch: int) -> int:
        return len(self._plan(epoch))

    def batch(self, epoch: int, index: int) -> ContrastiveBatch:
        places = np.sort(self._plan(epoch)[index])  # so that a large store is read from front to back
        return self._collate(self.train, places)

    def count(self, batch: ContrastiveBatch) -> int:
        return len(batch.lines)

    def loss(self, model: nn.Module, batch: ContrastiveBatch) -> Loss:
        vectors = cast("SentenceModel", model).sentence_vectors(batch.ids, batch.lengths)  # [2 · pairs, width]
        sources, targets = vectors.chunk(2)
        total = contrastive_loss(sources, targets, temperature=self.config.temperature, is_repeated=batch.is_repeated)
        return Loss(total, len(batch.lines))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """The loss of a pair among all held-out ones, and the share found first in both directions, in percent."""
        found = self.dev_vectors(model)
        there, back = self.found_first(found)
        return {"loss": self._loss_of(found), "targets_found": there.value, "sources_found": back.value}

    def dev_loss(self, model: nn.Module) -> float:
        """The loss of a pair among all held-out ones."""
        return self._loss_of(self.dev_vectors(model))

    @torch.no_grad()
    def dev_vectors(self, model: nn.Module) -> PairVectors:
        """The vectors of the held-out pairs that a validation reads, in their order."""
        encoder, vectors = cast("SentenceModel", model), []
        for side in (self.dev.sources, self.dev.targets):
            batches = list(batches_by_length(side.lengths[: self.dev_pairs], tokens=DEV_TOKENS_PER_BATCH))
            found = []
            for some in batches:
                ids, lengths = _texts(side, some)
                found.append(encoder.sentence_vectors(ids.to(self.device), lengths.to(self.device)).float().cpu())
            vectors.append(torch.cat(found)[torch.from_numpy(np.argsort(np.concatenate(batches)))])
        return PairVectors(*vectors)

    def found_first(
        self,
        found: PairVectors,
        *,
        languages: tuple[str | None, str | None] = (None, None),
        bootstrap: Bootstrap | None = None,
    ) -> tuple[CorpusScore, CorpusScore]:
        """The shares of held-out pairs that are found first among all, in both directions."""
        places = np.arange(self.dev_pairs)
        sources, targets = (list(map(str, _groups(side, places))) for side in (self.dev.sources, self.dev.targets))
        return score_parallel(
            found.sources.numpy(),
            found.targets.numpy(),
            texts=(sources, targets),
            languages=languages,
            bootstrap=bootstrap,
        )

    @property
    def chance(self) -> Chance:
        return Chance(math.log(self.dev_pairs), f"{self.dev_pairs:,} dev pairs", is_overfit_normal=True)

    def describe(self, batch: ContrastiveBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        return f"{len(batch.lines)} pairs of up to {batch.ids.shape[1]} tokens, lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _plan(self, epoch: int) -> list[Int64[np.ndarray, " pairs"]]:
        """The pairs of each batch of an epoch: all in random order, in parts whose sizes differ by one at most."""
        if self._latest is None or self._latest[0] != epoch:
            generator = np.random.default_rng(seed_for(self.seed, "contrastive batches", epoch))
            parts = -(-len(self.train) // self.config.pairs_per_batch)
            self._latest = (epoch, np.array_split(generator.permutation(len(self.train)), parts))
        return self._latest[1]

    def _collate(self, store: Store, places: Integer[np.ndarray, " pairs"]) -> ContrastiveBatch:
        sides = [_texts(side, places) for side in (store.sources, store.targets)]
        longest = max(ids.shape[1] for ids, _ in sides)
        ids = torch.cat([F.pad(ids, (0, longest - ids.shape[1])) for ids, _ in sides])
        lengths = torch.cat([lengths for _, lengths in sides])
        repeated = torch.from_numpy(_repeated(store, places))
        return ContrastiveBatch(
            ids.to(self.device), lengths.to(self.device), repeated.to(self.device), store.lines(places)
        )

    def _loss_of(self, found: PairVectors) -> float:
        repeated = torch.from_numpy(_repeated(self.dev, np.arange(self.dev_pairs)))
        vectors = (each.double() for each in (found.sources, found.targets))
        total = contrastive_loss(*vectors, temperature=self.config.temperature, is_repeated=repeated)
        return float(total) / self.dev_pairs


def _texts(
    side: Side, places: Integer[np.ndarray, " texts"]
) -> tuple[Int[Tensor, "texts time"], Int[Tensor, " texts"]]:
    """These sentences, padded, and their lengths, without the END that a store has after each."""
    sentences = side.picked(places)
    return torch.from_numpy(sentences.padded()[:, :-1]), torch.from_numpy(sentences.lengths - 1)


def _groups(side: Side, places: Integer[np.ndarray, " texts"]) -> Int64[np.ndarray, " texts"]:
    """A number for each sentence, the same for equal ones."""
    groups: np.ndarray = np.unique(side.picked(places).padded(), axis=0, return_inverse=True)[1]
    return groups.reshape(-1)


def _repeated(store: Store, places: Integer[np.ndarray, " pairs"]) -> Bool[np.ndarray, "pairs pairs"]:
    """Where two different pairs have the same source or the same target."""
    sources, targets = (_groups(side, places) for side in (store.sources, store.targets))
    is_same: np.ndarray = (sources[:, None] == sources) | (targets[:, None] == targets)
    np.fill_diagonal(is_same, False)
    return is_same
