"""The share of right symbols that a decoder reads in training: all, none, and what lies between."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.data.store import Store, StoreWriter
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.settings import TranslationConfig
from seqloom.tasks.translation import DevSet, MixedBatch, TranslationTask, pair_loss, with_guesses
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer

SYMBOLS = Symbols(12, 12, is_shared=True)
MODELS: dict[str, Seq2SeqConfig | TransformerConfig] = {
    "attention": Seq2SeqConfig(width=8, embedding_width=8, dropout_rate=0.0),
    "feeding": Seq2SeqConfig(width=8, embedding_width=8, dropout_rate=0.5, input_feeding=True, cell="gru"),
    "plain": Seq2SeqConfig(width=8, embedding_width=8, dropout_rate=0.5, attention="none", context="every"),
    "transformer": TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq | Transformer:
    """A model in training mode, whose guesses differ from sentence to sentence."""
    built = MODELS[request.param].build(SYMBOLS, seed=1).double()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(3)
    return built.train()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 9, size=(60, 2))
    sides = [[[*generator.integers(4, 12, size=n).tolist(), END] for n in lengths[:, side]] for side in (0, 1)]
    with StoreWriter(tmp_path / "store", symbols=12) as writer:
        writer.append(sides[0], sides[1], list(range(1, 61)))
    return Store.open(tmp_path / "store")


def task_of(store: Store, share: float, *, seed: int = 1) -> TranslationTask:
    tokenizer = train_tokenizer(["a", "bcdefghijk"], TextConfig(kind="char", size=12))
    return TranslationTask(
        store,
        DevSet(store, ["x"] * len(store), tokenizer, "de"),
        config=TranslationConfig(teacher_forcing=share),
        tokens_per_batch=60,
        seed=seed,
        device=torch.device("cpu"),
    )


def free_running(model: Seq2Seq | Transformer, source: Source, steps: int) -> Tensor:
    """BEGIN and the model's own best symbols, each from a forward pass over all that it has read so far."""
    model.eval()
    read = torch.full((len(source.ids), 1), BEGIN)
    for length in range(1, steps):
        features = model(source, read, torch.full((len(read),), length))
        best = model.output(features).view(len(read), length, -1)[:, -1].argmax(1)
        read = torch.cat([read, best[:, None]], 1)
    model.train()
    return read


def test_a_share_of_one_is_the_loss_on_the_right_prefix(store: Store, model: Seq2Seq | Transformer) -> None:
    task = task_of(store, 1.0)
    batch = task.batch(0, 0)
    assert not isinstance(batch, MixedBatch)
    model.eval()
    gold = pair_loss(model, batch, smoothing=0.1).total
    assert torch.equal(task.loss(model, batch).total, gold)
    everywhere = MixedBatch(batch.source, batch.target, batch.target_lengths, batch.lines, batch.target == batch.target)
    assert torch.equal(task.loss(model, everywhere).total, gold)


def test_a_share_of_zero_is_free_running(store: Store, model: Seq2Seq | Transformer) -> None:
    task = task_of(store, 0.0)
    batch = task.batch(0, 0)
    assert isinstance(batch, MixedBatch)
    read = free_running(model, batch.source, batch.target.shape[1])
    assert torch.equal(with_guesses(model, batch), read)
    assert not torch.equal(read, batch.previous)
    assert len(read[:, -1].unique()) > 1
    assert model.training
    model.eval()
    features = model(batch.source, read, batch.target_lengths)
    rows = (torch.arange(read.shape[1]) < batch.target_lengths[:, None]).flatten()
    log_probs = model.output.log_probs(features)
    labels = batch.target.flatten()[rows]
    expected = -0.9 * log_probs.gather(1, labels[:, None]).sum() - 0.1 * log_probs.mean(1).sum()
    torch.testing.assert_close(task.loss(model, batch).total, expected, rtol=0, atol=1e-9)


def test_in_between_each_position_reads_one_or_the_other(store: Store, model: Seq2Seq | Transformer) -> None:
    batch = task_of(store, 0.5).batch(0, 0)
    assert isinstance(batch, MixedBatch)
    read = with_guesses(model, batch)
    assert torch.equal(read[:, 0], batch.previous[:, 0])
    assert torch.equal(read[batch.is_gold], batch.previous[batch.is_gold])
    model.eval()
    for position in range(1, read.shape[1]):
        features = model(batch.source, read[:, :position], torch.full((len(read),), position))
        guess = model.output(features).view(len(read), position, -1)[:, -1].argmax(1)
        guessed = ~batch.is_gold[:, position]
        assert torch.equal(read[guessed, position], guess[guessed])


def test_the_choice_belongs_to_the_batch(store: Store) -> None:
    def choice(share: float, seed: int, epoch: int) -> Tensor:
        batch = task_of(store, share, seed=seed).batch(epoch, 0)
        assert isinstance(batch, MixedBatch)
        return batch.is_gold

    assert torch.equal(choice(0.5, 1, 0), choice(0.5, 1, 0))
    assert not torch.equal(choice(0.5, 1, 0)[:2, :3], choice(0.5, 2, 0)[:2, :3])
    shapes = [choice(0.5, 1, epoch).flatten()[:20].tolist() for epoch in range(3)]
    assert shapes[0] != shapes[1] != shapes[2]
    task = task_of(store, 0.8)
    batches = [task.batch(0, index) for index in range(task.batches(0))]
    drawn = torch.cat([batch.is_gold.flatten() for batch in batches if isinstance(batch, MixedBatch)])
    assert float(drawn.float().mean()) == pytest.approx(0.8, abs=0.06)


def test_held_out_pairs_are_always_read_as_they_are(store: Store, model: Seq2Seq | Transformer) -> None:
    model.eval()
    assert task_of(store, 0.0).dev_loss(model) == task_of(store, 1.0).dev_loss(model)


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"teacher_forcing = 1\.2: expected .* 1"):
        resolve(TranslationConfig, overrides=["teacher_forcing=1.2"])
