"""Long lines are cut where it hurts least, and come back as one line."""

from hypothesis import example, given
from hypothesis import strategies as st

import nasty
from seqloom.runs.translator import cut, join


def up_to(characters: int) -> "st.SearchStrategy[str]":
    return st.text(alphabet="ab .,;!?。，日\u0301", max_size=characters)


def parts_of(text: str, *, longest: int) -> list[str]:
    return [piece for piece, _ in cut(text, lambda piece: len(piece) <= longest)]


def test_sentences_are_the_first_borders() -> None:
    assert parts_of("One sentence. Two, three. Four.", longest=15) == ["One sentence.", "Two, three.", "Four."]


def test_a_long_sentence_is_split_at_its_clauses_as_many_as_fit() -> None:
    text = "He came, he saw, he won, and then he went home."
    assert parts_of(text, longest=25) == ["He came, he saw, he won,", "and then he went home."]


def test_a_long_clause_is_split_at_its_spaces_and_only_a_long_word_is_broken() -> None:
    assert parts_of("one two three four", longest=9) == ["one two", "three", "four"]
    pieces = cut("ab abcdefgh cd", lambda piece: len(piece) <= 3)
    assert pieces == [("ab", False), ("abc", False), ("def", True), ("gh", True), ("cd", False)]


def test_a_letter_keeps_its_marks() -> None:
    assert parts_of("a\u0301b\u0301", longest=2) == ["a\u0301", "b\u0301"]


@given(up_to(60), st.integers(1, 20))
@example("a, b", 1)
def test_every_character_is_in_one_part_and_no_part_is_too_long_without_need(text: str, longest: int) -> None:
    found = parts_of(text, longest=longest)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(part) <= longest or len(part.rstrip("\u0301")) <= 1 for part in found)


@given(st.lists(st.sampled_from(["one", "two"]), min_size=1, max_size=300), st.integers(7, 40))
def test_words_are_packed_as_densely_as_one_by_one(words: list[str], longest: int) -> None:
    """The search for the farthest border that fits, against looking at every border."""
    expected, last = [], words[0]
    for word in words[1:]:
        if len(last) + 1 + len(word) + 1 <= longest + 1:
            last += f" {word}"
        else:
            expected.append(last)
            last = word
    found = parts_of(" ".join(words), longest=longest)
    assert " ".join(found).split() == words
    assert len(found) <= len([*expected, last]) + sum(len(part) == longest for part in expected)


def test_joined_parts_have_spaces_where_their_script_has_them() -> None:
    assert join(["One.", "Two."], inside_word=[False, False]).text == "One. Two."
    assert join(["你好。", "再见。"], inside_word=[False, False]).text == "你好。再见。"
    assert join(["abc", "def", "g"], inside_word=[False, True, False]).text == "abcdef g"
    joined = join(["", "One.", "", "Two."], inside_word=[False] * 4)
    assert joined.text == "One. Two."
    assert [joined.text[start:] for start in joined.starts[1::2]] == ["One. Two.", "Two."]


@given(nasty.texts(longest=60), st.integers(1, 30))
def test_nothing_but_spaces_is_lost_of_any_text(text: str, longest: int) -> None:
    found = parts_of(text, longest=longest)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(part) <= longest or not part.isascii() for part in found)  # marks stay with their letters
