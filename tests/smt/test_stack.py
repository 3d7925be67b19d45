"""The stack decoder: equal to exhaustive search where nothing is pruned, and to the readable edition."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.core.errors import UsageError
from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.reference.stack import Phrase, StackDecoder
from seqloom.smt.stack import (
    Derivation,
    Options,
    StackSettings,
    decode,
    decode_many,
    decode_target,
)
from seqloom.text.tokenizer import EncodedText

WORDS = 7
EVERYTHING = StackSettings(beam=1 << 30, pop_limit=1 << 30)
"""Nothing is pruned."""


@cache
def language_model(order: int) -> NGram:
    """A model of random text with some order in it."""
    random = np.random.default_rng(order)
    sentences = [[*((np.cumsum(random.integers(0, 3, 6)) % WORDS) + 4), END] for _ in range(60)]
    vocabulary = (*RESERVED, *(f"w{k}" for k in range(WORDS)))
    return NGramConfig(order=order).fit(EncodedText(np.concatenate(sentences), vocabulary))


class Case(NamedTuple):
    """A sentence to translate."""

    options: Options
    length: int
    model: NGram
    settings: StackSettings


def options_of(
    random: np.random.Generator,
    length: int,
    *,
    each: int,
    longest: int = 2,
    is_oriented: bool = True,
    words: int = WORDS,
) -> Options:
    """Random options: `each` for single words, about half as many for longer spans; some without words."""
    spans = [(begin, begin + 1) for begin in range(length) for _ in range(each)]
    longer = [(begin, begin + size) for size in range(2, longest + 1) for begin in range(length - size + 1)]
    spans += [span for span in longer for _ in range(random.integers(0, each + 1))]
    order = random.permutation(len(spans))
    spans = [spans[place] for place in order]
    sizes = random.integers(0, 4, len(spans))
    orientations = np.log(random.dirichlet(np.ones(3), (len(spans), 2))).reshape(-1, 6) * random.choice([0.0, 0.5])
    return Options(
        np.array([begin for begin, _ in spans], np.int32),
        np.array([end for _, end in spans], np.int32),
        np.cumsum([0, *sizes]).astype(np.int64),
        random.integers(4, 4 + words, sizes.sum()).astype(np.int32),
        random.normal(0, 1, len(spans)),
        orientations * is_oriented,
    )


def case_of(seed: int, limit: int, *, longest_sentence: int = 4) -> Case:
    random = np.random.default_rng(seed)
    length = int(random.integers(0, longest_sentence + 1))
    options = options_of(random, length, each=int(random.integers(1, 3)))
    weights = {"language_model_weight": float(random.choice([0.0, 0.7])), "distortion_weight": -0.3}
    return Case(
        options,
        length,
        language_model(int(random.integers(1, 5))),
        EVERYTHING._replace(distortion_limit=limit, **weights),
    )


def all_derivations(case: Case) -> Iterator[tuple[int, ...]]:
    """Every sequence of options that covers the sentence and keeps to the limit."""
    options, limit = case.options, case.settings.distortion_limit

    def extend(chosen: tuple[int, ...], free: frozenset[int], last: int) -> Iterator[tuple[int, ...]]:
        if not free:
            yield chosen
            return
        for number, (begin, end) in enumerate(zip(options.begins.tolist(), options.ends.tolist(), strict=True)):
            if not free.issuperset(range(begin, end)):
                continue
            if limit >= 0 and (abs(begin - last) > limit or (begin > min(free) and end - min(free) > limit)):
                continue
            yield from extend((*chosen, number), free - set(range(begin, end)), end)

    return extend((), frozenset(range(case.length)), 0)


def words_of(options: Options, derivation: tuple[int, ...]) -> list[int]:
    return [int(word) for each in derivation for word in np.split(options.targets, options.target_starts[1:-1])[each]]


def score_of(case: Case, derivation: tuple[int, ...]) -> float:
    """The formula, with the language model's own method for whole texts."""
    options, settings, last = case.options, case.settings, (-1, 0)
    score = 0.0
    spans = [(int(options.begins[each]), int(options.ends[each])) for each in derivation]
    for place, (begin, end) in enumerate([*spans, (case.length, case.length + 1)]):
        way = 0 if begin == last[1] else 1 if end == last[0] else 2
        if place:
            score += options.orientations[derivation[place - 1], 3 + way]
        if place < len(spans):
            score += options.scores[derivation[place]] + options.orientations[derivation[place], way]
            score += settings.distortion_weight * abs(begin - last[1])
        last = begin, end
    log_prob = case.model.log_probs(np.array([*words_of(options, derivation), END])).sum()
    return float(score + settings.language_model_weight * log_prob)


def run(case: Case, nbest: int = 1, **changes: float) -> list[Derivation]:
    settings = case.settings._replace(**changes)
    return decode(case.options, case.length, case.model.trie, case.model.order, settings, nbest=nbest)


SEEDS, LIMITS = st.integers(0, 10**6), st.sampled_from([-1, 0, 1, 2, 3])


@given(SEEDS, LIMITS, st.sampled_from([0, 1 << 30]))
def test_the_n_best_derivations_are_those_of_exhaustive_search(seed: int, limit: int, pop_limit: int) -> None:
    case = case_of(seed, limit)
    expected = {derivation: score_of(case, derivation) for derivation in all_derivations(case)}
    nbest = 40
    found = run(case, nbest, pop_limit=pop_limit)
    best = sorted(expected.values(), reverse=True)[:nbest]
    assert [each.score for each in found] == pytest.approx(best, abs=1e-9)
    assert len({each.options for each in found}) == len(found)
    for each in found:
        assert expected[each.options] == pytest.approx(each.score, abs=1e-9)
    assert run(case, pop_limit=pop_limit) == found[:1]
    assert run(case, len(expected) + 10, pop_limit=pop_limit)[:nbest] == found


@given(SEEDS, LIMITS)
def test_the_best_derivation_is_that_of_the_readable_edition(seed: int, limit: int) -> None:
    """Also where a beam decides; ties apart, which random scores do not have."""
    case = case_of(seed, limit, longest_sentence=5)
    options, beam = case.options, 1 + seed % 20
    parts = np.split(options.targets, options.target_starts[1:-1])
    phrases = [
        Phrase(int(begin), int(end), tuple(words.tolist()), float(score), tuple(ways[:3]), tuple(ways[3:]))
        for begin, end, words, score, ways in zip(
            options.begins, options.ends, parts, options.scores, options.orientations.tolist(), strict=False
        )
    ]

    def log_prob(word: int, context: tuple[int, ...]) -> float:
        return float(np.log(case.model.distribution([context])[0, word]))

    weights = case.settings.language_model_weight, case.settings.distortion_weight
    theirs = StackDecoder(phrases, case.length, log_prob, case.model.order, BEGIN, END, beam, limit, *weights).decode()
    ours = run(case, beam=beam, pop_limit=0)
    assert theirs is not None
    assert ours[0].options == theirs[1]
    assert ours[0].score == pytest.approx(theirs[0], abs=1e-9)


@given(SEEDS, LIMITS)
def test_a_given_translation_has_the_best_of_its_derivations(seed: int, limit: int) -> None:
    case = case_of(seed, limit, longest_sentence=3)
    by_words: dict[tuple[int, ...], float] = {}
    for derivation in all_derivations(case):
        words = tuple(words_of(case.options, derivation))
        by_words[words] = max(by_words.get(words, -np.inf), score_of(case, derivation))
    model = case.model.trie, case.model.order, case.settings
    for words, expected in list(by_words.items())[:: max(1, len(by_words) // 20)]:
        found = decode_target(case.options, case.length, words, *model)
        assert found is not None
        assert words_of(case.options, found.options) == list(words)
        assert found.score == pytest.approx(expected, abs=1e-9)
        assert score_of(case, found.options) == pytest.approx(expected, abs=1e-9)
        impossible = (*words, 4 + WORDS - 1)
        assert (decode_target(case.options, case.length, impossible, *model) is None) == (impossible not in by_words)


def long_case(length: int, *, seed: int = 0, each: int = 6) -> Case:
    random = np.random.default_rng(seed)
    options = options_of(random, length, each=each, longest=4)
    return Case(options, length, language_model(3), StackSettings(beam=50, pop_limit=200, distortion_limit=4))


@pytest.mark.parametrize("length", [63, 64, 65, 150])
def test_long_sentences_are_covered_once_and_within_the_limit(length: int) -> None:
    case = long_case(length, each=3)
    for found in run(case, 5):
        spans = [range(case.options.begins[each], case.options.ends[each]) for each in found.options]
        assert sorted(place for span in spans for place in span) == list(range(length))
        assert score_of(case, found.options) == pytest.approx(found.score, abs=1e-9)
        jumps = [abs(after.start - before.stop) for before, after in zip([range(0), *spans], spans, strict=False)]
        assert max(jumps) <= 4


def test_threads_change_no_bit_and_cancelled_sentences_are_empty() -> None:
    cases = [long_case(length, seed=length) for length in range(3, 15)]
    sentences = [(case.options, case.length) for case in cases]
    model = cases[0].model.trie, 3, cases[0].settings
    alone = decode_many(sentences, *model, nbest=10)
    assert alone == [run(case, 10) for case in cases]
    assert decode_many(sentences, *model, nbest=10, threads=3) == alone
    some = decode_many(sentences, *model, nbest=10, threads=2, is_cancelled=lambda index: index % 2 == 0)
    assert some == [[] if index % 2 == 0 else found for index, found in enumerate(alone)]


def test_cube_pruning_without_a_limit_is_plain_expansion() -> None:
    """Also where a search needs more room than it begins with."""
    case = long_case(9, each=12)
    found = run(case, 20, pop_limit=0)
    assert run(case, 20, pop_limit=1 << 30) == found
    assert run(case, 20, pop_limit=20) != found


def test_pruning_never_finds_more_than_the_whole_search() -> None:
    """And it does lose something where it is narrow: the law above can fail."""
    lost = 0.0
    for seed in range(8):
        case = long_case(5, seed=seed, each=3)._replace(settings=EVERYTHING._replace(distortion_weight=-0.5))
        best = run(case)[0].score
        for beam, pop_limit in [(1, 1), (3, 10), (20, 0), (200, 2000)]:
            score = run(case, beam=beam, pop_limit=pop_limit)[0].score
            assert score <= best + 1e-9
            lost += (best - score) * (beam == 1)
        assert run(case, threshold=0.0)[0].score <= best
    assert lost > 0.1


def test_what_the_options_do_not_cover_has_no_derivation() -> None:
    case = long_case(4)
    assert run(case)
    assert run(case._replace(length=5)) == []
    with pytest.raises(UsageError, match="3 words"):
        run(case._replace(length=3))
