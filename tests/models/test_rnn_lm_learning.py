"""What a recurrent language model learns that counts of word pairs cannot: words further back."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from seqloom.classical.ngram import NGramConfig
from seqloom.core.symbols import RESERVED
from seqloom.data.phrasebook import sample_sentences
from seqloom.data.plain_text import Stream, StreamWriter
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.language_modelling import LanguageModellingTask
from seqloom.tasks.settings import LanguageModellingConfig
from seqloom.text.tokenizer import EncodedText
from seqloom.training.optimisers import clip_by_norm, global_norm, gradients


def stream_of(folder: Path, lines: Sequence[Sequence[int]], symbols: int) -> Stream:
    with StreamWriter(folder, symbols=symbols) as writer:
        writer.append(lines, list(range(1, len(lines) + 1)))
    return Stream.open(folder)


def train(model: nn.Module, task: LanguageModellingTask, *, steps: int, rate: float) -> None:
    """A plain loop, with a rate that falls to zero in a line."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    epoch, index = 0, 0
    for step in range(steps):
        if index == task.batches(epoch):
            epoch, index = epoch + 1, 0
        reseed(model, step)
        loss = task.loss(model, task.batch(epoch, index))
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        found = gradients(model.parameters())
        clip_by_norm(found, 1.0, norm=float(global_norm(found)))
        optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
        optimiser.step()
        index += 1


@pytest.mark.parametrize("windows", ["sequential", "random"])
def test_it_learns_a_dependency_on_five_words_back(tmp_path: Path, windows: str) -> None:
    """Lines `a x y y x a`: nothing but the first word tells the last one."""
    generator = np.random.default_rng(1)
    lines = generator.integers(8, 10, size=(600, 6))
    lines[:, 0] = lines[:, 5] = generator.integers(4, 8, size=600)
    vocabulary = [*RESERVED, "a", "b", "c", "d", "x", "y"]
    text = stream_of(tmp_path / "text", lines.tolist(), len(vocabulary))
    settings = {"windows": windows, "rows": 16, "length": 21, "burn_in": 7 if windows == "random" else 0}
    config = LanguageModellingConfig.model_validate(settings)
    task = LanguageModellingTask(text, text, config=config, seed=1, device=torch.device("cpu"))
    symbols = Symbols(len(vocabulary), len(vocabulary), is_shared=True)
    model = RnnLmConfig(width=32, dropout_rate=0.0).build(symbols, seed=1)
    train(model, task, steps=250, rate=0.02)
    found = task.validate(model.eval())["loss"]
    # The first word is one of four, the next ones are one of two each, the last one and the end are known. Who does not
    # remember the first word, as no bigram model does, has to guess the last one, too.
    least, without = (math.log(4) + 4 * math.log(2)) / 7, (2 * math.log(4) + 4 * math.log(2)) / 7
    assert found < least + 0.2 * (without - least)
    bigram = NGramConfig(order=2).fit(EncodedText(text.ids, vocabulary))
    assert math.log(bigram.perplexity(text.ids)) > without


@pytest.mark.slow
def test_an_lstm_beats_a_bigram_model_on_the_demo_corpus(tmp_path: Path) -> None:
    words = {
        "train": [line.split() for line in sample_sentences("en", count=3000, seed=1)],
        "dev": [line.split() for line in sample_sentences("en", count=300, seed=1, split="dev")],
    }
    vocabulary = [*RESERVED, *sorted({word for line in words["train"] for word in line})]
    number = {word: at for at, word in enumerate(vocabulary)}
    ids = {split: [[number.get(word, 3) for word in line] for line in lines] for split, lines in words.items()}
    text, dev = (stream_of(tmp_path / split, ids[split], len(vocabulary)) for split in ("train", "dev"))
    config = LanguageModellingConfig(rows=16, length=30)
    task = LanguageModellingTask(text, dev, config=config, seed=1, device=torch.device("cpu"))
    symbols = Symbols(len(vocabulary), len(vocabulary), is_shared=True)
    model = RnnLmConfig(width=128, dropout_rate=0.2).build(symbols, seed=1)
    train(model, task, steps=400, rate=0.01)
    found = task.validate(model.eval())["perplexity"]
    bigram = NGramConfig(order=2).fit(EncodedText(text.ids, vocabulary)).perplexity(dev.ids)
    assert found < 0.8 * bigram
