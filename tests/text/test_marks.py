"""The signs for spaces and joins: every normalised text comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.text.marks import (
    is_unsegmented,
    join_words,
    mark_spaces,
    show_spaces,
    split_characters,
    split_chunks,
    split_words,
)
from seqloom.text.normalise import Normaliser

NASTY = nasty.texts(longest=100)


@given(NASTY, st.booleans())
def test_marked_spaces_come_back(text: str, has_start: bool) -> None:
    normal = Normaliser()(text)
    assert show_spaces(mark_spaces(normal, has_start=has_start), has_start=has_start) == normal


@given(NASTY)
def test_chunks_are_the_marked_text_cut_before_spaces(text: str) -> None:
    marked = mark_spaces(Normaliser()(text))
    assert "".join(split_chunks(marked)) == marked
    assert all("▁" not in chunk[1:] for chunk in split_chunks(marked))


@given(NASTY)
def test_words_come_back(text: str) -> None:
    normal = Normaliser()(text)
    assert join_words(split_words(normal)) == normal
    assert join_words(split_characters(normal)) == normal


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Hello," she said.', ['"￭', "Hello", "￭,", '￭"', "she", "said", "￭."]),
        ("Quoi ? L'homme (ici)", ["Quoi", "?", "L'homme", "(￭", "ici", "￭)"]),
        (
            "T-shirt for 1,000.50 $ or 5%...",
            ["T", "￭-￭", "shirt", "for", "1,000.50", "$", "or", "5", "￭%", "￭.", "￭.", "￭."],
        ),
        ("rock 'n' roll", ["rock", "'￭", "n", "￭'", "roll"]),
        ("a ￭ b", ["a", "\x1a", "b"]),
        ("नमस्ते می‌خواهم", ["नमस्ते", "می‌خواهم"]),
        ("", []),
    ],
)
def test_words_and_marks_are_parted(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("今天天气很好。", ["今", "￭天", "￭天", "￭气", "￭很", "￭好", "￭。"]),
        ("我用Twitter，3天。 Tom 说", ["我", "￭用", "￭Twitter", "￭，￭", "3", "￭天", "￭。", "Tom", "说"]),
        ("ที่นี่", ["ที่", "￭นี่"]),
        ("The weather is good.", ["The", "weather", "is", "good", "￭."]),
    ],
)
def test_characters_are_words_where_no_spaces_are(text: str, words: list[str]) -> None:
    assert split_characters(text) == words


def test_text_that_was_segmented_by_hand_is_noticed() -> None:
    assert is_unsegmented(["今天天气很好。", "我用Twitter。"])
    assert not is_unsegmented(["今天 天气 很 好 。", "我 用 Twitter 。"])
    assert not is_unsegmented(["The weather is good.", "한국 말"])
    assert not is_unsegmented([])


def test_a_text_in_a_script_without_spaces_gets_no_sign_at_its_start() -> None:
    assert [mark_spaces(text) for text in ("Tom 很好", "很好 Tom", "「あ」", "한국 말", "")] == [
        "▁Tom▁很好",
        "很好▁Tom",
        "「あ」",
        "▁한국▁말",
        "",
    ]


def test_words_of_a_long_line_take_linear_time() -> None:
    assert len(split_words("ab." * 300_000)) == 600_000  # a square of it would meet the suite's limit
