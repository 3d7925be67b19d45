"""Joined sentences keep their order, and a translator learns from them."""

import pytest

from seqloom.data.phrasebook import sample_pairs
from seqloom.inspection.joined_phrases import (
    JoinedPair,
    JoinedPhrases,
    TranslatorTraining,
    join_phrases,
    train_translator,
    translate_test,
)
from seqloom.models.seq2seq import Seq2SeqConfig

SMALL = Seq2SeqConfig(
    cell="gru", width=16, embedding_width=16, encoder_layers=1, decoder_layers=1, dropout_rate=0.0, tying="output"
)


def test_test_pairs_are_sentences_of_the_test_split_in_a_row() -> None:
    phrases = join_phrases(train=30, test=9, longest=3, seed=4)
    others = sample_pairs("en", "de", count=9, seed=4, split="test")
    assert len(phrases.test) == 9
    for number, pair in enumerate(phrases.test):
        left, sentences = pair, 0
        while left.source:
            first = next(one for one in others if left.source[: len(one.source_tokens)] == one.source_tokens)
            assert left.target[: len(first.target_tokens)] == first.target_tokens
            left = JoinedPair(left.source[len(first.source_tokens) :], left.target[len(first.target_tokens) :])
            sentences += 1
        assert sentences == 1 + number % 3
    assert phrases.symbols.source == 4 + len({word for pair in phrases.train for word in pair.source_tokens})


@pytest.mark.parametrize("attention", ["bilinear", "none"])
def test_a_translator_learns_a_handful_of_sentences_by_heart(attention: str) -> None:
    whole = join_phrases(train=4, test=1, longest=1, seed=1)
    test = [JoinedPair(pair.source_tokens, pair.target_tokens) for pair in whole.train]
    phrases = JoinedPhrases(whole.train, test, whole.source_words, whole.target_words, longest=1)
    config = SMALL.model_copy(update={"attention": attention})
    training = TranslatorTraining(pairs=8, updates=120, learning_rate=0.02)
    model = train_translator(config, phrases, training=training, seed=1)
    assert translate_test(model, phrases, at_once=3) == [" ".join(pair.target) for pair in test]
