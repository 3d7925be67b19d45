"""Variational language modelling: the bound on log P of whole sentences, with the Kullback–Leibler term eased in.

    loss = −Σ_t log P(w_t | w_<t, z) + β Σ_d max(λ, KL_d)        z ~ q(z | w), one draw for each sentence

    β    rises from 0 to 1 over the first part of the run, once or in cycles (annealing)
    λ    free bits: what each dimension may cost without a loss, as a mean over the batch (Kingma et al., 2016)

Without both, the decoder learns to do without z before the encoder has put anything into it, and KL falls to 0. Words
that the decoder reads are dropped for the same reason. All noise belongs to the batch.
"""

from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.seeds import seed_for
from seqloom.core.symbols import BEGIN, END, UNKNOWN
from seqloom.data.batches import BatchPlan
from seqloom.data.plain_text import Stream
from seqloom.metrics.perplexity import perplexity
from seqloom.models.vae import Posterior
from seqloom.nn.outputs import Output
from seqloom.nn.packing import pack, packing_of
from seqloom.tasks.bidirectional_language_modelling import (
    SentenceBatch,
    collate_sentences,
    sentences_by_length,
    sentences_with_words,
)
from seqloom.tasks.settings import VariationalConfig
from seqloom.training.task import Loss

ACTIVE = 0.01
"""Variance of the means of a dimension over the dev text from which on it is in use (Burda et al., 2016)."""


class LatentModel(Protocol):
    """What a model must offer to be trained with a latent variable."""

    output: Output
    latent: int

    def __call__(
        self,
        ids: Int[Tensor, "batch time"],
        read: Int[Tensor, "batch time_and_one"],
        lengths: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch latent"],
    ) -> tuple[Float[Tensor, "tokens width"], Posterior]:
        """Features of w_1 … END of each sentence, packed, and q(z ∣ w)."""
        ...


class VariationalTask:
    """A training text and a held-out text on one device, read sentence by sentence."""

    def __init__(
        self,
        train: Stream,
        dev: Stream,
        *,
        config: VariationalConfig,
        total_batches: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config, self.total_batches = config, total_batches
        self.seed, self.device = seed, device
        self.sentences = sentences_with_words(train, "training")
        self.dev_sentences = sentences_with_words(dev, "held-out")
        lengths = train.lengths[self.sentences]
        self.plan = BatchPlan(lengths, lengths, tokens_per_batch=config.tokens_per_batch, seed=seed)

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch))

    def batch(self, epoch: int, index: int) -> SentenceBatch:
        chosen = self.sentences[self.plan.batch(epoch, index)]
        return collate_sentences(self.train, chosen, device=self.device, epoch=epoch, index=index)

    def count(self, batch: SentenceBatch) -> int:
        return int((batch.lengths + 1).sum())

    def kl_weight(self, epoch: int, index: int) -> float:
        """β of a batch: it rises over the first part of each cycle."""
        done = (epoch * self.batches(0) + index) / max(1, self.total_batches)
        inside = done * self.config.cycles % 1.0 if done < 1 else 1.0
        return min(1.0, inside / self.config.annealing) if self.config.annealing else 1.0

    def loss(self, model: nn.Module, batch: SentenceBatch) -> Loss:
        reader = cast("LatentModel", model)
        generator = torch.Generator().manual_seed(seed_for(self.seed, "latent", batch.epoch, batch.index))
        noise = torch.randn(len(batch.lengths), reader.latent, generator=generator).to(self.device)
        read = decoder_input(batch.ids)
        if self.config.word_dropout:
            is_dropped = torch.rand(read.shape, generator=generator).to(self.device) < self.config.word_dropout
            read = read.masked_fill(is_dropped & (read != BEGIN), UNKNOWN)
        features, posterior = reader(batch.ids, read, batch.lengths, noise)
        reconstruction = reader.output.cross_entropy(features, labels_of(batch.ids, batch.lengths))
        means = posterior.divergence().mean(0)  # [latent]
        free = means.clamp(min=self.config.free_nats / reader.latent).sum()
        weight = self.kl_weight(batch.epoch, batch.index)
        return Loss(reconstruction + weight * len(batch.lengths) * free, self.count(batch))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """The bound per token and its two parts: KL in nats per sentence, the reconstruction per token."""
        return self._dev(model, self.dev_sentences[: self.config.dev_lines or None])

    def dev_loss(self, model: nn.Module) -> float:
        """The bound on the cross-entropy per token of the whole held-out text."""
        return self._dev(model, self.dev_sentences)["loss"]

    def describe(self, batch: SentenceBatch) -> str:
        lines = [str(line) for line in batch.lines[:5]]
        more = " …" if len(batch.lines) > len(lines) else ""
        return f"{len(batch.lines)} sentences of up to {batch.ids.shape[1]} tokens, lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    @torch.no_grad()
    def _dev(self, model: nn.Module, chosen: Int[np.ndarray, " sentences"]) -> dict[str, float]:
        reader = cast("LatentModel", model)
        reconstruction = divergence = 0.0
        count, means = 0, []
        for at, some in enumerate(sentences_by_length(self.dev, chosen, tokens=self.config.tokens_per_batch)):
            batch = collate_sentences(self.dev, some, device=self.device)
            generator = torch.Generator().manual_seed(seed_for(self.seed, "latent of dev", at))
            noise = torch.randn(len(some), reader.latent, generator=generator).to(self.device)
            features, posterior = reader(batch.ids, decoder_input(batch.ids), batch.lengths, noise)
            labels = labels_of(batch.ids, batch.lengths)
            reconstruction += float(reader.output.cross_entropy(features, labels))
            divergence += float(posterior.divergence().sum())
            means.append(posterior.mean.double().cpu())
            count += len(labels)
        is_active = torch.cat(means).var(0, correction=0) > ACTIVE
        return {
            "loss": (reconstruction + divergence) / count,
            "perplexity": perplexity(reconstruction + divergence, count).value,
            "kl": divergence / len(chosen),
            "reconstruction": reconstruction / count,
            "active_units": float(is_active.sum()),
        }


def decoder_input(ids: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time_and_one"]:
    """BEGIN w_1 … w_n"""
    return torch.cat([ids.new_full((len(ids), 1), BEGIN), ids], 1)


def labels_of(ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Int[Tensor, " tokens"]:
    """w_1 … w_n END, packed."""
    padded = torch.cat([ids, ids.new_zeros(len(ids), 1)], 1).scatter(1, lengths[:, None], END)
    return pack(padded, packing_of(lengths + 1, padded.shape[1]))
