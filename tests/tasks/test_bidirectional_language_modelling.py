"""Language modelling in both directions: what is summed over what, perplexities, learning, exact resume."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.core.errors import DataError
from seqloom.core.symbols import BEGIN, END
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.models.elmo import Elmo, ElmoConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.bidirectional_language_modelling import BidirectionalTask, both_labels
from seqloom.tasks.settings import BidirectionalConfig
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import Trainer
from seqloom.training.weights import weights_of

SYMBOLS = 12
CPU = torch.device("cpu")


def stream(folder: Path, sentences: list[list[int]]) -> Stream:
    with StreamWriter(folder, symbols=SYMBOLS) as writer:
        writer.append(sentences, list(range(1, len(sentences) + 1)))
    return Stream.open(folder)


@pytest.fixture
def text(tmp_path: Path) -> Stream:
    generator = np.random.default_rng(5)
    sizes = generator.integers(0, 9, size=40)
    return stream(tmp_path / "text", [generator.integers(4, SYMBOLS, size=size).tolist() for size in sizes])


def model_of(**settings: Any) -> Elmo:
    small: dict[str, Any] = {"width": 6, "layers": 2, "dropout_rate": 0.0}
    return ElmoConfig.model_validate(small | settings).build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def task_of(text: Stream, **settings: Any) -> BidirectionalTask:
    config = BidirectionalConfig.model_validate({"tokens_per_batch": 40} | settings)
    return BidirectionalTask(text, text, config=config, seed=3, device=CPU)


def by_hand(model: Elmo, words: list[int]) -> tuple[float, float]:
    """−log P of a sentence, read from the left and from the right."""
    found = model(torch.tensor([words]), torch.tensor([len(words)]))
    right = nn.functional.cross_entropy(model.output(found.following), torch.tensor([*words, END]), reduction="sum")
    left = nn.functional.cross_entropy(model.output(found.preceding), torch.tensor([BEGIN, *words]), reduction="sum")
    return right.item(), left.item()


def test_labels_are_the_sentence_with_its_end_and_with_its_begin() -> None:
    following, preceding = both_labels(torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1]))
    assert following.tolist() == [5, 6, 7, END, 8, END]
    assert preceding.tolist() == [BEGIN, 5, 6, 7, BEGIN, 8]


def test_losses_are_those_of_the_sentences_one_by_one(text: Stream) -> None:
    model, task = model_of(), task_of(text)
    seen = []
    for index in range(task.batches(0)):
        batch = task.batch(0, index)
        loss = task.loss(model, batch)
        rows = [row[:length].tolist() for row, length in zip(batch.ids, batch.lengths.tolist(), strict=True)]
        assert loss.total.item() == pytest.approx(sum(sum(by_hand(model, row)) for row in rows), rel=1e-5)
        assert loss.count == task.count(batch) == sum(2 * (len(row) + 1) for row in rows)
        assert len(rows) * (max(map(len, rows)) + 1) <= 40
        seen += batch.lines.tolist()
    with_words = [line for line, length in zip(text.lines.tolist(), text.lengths.tolist(), strict=True) if length > 1]
    assert sorted(seen) == with_words
    assert len(with_words) < len(text)


def test_validation_reports_both_directions(text: Stream) -> None:
    model, task = model_of(), task_of(text)
    sentences = [text.line(at)[:-1].tolist() for at in range(len(text)) if text.lengths[at] > 1]
    right, left = (sum(each) for each in zip(*(by_hand(model, words) for words in sentences), strict=True))
    count = sum(len(words) + 1 for words in sentences)
    found = task.validate(model)
    assert found["forward_perplexity"] == pytest.approx(math.exp(right / count), rel=1e-5)
    assert found["backward_perplexity"] == pytest.approx(math.exp(left / count), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp((right + left) / (2 * count)), rel=1e-5)
    assert found["loss"] == pytest.approx(task.dev_loss(model), rel=1e-6)
    assert found["loss"] == pytest.approx(math.log(found["perplexity"]), rel=1e-6)
    some = task_of(text, dev_lines=3).validate(model)
    assert some["loss"] != pytest.approx(found["loss"], rel=1e-4)


@pytest.mark.parametrize("kind", ["sampled", "nce"])
def test_other_objectives_train_it_too(text: Stream, kind: str) -> None:
    model, task = model_of(), task_of(text, objective={"kind": kind, "samples": 4})
    batch = task.batch(0, 0)
    one, same = (task.loss(model, batch).total.item() for _ in range(2))
    assert one == same
    task.loss(model, batch).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_each_direction_learns_what_only_it_can_know(tmp_path: Path) -> None:
    """Sentences a b c, with a and c drawn and b told by a: b is known after a, a before b, but b not before c."""
    generator = np.random.default_rng(0)
    firsts, lasts = generator.integers(4, 8, size=(2, 300))
    sentences = [[first, first + 4, last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]
    task = task_of(stream(tmp_path / "text", sentences), tokens_per_batch=400)
    model = model_of(width=16, layers=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for epoch in range(40):
        for index in range(task.batches(epoch)):
            loss = task.loss(model, task.batch(epoch, index))
            optimiser.zero_grad()
            (loss.total / loss.count).backward()
            optimiser.step()
    found = task.validate(model.eval())
    # Of four symbols two are free choices out of four in either direction; the other two can be known.
    for name in ("forward_perplexity", "backward_perplexity"):
        assert found[name] == pytest.approx(math.sqrt(4), rel=0.05)


def test_a_resumed_run_reaches_the_same_bits(tmp_path: Path, text: Stream) -> None:
    def trainer(name: str, steps: int) -> Trainer[Any]:
        config = TrainingConfig(steps=steps, save_every=2, validate_every=2, warmup=0, log_every=1)
        return Trainer(model_of(dropout_rate=0.3), task_of(text), config, run=tmp_path / name, seed=7, device=CPU)

    straight = trainer("straight", 4)
    straight.train()
    trainer("broken", 2).train()
    resumed = trainer("broken", 4)
    resumed.train(resume=True)
    for name, tensor in weights_of(straight.model).items():
        assert torch.equal(tensor, weights_of(resumed.model)[name]), name


def test_a_text_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the training text has no line with words"):
        task_of(stream(tmp_path / "text", [[], []]))
