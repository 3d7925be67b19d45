"""The normalisation rule: one line of single spaces, idempotent, linear, never a crash."""

import unicodedata

import pytest
from hypothesis import given

import nasty
from seqloom.core.errors import DataError
from seqloom.text.normalise import Normaliser, collapse_spaces, is_blank, set_punctuation_apart

TEXT = nasty.texts()


@pytest.mark.parametrize("form", ["none", "nfc", "nfkc"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("apart", [False, True])
@given(text=TEXT)
def test_applying_the_rule_twice_is_applying_it_once(form: str, lowercase: bool, apart: bool, text: str) -> None:
    rule = Normaliser(form, lowercase, apart)  # type: ignore[arg-type]
    assert rule(rule(text)) == rule(text)


@given(TEXT)
def test_the_result_is_one_line_whose_only_white_space_is_the_single_space(text: str) -> None:
    result = Normaliser("nfkc")(text)
    assert not any(unicodedata.category(character) == "Cc" for character in result)
    assert result.split() == (result.split(" ") if result else [])


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (Normaliser(), "cafe\u0301  au\tlait\r\n", "café au lait"),
        (Normaliser("none"), "cafe\u0301", "cafe\u0301"),
        (Normaliser(), "ＡＢＣ ﬁn", "ＡＢＣ ﬁn"),
        (Normaliser("nfkc"), "ＡＢＣ ﬁn", "ABC fin"),
        (Normaliser(), "a\0b\x07c\x85d\u2028e\u00a0f\u3000g\vh", "a b c d e f g h"),
        (Normaliser(lowercase=True), "ΟΔΟΣ İSTANBUL", "οδος i̇stanbul"),
        (Normaliser(), "zero\u200bwidth \u202eright", "zero\u200bwidth \u202eright"),
        (Normaliser(), " \t ", ""),
        (Normaliser(), "\ufeffIch\ufeff bin mü\ufeffde\u2060.", "Ich bin müde."),
        (Normaliser("none"), "\ufeffIch", "Ich"),
        (Normaliser(), "cafe\ufeff\u0301 a \ufeff b", "café a b"),
        # These carry meaning: Persian, Hindi, emoji, borders of Khmer words, hyphenation.
        *((Normaliser(), f"a{mark}b", f"a{mark}b") for mark in "\u200c\u200d\u200b\u00ad"),
    ],
)
def test_worked_cases(rule: Normaliser, before: str, after: str) -> None:
    assert rule(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Go.", "Go ."),
        ("Wait , really?!", "Wait , really ? !"),
        ("!", "!"),
        ("3.5", "3 .5"),
    ],
)
def test_punctuation_is_set_apart_as_in_d2l(before: str, after: str) -> None:
    """d2l puts a space before each of , . ! ? unless it is first or follows a space."""
    theirs = "".join(
        " " + character if i > 0 and character in ",.!?" and before[i - 1] != " " else character
        for i, character in enumerate(before)
    )
    assert set_punctuation_apart(before) == after == theirs


def test_half_a_surrogate_pair_is_a_data_error_that_shows_it() -> None:
    with pytest.raises(DataError, match=r"U\+D83D, at character 4; send both halves"):
        Normaliser()("abc\ud83d")


def test_a_long_run_of_combining_marks_takes_linear_time() -> None:
    result = Normaliser()("a" + "\u0301\u0316" * 500_000)  # Python alone would meet the suite's limit
    assert result.count("\u0316") == 500_000


def test_blank_means_that_nothing_can_be_seen() -> None:
    assert all(map(is_blank, ["", " \t\u3000", "\u200b\ufeff\u00ad", "\0\x85"]))
    assert not any(map(is_blank, ["a", " . ", "\u0301", "、"]))


@given(TEXT)
def test_collapsing_keeps_every_visible_character_in_order(text: str) -> None:
    def visible(line: str) -> str:
        return "".join(c for c in line if not c.isspace() and unicodedata.category(c) != "Cc")

    assert visible(collapse_spaces(text)) == visible(text)
