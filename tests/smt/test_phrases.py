"""Phrase-based translation and the noisy channel, on the phrasebook: they translate, and every part adds up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, permutations

import numpy as np
import pytest

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.events import Event
from seqloom.core.symbols import END, UNKNOWN
from seqloom.data.phrasebook import sample_pairs
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.channel import START as CHANNEL_START
from seqloom.smt.channel import Channel, ChannelConfig, ChannelModel
from seqloom.smt.pairs import EncodedPairs, SourceSentence
from seqloom.smt.phrases import FEATURES, PhraseModel, PhrasesConfig
from seqloom.smt.tuning import corpus_bleu
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers, word_cutter
from seqloom.text.tokenizer_training import train_tokenizer

Fitted = PhraseModel | ChannelModel
WORDS = TextConfig(kind="word", size=10_000, shared=False)


def read(tokenizer: Tokenizer, lines: Sequence[str]) -> list[SourceSentence]:
    cut = word_cutter("words")
    return [SourceSentence(tokenizer.encode(line), cut(tokenizer.normaliser(line))) for line in lines]


@cache
def phrasebook() -> EncodedPairs:
    train = sample_pairs("en", "de", count=800, seed=3)
    dev = sample_pairs("en", "de", count=40, seed=3, split="dev")
    tokenizers = Tokenizers(
        train_tokenizer([pair.source for pair in train], WORDS), train_tokenizer([pair.target for pair in train], WORDS)
    )
    texts = [
        Bitext.from_sentences(
            [tokenizers.source.encode(pair.source) for pair in pairs],
            [tokenizers.target.encode(pair.target) for pair in pairs],
        )
        for pairs in (train, dev)
    ]
    sources, references = [pair.source for pair in dev], [pair.target for pair in dev]
    return EncodedPairs(texts[0], texts[1], tokenizers, read(tokenizers.source, sources), references)


@cache
def phrases() -> PhraseModel:
    return PhrasesConfig(tuning={"rounds": 2, "nbest": 10}).fit_pairs(phrasebook(), seed=1)


@cache
def channel() -> ChannelModel:
    return ChannelConfig(tuning={"rounds": 2, "nbest": 10}).fit_pairs(phrasebook(), seed=1)


BOTH = pytest.mark.parametrize("fit", [phrases, channel])


def bleu(model: Fitted) -> float:
    pairs = phrasebook()
    found = model.search(pairs.dev_sentences, SearchConfig(beam=20))
    references = [pairs.tokenizers.target.encode(line) for line in pairs.dev_references]
    return corpus_bleu([each[0].symbols for each in found], [np.array(line, np.int32) for line in references])


def test_phrases_translate_better_than_words() -> None:
    assert bleu(phrases()) > bleu(channel()) + 5
    assert bleu(channel()) > 20


def test_the_language_model_is_needed() -> None:
    model = phrases()
    weights = model.weights.copy()
    weights[FEATURES.index("language_model")] = 0
    without = replace(model, weights=weights)
    assert bleu(without) < bleu(model) - 5


@BOTH
def test_terms_and_shares_add_up(fit: Callable[[], Fitted]) -> None:
    for found in fit().search(phrasebook().dev_sentences[:8], SearchConfig(beam=20, nbest=3)):
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert len({each.symbols for each in found}) == len(found)
        for each in found:
            assert math.fsum(each.terms.values()) == pytest.approx(each.score, abs=1e-9)
            assert math.fsum(each.token_log_probs) == pytest.approx(each.score, abs=1e-9)
            assert len(each.token_log_probs) == len(each.symbols) + 1
            assert each.attention is not None
            assert each.attention.shape[0] == len(each.symbols) + 1


@BOTH
def test_outputs_have_the_score_that_scoring_gives_them(fit: Callable[[], Fitted]) -> None:
    model, sentences = fit(), phrasebook().dev_sentences[:8]
    found = [each[0] for each in model.search(sentences, SearchConfig(beam=50))]
    scores = model.score(sentences, [each.symbols for each in found])
    for each, score in zip(found, scores, strict=True):
        assert score >= each.score - 1e-9  # a better derivation may have been pruned
    assert scores == pytest.approx([each.score for each in found], abs=1e-6)


def test_a_translation_without_derivation_is_impossible() -> None:
    target = phrasebook().tokenizers.target.encode("Guten Tag")
    assert phrases().score(phrasebook().dev_sentences[:1], [target * 9]) == [-math.inf]


@BOTH
def test_threads_and_neighbours_change_nothing(fit: Callable[[], Fitted]) -> None:
    model, sentences, settings = fit(), phrasebook().dev_sentences[:4], SearchConfig(beam=10, nbest=3)
    expected: list[list[Hypothesis]] = [model.search([each], settings)[0] for each in sentences]
    assert model.search(sentences, settings, threads=3) == expected
    some = model.search(sentences, settings, is_cancelled=lambda at: at == 2)
    assert [len(each) for each in some] == [0 if at == 2 else len(each) for at, each in enumerate(expected)]


@BOTH
def test_unknown_words_are_copied_and_capitals_restored(fit: Callable[[], Fitted]) -> None:
    pairs, model = phrasebook(), fit()
    (sentence,) = read(pairs.tokenizers.source, ["The dog sees the qwertz."])
    best = model.search([sentence], SearchConfig(beam=20))[0][0]
    place = best.symbols.index(UNKNOWN)
    assert best.attention is not None
    assert best.attention[place].argmax() == 4
    first = pairs.tokenizers.target.vocabulary[best.symbols[0]]
    assert first[0].isupper()


def test_words_with_a_known_stem_are_translated() -> None:
    pairs, model = phrasebook(), phrases()
    (sentence,) = read(pairs.tokenizers.source, ["The dog sees the farmerss."])
    assert UNKNOWN in sentence.ids
    assert UNKNOWN not in model.search([sentence], SearchConfig(beam=20))[0][0].symbols
    copying = replace(model, config=PhrasesConfig(split_unknown=False))
    assert UNKNOWN in copying.search([sentence], SearchConfig(beam=20))[0][0].symbols


def test_the_channel_translates_stems_and_gives_marks_for_marks() -> None:
    pairs, model = phrasebook(), channel()
    (sentence,) = read(pairs.tokenizers.source, ["The dog sees the farmerss."])
    assert UNKNOWN not in model.search([sentence], SearchConfig(beam=20))[0][0].symbols
    target = pairs.tokenizers.target
    pieces = [target.vocabulary[number] for number, _ in model.channel.options(sentence.ids[-1])]
    assert pieces
    assert not any(character.isalnum() for piece in pieces for character in piece)


def test_the_score_of_the_channel_is_that_of_its_best_links() -> None:
    """Every way to link the words is tried: the formula of the module, without the decoder."""
    model = replace(channel(), config=ChannelConfig(options=2, added=1))
    parts, casing = model.channel, model.target_casing
    model = replace(model, channel=_best_two(parts))
    language, distortion, _, words, dropped, added = model.weights.tolist()
    known = [each for each in phrasebook().dev_sentences if UNKNOWN not in each.ids]
    sentence = min(known, key=lambda each: len(each.ids))
    source = model.source_casing.fold_sentence(sentence.ids, sentence.words).tolist()
    for found in model.search([sentence], SearchConfig(beam=200, nbest=5))[0]:
        output = casing.fold(np.array(found.symbols, np.int32), np.array([0, len(found.symbols)])).tolist()
        best = -math.inf
        for order in permutations(range(len(source))):
            jumps = sum(abs(place - before - 1) for before, place in pairwise((-1, *order)))
            ways: dict[tuple[int, ...], float] = {(): 0.0}  # what was translated, by the target words so far
            for place in order:
                after: dict[tuple[int, ...], float] = {}
                null = math.log(0.1) + math.log(model.channel.null[source[place]]) + dropped
                choices: list[tuple[tuple[int, ...], float]] = [((), null)]
                for target, value in model.channel.options(source[place]):
                    linked, empty = _linked(parts, target), 1 - _linked(parts, model.added[0])
                    own = math.log(0.9) + math.log(value) + math.log(linked) + words
                    choices.append(((target,), own))
                    if target in model.is_word:
                        choices.append(((model.added[0], target), own + math.log(empty) + words + added))
                for begin, score in ways.items():
                    for more, value in choices:
                        key = (*begin, *more)
                        if list(key) == output[: len(key)]:
                            after[key] = max(after.get(key, -math.inf), score + value)
                ways = after
            best = max(best, ways.get(tuple(output), -math.inf) - distortion * jumps)
        fluency = model.language_model.log_probs(np.array([*output, END])).sum()
        assert found.score == pytest.approx(best + language * fluency, abs=1e-9)


def _linked(parts: Channel, target: int) -> float:
    return float((parts.seen[target] - parts.unlinked[target] + 1) / (parts.seen[target] + 2))


def _best_two(parts: Channel) -> Channel:
    """The table with two translations of each word."""
    sizes = np.diff(parts.starts)
    rank = np.arange(len(parts.targets)) - np.repeat(parts.starts[:-1], sizes)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(sizes, 2))])
    return parts._replace(starts=starts, targets=parts.targets[rank < 2], probabilities=parts.probabilities[rank < 2])


def test_given_weights_of_the_channel_are_kept() -> None:
    config = ChannelConfig(weights={"language_model": 0.7}, tuning={"rounds": 2, "nbest": 10, "sentences": 10})
    weights = dict(zip(CHANNEL_START, config.fit_pairs(phrasebook(), seed=1).weights.tolist(), strict=True))
    assert weights["language_model"] == pytest.approx(0.7)
    assert weights["channel"] == 1
    assert weights["words"] != CHANNEL_START["words"]
    with pytest.raises(ConfigError, match="unknown feature 'channel'; the features are language_model, "):
        ChannelConfig(weights={"channel": 2.0})


@BOTH
def test_a_stored_model_gives_the_same(fit: Callable[[], Fitted]) -> None:
    model, pairs = fit(), phrasebook()
    arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays().items()}
    again = model.config.restore_pairs(arrays, pairs.tokenizers)
    settings = SearchConfig(beam=10)
    assert again.search(pairs.dev_sentences[:5], settings) == model.search(pairs.dev_sentences[:5], settings)
    assert "N-grams" in model.config.describe(arrays)
    for name in arrays:
        with pytest.raises(ModelError):
            model.config.restore_pairs({key: array for key, array in arrays.items() if key != name}, pairs.tokenizers)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("channel.targets", 3, 10**6, "words from"),
        ("channel.starts", -1, 5, "rows do not fit"),
        ("channel.probabilities", 0, 2.0, "out of range"),
        ("channel.null", 0, 0.0, "out of range"),
        ("channel.unlinked", 0, -1, "out of range"),
        ("weights", 0, math.nan, "the weights are damaged"),
    ],
)
def test_a_damaged_channel_is_refused(name: str, place: int, value: float, message: str) -> None:
    arrays = {key: array.copy() for key, array in channel().arrays().items()}
    arrays[name][place] = value
    with pytest.raises(ModelError, match=message):
        channel().config.restore_pairs(arrays, phrasebook().tokenizers)


def test_tuning_is_repeatable_and_reported() -> None:
    events: list[Event] = []
    pairs = phrasebook()
    again = PhrasesConfig(tuning={"rounds": 2, "nbest": 10}).fit_pairs(pairs, seed=1, listener=events.append)
    np.testing.assert_array_equal(again.weights, phrases().weights)
    rounds = [event["bleu"] for event in events if event.kind == "tuning"]
    assert 1 <= len(rounds) <= 2
    assert any("weights tuned on 40 dev pairs" in event["message"] for event in events if event.kind == "notice")


def test_given_weights_are_kept() -> None:
    config = PhrasesConfig(weights={"language_model": 0.0}, tuning={"rounds": 2, "nbest": 10, "sentences": 10})
    model = config.fit_pairs(phrasebook(), seed=1)
    assert model.weights[FEATURES.index("language_model")] == 0
    with pytest.raises(ConfigError, match="unknown feature 'lm'; the features are language_model, "):
        PhrasesConfig(weights={"lm": 1.0})
