"""Tags leave a line before it is translated, and come back exactly once, nested as they were."""

import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.text import tags as module
from seqloom.text.normalise import Normaliser
from seqloom.text.tags import TagNode, place_tags, take_out
from seqloom.text.words import word_spans


def translate(line: str, translation: str, links: str) -> str:
    tagged = take_out(line)
    pairs = [(int(link.split("-")[0]), int(link.split("-")[1])) for link in links.split()]
    return place_tags(tagged, translation, target_spans=word_spans(translation), links=pairs).text


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("a <b>red</b> house", "a red house"),
        ("Hello {0}, %(name)s and {{x}}!", "Hello, and!"),
        ("100% sure, 5 < 6 and 7 > 3", "100% sure, 5 < 6 and 7 > 3"),
        ("%s of %d files&nbsp;<br/>gone", " of files gone"),
        ("no tags", "no tags"),
        ("<!-- no --> yes ${user}", " yes "),
        ("<!-- one <b> --> two <!-- three", " two <!-- three"),
        ("""a <a href="x>y" title='1 < 2 > 0' checked>red</a> house""", "a red house"),
        ("""a <a title = "it's">red</a> <i class="unclosed>house</i>""", "a red house"),
        ("if a <b and c> d don't", "if a d don't"),
        ("a <![CDATA[red]]> <?php echo 1 ?>house<!DOCTYPE html>", "a red house"),
    ],
)
def test_tags_are_taken_out(line: str, plain: str) -> None:
    assert take_out(line).plain == plain


@pytest.mark.parametrize(
    ("line", "translation", "links", "expected"),
    [
        ("a <b>red house</b> here", "hier ein rotes Haus", "0-1 1-2 2-3 3-0", "hier ein <b>rotes Haus</b>"),
        ("<p>a <b>red</b> house</p>", "ein Haus, rot", "0-0 1-3 2-1", "<p>ein Haus, <b>rot</b></p>"),
        ("Hello {0}, bye", "Hallo, ciao", "0-0 1-1 2-2", "Hallo {0}, ciao"),
        ("take {0} now", "jetzt nehmen", "0-1 1-0", "{0} jetzt nehmen"),
        ("one<br/>two", "eins zwei", "0-0", "eins<br/> zwei"),
        ("the end <br/>", "das Ende", "0-0 1-1", "das Ende <br/>"),
        ("<b>one</b> <i>two</i>", "zwei eins", "0-1 1-0", "<i>zwei</i> <b>eins</b>"),
        ("<b>one</b> <i>two</i>", "eins zwei drei", "0-0 0-2 1-1", "<b>eins zwei drei</b><i></i>"),
        ("a <b>b", "x y", "0-0 1-1", "x <b>y"),
        ("<i>a</i> c", "", "", "<i></i>"),
        ("I don'<b>t</b> go", "x y z", "0-0 1-1 2-2", "x <b>y</b> z"),
        ("""<a href="x>y">one</a> two""", "zwei eins", "0-1 1-0", """zwei <a href="x>y">eins</a>"""),
        ("one <img src=a> two", "eins zwei", "0-0 1-1", "eins <img src=a> zwei"),
        ("it is 3.<b>5 m</b> long", "a b c d e", "0-0 1-1 2-2 3-3 4-4", "a b <b>c d</b> e"),
        ("plays with {0} here.", "spielt mit.", "0-0", "spielt mit {0}."),
        ("plays with {0}", "spielt mit.", "0-0", "spielt mit {0}."),
        ("He said {0} there", "Er sagte »so.«", "0-0", "Er sagte »so.« {0}"),
        ("He said {0} there", "Er sagte “so.”", "0-0", "Er sagte “so {0}.”"),
        ("plays {0} with", "vraiment ?", "", "vraiment {0} ?"),
        ("Done. {0}", "Fertig.", "0-0 1-1", "Fertig. {0}"),
        ("<b>plays with {0} here</b>", "spielt mit!", "", "<b>spielt mit {0}!</b>"),
        ("two dogs %d%% run", "zwei Hunde rennen", "0-0 1-1 2-2", "zwei Hunde %d%% rennen"),
        ("a {0}{1} b", "B A", "0-1 1-0", "{0}{1} B A"),
        ("a<x/>{1} b", "B A", "0-1 1-0", "B A<x/>{1}"),
        ("a {0}<b>big red</b> car", "rot gross Auto", "1-1 2-0 3-2", "{0}<b>rot gross</b> Auto"),
        ("<b>big red</b>{0}%s {1} x", "rot gross x", "0-1 1-0 2-2", "<b>rot gross</b>{0}%s {1} x"),
        ("to 100%% done, %*d of %lu", "zu fertig, von", "0-0 1-1 2-2 3-3", "zu 100%% fertig, %*d von %lu"),
        ("a {0}-{1} b", "A B", "0-0 2-1", "A {0} {1} B"),
    ],
)
def test_tags_go_where_their_words_went(line: str, translation: str, links: str, expected: str) -> None:
    assert translate(line, translation, links) == expected


@pytest.mark.parametrize(
    ("line", "links", "is_guessed"),
    [
        ("play {0} now.", "0-0 1-1 2-2", False),
        ("play {0} now.", "2-2", True),
        ("play now. {0}", "", False),
        ("pl{0}ay now.", "0-0 1-1 2-2", True),
        ("pl<br/>ay now.", "0-0 1-1 2-2 3-2", False),
        ("<b>play</b> now.", "1-1", True),
        ("<b>play now.</b>", "", False),
    ],
)
def test_a_place_without_a_partner_is_a_guess(line: str, links: str, is_guessed: bool) -> None:
    pairs = [(int(link.split("-")[0]), int(link.split("-")[1])) for link in links.split()]
    placed = place_tags(take_out(line), "spiel nun.", target_spans=word_spans("spiel nun."), links=pairs)
    assert placed.is_guessed is is_guessed


def tree(nodes: tuple[TagNode, ...]) -> Counter[object]:
    """What is inside what, whatever the order of neighbours."""
    return Counter((node.tag.text, node.closing and node.closing.text, _key(node.children)) for node in nodes)


def _key(nodes: tuple[TagNode, ...]) -> object:
    return frozenset(tree(nodes).items())


words = st.sampled_from(["ab", "cd", ",", "e.f"])
tags = st.sampled_from(["<b>", "</b>", "<i>", "</i>", "<br/>", "{0}", "%s", "&amp;"])


@given(
    st.lists(st.tuples(words | tags, st.sampled_from(["", " "])), max_size=12),
    st.lists(words, max_size=6),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 5)), max_size=10),
)
def test_every_tag_comes_back_once_and_nested_as_it_was(
    line: list[tuple[str, str]], translated: list[str], links: list[tuple[int, int]]
) -> None:
    tagged = take_out("".join(text + space for text, space in line))
    translation = " ".join(translated)
    spans = word_spans(translation)
    found = place_tags(
        tagged, translation, target_spans=spans, links=[link for link in links if link[1] < len(spans)]
    ).text
    again = take_out(found)
    assert tree(again.nodes) == tree(tagged.nodes)
    assert again.plain.replace(" ", "") == translation.replace(" ", "")


touching = st.lists(st.sampled_from(["<x/>", "{0}", "%s", "%%", "&amp;"]), min_size=2, max_size=3).map("".join)


@given(
    st.lists(words | touching | st.sampled_from(["<b>", "</b>"]), max_size=9),
    st.lists(words, max_size=6),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 5)), max_size=10),
)
def test_what_touches_stays_together_in_its_order_between_its_spaces(
    line: list[str], translated: list[str], links: list[tuple[int, int]]
) -> None:
    tagged, translation = take_out(" ".join(line)), " ".join(translated)
    spans = word_spans(translation)
    found = place_tags(
        tagged, translation, target_spans=spans, links=[link for link in links if link[1] < len(spans)]
    ).text
    runs = list(re.finditer(r"(?:<x/>|\{0\}|%s|%%|&amp;)+", found))
    wanted = [each for each in line if take_out(each).nodes and each not in ("<b>", "</b>")]
    assert Counter(run[0] for run in runs) == Counter(wanted)
    beside = [found[max(0, run.start() - 1) : run.start()] + found[run.end() : run.end() + 1] for run in runs]
    assert not any(character.isalnum() for character in "".join(beside))


@given(
    nasty.line(longest=60), nasty.line(most=3, longest=30), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))
)
def test_every_tag_of_any_line_comes_back_once(line: str, translated: str, links: list[tuple[int, int]]) -> None:
    tagged = take_out(line)
    translation = Normaliser()(take_out(translated).plain)  # a translation has no tags of its own
    spans = word_spans(translation)
    found = place_tags(
        tagged, translation, target_spans=spans, links=[link for link in links if link[1] < len(spans)]
    ).text
    letters = Counter(found.replace(" ", ""))
    assert letters - Counter("".join(map(spelled, tagged.nodes))) == Counter(translation.replace(" ", ""))
    assert "\n" not in found


def spelled(node: TagNode) -> str:
    """A tag, what closes it, and those inside."""
    closing = "" if node.closing is None else node.closing.text
    return node.tag.text + "".join(map(spelled, node.children)) + closing


# --- many tags --------------------------------------------------------------------------------------------------------


def back(line: str, normalise: Callable[[str], str] = str) -> str:
    """A line whose translation is itself, word for word."""
    tagged = take_out(line)
    spans = word_spans(tagged.plain)
    links = [(word, word) for word in range(len(spans))]
    return place_tags(tagged, tagged.plain, target_spans=spans, links=links, normalise=normalise).text


SHAPES: dict[str, Callable[[int], str]] = {
    "side by side": lambda count: " ".join(f"w{number} <b>x</b>" for number in range(count // 2)),
    "one in another": lambda count: " ".join(["<b>w"] * (count // 2)) + "</b>" * (count // 2),
    "never closed": lambda count: "x <b>" * count,
    "opened in vain": lambda count: "<p>" + "x <i>" * (count - 2) + "</p>",
    "all at one place": lambda count: "x " + "<br/>" * count + "y",
    "between spaces": lambda count: "x " + "<br/> " * count + "y",
    "in one word": lambda count: "x<br/>" * count,
    "comments without an end": lambda count: "<!-- x " * count,
}


def test_four_thousand_tags_come_back() -> None:
    line = SHAPES["side by side"](4_000)
    assert back(line) == line


@pytest.mark.parametrize("shape", SHAPES)
def test_tags_of_every_shape_come_back(shape: str) -> None:
    line = SHAPES[shape](1_200)
    assert Counter(back(line).replace(" ", "")) == Counter(line.replace(" ", ""))


def test_five_thousand_tags_inside_each_other_come_back() -> None:
    line = "a " + "".join(f"<i{number}>" for number in range(5_000)) + "b"
    line += "".join(f"</i{number}>" for number in reversed(range(5_000))) + " c"
    assert back(line) == line


def work(function: Callable[[], object]) -> int:
    """How many lines of the module are executed, each turn of a comprehension counted."""
    done = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal done
        if frame.f_code.co_filename != module.__file__:
            return None
        done += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return done


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_as_many_tags_are_about_four_times_the_work(shape: str) -> None:
    few, many = (work(partial(back, SHAPES[shape](count))) for count in (100, 400))
    assert few < many < 5 * few


def test_the_work_of_a_loop_in_a_loop_is_seen() -> None:
    source = compile("[0 for _ in range(count) for _ in range(count)]", module.__file__, "eval")
    few, many = (work(partial(eval, source, {"count": count})) for count in (25, 100))
    assert many > 10 * few


@pytest.mark.parametrize("shape", SHAPES)
def test_a_line_is_normalised_twice_however_many_tags_it_has(shape: str) -> None:
    line, letters = SHAPES[shape](500), 0

    def normalise(text: str) -> str:
        nonlocal letters
        letters += len(text)
        return text

    back(line, normalise)
    assert letters <= 2 * len(take_out(line).plain)


@given(
    st.lists(st.sampled_from(["a", "e", "\u0301", "\u1100", "\u1161", "\u11a8", "ｶ", "ﾞ", "¨", "İ", ".", " ", "<b>"]))
)
def test_pieces_between_tags_have_the_letters_of_the_whole(line: list[str]) -> None:
    for rule in (Normaliser(), Normaliser(form="nfkc", lowercase=True), Normaliser(space_before_punctuation=True)):
        tagged = take_out("".join([*line, "<br/>"]))
        whole = rule(tagged.plain)
        assert module._TagPositions(tagged, rule)._letters[len(tagged.plain)] == len(whole) - whole.count(" ")


def test_tags_that_stand_alone_keep_the_space_between_them() -> None:
    line = "press <b>save</b> %s {0}."
    tagged = take_out(line)
    assert tagged.plain == "press save."
    assert (
        place_tags(tagged, "press save.", target_spans=word_spans("press save."), links=[(0, 0), (1, 1), (2, 2)]).text
        == line
    )


@pytest.mark.parametrize(
    ("line", "translation", "links", "expected"),
    [
        # The full stop attends to the last word, and the tag does not follow it.
        ("a bike {0}.", "ein Rad.", [(1, 1), (1, 2)], "ein Rad {0}."),
        ("a bike<e2/>.", "ein Rad.", [(1, 1), (1, 2), (2, 1)], "ein Rad<e2/>."),
        ("a <b>bike</b>.", "ein Rad.", [(1, 1), (1, 2)], "ein <b>Rad</b>."),
        ("a <b>bike</b>", "ein Rad.", [(1, 1), (1, 2)], "ein <b>Rad</b>."),
        # What did not touch a word does not touch one.
        ("runs in {0}.", "in Rom rennt.", [(0, 2), (1, 0), (2, 1)], "in Rom rennt {0}."),
        ("a man (%d) runs.", "ein Mann rennt.", [(1, 1), (2, 1), (4, 2)], "ein Mann %d rennt."),
    ],
)
def test_tags_keep_their_side_of_the_full_stop_and_their_distance_from_words(
    line: str, translation: str, links: list[tuple[int, int]], expected: str
) -> None:
    placed = place_tags(take_out(line), translation, target_spans=word_spans(translation), links=links)
    assert placed.text == expected
