"""Tags leave a line before it is translated, and come back exactly once, nested as they were."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.tags import Node, put_back, take_out
from seqloom.text.words import word_spans


def translate(line: str, translation: str, links: str) -> str:
    tagged = take_out(line)
    pairs = [(int(link.split("-")[0]), int(link.split("-")[1])) for link in links.split()]
    return put_back(tagged, translation, target_spans=word_spans(translation), links=pairs)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("a <b>red</b> house", "a red house"),
        ("Hello {0}, %(name)s and {{x}}!", "Hello, and!"),
        ("100% sure, 5 < 6 and 7 > 3", "100% sure, 5 < 6 and 7 > 3"),
        ("%s of %d files&nbsp;<br/>gone", " of files gone"),
        ("no tags", "no tags"),
        ("<!-- no --> yes ${user}", " yes "),
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
    ],
)
def test_tags_go_where_their_words_went(line: str, translation: str, links: str, expected: str) -> None:
    assert translate(line, translation, links) == expected


def tree(nodes: tuple[Node, ...]) -> Counter[object]:
    """What is inside what, whatever the order of neighbours."""
    return Counter((node.tag.text, node.closing and node.closing.text, _key(node.children)) for node in nodes)


def _key(nodes: tuple[Node, ...]) -> object:
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
    found = put_back(tagged, translation, target_spans=spans, links=[link for link in links if link[1] < len(spans)])
    again = take_out(found)
    assert tree(again.nodes) == tree(tagged.nodes)
    assert again.plain.replace(" ", "") == translation.replace(" ", "")
