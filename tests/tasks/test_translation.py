"""The translation task: what is summed, over what, and what is reported."""

from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.core.symbols import END
from seqloom.data.batches import collate
from seqloom.data.store import Store, StoreWriter
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.settings import TranslationConfig
from seqloom.tasks.translation import DevSet, TranslationTask, batches_by_length, pair_loss
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer

SYMBOLS = 12


@pytest.fixture
def store(tmp_path: Path) -> Store:
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 9, size=(40, 2))
    sides = [[[*generator.integers(4, SYMBOLS, size=n).tolist(), END] for n in lengths[:, side]] for side in (0, 1)]
    with StoreWriter(tmp_path / "store", symbols=SYMBOLS) as writer:
        writer.append(sides[0], sides[1], list(range(1, 41)))
    return Store.open(tmp_path / "store")


@pytest.fixture
def model() -> torch.nn.Module:
    config = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, dropout_rate=0.0)
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).double()


def task_of(store: Store, tokens: int = 40, reference: str = "b c defg h i") -> TranslationTask:
    return TranslationTask(
        store,
        DevSet(
            store,
            [reference] * len(store),
            train_tokenizer(["a", "bcdefghijk"], TextConfig(kind="char", size=SYMBOLS)),
            "de",
        ),
        config=TranslationConfig(),
        tokens_per_batch=tokens,
        seed=1,
        device=torch.device("cpu"),
    )


def test_an_epoch_counts_every_target_token_once(store: Store) -> None:
    task = task_of(store)
    counts = [task.count(task.batch(0, index)) for index in range(task.batches(0))]
    assert sum(counts) == int(store.target_lengths.sum())


def test_the_loss_of_a_batch_is_the_sum_over_its_sentences(store: Store, model: torch.nn.Module) -> None:
    indices = np.arange(7)
    together = pair_loss(model, collate(store, indices), smoothing=0.1)
    alone = [pair_loss(model, collate(store, np.array([index])), smoothing=0.1) for index in indices]
    torch.testing.assert_close(together.total, torch.stack([loss.total for loss in alone]).sum(), rtol=0, atol=1e-9)
    assert together.count == sum(loss.count for loss in alone)


def test_batches_by_length_hold_every_example_once_within_the_budget(store: Store) -> None:
    batches = batches_by_length(store, tokens=30)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(store)))
    longer = np.maximum(store.source_lengths, store.target_lengths).astype(int)
    assert all(len(batch) * longer[batch].max() <= 30 or len(batch) == 1 for batch in batches)
    assert len(np.concatenate(batches_by_length(store, tokens=30, examples=9))) == 9


def test_a_batch_says_which_lines_it_holds(store: Store) -> None:
    task = task_of(store)
    batch = task.batch(0, 0)
    longest = max(batch.source.ids.shape[1], batch.target.shape[1])
    assert task.describe(batch).startswith(
        f"{len(batch.lines)} pairs of up to {longest} tokens, lines {batch.lines[0]}"
    )


def test_the_dev_loss_is_the_mean_over_all_held_out_tokens(store: Store, model: torch.nn.Module) -> None:
    task = task_of(store)
    whole = pair_loss(model, collate(store, np.arange(len(store))), smoothing=0.0)
    assert task.dev_loss(model) == pytest.approx(float(whole.total.detach()) / whole.count, abs=1e-9)
    figures = TranslationTask.validate(task, model.eval())
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]))
    assert 0 <= figures["bleu"] <= 100


def test_one_word_targets_are_validated_by_exact_match(store: Store, model: torch.nn.Module) -> None:
    task = task_of(store, reference="bcd")
    figures = task.validate(model.eval())
    assert "bleu" not in figures
    assert 0 <= figures["exact_match"] <= 100


def test_consistency_without_dropout_changes_nothing(store: Store, model: torch.nn.Module) -> None:
    """Padding and neighbours among the tokens of both passes included."""
    batch = collate(store, np.arange(7))
    plain, consistent = (pair_loss(model, batch, smoothing=0.1, consistency=weight) for weight in (0.0, 3.0))
    assert consistent.count == plain.count == int(batch.target_lengths.sum())
    torch.testing.assert_close(consistent.total, plain.total, rtol=0, atol=1e-9)
    wanted = list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(each.total, wanted) for each in (consistent, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_consistency_compares_two_passes_with_different_dropout(store: Store) -> None:
    config = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, dropout_rate=0.3)
    model = config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).double()
    batch = collate(store, np.arange(7))

    def loss(weight: float) -> float:
        reseed(model, 5)
        return float(pair_loss(model, batch, smoothing=0.1, consistency=weight).total.detach())

    assert loss(1.0) == loss(1.0)
    # Linear in the weight, with a divergence above 0.
    assert loss(2.0) - loss(1.0) == pytest.approx(loss(1.0) - loss(1e-9), rel=1e-6)
    assert loss(1.0) > loss(1e-9) + 1e-3
