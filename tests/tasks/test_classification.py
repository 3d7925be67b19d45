"""Classification: batches, sums of losses, figures, and a tiny model that separates two classes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.data.labelled import JoinedIds, LabelledStore, LabelledWriter, join_texts
from seqloom.models.bert import BertConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.classification import ClassificationTask, TextExamples
from seqloom.tasks.settings import ClassificationConfig

SYMBOLS = 12
CPU = torch.device("cpu")


def stored(folder: Path, *, examples: int, seed: int) -> LabelledStore:
    """Texts of 1 to 7 symbols; class 1 has the symbol 11 somewhere."""
    generator = np.random.default_rng(seed)
    joined: list[JoinedIds] = []
    labels = [at % 2 for at in range(examples)]
    for label in labels:
        ids = generator.integers(4, SYMBOLS - 1, size=generator.integers(1, 8)).tolist()
        if label:
            ids[int(generator.integers(len(ids)))] = SYMBOLS - 1
        joined.append(join_texts([ids], longest=16))
    with LabelledWriter(folder, symbols=SYMBOLS) as writer:
        writer.append(joined, labels=labels, lines=range(1, examples + 1))
    return LabelledStore.open(folder, classes=2, verify=True)


@pytest.fixture
def task(tmp_path: Path) -> ClassificationTask:
    train, dev = stored(tmp_path / "train", examples=60, seed=1), stored(tmp_path / "dev", examples=20, seed=2)
    config = ClassificationConfig(labels=("no", "yes"), label_smoothing=0.2, tokens_per_batch=40)
    examples = TextExamples(train), TextExamples(dev)
    return ClassificationTask(*examples, config=config, per_batch=config.tokens_per_batch, seed=1, device=CPU)


def model() -> nn.Module:
    settings = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 16, "longest": 16}
    config = BertConfig(**settings, dropout_rate=0.0, has_output=False, classes=2)  # type: ignore[arg-type]
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def test_each_epoch_reads_every_text_once_within_the_budget(task: ClassificationTask) -> None:
    for epoch in (0, 1):
        batches = [task.batch(epoch, index) for index in range(task.batches(epoch))]
        assert sorted(line for batch in batches for line in batch.lines.tolist()) == list(range(1, 61))
        assert all(batch.ids.numel() <= 40 for batch in batches)
        assert sum(task.count(batch) for batch in batches) == 60
    assert task.describe(batches[0]).startswith(f"{len(batches[0].lines)} texts of up to")


def test_the_loss_is_the_sum_of_smoothed_cross_entropies(task: ClassificationTask) -> None:
    network, batch = model().eval(), task.batch(0, 0)
    loss = task.loss(network, batch)
    scores: Tensor = network.class_scores(batch.ids, batch.lengths, batch.segments)  # type: ignore[operator]
    log_probs = scores.double().log_softmax(1)
    right = 0.8 * log_probs[torch.arange(len(scores)), batch.labels] + 0.2 * log_probs.mean(1)
    torch.testing.assert_close(loss.total.double(), -right.sum(), rtol=1e-5, atol=1e-5)
    assert loss.count == len(batch.labels)


def test_figures_are_those_of_each_text_alone(task: ClassificationTask) -> None:
    network = model().eval().requires_grad_(False)
    figures = task.validate(network)
    losses, matches = [], 0
    for place in range(20):
        ids, lengths, segments = map(torch.from_numpy, task.dev.store.framed(np.array([place])))
        log_probs = network.class_scores(ids, lengths, segments).double().log_softmax(1)[0]  # type: ignore[operator]
        losses.append(-float(log_probs[int(task.dev.labels[place])]))
        matches += int(log_probs.argmax()) == int(task.dev.labels[place])
    assert figures["loss"] == pytest.approx(np.mean(losses), abs=1e-6)
    assert figures["accuracy"] == pytest.approx(100 * matches / 20)
    assert task.dev_loss(network) == figures["loss"]


def test_a_tiny_model_separates_two_classes(task: ClassificationTask) -> None:
    network = model().train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2)
    for epoch in range(12):
        for index in range(task.batches(epoch)):
            optimiser.zero_grad()
            loss = task.loss(network, task.batch(epoch, index))
            (loss.total / loss.count).backward()
            optimiser.step()
    figures = task.validate(network.eval())
    assert (figures["accuracy"], figures["macro_f1"]) == (100.0, 100.0)
