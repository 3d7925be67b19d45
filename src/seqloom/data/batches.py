"""Batches of sentence pairs as padded tensors."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.data.store import Store


@dataclass(frozen=True)
class PairBatch:
    """Sentence pairs; `target` holds the labels, each sentence with its END and PAD after it."""

    source: Source
    target: Int[Tensor, "batch target"]
    target_lengths: Int[Tensor, " batch"]
    lines: Int[np.ndarray, " batch"]

    @property
    def previous(self) -> Int[Tensor, "batch target"]:
        """What the decoder is fed: at each place the label before it, BEGIN at the first."""
        shifted = self.target.roll(1, dims=1)
        shifted[:, :1] = BEGIN
        return shifted

    def to(self, device: torch.device | str) -> "PairBatch":
        """The same batch on another device."""
        return PairBatch(
            source=Source(self.source.ids.to(device), self.source.lengths.to(device)),
            target=self.target.to(device),
            target_lengths=self.target_lengths.to(device),
            lines=self.lines,
        )


def collate(store: Store, indices: Integer[np.ndarray, " batch"]) -> PairBatch:
    """The batch of these examples of a store, in this order."""
    source, source_lengths = store.sources.padded(indices)
    target, target_lengths = store.targets.padded(indices)
    batch = PairBatch(
        source=Source(torch.from_numpy(source), torch.from_numpy(source_lengths)),
        target=torch.from_numpy(target),
        target_lengths=torch.from_numpy(target_lengths),
        lines=store.lines(indices),
    )
    store.drop_pages()  # so that the memory of a run does not grow with its corpus
    return batch
