"""Sources of any length: sentences of the phrasebook, one or several in a row, and translators for them.

A source of n sentences is translated by their n translations in the same order, so that a longer source is harder by
its length alone. Words are the symbols; one that no training sentence has is unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.data.batches import PairBatch
from seqloom.data.phrasebook import PhrasePair, sample_pairs
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig
from seqloom.tasks.translation import pair_loss


@dataclass(frozen=True)
class JoinedPair:
    """Sentences in a row and their translations, as words."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class JoinedPhrases:
    """Sentences to train on, joined anew for each batch, and joined pairs to test with."""

    train: Sequence[PhrasePair]
    test: Sequence[JoinedPair]
    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    longest: int
    """Sentences of a pair, at most."""

    @property
    def symbols(self) -> Symbols:
        return Symbols(len(RESERVED) + len(self.source_words), len(RESERVED) + len(self.target_words), is_shared=False)


@dataclass(frozen=True)
class TranslatorTraining:
    """What every translator gets."""

    pairs: int = 32
    """In a batch, all of as many sentences."""
    updates: int = 700
    """Of the weights, by Adam; the learning rate falls to a tenth along a line."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0


def join_phrases(
    source: str = "en", target: str = "de", *, train: int = 4000, test: int = 400, longest: int = 5, seed: int
) -> JoinedPhrases:
    """So many training sentences and test pairs; of these, as many have one sentence as have two … `longest`."""
    sentences = sample_pairs(source, target, count=train, seed=seed, split="train")
    others = sample_pairs(source, target, count=max(test, longest), seed=seed, split="test")
    generator = torch.Generator().manual_seed(seed_for(seed, "joined test"))
    pairs = [
        _join([others[at] for at in torch.randperm(len(others), generator=generator)[: 1 + number % longest].tolist()])
        for number in range(test)
    ]
    return JoinedPhrases(
        sentences,
        pairs,
        tuple(sorted({word for pair in sentences for word in pair.source_tokens})),
        tuple(sorted({word for pair in sentences for word in pair.target_tokens})),
        longest,
    )


def train_translator(
    config: Seq2SeqConfig, phrases: JoinedPhrases, *, training: TranslatorTraining, seed: int
) -> Seq2Seq:
    """A model after the updates. Equal seeds see the same pairs in the same order, whatever the config."""
    model = config.build(phrases.symbols, seed=seed_for(seed, "translator"))
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=training.updates)
    for batch in _batches(phrases, training, seed=seed_for(seed, "joined batches")):
        loss = pair_loss(model, batch, smoothing=0.0)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimiser.step()
        schedule.step()
    return model


def translate_test(model: Seq2Seq, phrases: JoinedPhrases, *, at_once: int = 64) -> list[str]:
    """Greedy translations of the test pairs' sources, words joined by spaces."""
    order = sorted(range(len(phrases.test)), key=lambda line: len(phrases.test[line].source))
    number = _numbers(phrases.source_words)
    lines = [""] * len(order)
    for begin in range(0, len(order), at_once):
        chosen = order[begin : begin + at_once]
        source = _padded([_ids(phrases.test[line].source, number) for line in chosen])
        for line, found in zip(chosen, greedy_search(model.stepper(), source, SearchConfig(beam=1)), strict=True):
            lines[line] = " ".join(
                phrases.target_words[symbol - len(RESERVED)] for symbol in found.symbols if symbol >= len(RESERVED)
            )
    return lines


def _batches(phrases: JoinedPhrases, training: TranslatorTraining, *, seed: int) -> Iterator[PairBatch]:
    generator = torch.Generator().manual_seed(seed)
    sources, targets = _numbers(phrases.source_words), _numbers(phrases.target_words)
    for _ in range(training.updates):
        count = int(torch.randint(1, phrases.longest + 1, (), generator=generator))
        drawn = torch.randint(len(phrases.train), (training.pairs, count), generator=generator).tolist()
        joined = [_join([phrases.train[at] for at in row]) for row in drawn]
        target = _padded([_ids(pair.target, targets) for pair in joined])
        yield PairBatch(
            source=_padded([_ids(pair.source, sources) for pair in joined]),
            target=target.ids,
            target_lengths=target.lengths,
            lines=np.array([row[0] for row in drawn]),
        )


def _join(pairs: Sequence[PhrasePair]) -> JoinedPair:
    return JoinedPair(
        tuple(word for pair in pairs for word in pair.source_tokens),
        tuple(word for pair in pairs for word in pair.target_tokens),
    )


def _numbers(words: Sequence[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(words, start=len(RESERVED))}


def _ids(words: Sequence[str], numbers: dict[str, int]) -> list[int]:
    return [*(numbers.get(word, UNKNOWN) for word in words), END]


def _padded(rows: Sequence[list[int]]) -> Source:
    """Rows of ids, padded at the end, with their lengths."""
    return Source(pad_sequence([torch.tensor(row) for row in rows], batch_first=True), torch.tensor([*map(len, rows)]))
