"""Noise on symbol sequences: what it may change, and what it depends on."""

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.data.corrupt import (
    BartNoise,
    HiddenWords,
    SpanCorruption,
    TokenMasking,
    WordBorders,
    WordNoise,
    corrupt,
    generator_for,
    permute_sentences,
)
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


# --- noise for encoder-decoder models ---------------------------------------------------------------------------------

SENTINELS = tuple(range(200, 300))
texts = st.lists(st.integers(4, 99), max_size=80).map(lambda ids: np.array(ids, np.int64))


def put_back(read: np.ndarray, hidden: list[list[int]], symbols: tuple[int, ...]) -> list[int]:
    """A text with what is hidden in place of the symbols, from left to right."""
    spans = iter(hidden)
    return [token for symbol in read.tolist() for token in (next(spans) if symbol in symbols else [symbol])]


@given(texts, st.integers(0, 1000), st.floats(0.01, 0.99), st.floats(1, 10))
def test_the_spans_of_the_target_put_back_give_the_text(ids: np.ndarray, sample: int, rate: float, mean: float) -> None:
    noisy = SpanCorruption(SENTINELS, rate=rate, mean_span=mean)(ids, generator_for(1, 0, sample))
    borders = np.flatnonzero(noisy.target >= SENTINELS[0])
    hidden = [part.tolist() for part in np.split(noisy.target, borders)[1:]]
    assert [part[0] for part in hidden] == list(SENTINELS[: len(hidden)])
    assert [symbol for symbol in noisy.read.tolist() if symbol in SENTINELS] == list(SENTINELS[: len(hidden)])
    assert put_back(noisy.read, [part[1:] for part in hidden], SENTINELS) == ids.tolist()
    # One sentinel never follows another: spans do not touch, and none is empty.
    assert all(len(part) > 1 for part in hidden)
    assert not np.any((noisy.read[:-1] >= SENTINELS[0]) & (noisy.read[1:] >= SENTINELS[0]))
    assert len(noisy.target) - len(hidden) == (min(max(round(rate * len(ids)), 1), len(ids) - 1) if len(ids) > 1 else 0)


def t5_mask(length: int, hidden: int, spans: int, generator: np.random.Generator) -> tuple[bool, ...]:
    """`random_spans_noise_mask` of T5, as its authors wrote it: segments by shuffled borders, kept ones first."""

    def segments(items: int) -> np.ndarray:
        is_first = np.concatenate([[True], generator.permutation(np.arange(items - 1) < spans - 1)])
        return np.bincount(np.cumsum(is_first) - 1)

    lengths = np.stack([segments(length - hidden), segments(hidden)], axis=1).reshape(-1)
    return tuple((np.repeat(np.arange(2 * spans), lengths) % 2 == 1).tolist())


def test_spans_are_drawn_as_those_of_t5_but_anywhere() -> None:
    """Of all ways to hide 4 of 10 tokens in 2 spans, each comes equally often: those that T5 has, and their kin."""
    noise, draws = SpanCorruption(SENTINELS, rate=0.4, mean_span=2.0), 6000
    every = {
        mask
        for mask in product([False, True], repeat=10)
        if sum(mask) == 4 and sum(b and not a for a, b in pairwise([False, *mask])) == 2
    }
    counts: Counter[tuple[bool, ...]] = Counter()
    for sample in range(draws):
        places = noise.spans(10, generator_for(3, 0, sample)).places
        counts[tuple(np.isin(np.arange(10), places).tolist())] += 1
    assert counts.keys() == every
    assert all(within_sampling_error(count, draws, 1 / len(every)) for count in counts.values())
    generator = np.random.default_rng(1)
    theirs = Counter(t5_mask(10, 4, 2, generator) for _ in range(2000))
    ours = {mask: count for mask, count in counts.items() if not mask[0] and mask[-1]}
    assert ours.keys() == theirs.keys()
    assert all(within_sampling_error(count, 2000, 1 / len(ours)) for count in theirs.values())
    # 15 % in spans of 3, as in the paper: 512 tokens have 77 hidden ones in 26 spans.
    spans = SpanCorruption(SENTINELS).spans(512, generator_for(3, 0, 0))
    assert (int(spans.lengths.sum()), len(spans.lengths)) == (77, 26)
    with pytest.raises(ConfigError, match="512 tokens have 26 spans, but there are 2 sentinels"):
        SpanCorruption((7, 8))(np.full(512, 9), generator_for(3, 0, 0))


@given(texts, st.integers(0, 1000), st.floats(0.01, 0.99), st.floats(0.5, 8))
def test_infilled_spans_put_back_give_the_text(ids: np.ndarray, sample: int, rate: float, mean: float) -> None:
    noise = BartNoise(SENTINELS[0], rate=rate, mean_span=mean)
    spans = noise.spans(len(ids), generator_for(1, 0, sample))
    read = spans.hide(ids, noise.mask)
    hidden = [ids[begin : begin + length].tolist() for begin, length in zip(spans.begins, spans.lengths, strict=True)]
    assert put_back(read, hidden, SENTINELS[:1]) == ids.tolist()
    assert int(rate * len(ids)) <= spans.lengths.sum() <= rate * len(ids) + 1
    noisy = noise(ids, generator_for(1, 0, sample))
    assert noisy.target.tolist() == noise(ids, generator_for(1, 0, sample)).target.tolist() == ids.tolist()
    assert np.array_equal(noisy.read, read)  # a text of one sentence has nothing to permute


def test_thirty_percent_are_hidden_in_spans_of_poisson_lengths_anywhere() -> None:
    noise, tokens, samples = BartNoise(MASK), 50, 800
    spans = [noise.spans(tokens, generator_for(4, 0, sample)) for sample in range(samples)]
    assert all(each.lengths.sum() == 15 for each in spans)
    first = np.array([each.lengths[0] for each in spans])  # others may be cut
    for length in range(7):
        assert within_sampling_error(
            int((first == length).sum()), samples, np.exp(-3) * 3**length / math.factorial(length)
        )
    # Where all orders of spans and kept tokens are equally likely, so many begin, or end, with a span.
    shares = np.array([len(each.lengths) / (len(each.lengths) + 35) for each in spans])
    begun = sum(int(each.begins[0] == 0) for each in spans)
    ended = sum(int(each.begins[-1] + each.lengths[-1] == tokens) for each in spans)
    assert all(abs(count - shares.sum()) <= 4 * np.sqrt((shares * (1 - shares)).sum()) for count in (begun, ended))


def test_single_tokens_are_deleted_or_masked_at_their_rates() -> None:
    ids, noise = np.arange(1000, 2000), BartNoise(MASK, rate=0.01, mean_span=1.0, deletion_rate=0.2, mask_rate=0.1)
    rows = [noise(ids, generator_for(5, 0, sample)).read for sample in range(20)]
    masks, lost = sum(int((row == MASK).sum()) for row in rows), 20_000 - sum(int((row != MASK).sum()) for row in rows)
    assert masks / 20_000 == pytest.approx(0.11, abs=0.015)
    assert lost / 20_000 == pytest.approx(0.31, abs=0.015)


@given(st.lists(st.lists(st.integers(4, 99), max_size=5), min_size=1, max_size=6), st.booleans(), st.integers(0, 1000))
def test_sentences_are_permuted_whole(sentences: list[list[int]], is_ended: bool, sample: int) -> None:
    flat = [token for sentence in sentences for token in (*sentence, END)]
    ids = np.array(flat if is_ended else flat[:-1], np.int64)
    permuted = permute_sentences(ids, generator_for(1, 0, sample)).tolist()
    if not is_ended:
        permuted.append(END)
    found = [tuple(part) for part in np.split(permuted, np.flatnonzero(np.array(permuted) == END) + 1)[:-1]]
    assert Counter(found) == Counter((*sentence, END) for sentence in sentences)


def test_every_order_of_sentences_comes() -> None:
    ids = np.array([10, END, 11, END, 12], np.int64)
    orders = Counter(tuple(permute_sentences(ids, generator_for(6, 0, at)).tolist()[::2]) for at in range(600))
    assert len(orders) == 6
    assert all(within_sampling_error(count, 600, 1 / 6) for count in orders.values())


@given(st.integers(0, 1000), st.floats(0.01, 0.99))
def test_hidden_words_of_question_and_answer_put_back_give_the_text(sample: int, rate: float) -> None:
    question, answer = ["▁Who", "▁wrote", "▁Fa", "ust", "?"], ["▁Goe", "the", "▁wrote", "▁it", "."]
    pieces = [*RESERVED, *question, *answer]
    borders = WordBorders(
        np.array([piece.startswith("▁") for piece in pieces]),
        np.array([not any(map(str.isalnum, piece)) for piece in pieces]),
        are_words=False,
    )
    ids = np.array([4, 5, 6, 7, 8, END, 9, 10, 11, 12, 13])
    noisy = HiddenWords(99, borders, rate=rate)(ids, generator_for(1, 0, sample))
    masks = np.flatnonzero(noisy.read == 99)
    assert len(noisy.read) == len(ids)
    assert put_back(noisy.read, [[token] for token in noisy.target.tolist()], (99,)) == ids.tolist()
    assert any(masks < 5)
    assert any(masks > 5)
    assert (2 in masks) == (3 in masks)  # a word is hidden as a whole
    assert (6 in masks) == (7 in masks)
