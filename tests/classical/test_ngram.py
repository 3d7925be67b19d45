"""N-gram models: counting, the three smoothings, questions, and what is refused."""

import errno
import itertools
import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import nasty
from classical.ngram_twin import KneserNeyTwin, encoded, sentences_of
from seqloom.classical.ngram import NGramConfig, encode_lines
from seqloom.classical.ngram_counts import Grams, count_ngrams
from seqloom.core.errors import ConfigError, DataError, SeqloomError, UsageError
from seqloom.core.events import Event
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.reference.kneser_ney import count_grams
from seqloom.text.tokenizer import EncodedText

Smoothing = Literal["mle", "laplace", "kneser_ney"]
SMOOTHINGS: tuple[Smoothing, ...] = ("mle", "laplace", "kneser_ney")

lines_of_words = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=7).map(" ".join), min_size=1)


def zipfian(sentences: int, *, words: int = 40, seed: int = 0) -> EncodedText:
    """Random sentences in which rare words follow frequent ones by habit, so that all counts of counts are there."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, words + 1)
    lines = []
    for _ in range(sentences):
        line = [int(generator.choice(words, p=weights / weights.sum()))]
        while generator.random() < 0.9 and len(line) < 12:
            habit = generator.random() < 0.6
            line.append(
                (3 * line[-1] + 1) % words if habit else int(generator.choice(words, p=weights / weights.sum()))
            )
        lines.append(" ".join(f"w{word}" for word in line))
    return encoded(lines, symbols=["never"])


TEXT = zipfian(400)
HELD_OUT = np.concatenate([zipfian(60, seed=1).ids, [UNKNOWN, 5, UNKNOWN, END, END]]).astype(np.int32)


def as_dictionary(levels: Sequence[Grams]) -> dict[tuple[int, ...], int]:
    """The counts of all n-grams that occur."""
    found: dict[tuple[int, ...], int] = {}
    shorter: list[tuple[int, ...]] = [()]
    for grams in levels:
        names = [
            (*shorter[context], word)
            for context, word in zip(grams.contexts.tolist(), grams.words.tolist(), strict=True)
        ]
        found |= {name: count for name, count in zip(names, grams.counts.tolist(), strict=True) if count}
        shorter = names
    return found


# --- counting --------------------------------------------------------------------------------------------------------


@given(lines_of_words, st.integers(1, 5))
def test_counts_are_those_of_a_plain_loop(lines: list[str], order: int) -> None:
    text = encoded(lines)
    expected = {
        gram: n for length in range(1, order + 1) for gram, n in count_grams(sentences_of(text.ids), length).items()
    }
    assert as_dictionary(count_ngrams(text.ids, order, symbols=text.symbols)) == expected


def test_suffixes_name_the_ngram_without_its_first_word() -> None:
    levels = count_ngrams(TEXT.ids, 3, symbols=TEXT.symbols)
    for shorter, longer in itertools.pairwise(levels[1:]):
        np.testing.assert_array_equal(shorter.words[longer.suffixes], longer.words)
        middle = shorter.words[longer.contexts]
        np.testing.assert_array_equal(shorter.contexts[longer.suffixes], middle)


@pytest.mark.parametrize("memory", [1, pytest.param(64 * 7, marks=pytest.mark.slow), 64 * 500])
def test_runs_on_the_disk_change_no_bit(memory: int) -> None:
    whole = count_ngrams(TEXT.ids, 4, symbols=TEXT.symbols)
    ids = TEXT.ids if memory > 1 else TEXT.ids[: int(np.flatnonzero(TEXT.ids == END)[20]) + 1]
    whole = whole if memory > 1 else count_ngrams(ids, 4, symbols=TEXT.symbols)
    in_runs = count_ngrams(ids, 4, symbols=TEXT.symbols, memory=memory)
    for one, other in zip(whole, in_runs, strict=True):
        for name in ("contexts", "words", "suffixes", "counts"):
            left, right = getattr(one, name), getattr(other, name)
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes(), name


def test_a_disk_without_room_for_runs_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", is_full)
    with pytest.raises(SeqloomError, match=r"needs [\d,]+ more bytes in .*\(No space left on device\).*model\.memory"):
        count_ngrams(TEXT.ids, 2, symbols=TEXT.symbols, memory=64 * 500)


@pytest.mark.parametrize("discounts", [(-0.1, 1.0, 1.0), (1.1, 1.0, 1.0), (0.5, 2.5, 1.0), (0.5, 1.0, 3.5)])
def test_discounts_outside_their_counts_are_refused(discounts: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match="take more than was counted, or less than nothing"):
        NGramConfig(discount_fallback=discounts)


# --- smoothing -------------------------------------------------------------------------------------------------------


def test_the_four_lines_of_the_notes_give_two_thirds_and_one_third() -> None:
    text = encoded([" ".join(line) for line in ("我是人", "你很强", "我爆零了", "我是吊打")])
    model = NGramConfig(order=2, smoothing="mle").fit(text)
    numbers = {word: number for number, word in enumerate(text.vocabulary)}
    after = model.distribution([[numbers["我"]]])[0]
    shares = {text.vocabulary[id]: Fraction(after[id]).limit_denominator(100) for id in np.flatnonzero(after)}
    assert shares == {"是": Fraction(2, 3), "爆": Fraction(1, 3)}


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_kneser_ney_equals_the_readable_edition(order: int) -> None:
    model = NGramConfig(order=order).fit(TEXT)
    np.testing.assert_allclose(model.log_probs(HELD_OUT), KneserNeyTwin(TEXT, order).log_probs(HELD_OUT), atol=2e-6)


def test_the_twin_tells_continuations_from_plain_counts() -> None:
    """Negative control: absolute discounting without them is another model."""
    wrong = KneserNeyTwin(TEXT, 3, has_continuations=False).log_probs(HELD_OUT)
    assert np.abs(NGramConfig(order=3).fit(TEXT).log_probs(HELD_OUT) - wrong).max() > 0.1


@pytest.mark.parametrize("prune", [(0, 0, 1), (0, 1, 1, 2), (0, 3)])
def test_pruned_kneser_ney_equals_the_readable_edition_and_is_smaller(prune: tuple[int, ...]) -> None:
    model = NGramConfig(order=4, prune=prune).fit(TEXT)
    twin = KneserNeyTwin(TEXT, 4, prune=prune)
    np.testing.assert_allclose(model.log_probs(HELD_OUT), twin.log_probs(HELD_OUT), atol=2e-6)
    kept = [sum(count > twin.prune[length - 1] for count in twin.counts[length].values()) for length in range(2, 5)]
    assert model.sizes()[1:] == kept
    assert kept[2] < len(twin.counts[4])


def test_laplace_equals_its_formula() -> None:
    model, alpha = NGramConfig(order=3, smoothing="laplace", alpha=0.5).fit(TEXT), 0.5
    grams = {length: count_grams(sentences_of(TEXT.ids), length) for length in (1, 2, 3)}
    outcomes = TEXT.symbols - 2
    expected = []
    for sentence in sentences_of(HELD_OUT):
        for place in range(1, len(sentence)):
            context = sentence[max(0, place - 2) : place]
            total = sum(n for gram, n in grams[len(context) + 1].items() if gram[:-1] == context)
            count = grams[len(context) + 1][(*context, sentence[place])]
            expected.append(np.log((count + alpha) / (total + alpha * outcomes)))
    np.testing.assert_allclose(model.log_probs(HELD_OUT), expected, atol=2e-6)


def test_maximum_likelihood_equals_its_formula_and_knows_the_impossible() -> None:
    model = NGramConfig(order=2, smoothing="mle").fit(TEXT)
    pairs, words = count_grams(sentences_of(TEXT.ids), 2), count_grams(sentences_of(TEXT.ids), 1)
    sentence = next(sentences_of(TEXT.ids))
    expected = [np.log(pairs[a, b] / words[a,]) for a, b in itertools.pairwise(sentence)]
    np.testing.assert_allclose(model.log_probs(np.array(sentence[1:])), expected, atol=2e-6)
    never = TEXT.vocabulary.index("never")
    assert model.log_probs(np.array([never, END]))[0] == -np.inf


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(lines=lines_of_words, order=st.integers(1, 4), prune=st.sampled_from([(), (0, 0, 1), (0, 1)]))
def test_every_context_sums_to_one(smoothing: Smoothing, lines: list[str], order: int, prune: tuple[int, ...]) -> None:
    text = encoded(lines, symbols=["never"])
    model = NGramConfig(order=order, smoothing=smoothing, prune=prune).fit(text)
    contexts = [list(gram) for length in range(1, order + 1) for gram in count_grams(sentences_of(text.ids), length)]
    contexts = [context for context in contexts if END not in context] + [[], [UNKNOWN], [UNKNOWN, BEGIN, 4][:2]]
    rows = model.distribution([[id for id in context if id < text.symbols] for context in contexts])
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
    assert (rows[:, [PAD, BEGIN]] == 0).all()


def test_discounts_that_cannot_be_estimated_are_reported_or_refused() -> None:
    text, events = encoded(["a b", "a c"]), list[Event]()
    NGramConfig(order=2).fit(text, listener=events.append)
    notices = [event["message"] for event in events if event.kind == "notice"]
    assert notices[0] == (
        "the text is too small or too regular to estimate the discounts of 1-grams "
        "(3 with count 1, 1 with count 2, 0 with count 3, 0 with count 4); they are set to 0.5, 1 and 1.5"
    )
    with pytest.raises(DataError, match="too small or too regular to estimate the discounts of 1-grams"):
        NGramConfig(order=2, discount_fallback=None).fit(text)


def test_an_order_above_all_lines_is_reported_once() -> None:
    text, events = encoded(["a b", "c"] * 3), list[Event]()
    model = NGramConfig(order=9).fit(text, listener=events.append)
    notices = [str(event["message"]) for event in events if event.kind == "notice"]
    assert notices[0] == (
        "model.order=9 exceeds the longest line: the longest n-grams have 4 words, including the begin and end "
        "symbols, so the model has order 4"
    )
    assert not [line for line in notices for length in range(5, 10) if f"{length}-grams" in line]
    np.testing.assert_array_equal(model.log_probs(text.ids), NGramConfig(order=4).fit(text).log_probs(text.ids))
    assert (model.log_probs(text.ids) != NGramConfig(order=2).fit(text).log_probs(text.ids)).any()


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_the_score_of_a_sentence_is_the_sum_of_its_steps(smoothing: Smoothing) -> None:
    model = NGramConfig(order=3, smoothing=smoothing).fit(TEXT)
    ids = HELD_OUT[: int(np.flatnonzero(HELD_OUT == END)[5]) + 1]
    with np.errstate(divide="ignore"):
        steps = [
            np.log(model.distribution([sentence[:place]])[0, sentence[place]])
            for sentence in sentences_of(ids)
            for place in range(1, len(sentence))
        ]
    np.testing.assert_allclose(model.log_probs(ids), steps, atol=1e-9)


def test_unseen_words_have_a_finite_perplexity() -> None:
    model = NGramConfig(order=3).fit(TEXT)
    assert np.isfinite(model.perplexity(np.array([UNKNOWN, TEXT.vocabulary.index("never"), END])))


def test_matched_counts_the_words_that_were_known_together() -> None:
    text = encoded(["a b c", "a b d"])
    model = NGramConfig(order=3).fit(text)
    a, b, c = (text.vocabulary.index(word) for word in "abc")
    assert model.matched(np.array([a, b, c, END, c, b, UNKNOWN, a, END])).tolist() == [2, 3, 3, 3, 1, 1, 1, 1, 1]


def test_threads_change_no_bit() -> None:
    model = NGramConfig(order=4).fit(TEXT)
    one = model.log_probs(HELD_OUT)
    for threads in (2, 3, 500):
        assert model.log_probs(HELD_OUT, threads=threads).tobytes() == one.tobytes()


def test_lines_are_scored_as_their_words() -> None:
    lines = ["ä b c b", "", "b  ä\tc", " c 你好 ", "<s> b </s> <unk>"]
    text = encoded(["ä b c 你好 b", "c b", "b c"])
    model = NGramConfig(order=3).fit(text)
    numbers = {word: id for id, word in enumerate(text.vocabulary) if id > END}
    rows = [[numbers.get(word, UNKNOWN) for word in line.split()] for line in lines]
    ids, starts = encode_lines(lines, model.words)
    assert ids.tolist() == [id for row in rows for id in [*row, END]]
    assert starts.tolist() == [0, 5, 6, 10, 13]
    expected = [model.log_probs(np.array([*row, END])).sum() for row in rows]
    np.testing.assert_allclose(model.score_lines(lines), expected, atol=1e-12)
    assert model.score_lines([]).shape == (0,)
    with pytest.raises(DataError, match="line 2 contains a line break"):
        model.score_lines(["a", "b\nc"])


@given(nasty.lines(most=4))
def test_any_text_is_split_as_bytes_are(lines: list[str]) -> None:
    model = NGramConfig().restore(SMALL.arrays(), SMALL.vocabulary)
    ids, _ = encode_lines(lines, model.words)
    numbers = {word: id for id, word in enumerate(SMALL.vocabulary) if id > END}
    kept = [line.encode().replace(b"\x0b", b"?").replace(b"\x0c", b"?") for line in lines]
    words = [[word.decode() for word in line.split()] for line in kept]
    assert ids.tolist() == [id for row in words for id in [*(numbers.get(word, UNKNOWN) for word in row), END]]


SMALL = NGramConfig(order=2).fit(encoded(["a b", "a é"]))

# --- what is refused -------------------------------------------------------------------------------------------------


def test_one_word_and_orders_above_all_sentences_are_models_like_others() -> None:
    for lines in (["a"], ["a", "a a a"], [""], ["a b"]):
        text = encoded(lines)
        model = NGramConfig(order=6).fit(text)
        np.testing.assert_allclose(
            model.distribution([[BEGIN], [], [BEGIN, 4][: text.symbols - 3]]).sum(1), 1, atol=1e-6
        )
        assert np.isfinite(model.log_probs(text.ids)).all()


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"order": 0}, "order"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha": -1.0}, "alpha"),
        ({"memory": 0}, "memory"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        NGramConfig.model_validate(settings)


@pytest.mark.parametrize("prune", [(1,), (0, 2, 1), (0, -1)])
def test_thresholds_that_fall_or_drop_words_are_refused(prune: tuple[int, ...]) -> None:
    sentence = "thresholds begin with 0, since single words are kept, and never fall"
    with pytest.raises(ConfigError, match=sentence):
        NGramConfig(order=3, prune=prune)


def test_texts_that_are_none_are_refused() -> None:
    with pytest.raises(DataError, match="at least one sentence"):
        count_ngrams(np.empty(0, np.int32), 2, symbols=5)
    with pytest.raises(DataError, match="ids run from 2 to 9, but the vocabulary has 5 symbols"):
        count_ngrams(np.array([9, END]), 2, symbols=5)
    with pytest.raises(DataError, match="the text contains <s> 1 times; pass sentences without it"):
        count_ngrams(np.array([BEGIN, 4, END]), 2, symbols=5)
    with pytest.raises(UsageError, match="ids run from 2 to 77, but the model has 0 to 6"):
        SMALL.log_probs(np.array([77, END]))
    with pytest.raises(DataError, match="no perplexity"):
        SMALL.perplexity(np.empty(0, np.int32))
    assert tuple(SMALL.vocabulary[:4]) == RESERVED
