"""Sources of any length: sentences of the phrasebook, one or several in a row, and translators for them.

A source of n sentences is translated by their n translations in the same order. All sentences are known from training;
what is new in a longer source is which of them stand in a row. So a translator that can do one sentence and fails at
more fails for their number alone. (With sentences that are new themselves, a translator without attention learnt too
little of the short ones in a few minutes to show how it falls with length.) Words are the symbols.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, RESERVED
from seqloom.data.batches import PairBatch
from seqloom.data.phrasebook import PhrasePair, sample_pairs
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig
from seqloom.tasks.translation import pair_loss

MARK = re.compile(r" ([.,;:!?])(?= |$)")


@dataclass(frozen=True)
class JoinedPair:
    """Sentences in a row and their translations, as words."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True)
class JoinedPhrases:
    """Sentences, which are joined anew for each batch, and joined pairs to test with."""

    sentences: Sequence[PhrasePair]
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
    updates: int = 500
    """Of the weights, by Adam; the learning rate falls to a tenth along a line."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0


def join_phrases(
    source: str = "en", target: str = "de", *, sentences: int = 200, test: int = 400, longest: int = 5, seed: int
) -> JoinedPhrases:
    """So many sentences and test pairs; of these, as many have one sentence as have two … `longest`."""
    known = sample_pairs(source, target, count=sentences, seed=seed)
    generator = torch.Generator().manual_seed(seed_for(seed, "joined test"))
    pairs = [
        _join([known[at] for at in torch.randint(sentences, (1 + number % longest,), generator=generator).tolist()])
        for number in range(test)
    ]
    return JoinedPhrases(
        known,
        pairs,
        tuple(sorted({word for pair in known for word in pair.source_tokens})),
        tuple(sorted({word for pair in known for word in pair.target_tokens})),
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
    """Greedy translations of the test pairs' sources, as text."""
    order = sorted(range(len(phrases.test)), key=lambda line: len(phrases.test[line].source))
    number = _numbers(phrases.source_words)
    lines = [""] * len(order)
    for begin in range(0, len(order), at_once):
        chosen = order[begin : begin + at_once]
        source = _padded([_ids(phrases.test[line].source, number) for line in chosen])
        for line, found in zip(chosen, greedy_search(model.stepper(), source, SearchConfig(beam=1)), strict=True):
            lines[line] = as_text(
                [phrases.target_words[symbol - len(RESERVED)] for symbol in found.symbols if symbol >= len(RESERVED)]
            )
    return lines


def as_text(words: Sequence[str]) -> str:
    """Words with spaces between them, marks at the word before them: what a metric that finds words itself expects."""
    return MARK.sub(r"\1", " ".join(words))


def _batches(phrases: JoinedPhrases, training: TranslatorTraining, *, seed: int) -> Iterator[PairBatch]:
    generator = torch.Generator().manual_seed(seed)
    sources, targets = _numbers(phrases.source_words), _numbers(phrases.target_words)
    for _ in range(training.updates):
        count = int(torch.randint(1, phrases.longest + 1, (), generator=generator))
        drawn = torch.randint(len(phrases.sentences), (training.pairs, count), generator=generator).tolist()
        joined = [_join([phrases.sentences[at] for at in row]) for row in drawn]
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
    return [*(numbers[word] for word in words), END]


def _padded(rows: Sequence[list[int]]) -> Source:
    """Rows of ids, padded at the end, with their lengths."""
    return Source(pad_sequence([torch.tensor(row) for row in rows], batch_first=True), torch.tensor([*map(len, rows)]))
