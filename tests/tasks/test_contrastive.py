"""Contrastive learning: the loss by its formula, repeated lines, batches, figures, and a tiny model that learns."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.core.errors import DataError
from seqloom.core.symbols import END
from seqloom.data.store import Store, StoreWriter
from seqloom.models.bert import BertConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.contrastive import ContrastiveTask, contrastive_loss
from seqloom.tasks.settings import ContrastiveConfig

SYMBOLS, CPU = 24, torch.device("cpu")


def stored(folder: Path, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Store:
    with StoreWriter(folder, symbols=SYMBOLS) as writer:
        sources, targets = ([[*pair[side], END] for pair in pairs] for side in (0, 1))
        writer.append(sources, targets, range(1, len(pairs) + 1))
    return Store.open(folder, verify=True)


def translated(count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """Sentences of the symbols 4 … 13; their translations have 10 more in each place, in reverse order."""
    generator = np.random.default_rng(seed)
    sources = [generator.integers(4, 14, size=generator.integers(2, 6)).tolist() for _ in range(count)]
    return [(source, [symbol + 10 for symbol in source[::-1]]) for source in sources]


@pytest.fixture
def task(tmp_path: Path) -> ContrastiveTask:
    pairs = translated(50, 1)
    pairs[7] = (pairs[7][0], pairs[3][1])  # another source with the same target
    train, dev = stored(tmp_path / "train", pairs), stored(tmp_path / "dev", translated(30, 2))
    return ContrastiveTask(train, dev, config=ContrastiveConfig(pairs_per_batch=16, dev_pairs=20), seed=1, device=CPU)


def encoder() -> nn.Module:
    settings = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 16, "longest": 12}
    config = BertConfig(**settings, dropout_rate=0.0, has_output=False)  # type: ignore[arg-type]
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def plain_loss(sources: torch.Tensor, targets: torch.Tensor, temperature: float, is_repeated: torch.Tensor) -> float:
    """The formula, pair by pair."""
    unit = [[row / row.norm() for row in side.double()] for side in (sources, targets)]
    total = 0.0
    for one, other in (unit, unit[::-1]):
        for i, x in enumerate(one):
            kept = [j for j in range(len(other)) if j == i or not is_repeated[i, j]]
            scores = {j: float(x @ other[j]) / temperature for j in kept}
            total -= scores[i] - math.log(sum(math.exp(value) for value in scores.values()))
    return total / 2


def test_the_loss_equals_its_formula_and_not_another_one() -> None:
    generator = torch.Generator().manual_seed(3)
    sources, targets = (torch.randn(6, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    repeated = torch.zeros(6, 6, dtype=torch.bool)
    repeated[0, 4] = repeated[4, 0] = True
    loss = float(contrastive_loss(sources, targets, temperature=0.1, is_repeated=repeated))
    assert loss == pytest.approx(plain_loss(sources, targets, 0.1, repeated), abs=1e-9)
    for temperature, mask in ((0.2, repeated), (0.1, torch.zeros_like(repeated))):
        assert abs(loss - plain_loss(sources, targets, temperature, mask)) > 1e-3


def test_pairs_with_the_same_source_or_target_are_not_negatives_of_each_other(tmp_path: Path) -> None:
    pairs = [([4, 5], [14, 15]), ([6], [16]), ([4, 5], [17]), ([7], [16]), ([8, 9], [18])]
    store = stored(tmp_path / "train", pairs)
    task = ContrastiveTask(store, store, config=ContrastiveConfig(pairs_per_batch=5), seed=1, device=CPU)
    batch = task.batch(0, 0)
    places = {line: at for at, line in enumerate(batch.lines.tolist())}
    expected = torch.zeros(5, 5, dtype=torch.bool)
    for one, other in ((1, 3), (2, 4)):  # by lines
        expected[places[one], places[other]] = expected[places[other], places[one]] = True
    assert torch.equal(batch.is_repeated, expected)
    # Nothing pulls the two sources of one target apart: moving one of them changes the loss of the other nowhere.
    vectors = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    moved = vectors.clone().requires_grad_(True)
    scores = (moved @ vectors.T).masked_fill(batch.is_repeated, float("-inf")).log_softmax(1)
    scores[places[2], places[2]].backward()  # type: ignore[no-untyped-call]
    assert moved.grad is not None
    assert not moved.grad[places[4]].any()


def test_each_epoch_reads_every_pair_once_in_equal_batches(task: ContrastiveTask) -> None:
    orders = []
    for epoch in (0, 1, 0):
        batches = [task.batch(epoch, index) for index in range(task.batches(epoch))]
        assert [len(batch.lines) for batch in batches] == [13, 13, 12, 12]
        orders.append([line for batch in batches for line in batch.lines.tolist()])
        assert sorted(orders[-1]) == list(range(1, 51))
    assert orders[0] == orders[2] != orders[1]
    batch = task.batch(0, 0)
    assert (batch.ids.shape[0], task.count(batch)) == (26, 13)
    for row, line in enumerate(batch.lines.tolist()):
        for side, offset in ((task.train.sources, 0), (task.train.targets, 13)):
            length = int(batch.lengths[row + offset])
            assert batch.ids[row + offset, :length].tolist() == side[line - 1].tolist()[:-1]
    assert task.describe(batch).startswith("13 pairs of up to ")


def test_the_loss_of_a_batch_is_that_of_each_text_alone(task: ContrastiveTask) -> None:
    model, batch = encoder().eval().requires_grad_(False), task.batch(0, 0)
    alone = [
        model.sentence_vectors(ids[None, : int(length)], length[None])[0]  # type: ignore[operator]
        for ids, length in zip(batch.ids, batch.lengths, strict=True)
    ]
    loss = task.loss(model, batch)
    expected = plain_loss(torch.stack(alone[:13]), torch.stack(alone[13:]), 0.05, batch.is_repeated)
    assert float(loss.total) == pytest.approx(expected, rel=1e-4)
    assert loss.count == 13


def test_a_tiny_model_finds_unseen_translations(task: ContrastiveTask) -> None:
    model = encoder().train()
    before = task.validate(model.eval())
    assert task.dev_loss(model) == before["loss"] > 1.5
    optimiser = torch.optim.AdamW(model.train().parameters(), lr=1e-2)
    for epoch in range(20):
        for index in range(task.batches(epoch)):
            optimiser.zero_grad()
            loss = task.loss(model, task.batch(epoch, index))
            (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    after = task.validate(model.eval())
    assert min(after["targets_found"], after["sources_found"]) >= 70 > before["targets_found"]
    assert after["loss"] < before["loss"] / 2


def test_one_pair_is_too_few(tmp_path: Path) -> None:
    train, dev = stored(tmp_path / "train", translated(4, 1)), stored(tmp_path / "dev", translated(1, 2))
    with pytest.raises(DataError, match="4 training pairs and 1 held-out pairs are too few"):
        ContrastiveTask(train, dev, config=ContrastiveConfig(), seed=1, device=CPU)
