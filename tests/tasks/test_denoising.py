"""Denoising: samples, their noise, the loss of texts in several languages, exact resume, symbols that no text has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import END
from seqloom.data.corrupt import BartNoise, HiddenWords, Noise, SpanCorruption, WordBorders, generator_for
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.framing import Framing
from seqloom.tasks.denoising import DenoisingTask, NoisyBatch, marks_of_noise, noise_of
from seqloom.tasks.settings import DenoisingConfig, QuestionAnswerConfig, SpansConfig
from seqloom.tasks.translation import pair_loss
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.settings import TrainingConfig
from seqloom.training.trainer import Trainer
from seqloom.training.weights import weights_of

LANGUAGES, MASK, SENTINELS, SYMBOLS = (4, 5), 6, tuple(range(7, 15)), 40
CPU = torch.device("cpu")
WORDS = WordBorders(np.zeros(SYMBOLS, bool), np.zeros(SYMBOLS, bool), are_words=True)
NOISES: dict[str, Noise] = {
    "infilling": BartNoise(MASK),
    "spans": SpanCorruption(SENTINELS),
    "question_answer": HiddenWords(MASK, WORDS),
}


@pytest.fixture
def text(tmp_path: Path) -> Stream:
    """Sixty lines, each after the symbol of its language."""
    generator = np.random.default_rng(5)
    rows = [generator.integers(15, SYMBOLS, size=size).tolist() for size in generator.integers(0, 20, size=60)]
    with StreamWriter(tmp_path / "text", symbols=SYMBOLS) as writer:
        writer.append([[LANGUAGES[at % 2], *row] for at, row in enumerate(rows)], list(range(1, 61)))
    return Stream.open(tmp_path / "text")


def model_of(**settings: Any) -> Transformer:
    small: dict[str, Any] = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 24}
    config = TransformerConfig.model_validate(small | {"dropout_rate": 0.0} | settings)
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)


def task_of(text: Stream, kind: str = "infilling", *, seed: int = 3, **settings: Any) -> DenoisingTask:
    values = {"length": 12, "tokens_per_batch": 64, "noise": {"kind": kind}} | settings
    config = DenoisingConfig.model_validate(values)
    return DenoisingTask(text, text, config=config, noise=NOISES[kind], languages=LANGUAGES, seed=seed, device=CPU)


def all_batches(task: DenoisingTask, epoch: int) -> Iterator[NoisyBatch]:
    return (task.batch(epoch, index) for index in range(task.batches(epoch)))


def rows_of(batch: NoisyBatch) -> list[tuple[list[int], list[int]]]:
    """What is read and what is to be written, of each sample."""
    return [
        (source[:read].tolist(), target[:written].tolist())
        for source, read, target, written in zip(
            batch.source.ids, batch.source.lengths, batch.target, batch.target_lengths, strict=True
        )
    ]


@pytest.mark.parametrize("windows", ["lines", "packed"])
def test_samples_are_the_text_after_the_symbols_of_their_languages(text: Stream, windows: str) -> None:
    seen = []
    for batch in all_batches(task_of(text, windows=windows), 0):
        assert batch.languages is not None
        assert batch.previous[:, 0].tolist() == batch.languages.tolist() == batch.source.ids[:, 0].tolist()
        assert batch.previous[:, 1:].tolist() == batch.target[:, :-1].tolist()
        for (read, target), language, line in zip(rows_of(batch), batch.languages.tolist(), batch.lines, strict=True):
            assert read[-1] == target[-1] == END
            assert language == LANGUAGES[(line - 1) % 2]
            assert not set(target[:-1]) & {*LANGUAGES, MASK}
            assert windows == "packed" or END not in target[:-1]
            seen += [token for token in target if token != END]
    words = text.ids[(text.ids != END) & ~np.isin(text.ids, LANGUAGES)]
    if windows == "lines":
        assert sorted(seen) == sorted(words.tolist())
    else:  # all but less than a window at either end
        assert len(words) - 24 < len(seen) <= len(words)


@pytest.mark.parametrize(
    "settings", [{}, {"kind": "spans"}, {"kind": "question_answer"}, {"windows": "packed"}], ids=str
)
def test_noise_belongs_to_the_sample_and_the_epoch(text: Stream, settings: dict[str, Any]) -> None:
    """Neither batches nor what was read before matter, so ranks, workers and a resume do not either."""

    def found(epoch: int, tokens_per_batch: int) -> list[object]:
        batches = all_batches(task_of(text, tokens_per_batch=tokens_per_batch, **settings), epoch)
        return sorted(row for batch in batches for row in rows_of(batch))

    assert found(1, 64) == found(1, 1000)
    assert found(0, 64) != found(1, 64)


def test_the_noise_of_a_batch_is_that_of_its_samples(text: Stream) -> None:
    task = task_of(text)
    spans = task.lines.take(task.plan.batch(1, 0))
    for begin, end, (read, target) in zip(spans.begins, spans.ends, rows_of(task.batch(1, 0)), strict=True):
        noisy = task.noise(text.ids[begin:end], generator_for(3, 1, int(begin)))
        assert read[1:-1] == noisy.read.tolist()
        assert target[:-1] == noisy.target.tolist() == text.ids[begin:end].tolist()


def test_the_loss_is_that_of_a_model_with_the_frame_of_each_language(text: Stream) -> None:
    task, model = task_of(text), model_of().double()
    model.framing = Framing((4,), (), (5,))  # what it reads as a translator does not matter here
    batch = task.batch(0, 0)
    loss = task.loss(model, batch)
    assert model.framing == Framing((4,), (), (5,))
    expected = 0.0
    for at, (read, target) in enumerate(rows_of(batch)):
        model.framing = Framing((read[0],), (), (read[0],))
        alone = task._collate(text, task.lines.take(task.plan.batch(0, 0)[at : at + 1]), seed=3, epoch=0)
        ids, lengths = torch.tensor([read[1:]]), torch.tensor([len(read) - 1])
        plain = NoisyBatch(
            type(alone.source)(ids, lengths), torch.tensor([target]), alone.target_lengths, alone.lines, None
        )
        expected += pair_loss(model, plain, smoothing=0.1).total.item()
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)
    assert loss.count == task.count(batch) == sum(len(target) for _, target in rows_of(batch))


def test_validation_has_the_same_noise_for_every_seed(text: Stream) -> None:
    model = model_of()
    one, other = task_of(text, seed=3), task_of(text, seed=4)
    assert one.validate(model) == other.validate(model) == one.validate(model)
    assert one.validate(model)["loss"] == one.dev_loss(model)
    assert (
        task_of(text, dev_lines=9).measure(model, task_of(text, dev_lines=9).validation_spans)[1]
        < one.measure(model)[1]
    )
    assert task_of(text, dev_lines=9).validate(model)["loss"] != one.dev_loss(model)
    assert "noise:infilling|hidden:0.3|span:3|windows:lines|length:12|seed:0" in one.signature(7)


@pytest.mark.parametrize("settings", [{}, {"kind": "spans", "windows": "packed"}], ids=str)
def test_a_resume_in_the_second_epoch_reaches_the_same_bits(
    tmp_path: Path, text: Stream, settings: dict[str, Any]
) -> None:
    batches = task_of(text, tokens_per_batch=300, **settings).batches(0)

    def trainer(name: str, steps: int) -> Trainer[Any]:
        config = TrainingConfig(steps=steps, save_every=2, validate_every=2, warmup=0, log_every=1)
        task = task_of(text, tokens_per_batch=300, **settings)
        return Trainer(model_of(dropout_rate=0.3), task, config, run=tmp_path / name, seed=7, device=CPU)

    straight = trainer("straight", batches + 3)
    straight.train()
    trainer("broken", batches + 1).train()
    resumed = trainer("broken", batches + 3)
    resumed.train(resume=True)
    assert resumed.progress.epoch == 1
    for name, tensor in weights_of(straight.model).items():
        assert torch.equal(tensor, weights_of(resumed.model)[name]), name


def test_texts_without_words_are_refused(tmp_path: Path, text: Stream) -> None:
    with StreamWriter(tmp_path / "blank", symbols=SYMBOLS) as writer:
        writer.append([[4], [5]], [1, 2])
    with pytest.raises(DataError, match="the training text has no line with words"):
        task_of(Stream.open(tmp_path / "blank"))


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_no_text_becomes_a_symbol_of_the_noise(kind: str) -> None:
    spans, questions = DenoisingConfig(noise=SpansConfig(), length=50), DenoisingConfig(noise=QuestionAnswerConfig())
    assert len(marks_of_noise(spans)) == 3  # ⌊50 · 0.15⌉ tokens in spans of 3
    marks = (*marks_of_noise(spans), *marks_of_noise(questions))
    lines = [f"a <hidden span {n}> <hidden token> b{n}" for n in range(30)]
    tokenizer = train_tokenizer(lines, TextConfig.model_validate({"kind": kind, "size": 60}), marks=marks)
    noise = noise_of(spans, tokenizer)
    assert isinstance(noise, SpanCorruption)
    assert noise.sentinels == (4, 5, 6)
    hidden = noise_of(questions, tokenizer)
    assert isinstance(hidden, HiddenWords)
    assert hidden.mask == 7
    assert not {4, 5, 6, 7} & {symbol for line in lines for symbol in tokenizer.encode(line)}
    with pytest.raises(
        UsageError, match=r"has 3 of the 4 sentinels that hide .*: <hidden span 3> is missing; leave out"
    ):
        noise_of(spans.model_copy(update={"length": 80}), tokenizer)


def test_t5_learns_to_write_hidden_spans(tmp_path: Path) -> None:
    """In a a+1 a+2 … what is hidden follows from its neighbours."""
    generator = np.random.default_rng(0)
    rows = [[15 + (first + at) % 10 for at in range(7)] for first in generator.integers(0, 10, size=80).tolist()]
    with StreamWriter(tmp_path / "text", symbols=SYMBOLS) as writer:
        writer.append(rows, list(range(1, 81)))
    stream = Stream.open(tmp_path / "text")
    config = DenoisingConfig(length=12, tokens_per_batch=1000, noise=SpansConfig(), label_smoothing=0.0)
    task = DenoisingTask(stream, stream, config=config, noise=NOISES["spans"], seed=3, device=CPU)
    small = T5Config(width=32, heads=2, head_size=16, encoder_layers=1, decoder_layers=1, feed_forward=64)
    model = small.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    before = task.dev_loss(model.eval())
    model.train()
    for epoch in range(80):
        for batch in all_batches(task, epoch):
            loss = task.loss(model, batch)
            optimiser.zero_grad()
            (loss.total / loss.count).backward()
            optimiser.step()
    # One token of a line is hidden, and written between a sentinel and END: guessing it would cost log(10) / 3 = 0.77.
    assert task.dev_loss(model.eval()) < 0.4
    assert before > 2
