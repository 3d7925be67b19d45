"""The training loop around a peer's model: plain, but with what is known to be good on a processor.

Batches are sorted by length and cut at the same budget as ours; the optimiser is torch's fused one.
Needs torch and numpy only, because it runs in the peer's environment.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from serving import Line
from torch import Tensor, nn
from torch.nn import functional as F

PAD, BEGIN = 0, 1

Scores = Callable[[Tensor, Tensor], Tensor]
"""(source ids, previous target ids), both padded, to scores [batch, target, symbols]."""

Plan = Callable[[int], Sequence[Sequence[int]]]
"""From the number of an epoch to its batches, each a list of pairs, in order."""


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs as lists of ids, END included."""

    sources: list[np.ndarray]
    targets: list[np.ndarray]

    def batches(self, places: int) -> list[Sequence[int]]:
        """Sorted by length, cut where rows × the longer padded side would exceed the budget."""
        sizes = [(len(target), len(source)) for source, target in zip(self.sources, self.targets, strict=True)]
        batches: list[Sequence[int]] = []
        batch: list[int] = []
        longest = 0
        for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
            longer = max(longest, *sizes[index])
            if batch and longer * (len(batch) + 1) > places:
                batches.append(batch)
                batch, longer = [], max(sizes[index])
            batch.append(index)
            longest = longer
        return [*batches, batch]

    def tensors(self, batch: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Source, what the decoder is fed, and labels, padded."""
        source = padded([self.sources[index] for index in batch])
        labels = padded([self.targets[index] for index in batch])
        previous = labels.roll(1, dims=1)
        previous[:, 0] = BEGIN
        return source, previous, labels


def padded(sentences: list[np.ndarray]) -> Tensor:
    matrix = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
    for row, ids in enumerate(sentences):
        matrix[row, : len(ids)] = ids
    return torch.from_numpy(matrix)


def read_pairs(corpus: Path, split: str) -> Pairs:
    with np.load(corpus / "ids.npz") as arrays:
        sides = [
            np.split(arrays[f"{split}_{side}_ids"], np.cumsum(arrays[f"{split}_{side}_lengths"])[:-1])
            for side in ("source", "target")
        ]
    return Pairs(*sides)


class PeerTrainer:
    """Trains a peer's model step by step, on batches of its own unless a plan is given."""

    def __init__(
        self, model: nn.Module, scores: Scores, *, train: Pairs, dev: Pairs, size: dict[str, Any], plan: Plan | None
    ) -> None:
        self.model, self.scores, self.size = model.train(), scores, size
        self.train, self.dev = train, dev
        self.plan = plan or self.shuffled(train.batches(size["tokens_per_batch"]))
        self.epoch = 0
        self.to_come: list[Sequence[int]] = []
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=size["learning_rate"], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
        )
        self.step_number = 0

    @staticmethod
    def shuffled(batches: list[Sequence[int]]) -> Plan:
        """The same batches in another order each epoch."""
        generator = random.Random(1)

        def plan(_epoch: int) -> Sequence[Sequence[int]]:
            generator.shuffle(batches)
            return batches

        return plan

    def step(self) -> dict[str, float]:
        """One batch: forward, backward, clip, update."""
        if not self.to_come:
            self.to_come = [*reversed(self.plan(self.epoch))]
            self.epoch += 1
        batch = self.to_come.pop()
        self.step_number += 1
        source, previous, labels = self.train.tensors(batch)
        scores = self.scores(source, previous)
        loss = F.cross_entropy(
            scores.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=self.size["smoothing"]
        )
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.size["clip_norm"])
        for group in self.optimiser.param_groups:
            group["lr"] = self.size["learning_rate"] * self.factor()
        self.optimiser.step()
        tokens = sum(len(self.train.targets[index]) for index in batch)
        source_tokens = sum(len(self.train.sources[index]) for index in batch)
        return {"tokens": tokens, "source_tokens": source_tokens, "loss": loss.item()}

    def factor(self) -> float:
        """Linear warm-up, then the inverse square root."""
        warmup: int = self.size["warmup"]
        return min(self.step_number / warmup, math.sqrt(warmup / self.step_number))

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Cross-entropy per target token, without smoothing."""
        self.model.eval()
        total, count = 0.0, 0
        for batch in self.dev.batches(self.size["tokens_per_batch"]):
            source, previous, labels = self.dev.tensors(batch)
            scores = self.scores(source, previous)
            total += F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum").item()
            count += int((labels != PAD).sum())
        self.model.train()
        return total / count


def serve(
    make: Callable[[int, dict[str, Any]], tuple[nn.Module, Scores]],
    *,
    version: str,
    plan_for: Callable[[Pairs, dict[str, Any]], Plan] | None = None,
) -> None:
    """Build the model for the number of symbols and the size, then obey the driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--size", type=json.loads, required=True)
    given = parser.parse_args()
    line = Line()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    with np.load(given.corpus / "ids.npz") as arrays:
        symbols = int(arrays["symbols"])
    model, scores = make(symbols, given.size)
    train, dev = (read_pairs(given.corpus, split) for split in ("train", "dev"))
    plan = plan_for(train, given.size) if plan_for else None
    trainer = PeerTrainer(model, scores, train=train, dev=dev, size=given.size, plan=plan)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    line.say({"version": version, "parameters": parameters})
    for name, steps in line.commands():
        if name == "validate":
            line.say({"loss": trainer.validation_loss()})
            continue
        begin = time.perf_counter()
        done = [trainer.step() for _ in range(steps)]
        seconds = time.perf_counter() - begin
        sums = {key: sum(each[key] for each in done) for key in ("tokens", "source_tokens")}
        line.say({**sums, "seconds": seconds, "loss": sum(each["loss"] for each in done) / len(done)})
