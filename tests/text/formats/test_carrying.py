"""Codes and placeholders through a translation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.text.formats.carry import CannotCarry, Carrier, Rendering, has_all_of
from seqloom.text.formats.segments import Code, Content, Filling, text_of
from seqloom.text.words import word_spans

G, END_G = Code('<g id="1">', "open", "1"), Code("</g>", "close", "1")
X = Code('<x id="2"/>')


def _aligned(text: str, links: list[tuple[int, int]]) -> Rendering:
    return Rendering(text, word_spans(text), links)


def _same(content: Content, *texts: str) -> Filling | None:
    """A filling whose word n comes from word n."""
    return Carrier(content).filling(_aligned(text, [(at, at) for at in range(len(word_spans(text)))]) for text in texts)


def test_codes_go_where_their_words_went() -> None:
    carrier = Carrier(("Click ", G, "here", X, END_G, " now, %s."))
    assert carrier.lines == ["Click here now,."]
    links = [(0, 2), (1, 0), (2, 1), (3, 3), (4, 4)]
    filling = carrier.filling([_aligned("hier nun klicken,.", links)])
    assert filling == Filling((G, "hier", X, END_G, " nun klicken, %s."), is_fuzzy=False)


def test_lines_are_translated_apart_and_line_ends_stay() -> None:
    content = ("\nName: %s\n\n  Really?\n",)
    carrier = Carrier(content)
    assert carrier.lines == ["Name:", "Really?"]
    assert _same(content, "Nom :", "Vraiment ?") == Filling(("\nNom : %s\n\n  Vraiment ?\n",))


def test_a_line_end_inside_a_sentence_goes_between_the_words() -> None:
    content = ("a sentence that was wrapped\nby hand",)
    assert Carrier(content).lines == ["a sentence that was wrapped by hand"]
    assert _same(content, "A B C D E F G") == Filling(("A B C D E\nF G",))


def test_sentences_that_are_marked_are_translated_apart() -> None:
    first, second = Code('<mrk mtype="seg">', "border"), Code("</mrk>", "border")
    content = (first, "One.", second, " ", first, "Two.", second)
    assert Carrier(content).lines == ["One.", "Two."]
    assert _same(content, "Eins.", "Zwei.") == Filling((first, "Eins.", second, " ", first, "Zwei.", second))


def test_what_has_no_words_is_copied_without_a_model() -> None:
    content: Content = (" %s: ", X, " 12 ")
    assert Carrier(content).lines == []
    assert Carrier(content).filling([]) == Filling(content)


def test_spaces_at_the_ends_stay() -> None:
    assert _same(("  Name: ",), "Nom :") == Filling(("  Nom : ",))


def test_without_an_alignment_places_are_guessed_and_that_is_fuzzy() -> None:
    filling = Carrier(("Save %s now",)).filling([Rendering("Jetzt speichern")])
    assert filling is not None
    assert filling.is_fuzzy
    assert has_all_of(("%s",), filling.content)


def test_a_code_without_a_partner_stands_before_the_full_stop_and_is_fuzzy() -> None:
    content: Content = ("a child plays ", X, " in the park.")
    filling = Carrier(content).filling([_aligned("ein kind spielt im park mit.", [(0, 0), (1, 1)])])
    assert filling == Filling(("ein kind spielt im park mit ", X, "."), is_fuzzy=True)


def test_placeholders_that_the_model_invents_go_and_that_is_fuzzy() -> None:
    filling = Carrier(("Save %s",)).filling([_aligned("Speichern %d {0} <b>", [(0, 0)])])
    assert filling == Filling(("Speichern %s",), is_fuzzy=True)


def test_placeholders_that_take_values_by_their_order_keep_it() -> None:
    content = ("copy %s to %d",)
    links = [(0, 2), (1, 0)]
    moved = Carrier(content).filling([_aligned("zu kopieren", links)])
    assert moved is not None
    assert text_of(moved.content).index("%s") < text_of(moved.content).index("%d")
    named = Carrier(("copy {a} to {b}",)).filling([_aligned("X Y", [(0, 1), (1, 0)])])
    assert named is not None
    assert not named.is_fuzzy


def test_text_and_placeholder_that_become_another_are_kept_apart() -> None:
    content = ("rate &amp;",)
    filling = Carrier(content).filling([_aligned("a &#12", [(0, 0)])])
    assert filling is not None
    assert has_all_of(content, filling.content)


def test_an_empty_translation_is_no_filling() -> None:
    assert Carrier(("Save %s",)).filling([Rendering(" ")]) is None
    assert Carrier(("Save",)).filling([Rendering("%s")]) is None


def test_a_translation_that_was_cut_is_fuzzy() -> None:
    assert Carrier(("Save",)).filling([Rendering("Speich", is_whole=False)]) == Filling(("Speich",), is_fuzzy=True)


def test_text_inside_a_placeholder_makes_it_fuzzy() -> None:
    filling = _same(("You have {n, plural, one {a file} other {# files}}",), "Du hast")
    assert filling == Filling(("Du hast {n, plural, one {a file} other {# files}}",), is_fuzzy=True)


@pytest.mark.parametrize("text", ["{n, plural, other {" + "a " * 1_000 + "}}", "<!--" + "a " * 1_000 + "-->"])
def test_what_is_too_long_to_be_kept_whole_is_not_torn_up(text: str) -> None:
    with pytest.raises(CannotCarry, match="have more than 2,000 characters"):
        Carrier(("Save ", text))


def test_a_text_with_every_private_character_is_left_alone() -> None:
    private = "".join(map(chr, range(0xE000, 0xF900)))
    assert Carrier((private[1:] + " Save",)).lines
    with pytest.raises(CannotCarry, match="all 6,400 private characters"):
        Carrier((private + " Save",))


@pytest.mark.parametrize(
    "text",
    [
        *("NOW %d%% HERE", "NOW %s%s HERE", "NOW {a}{b} HERE", "%(a)s%(b)s NOW", "NOW: %d%%", "TO 100%% %*1$d HERE"),
        *("NOW <b>%s</b>%s HERE", "NOW &nbsp;%s HERE", "NOW {a}{b}, HERE", "NOW%s{0} HERE", "FILE %s%s.%s HERE"),
    ],
)
def test_placeholders_that_touch_stay_as_they_are(text: str) -> None:
    assert _same((text,), *Carrier((text,)).lines) == Filling((text,))


def test_placeholders_that_touch_stay_together_where_order_is_repaired_or_words_get_in_the_way() -> None:
    repaired = Carrier(("a %d%% b %s d",)).filling([_aligned("A D B", [(0, 0), (1, 2), (2, 1)])])
    assert repaired == Filling(("A %d%% D %s B",), is_fuzzy=True)
    apart = Carrier(("a%s{0}", X, " b {1}")).filling([_aligned("X% B", [(0, 1), (1, 2)])])
    assert apart == Filling(("X% B %s{0}", X, " {1}"), is_fuzzy=True)


def test_in_a_format_a_flag_may_be_a_space() -> None:
    assert Carrier(("% d dogs",)).lines == ["% d dogs"]
    carrier = Carrier(("% d dogs",), is_format=True)
    assert carrier.lines == ["dogs"]
    assert carrier.filling([_aligned("Hunde 100% sure", [(0, 0)])]) == Filling(("% d Hunde 100ure",), is_fuzzy=True)


_words = st.sampled_from(
    [
        "Save",
        "the",
        "dog,",
        "now!",
        "100%",
        "{0}",
        "%s",
        "%d",
        "<b>",
        "</b>",
        "{{x}}",
        "&amp;",
        "\\n",
        "%1$s",
        "http://a",
        "{",
    ]
)
_pieces = st.one_of(_words, st.sampled_from([" ", "\n", " \n", G, END_G, X, Code("<?pi?>")]))


@given(
    st.lists(_pieces, max_size=12), st.lists(st.one_of(_words, nasty.texts(most=2, longest=9)), max_size=8), st.data()
)
def test_nothing_is_ever_lost_whatever_a_model_says(
    pieces: list[str | Code], said: list[str], data: st.DataObject
) -> None:
    carrier = Carrier(tuple(pieces))
    text = " ".join(said)
    spans = word_spans(text)
    numbers = st.tuples(st.integers(0, 9), st.integers(0, max(0, len(spans) - 1)))
    links = data.draw(st.lists(numbers, max_size=6)) if spans else []
    filling = carrier.filling([Rendering(text, spans, links) for _ in carrier.lines])
    if filling is not None:
        assert has_all_of(tuple(pieces), filling.content)


def test_the_law_can_fail() -> None:
    assert not has_all_of(("a %s", X), ("a", X))
    assert not has_all_of(("a %s",), ("a %s %s",))
    assert not has_all_of(("a ", X), ("a %s",))


@pytest.mark.parametrize("private", ["\ue000", "\ue000\ue001"])
def test_private_characters_of_the_text_are_no_stand_ins(private: str) -> None:
    content = (f"Save {private} <c {private}0/> %s",)
    filling = _same(content, f"Save {private}")
    assert filling is not None
    assert has_all_of(content, filling.content)


@pytest.mark.slow
def test_a_segment_of_many_wrapped_lines_takes_linear_time() -> None:
    text = "a\n" * 100_000
    carrier = Carrier((text,))
    plain, begin = carrier.lines[0], time.process_time()
    spans = word_spans(plain)
    filling = carrier.filling([Rendering(plain.upper(), spans, [(at, at) for at in range(len(spans))])])
    assert filling == Filling((text.upper(),))
    assert time.process_time() - begin < 9  # three times as long if the rest is copied at each line end
