"""The corpus as its users see it: pairs, splits, alignments, determinism, size."""

from itertools import product

import pytest

from seqloom.core.errors import UsageError
from seqloom.data.phrasebook import LANGUAGES, SPLITS, PhrasePair, note_pairs, sample_pairs, sample_sentences

PAIRS = tuple((source, target) for source, target in product(LANGUAGES, LANGUAGES) if source != target)


def test_languages_are_english_french_german_and_chinese() -> None:
    assert LANGUAGES == ("en", "fr", "de", "zh")


def test_pair_holds_both_texts_their_tokens_and_the_alignment() -> None:
    weather = note_pairs("zh", "en")[0]
    assert weather == PhrasePair(
        "今天天气很好。",
        "Today's weather is good.",
        ("今天", "天气", "很", "好", "。"),
        ("Today", "'s", "weather", "is", "good", "."),
        ((0, 0), (1, 2), (2, 3), (3, 4), (4, 5)),
    )


def test_notes_are_translated_between_all_languages() -> None:
    outcries = {target: note_pairs("en", target)[1].target for target in ("fr", "de", "zh")}
    assert outcries == {"fr": "Comment oses-tu !", "de": "Wie kannst du es wagen!", "zh": "你怎么敢！"}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_sampled_sources_are_distinct_and_as_many_as_requested(source: str, target: str) -> None:
    pairs = sample_pairs(source, target, count=60, seed=4)
    assert len({pair.source for pair in pairs}) == 60
    assert pairs == sample_pairs(source, target, count=60, seed=4)
    assert pairs[:20] == sample_pairs(source, target, count=20, seed=4)


def test_seeds_differ() -> None:
    assert sample_sentences("en", count=50, seed=1) != sample_sentences("en", count=50, seed=2)


def test_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no language 'it'; it has en, fr, de, zh"):
        sample_pairs("en", "it", count=1, seed=0)
    with pytest.raises(UsageError, match=r"no language 'xx'"):
        note_pairs("xx", "en")


def test_negative_count_is_refused_and_none_is_given() -> None:
    with pytest.raises(UsageError, match=r"cannot sample -1 sentences; choose 0 or more"):
        sample_sentences("en", count=-1, seed=0)
    assert sample_sentences("en", count=0, seed=0) == []


def test_more_sentences_than_there_are_is_refused_with_their_number() -> None:
    most = 1_000
    with pytest.raises(UsageError, match=r"has [\d,]+ different sentences in its split dev, fewer than 5,000"):
        sample_sentences("en", count=5_000, seed=3, split="dev")
    assert all(len(sample_sentences("zh", count=most, seed=3, split=split)) == most for split in SPLITS)


def test_alignment_points_to_tokens_and_links_what_has_content() -> None:
    for source, target in PAIRS:
        for pair in sample_pairs(source, target, count=60, seed=6):
            assert all(
                0 <= first < len(pair.source_tokens) and 0 <= second < len(pair.target_tokens)
                for first, second in pair.alignment
            )
            assert len(set(pair.alignment)) == len(pair.alignment)
            last = (len(pair.source_tokens) - 1, len(pair.target_tokens) - 1)
            assert last in pair.alignment


def test_alignment_is_the_same_from_both_sides() -> None:
    there = sample_pairs("en", "de", count=100, seed=2)
    back = {(pair.source, pair.target): pair for pair in sample_pairs("de", "en", count=100, seed=2)}
    for pair in there:
        mirrored = back.get((pair.target, pair.source))
        if mirrored is not None:
            assert set(pair.alignment) == {(first, second) for second, first in mirrored.alignment}
