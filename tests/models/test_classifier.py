"""The classifier: n-grams are counted as scikit-learn counts them, padding changes nothing, every encoder learns."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.symbols import BEGIN, END, UNKNOWN
from seqloom.data.labelled import JoinedIds, frame_texts, join_texts
from seqloom.models.classifier import ClassifierConfig, TextClassifier, gram_rows
from seqloom.nn.embeddings import Symbols

SYMBOLS = Symbols(source=20, target=20, is_shared=True, pieces=("<pad>", "<s>", "</s>", "<unk>", *"abcdefghijklmnop"))
TINY = {"width": 8, "word_width": 8, "feed_forward": 8, "heads": 2, "buckets": 1 << 18, "classes": 3}
ENCODERS = ("window", "recurrent", "transformer", "none")
POOLINGS = ("max", "mean", "last", "attention")


def build(**options: object) -> TextClassifier:
    return ClassifierConfig.model_validate({**TINY, **options}).build(SYMBOLS, seed=3).double().eval()


def framed(joined: list[JoinedIds], *, extra: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Texts as a model reads them; the padding holds what would be wrong if it were read."""
    found = frame_texts([(each.ids, each.first) for each in joined])
    ids, lengths, segments = (torch.from_numpy(each) for each in found)
    ids, segments = F.pad(ids, (0, extra)), F.pad(segments, (0, extra))
    is_padding = torch.arange(ids.shape[1]) >= lengths[:, None]
    return ids.masked_fill(is_padding, 7), lengths, segments.masked_fill(is_padding, 1)


def random_texts(count: int, *, seed: int = 0, texts: int = 1) -> list[JoinedIds]:
    draw = np.random.default_rng(seed)
    lines = [[draw.integers(4, 20, draw.integers(1, 7)).tolist() for _ in range(texts)] for _ in range(count)]
    return [join_texts(each, longest=64) for each in lines]


def batches(joined: list[JoinedIds], classes: Tensor, *, at_once: int) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
    for begin in range(0, len(joined), at_once):
        yield framed(joined[begin : begin + at_once]), classes[begin : begin + at_once]


@pytest.mark.parametrize("is_binary", [True, False])
def test_counted_scores_are_those_of_a_matrix_of_counts(is_binary: bool) -> None:
    """An n-gram counts once in a text: with frequencies, the negative control, scores differ."""
    joined, classes = random_texts(40), torch.arange(40) % 3
    model = build()
    assert model.wide is not None
    model.wide.count(batches(joined, classes, at_once=7))

    lines = [" ".join(map(str, [BEGIN, *each.ids])) for each in joined]
    text = pytest.importorskip("sklearn.feature_extraction.text")
    vectorizer = text.CountVectorizer(token_pattern=r"\d+", ngram_range=(1, 2), binary=is_binary)
    matrix = vectorizer.fit_transform(lines).toarray().astype(float)
    rows = gram_rows(*framed(joined), order=2, buckets=1 << 18)[1]
    assert len(rows.unique()) == matrix.shape[1]  # no two n-grams share a row
    wanted = np.empty((40, 3))
    for number in range(3):
        of_class, of_others = (matrix[(classes == number).numpy() == known].sum(0) + 1 for known in (True, False))
        ratios = np.log(of_class / of_class.sum()) - np.log(of_others / of_others.sum())
        wanted[:, number] = 0.1 * (matrix @ ratios) + np.log(((classes == number).sum().item() + 1) / 43)
    with torch.no_grad():
        found = model.wide(*framed(joined, extra=2)).numpy()
    assert np.allclose(found, wanted, rtol=0, atol=1e-6) == is_binary


def test_an_unknown_gram_changes_nothing_and_sides_are_told_apart() -> None:
    joined = [join_texts([[5, 6, 7]], longest=64), join_texts([[8, 9]], longest=64)]
    model = build()
    assert model.wide is not None
    model.wide.count(batches(joined, torch.tensor([0, 1]), at_once=2))
    with torch.no_grad():
        known, more = (model.wide(*framed([join_texts([ids], longest=64)])) for ids in ([5, 6, 7], [5, 6, 7, 13]))
    ends = gram_rows(*framed([join_texts([[7]], longest=64)]), order=2, buckets=1 << 18)[1]
    assert not torch.allclose(known, more)  # the pair (7, END) is missing, nothing else
    model.wide.ratios[ends] = 0.0
    with torch.no_grad():
        known, more = (model.wide(*framed([join_texts([ids], longest=64)])) for ids in ([5, 6, 7], [5, 6, 7, 13]))
    torch.testing.assert_close(known, more, rtol=0, atol=1e-12)
    one, other = (framed([join_texts(pair, longest=64)]) for pair in ([[5], [6]], [[6], [5]]))
    assert set(gram_rows(*one, order=1, buckets=1 << 18)[1].tolist()) != set(
        gram_rows(*other, order=1, buckets=1 << 18)[1].tolist()
    )


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_padding_and_neighbours_change_nothing(encoder: str, pooling: str, texts: int) -> None:
    model, joined = build(encoder=encoder, pooling=pooling, texts=texts, filters=2), random_texts(5, texts=texts)
    model.count_texts(batches(joined, torch.arange(5) % 3, at_once=5))
    with torch.no_grad():
        together = model.class_scores(*framed(joined, extra=3))
        for row, each in enumerate(joined):
            torch.testing.assert_close(model.class_scores(*framed([each]))[0], together[row], rtol=0, atol=1e-9)


def test_poolings_are_what_their_formulas_say() -> None:
    ids, lengths = torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]), torch.tensor([3, 4])
    for pooling in POOLINGS:
        model = build(encoder="none", pooling=pooling, grams=0, networks=1)
        with torch.no_grad():
            found = model.sentence_vectors(ids, lengths)
            for row, length in enumerate(lengths.tolist()):
                states = model.networks[0].words(
                    torch.tensor([BEGIN, *ids[row, :length].tolist(), END])
                )  # [time, width]
                if pooling == "attention":
                    weights: Tensor = cast("Any", model.networks[0].attention)(states).softmax(0)
                    wanted = (weights * states).sum(0)
                else:
                    wanted = {"max": states.amax(0), "mean": states.mean(0), "last": states[-1]}[pooling]
                torch.testing.assert_close(found[row], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("encoder", ["window", "recurrent", "transformer"])
def test_an_encoder_learns_an_order_that_a_bag_of_words_does_not_see(encoder: str) -> None:
    """The class is whether 5 comes before 6, and nothing is counted: no n-grams."""
    texts = [join_texts([pair], longest=8) for pair in ([5, 6], [6, 5])]
    inputs, classes = framed(texts), torch.tensor([0, 1])

    def loss_after(encoder: str) -> float:
        settings = {**TINY, "encoder": encoder, "grams": 0, "classes": 2}
        settings |= {"dropout_rate": 0.0, "word_dropout_rate": 0.0, "pooled_dropout_rate": 0.0}
        model = ClassifierConfig.model_validate(settings).build(SYMBOLS, seed=1)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(60):
            loss = F.cross_entropy(model.class_scores(*inputs), classes)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return float(loss.detach())

    assert loss_after(encoder) < 0.2
    assert loss_after("none") > 0.6


def test_unknown_words_are_learned_from_words_that_are_dropped() -> None:
    """The training text has no unknown word; without dropped ones its row would stay random."""
    joined = random_texts(20)
    for rate, is_learned in ((0.3, True), (0.0, False)):
        model = build(word_dropout_rate=rate).train()
        model.networks[0](*framed(joined)).square().sum().backward()  # type: ignore[no-untyped-call]
        gradient = model.networks[0].words.weight.grad
        assert gradient is not None
        assert bool(gradient[UNKNOWN].any()) == is_learned
