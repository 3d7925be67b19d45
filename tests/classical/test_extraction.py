"""Choosing sentences: the minimum of the loss, planted cues, and the number of sentences."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from seqloom.classical.extraction import (
    NUMBERS,
    ExtractionConfig,
    RatedDocument,
    best_places,
    describe_sentences,
    rarities,
    words_of,
)
from seqloom.core.errors import DataError, ModelError
from seqloom.metrics.rouge import Rouge, words_for

WORDS = [f"w{number}" for number in range(60)]


def made(count: int, *, planted: int = 1, seed: int = 1) -> tuple[list[RatedDocument], Callable[[int, str], float]]:
    """Documents of random words, of which `planted` sentences begin with "we show" and are the summary."""
    draw = random.Random(seed)
    sentences, summaries = [], []
    for _ in range(count):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(5, 9))) for _ in range(draw.randint(4, 7))]
        places = sorted(draw.sample(range(len(lines)), planted))
        for place in places:
            lines[place] = f"We show {lines[place]}"
        sentences.append(lines)
        summaries.append(" ".join(lines[place] for place in places))
    rouge = Rouge("1", words_for(summaries))

    def rate(number: int, text: str) -> float:
        return rouge.f_score(text, summaries[number])

    rated = [RatedDocument(lines, [rate(number, line) for line in lines]) for number, lines in enumerate(sentences)]
    return rated, rate


def softmax(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    shares = np.exp(np.asarray(scores) - np.max(scores))
    return np.asarray(shares / shares.sum())


def test_a_planted_cue_is_found_and_the_loss_is_at_its_minimum() -> None:
    documents, rate = made(80)
    config = ExtractionConfig(signs=1 << 10, penalty=0.1)
    model = config.fit_documents(documents, rate)
    unseen, _ = made(40, seed=2)
    right = [int(np.argmax(each.ratings)) for each in unseen]
    assert model.count == 1
    assert [model.choose(each.sentences) for each in unseen] == [[place] for place in right]
    # Σ_i (P(i) − q(i)) ∂score(i) + 2 penalty × weight = 0, with the scores of the model as it is used.
    by_signs, by_numbers = np.zeros(config.signs), np.zeros(2 * NUMBERS)
    for each in documents:
        gap = softmax(model.scores(each.sentences)) - softmax(np.array(each.ratings) / config.temperature)
        found = describe_sentences(each.sentences, rarities(model.frequencies, model.documents))
        scaled = (found.numbers - model.mean) / model.deviation
        by_numbers += gap @ np.concatenate([scaled, scaled**2], axis=1)
        for share, signs in zip(gap, found.signs, strict=True):
            by_signs[signs] += share / np.sqrt(len(signs))
    by_signs, by_numbers = by_signs / len(documents), by_numbers / len(documents)
    np.testing.assert_allclose(by_signs, -2 * config.penalty * model.weights, atol=2e-5)
    np.testing.assert_allclose(by_numbers, -2 * config.penalty / 10 * model.slopes, atol=2e-5)
    assert np.abs(by_signs).max() > 1e-3  # so that the tolerance means something


def test_the_number_of_sentences_is_that_of_the_best_summaries_unless_it_is_given() -> None:
    documents, rate = made(80, planted=2)
    model = ExtractionConfig(signs=1 << 10).fit_documents(documents, rate)
    assert model.count == 2
    unseen, _ = made(20, planted=2, seed=2)
    right = [[at for at, line in enumerate(each.sentences) if line.startswith("We")] for each in unseen]
    assert [model.choose(each.sentences) for each in unseen] == right
    assert ExtractionConfig(signs=1 << 10, sentences=3).fit_documents(documents, rate).count == 3


def test_saved_arrays_give_the_same_scores_and_others_are_refused() -> None:
    documents, rate = made(12)
    config = ExtractionConfig(signs=1 << 9)
    model = config.fit_documents(documents, rate)
    again = config.restore_documents(model.arrays())
    assert again.count == model.count
    np.testing.assert_array_equal(again.scores(["One.", "Two two."]), model.scores(["One.", "Two two."]))
    for name, bad in (("weights", np.zeros(3)), ("slopes", np.full(2 * NUMBERS, np.nan)), ("counts", np.array([5, 0]))):
        with pytest.raises(ModelError):
            config.restore_documents({**model.arrays(), name: bad})


def test_too_few_documents_are_refused_with_their_number() -> None:
    documents, rate = made(12)
    alone = [RatedDocument(each.sentences[:1], each.ratings[:1]) for each in documents[:4]]
    with pytest.raises(DataError, match="8 of 12 documents have more than one sentence, and at least 10"):
        ExtractionConfig().fit_documents([*alone, *documents[4:]], rate)


def test_words_are_lowercase_and_characters_without_spaces_are_words() -> None:
    assert words_of("We show: It's 3-D.") == ["we", "show", "it", "s", "3", "d"]
    assert words_of("天气 ok") == ["天", "气", "ok"]
    assert best_places(np.array([1.0, 2.0, 2.0]), 1) == [1]
    assert best_places(np.array([3.0, 1.0, 2.0]), 2) == [0, 2]
