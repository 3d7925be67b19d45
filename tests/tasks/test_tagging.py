"""The task of a tagger: sums with counts, and words read as unknown by seed, epoch and sentence alone."""

from typing import cast

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from data.test_tokens import tokenizers_of
from seqloom.core.symbols import UNKNOWN
from seqloom.data.tokens import TokenCorpus, TokenStore, encode_tagged, tags_in
from seqloom.models.tagger import Tagger, TaggerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.packing import pack
from seqloom.tasks.settings import TaggingConfig
from seqloom.tasks.tagging import TaggingTask
from tagged_text import write_conllu

COLUMNS = ("upos", "lemma")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, TaggingConfig, Symbols]:
    folder = tmp_path_factory.mktemp("tagging")
    corpus = TokenCorpus([write_conllu(folder / "a.conllu", count=60)])
    tags = {column: tags_in(corpus.sentences, column).tags for column in COLUMNS}
    tags["upos"] = tags["upos"][:-1]  # the last one is not known
    tokenizers = tokenizers_of(corpus)
    encode_tagged(corpus.sentences, folder / "store", tokenizers=tokenizers, tags=tags)
    store = TokenStore.open(
        folder / "store", tags=[len(each) for each in tags.values()], letters=tokenizers.source.size
    )
    symbols = Symbols(tokenizers.source.size, tokenizers.target.size, is_shared=False)
    return store, TaggingConfig(columns=COLUMNS, tags=tags, tokens_per_batch=64), symbols


def task_of(made: tuple[TokenStore, TaggingConfig, Symbols], *, seed: int = 1, **options: object) -> TaggingTask:
    store, config, symbols = made
    config = config.model_copy(update=options)
    return TaggingTask(store, store, config=config, words=symbols.target, seed=seed, device=torch.device("cpu"))


def model_of(made: tuple[TokenStore, TaggingConfig, Symbols]) -> Tagger:
    sizes = tuple(len(made[1].tags[column]) for column in COLUMNS)
    return (
        TaggerConfig(width=6, layers=1, word_width=5, filters=3, outputs=sizes).build(made[2], seed=2).double().eval()
    )


def test_losses_of_small_batches_add_up_to_that_of_one(made: tuple[TokenStore, TaggingConfig, Symbols]) -> None:
    """And are the cross-entropies of the known tags; a tag that is not known counts nothing."""
    model, totals = model_of(made), []
    for size in (64, 100_000):
        task = task_of(made, tokens_per_batch=size, word_dropout=0.0)
        losses = []
        for index in range(task.batches(0)):
            batch = task.batch(0, index)
            losses.append(task.loss(model, batch))
            assert task.count(batch) == losses[-1].count
        totals.append((sum(each.total.item() for each in losses), sum(each.count for each in losses)))
    assert totals[0][0] == pytest.approx(totals[1][0], rel=1e-12)
    store, known = made[0], int((made[0].tags >= 0).sum())
    assert totals[0][1] == totals[1][1] == known < store.tags.size
    states, packing = model(batch.given)
    tags = pack(batch.tags, packing)
    expected = sum(
        float(F.cross_entropy(output.scores(states), tags[:, place], ignore_index=-1, reduction="sum"))
        for place, output in enumerate(model.outputs)
    )
    assert totals[1][0] == pytest.approx(expected, rel=1e-12)
    assert task.validate(model)["loss"] == pytest.approx(expected / known, rel=1e-9)


def unknown_words(task: TaggingTask, epoch: int) -> dict[int, list[bool]]:
    """Whether each word of each sentence, by its line, is read as unknown."""
    found = {}
    for index in range(task.batches(epoch)):
        batch = task.batch(epoch, index)
        for row, line in enumerate(cast("list[int]", batch.lines.tolist())):
            found[line] = (batch.given.words[row, : batch.given.lengths[row]] == UNKNOWN).tolist()
    return found


def test_what_is_read_as_unknown_depends_on_seed_epoch_and_sentence_alone(
    made: tuple[TokenStore, TaggingConfig, Symbols],
) -> None:
    first = unknown_words(task_of(made, word_dropout=2.0), 0)
    assert first == unknown_words(task_of(made, word_dropout=2.0, tokens_per_batch=300), 0)
    assert first != unknown_words(task_of(made, word_dropout=2.0), 1)
    assert first != unknown_words(task_of(made, word_dropout=2.0, seed=2), 0)
    assert not any(map(any, unknown_words(task_of(made, word_dropout=0.0), 0).values()))


def test_rare_words_are_read_as_unknown_more_often(made: tuple[TokenStore, TaggingConfig, Symbols]) -> None:
    """With the probability a / (a + count)."""
    store, _, symbols = made
    task = task_of(made, word_dropout=5.0)
    drawn = [unknown_words(task, epoch) for epoch in range(60)]
    rate = np.mean([[flag for line in store.lines.tolist() for flag in epoch[line]] for epoch in drawn], axis=0)
    words = store.word_ids[store.forms]
    counts = store.word_counts(symbols.target)[words]
    for count in (int(counts.min()), int(counts.max())):
        expected = 5 / (5 + count)
        chosen = rate[counts == count]
        assert chosen.mean() == pytest.approx(expected, abs=4 * (expected / (60 * len(chosen))) ** 0.5)
