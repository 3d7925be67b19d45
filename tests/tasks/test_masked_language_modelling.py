"""Masked language modelling: what is hidden, what is summed over what, parity, learning, exact resume."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.models.bert import Bert, BertConfig
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.masked_language_modelling import (
    MASK_MARK,
    MaskedBatch,
    MaskedLanguageModellingTask,
    line_spans,
    mask_symbol,
)
from seqloom.tasks.settings import MaskedLanguageModellingConfig
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import Trainer
from seqloom.training.weights import weights_of

MASK, SYMBOLS = 4, 30
CPU = torch.device("cpu")


def stream(folder: Path, sentences: list[list[int]]) -> Stream:
    with StreamWriter(folder, symbols=SYMBOLS) as writer:
        writer.append(sentences, list(range(1, len(sentences) + 1)))
    return Stream.open(folder)


@pytest.fixture
def text(tmp_path: Path) -> Stream:
    generator = np.random.default_rng(5)
    sizes = generator.integers(0, 20, size=60)
    return stream(tmp_path / "text", [generator.integers(5, SYMBOLS, size=size).tolist() for size in sizes])


def model_of(**settings: Any) -> Bert:
    small: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "feed_forward": 24, "longest": 16}
    config = BertConfig.model_validate(small | {"dropout_rate": 0.0} | settings)
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def task_of(text: Stream, *, seed: int = 3, **settings: Any) -> MaskedLanguageModellingTask:
    config = MaskedLanguageModellingConfig.model_validate({"length": 16, "tokens_per_batch": 64} | settings)
    return MaskedLanguageModellingTask(text, text, config=config, mask=MASK, seed=seed, device=CPU)


def all_batches(task: MaskedLanguageModellingTask, epoch: int) -> Iterator[MaskedBatch]:
    return (task.batch(epoch, index) for index in range(task.batches(epoch)))


def samples(batch: MaskedBatch) -> dict[int, tuple[list[int], dict[int, int]]]:
    """What is read of each sample, by its first token in the text, and its hidden tokens by their places."""
    lengths = batch.lengths.tolist()
    begins = np.cumsum([0, *lengths])
    hidden = dict(zip(batch.places.tolist(), batch.labels.tolist(), strict=True))
    return {
        int(start): (row[:length].tolist(), {at - begin: hidden[at] for at in hidden if begin <= at < begin + length})
        for start, row, length, begin in zip(batch.starts, batch.ids, lengths, begins[:-1].tolist(), strict=True)
    }


@pytest.mark.parametrize("windows", ["packed", "lines"])
def test_a_sample_is_the_text_with_some_tokens_hidden(text: Stream, windows: str) -> None:
    task = task_of(text, windows=windows)
    seen: list[int] = []
    for batch in all_batches(task, 0):
        assert batch.ids.numel() <= 64
        assert task.count(batch) == batch.count == int(batch.hidden.sum())
        for start, (read, hidden) in samples(batch).items():
            restored = [hidden.get(at, symbol) for at, symbol in enumerate(read)]
            assert (restored[0], restored[-1]) == (BEGIN, END)
            inside = restored[1:-1]
            assert inside == text.ids[start : start + len(inside)].tolist()
            assert not set(hidden.values()) & {PAD, BEGIN, END, MASK}
            assert MASK in read or not hidden or len(hidden) < 4
            seen += range(start, start + len(inside))
        if windows == "packed":
            assert batch.lengths.tolist() == [16] * len(batch.lengths)
    assert len(seen) == len(set(seen))
    if windows == "lines":
        assert sorted(seen) == np.flatnonzero(text.ids != END).tolist()
    else:  # all but less than a window at either end
        assert len(seen) > text.tokens - 2 * 14


def test_long_lines_are_read_in_parts(tmp_path: Path) -> None:
    spans = line_spans(stream(tmp_path / "text", [[5] * 7, [], [5, 6], [5] * 4]), 3)
    assert spans.begins.tolist() == [0, 2, 4, 9, 12, 14]
    assert spans.lengths.tolist() == [2, 2, 3, 2, 2, 2]


@pytest.mark.parametrize("settings", [{}, {"windows": "lines"}, {"next_sentence": True}], ids=str)
def test_what_is_hidden_belongs_to_the_sample_and_the_epoch(text: Stream, settings: dict[str, Any]) -> None:
    """Neither batches nor what was read before matter, so ranks, workers and a resume do not either."""

    def found(epoch: int, tokens_per_batch: int) -> dict[int, object]:
        batches = all_batches(task_of(text, tokens_per_batch=tokens_per_batch, **settings), epoch)
        return {start: sample for batch in batches for start, sample in samples(batch).items()}

    assert found(1, 64) == found(1, 1000)
    first, second = found(0, 64), found(1, 64)
    both = first.keys() & second.keys()
    assert not both or any(first[start] != second[start] for start in both)


@pytest.mark.parametrize("settings", [{}, {"windows": "lines"}], ids=str)
def test_the_loss_is_that_of_all_positions_restricted_to_the_hidden_ones(
    text: Stream, settings: dict[str, Any]
) -> None:
    model, task = model_of().double(), task_of(text, **settings)
    batch = task.batch(0, 0)
    loss = task.loss(model, batch)
    expected = 0.0
    for read, hidden in samples(batch).values():
        states = model.read(torch.tensor([read]), torch.tensor([len(read)]))
        log_probs = F.log_softmax(model.output(model.masked_features(states)), -1)  # [tokens, symbols]
        labels = [hidden.get(at, PAD) for at in range(len(read))]
        every = -log_probs[torch.arange(len(read)), torch.tensor(labels)]
        expected += every[torch.tensor([at in hidden for at in range(len(read))])].sum().item()
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)
    assert loss.count == batch.count > 0


@pytest.mark.parity
def test_the_loss_equals_that_of_transformers(text: Stream) -> None:
    transformers = pytest.importorskip("transformers")
    from seqloom.pretrained.encoder_only import read_bert, rename
    from seqloom.pretrained.mapping import imported
    from seqloom.pretrained.renumbering import Renumbering, Roles
    from seqloom.training.weights import load_weights

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=SYMBOLS, max_position_embeddings=16, initializer_range=0.3, **sizes)
    torch.manual_seed(1)
    theirs = transformers.BertForMaskedLM(config).double().eval()
    state = {rename(name): tensor for name, tensor in theirs.state_dict().items()}

    class Stored:
        names = tuple(state)
        shape = staticmethod(lambda name: tuple(state[name].shape))
        dtype = staticmethod(lambda name: state[name].dtype)
        tensor = staticmethod(lambda name: state[name].clone())

    found = read_bert(config.to_dict(), Stored())  # type: ignore[arg-type]
    # Their symbols have our numbers here.
    numbers = Renumbering.of(Roles(pad=PAD, begin=BEGIN, end=END, unknown=3), SYMBOLS)
    assert isinstance(found.model, BertConfig)
    model = found.model.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).double().eval()
    sides = {"source": numbers, "target": numbers}
    with torch.no_grad():
        weights = {each.ours: imported(each, Stored.tensor, sides) for each in found.tensors}
        load_weights(model, weights, origin="test")
    batch = task_of(text, windows="lines").batch(0, 1)
    labels = torch.full_like(batch.ids, -100)  # which their loss leaves out
    is_token = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]
    flat = torch.full((int(batch.lengths.sum()),), -100)
    flat[batch.places] = batch.labels
    labels[is_token] = flat
    mean = theirs(input_ids=batch.ids, attention_mask=is_token.long(), labels=labels).loss
    loss = task_of(text, windows="lines").loss(model, batch)
    assert loss.total.item() / loss.count == pytest.approx(mean.item(), rel=1e-10)


def test_half_of_the_second_segments_follow_and_both_begin_lines(tmp_path: Path) -> None:
    """Line n is n n+1 n+2, so that a segment says where it comes from."""
    lines = [[number % 8 * 3 + 5 + word for word in range(3)] for number in range(800)]
    text = stream(tmp_path / "text", lines)
    task = task_of(text, next_sentence=True, hidden_rate=0.01, mask_rate=0.0, random_rate=0.0)
    related, firsts = [], set()
    for batch in all_batches(task, 0):
        assert batch.segments is not None
        assert batch.is_unrelated is not None
        for row, length, segment, is_unrelated in zip(
            batch.ids.tolist(), batch.lengths.tolist(), batch.segments, batch.is_unrelated.tolist(), strict=True
        ):
            border = int((segment[:length] == 0).sum())
            first, second = row[1 : border - 1], row[border : length - 1]
            assert (row[0], row[border - 1], row[length - 1]) == (BEGIN, END, END)
            assert END not in (first[0], first[-1], second[0], second[-1])
            assert (second[0] - 5) % 3 == 0
            follows = second[0] == 5 + (first[-1] - 5 + 1) % 24
            # A line like the one that follows may be drawn as another one.
            assert follows or is_unrelated
            related.append(not is_unrelated)
            firsts.add(second[0])
    assert abs(np.mean(related) - 0.5) <= 4 * 0.5 / math.sqrt(len(related))
    assert len(firsts) == 8


def test_the_loss_of_pairs_is_added_for_each_hidden_token(text: Stream) -> None:
    model = model_of(has_pooler=True, has_pair_output=True).double()
    task = task_of(text, next_sentence=True)
    batch = task.batch(0, 0)
    assert batch.is_unrelated is not None
    states = model.read(batch.ids, batch.lengths, batch.segments)
    hidden = model.output.cross_entropy(model.masked_features(states[batch.places]), batch.labels)
    pairs = F.cross_entropy(model.pair_scores(states, batch.lengths), batch.is_unrelated, reduction="none")
    expected = hidden + sum(weight * each for weight, each in zip(batch.hidden.tolist(), pairs, strict=True))
    loss = task.loss(model, batch)
    assert loss.total.item() == pytest.approx(expected.item(), rel=1e-12)
    loss.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert 0 <= task.validate(model)["pair_accuracy"] <= 1


def test_validation_hides_the_same_tokens_for_every_seed(text: Stream) -> None:
    model = model_of()
    one, other = task_of(text, seed=3), task_of(text, seed=4)
    figures = one.validate(model)
    assert figures == other.validate(model) == one.validate(model)
    assert figures["loss"] == pytest.approx(one.dev_loss(model), rel=1e-12)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]), rel=1e-9)
    total, right, count = 0.0, 0, 0
    covered, of_masked = 0, []
    for batch in one.dev_batches(one.dev_spans):
        for read, hidden in samples(batch).values():
            states = model.read(torch.tensor([read]), torch.tensor([len(read)]))
            log_probs = F.log_softmax(model.output(model.masked_features(states)), -1).detach()
            total -= sum(float(log_probs[at, label]) for at, label in hidden.items())
            right += sum(int(log_probs[at].argmax()) == label for at, label in hidden.items())
            of_masked += [int(log_probs[at].argmax()) == label for at, label in hidden.items() if read[at] == MASK]
            count += len(hidden)
            covered += len(read) - 2
    assert covered == text.tokens
    assert figures["loss"] == pytest.approx(total / count, rel=1e-5)
    assert figures["hidden_accuracy"] == pytest.approx(right / count)
    assert figures["masked_accuracy"] == pytest.approx(np.mean(of_masked))
    assert task_of(text, dev_tokens=50).validate(model)["loss"] != pytest.approx(figures["loss"], rel=1e-4)
    # Fresh weights are about as good as a uniform guess.
    assert figures["loss"] == pytest.approx(math.log(SYMBOLS), abs=0.7)


def test_a_tiny_model_learns_what_both_neighbours_tell(tmp_path: Path) -> None:
    """In a a+1 a+2 … a token follows from any other one of its line."""
    generator = np.random.default_rng(0)
    lines = [[5 + (first + at) % 20 for at in range(9)] for first in generator.integers(0, 20, size=300).tolist()]
    text = stream(tmp_path / "text", lines)
    task = task_of(text, windows="lines", tokens_per_batch=700)
    model = model_of(width=32, feed_forward=64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    step = 0
    for epoch in range(40):
        for batch in all_batches(task, epoch):
            step += 1
            optimiser.param_groups[0]["lr"] = 4e-3 * min(1, step / 50)
            loss = task.loss(model, batch)
            optimiser.zero_grad()
            (loss.total / loss.count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    assert task.validate(model.eval())["hidden_accuracy"] >= 0.9


@pytest.mark.parametrize("settings", [{}, {"windows": "lines"}], ids=str)
def test_a_resume_in_the_second_epoch_reaches_the_same_bits(
    tmp_path: Path, text: Stream, settings: dict[str, Any]
) -> None:
    batches = task_of(text, tokens_per_batch=160, **settings).batches(0)

    def trainer(name: str, steps: int) -> Trainer[Any]:
        config = TrainingConfig(steps=steps, save_every=2, validate_every=2, warmup=0, log_every=1)
        task = task_of(text, tokens_per_batch=160, **settings)
        return Trainer(model_of(dropout_rate=0.3), task, config, run=tmp_path / name, seed=7, device=CPU)

    straight = trainer("straight", batches + 4)
    straight.train()
    trainer("broken", batches + 1).train()
    resumed = trainer("broken", batches + 4)
    resumed.train(resume=True)
    assert resumed.progress.epoch == 1
    for name, tensor in weights_of(straight.model).items():
        assert torch.equal(tensor, weights_of(resumed.model)[name]), name


def test_texts_without_words_or_hidden_tokens_are_refused(tmp_path: Path, text: Stream) -> None:
    blank, short = stream(tmp_path / "blank", [[], []]), stream(tmp_path / "short", [[5]])
    with pytest.raises(DataError, match="the training text has no line with words"):
        task_of(blank, windows="lines")
    config = MaskedLanguageModellingConfig(length=16, hidden_rate=0.001)
    with pytest.raises(DataError, match=r"none of the 2 tokens that a validation reads is hidden at .*=0\.001; give a"):
        MaskedLanguageModellingTask(text, short, config=config, mask=MASK, seed=1, device=CPU)


def test_a_tokeniser_without_a_mask_symbol_is_refused() -> None:
    config = TextConfig(kind="word")
    tokenizer = train_tokenizer(["a b", "<hidden token>"], config, marks=[MASK_MARK])
    assert mask_symbol(tokenizer) == 4
    assert 4 not in tokenizer.encode("a <hidden token> b")
    with pytest.raises(UsageError, match=r"\(word, 6 pieces\) has no mask symbol.* is <hidden token>; leave out"):
        mask_symbol(train_tokenizer(["a b"], config))
