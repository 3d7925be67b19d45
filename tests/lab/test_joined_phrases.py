"""Joined sentences keep their order, and a translator learns from them."""

import pytest

from seqloom.data.phrasebook import sample_pairs
from seqloom.lab.bottleneck import (
    JoinedPair,
    JoinedPhrases,
    TranslatorTraining,
    as_text,
    join_phrases,
    train_translator,
    translate_test,
)
from seqloom.models.seq2seq import Seq2SeqConfig

SMALL = Seq2SeqConfig(
    cell="gru", width=16, embedding_width=16, encoder_layers=1, decoder_layers=1, dropout_rate=0.0, tying="output"
)


def test_test_pairs_are_known_sentences_in_a_row() -> None:
    phrases = join_phrases(sentences=9, test=9, longest=3, seed=4)
    assert phrases.sentences == sample_pairs("en", "de", count=9, seed=4)
    for number, pair in enumerate(phrases.test):
        left, count = pair, 0
        while left.source:
            first = next(one for one in phrases.sentences if left.source[: len(one.source_tokens)] == one.source_tokens)
            assert left.target[: len(first.target_tokens)] == first.target_tokens
            left = JoinedPair(left.source[len(first.source_tokens) :], left.target[len(first.target_tokens) :])
            count += 1
        assert count == 1 + number % 3
        assert not left.target
    assert phrases.symbols.source == 4 + len({word for pair in phrases.sentences for word in pair.source_tokens})


@pytest.mark.parametrize("attention", ["bilinear", pytest.param("none", marks=pytest.mark.slow)])
def test_a_translator_learns_a_handful_of_sentences_by_heart(attention: str) -> None:
    whole = join_phrases(sentences=4, test=1, longest=1, seed=1)
    test = [JoinedPair(pair.source_tokens, pair.target_tokens) for pair in whole.sentences]
    phrases = JoinedPhrases(whole.sentences, test, whole.source_words, whole.target_words, longest=1)
    config = SMALL.model_copy(update={"attention": attention})
    training = TranslatorTraining(pairs=8, updates=120, learning_rate=0.02)
    model = train_translator(config, phrases, training=training, seed=1)
    assert translate_test(model, phrases, at_once=3) == [as_text(pair.target) for pair in test]


def test_text_has_no_space_before_marks() -> None:
    assert as_text(["we", "see", "it", ",", "do", "n't", "we", "?"]) == "we see it, do n't we?"
    assert as_text(["at", ".5", "."]) == "at .5."
    assert as_text([]) == ""
