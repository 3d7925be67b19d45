"""Noise on symbol sequences: what it may change, and what it depends on."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.data.corrupt import TokenMasking, WordBorders, WordNoise, corrupt, generator_for
from seqloom.data.phrasebook import sample_sentences
from seqloom.text.tokenizer import TextConfig
from seqloom.text.tokenizer_training import train_tokenizer

BLANK = 3
EVERY_WORD = WordBorders(np.zeros(100, bool), np.zeros(100, bool), are_words=True)

rates = st.floats(0, 0.9)
noises = st.builds(WordNoise, rates, rates, st.integers(0, 5), st.just(BLANK))
sentences = st.lists(st.integers(4, 99), min_size=1, max_size=30).map(lambda ids: np.array(ids, np.int64))


@given(noises, sentences, st.integers(0, 1000))
def test_noise_only_drops_blanks_and_moves_words(noise: WordNoise, ids: np.ndarray, sample: int) -> None:
    (left,) = corrupt([ids], noise, borders=EVERY_WORD, seed=1, epoch=0, samples=[sample])
    assert 1 <= len(left) <= len(ids)
    words = Counter(left.tolist())
    words.pop(BLANK, None)
    assert words <= Counter(ids.tolist())
    if noise.drop_rate == 0:
        assert len(left) == len(ids)
    if noise.blank_rate == 0:
        assert BLANK not in left


@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 1000))
def test_no_word_moves_further_than_the_shuffle_distance(words: int, distance: int, sample: int) -> None:
    ids = np.arange(4, 4 + words)
    noise = WordNoise(0.0, 0.0, distance, BLANK)
    (left,) = corrupt([ids], noise, borders=EVERY_WORD, seed=1, epoch=0, samples=[sample])
    assert np.abs(np.argsort(left) - np.arange(words)).max() <= distance


def test_the_rates_are_those_requested_and_words_do_move() -> None:
    ids, noise = np.arange(4, 64), WordNoise(0.1, 0.2, 3, BLANK)
    left = corrupt([ids] * 200, noise, borders=EVERY_WORD, seed=1, epoch=0, samples=range(200))
    everything = np.concatenate(left)
    assert len(everything) / (200 * 60) == pytest.approx(0.9, abs=0.01)
    assert np.mean(everything == BLANK) == pytest.approx(0.2, abs=0.01)
    kept = [row[row != BLANK] for row in left]
    assert np.mean([np.mean(np.diff(row) < 0) for row in kept]) > 0.2


@given(st.lists(sentences, min_size=1, max_size=6), st.integers(0, 6))
def test_noise_depends_on_seed_epoch_and_sample_alone(rows: list[np.ndarray], cut: int) -> None:
    noise, samples = WordNoise(0.2, 0.2, 3, BLANK), list(range(10, 10 + len(rows)))

    def corrupted(some: list[np.ndarray], numbers: list[int]) -> list[list[int]]:
        found = corrupt(some, noise, borders=EVERY_WORD, seed=1, epoch=2, samples=numbers)
        return [row.tolist() for row in found]

    whole = corrupted(rows, samples)
    assert corrupted(rows[:cut], samples[:cut]) + corrupted(rows[cut:], samples[cut:]) == whole
    assert corrupted(rows[::-1], samples[::-1])[::-1] == whole


def test_another_seed_epoch_or_sample_draws_other_noise() -> None:
    keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
    assert len({generator_for(*key).random() for key in keys}) == len(keys)


@pytest.mark.parametrize("kind", ["word", "char", "bpe", "unigram"])
def test_words_are_never_cut(kind: str) -> None:
    lines = [*sample_sentences("en", count=300, seed=1), "Well, (perhaps) it's 4-5 o'clock."]
    tokenizer = train_tokenizer(lines, TextConfig.model_validate({"kind": kind, "size": 300}))
    borders, found = WordBorders.of(tokenizer), []
    for line in lines:
        ids = np.array(tokenizer.encode(line))
        words = borders.split(ids)
        assert np.concatenate(words).tolist() == ids.tolist()
        found += [tokenizer.decode(word.tolist()).strip() for word in words]
    if kind != "word":  # whose rarest words are unknown
        assert {"The", "Well", ",", "perhaps", ")", "."} <= set(found)
        assert not any(" " in word for word in found)


def test_impossible_rates_are_refused() -> None:
    with pytest.raises(ConfigError, match="drop_rate is 1; give a share"):
        WordNoise(1.0, 0.1, 3, BLANK)


# --- hidden tokens ---------------------------------------------------------------------------------------------------

MASK, SYMBOLS = 7, 40
MASKING = TokenMasking(MASK, SYMBOLS)


def within_sampling_error(found: int, draws: int, rate: float) -> bool:
    """Up to four standard deviations of a binomial count."""
    return abs(found - draws * rate) <= 4 * np.sqrt(draws * rate * (1 - rate))


@pytest.mark.parametrize("words", [3, 60])
def test_fifteen_percent_of_the_tokens_are_hidden_in_short_texts_too(words: int) -> None:
    ids, samples = np.array([BEGIN, *[20] * words, MASK, END, PAD]), 24_000 // words
    places = np.concatenate([MASKING(ids, generator_for(1, 0, sample)).places for sample in range(samples)])
    assert within_sampling_error(len(places), samples * words, 0.15)
    counts = np.bincount(places, minlength=len(ids))
    assert np.flatnonzero(counts).tolist() == list(range(1, words + 1))
    # Every token is as likely as any other.
    assert all(within_sampling_error(count, samples, 0.15) for count in counts[1 : words + 1])


def test_hidden_tokens_are_masked_replaced_or_kept_80_10_10() -> None:
    ids = np.full(100, 20)
    rows = [MASKING(ids, generator_for(2, 0, sample)) for sample in range(1000)]
    read = np.concatenate([row.read[row.places] for row in rows])
    drawn = read[(read != MASK) & (read != 20)]
    ordinary = SYMBOLS - len(RESERVED) - 1  # a random symbol may be the token itself
    assert within_sampling_error(int((read == MASK).sum()), len(read), 0.8)
    assert within_sampling_error(len(drawn), len(read), 0.1 * (ordinary - 1) / ordinary)
    counts = np.bincount(drawn, minlength=SYMBOLS)
    assert set(np.flatnonzero(counts)) == set(range(len(RESERVED), SYMBOLS)) - {MASK, 20}
    assert all(within_sampling_error(count, len(drawn), 1 / (ordinary - 1)) for count in counts[counts > 0])


@given(st.lists(st.integers(0, SYMBOLS - 1), max_size=60), st.integers(0, 1000), st.floats(0.01, 0.99))
def test_special_symbols_are_never_hidden_and_others_are_read_as_they_are(
    given_ids: list[int], sample: int, rate: float
) -> None:
    ids = np.array(given_ids, np.uint16)
    found = TokenMasking(MASK, SYMBOLS, rate=rate)(ids, generator_for(1, 0, sample))
    assert not set(ids[found.places].tolist()) & {PAD, BEGIN, END, MASK}
    changed = np.flatnonzero(found.read != ids)
    assert set(changed.tolist()) <= set(found.places.tolist())
    assert not set(found.read[changed].tolist()) & set(range(len(RESERVED)))
    again = TokenMasking(MASK, SYMBOLS, rate=rate)(ids, generator_for(1, 0, sample))
    assert again.read.tolist() == found.read.tolist()


def test_impossible_masking_is_refused() -> None:
    with pytest.raises(ConfigError, match="a share of 1 of the tokens cannot be hidden"):
        TokenMasking(MASK, SYMBOLS, rate=1.0)
    with pytest.raises(ConfigError, match=r"0\.8 are masked and 0\.3 replaced"):
        TokenMasking(MASK, SYMBOLS, random_rate=0.3)
    with pytest.raises(ConfigError, match="the mask symbol 2 is reserved"):
        TokenMasking(END, SYMBOLS)
