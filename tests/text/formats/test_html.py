"""HTML: what is translated, what is left alone, and how it is written back."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import SeqloomError
from seqloom.text.formats.html import html_catalogue, xml_catalogue
from seqloom.text.formats.markup import markup_tokens
from seqloom.text.formats.readers import parse_catalogue
from text.formats.samples import Engine, fill, reversed_words, shouting


def translated(text: str, engine: Engine = shouting) -> str:
    """A fragment with each word in place of its like."""
    catalogue = html_catalogue(text)
    return catalogue.filled(fill(catalogue, engine, aligned=True)).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Hello", "HELLO"),
        ("<p>One <b>two</b> three.</p>\n<p>Four", "<p>ONE <b>TWO</b> THREE.</p>\n<p>FOUR"),
        ("<p>\n  One\n  two <i> three</i>\n</p>", "<p>\n  ONE TWO <i>THREE</i>\n</p>"),
        ("<b><i>a <u>b</u></i></b>", "<b><i>A <u>B</u></i></b>"),
        ("<b>a <i>b</b> c</i>", "<b>A <i>B</b> C</i>"),
        ("a <b>b", "A <b>B"),
        ("a</b> b", "A</b> B"),
        ("One.<br>Two.<br/>three,<br>four", "ONE.<br>TWO.<br/>THREE,<br>FOUR"),
        ("a <img src=x alt='the key'> b", "A <img src=x alt='THE KEY'> B"),
        ('<a title="it&#39;s &amp;" href="/x?a=1&b=2">go</a>', '<a title="IT\'S &amp;" href="/x?a=1&b=2">GO</a>'),
        ("<input placeholder=name><p aria-label='it'>x", "<input placeholder=\"NAME\"><p aria-label='IT'>X"),
        ("caf&eacute; &lt;3 &amp; x&nbsp;y", "CAFÉ &lt;3 &amp; X&nbsp;Y"),
        ("5 < 6 and 7 > 3 & more", "5 &lt; 6 AND 7 &gt; 3 &amp; MORE"),
        (
            "<script>if (a<b) {}</script><style>p {x: y}</style>a",
            "<script>if (a<b) {}</script><style>p {x: y}</style>A",
        ),
        ("use <code>ls <b>-l</b></code> now", "USE <code>ls <b>-l</b></code> NOW"),
        ("a <b> b</b><pre>c <b> d</b></pre>", "A <b>B</b><pre>C <b>D</b></pre>"),
        ("<pre>one\n  two</pre><textarea>x</textarea>", "<pre>ONE\n  TWO</pre><textarea>x</textarea>"),
        ("a <span translate=no>b <b>c</b></span> d", "A <span translate=no>b <b>c</b></span> D"),
        ("<p class='x notranslate'>a <b>b<p>c", "<p class='x notranslate'>a <b>b<p>C"),
        ("<ul><li translate=no>a<ul><li>b</ul><li>c</ul>d", "<ul><li translate=no>a<ul><li>b</ul><li>C</ul>D"),
        (
            "<!DOCTYPE html><!-- no --><title>a &amp; b <3</title>",
            "<!DOCTYPE html><!-- no --><title>A &amp; B &lt;3</title>",
        ),
        ("<![CDATA[ no > ]]> a <?php no ?> b", "<![CDATA[ no > ]]> A <?php no ?> B"),
        ("a <i class=icon></i> b", "A <i class=icon></i> B"),
        ("Hi {0} and [X12X]", "HI {0} AND [X12X]"),
        ("a <b", "A <b"),
        ("", ""),
    ],
)
def test_words_are_replaced_and_nothing_else(before: str, after: str) -> None:
    assert translated(before) == after


def test_tags_follow_their_words() -> None:
    def swap(line: str) -> str:
        return {"the red house": "house red"}.get(line, line)

    assert translated("<p>the <b>red</b> house", swap) == "<p>house <b>red</b>"


def test_a_post_of_mastodon() -> None:
    post = (
        '<p>Good morning,<br>see <a href="https://example.org/a/long" rel="nofollow"><span class="invisible">https://'
        '</span><span class="ellipsis">example.org/a</span><span class="invisible">/long</span></a> and ask '
        '<span class="h-card" translate="no"><a href="https://x.y/@bob" class="u-url mention">@<span>bob</span></a>'
        '</span> about <a href="https://x.y/tags/cats" class="mention hashtag">#<span>cats</span></a>.</p>'
    )
    words = ("Good", "morning", "see", " and", "ask ", "about")
    expected = post
    for word in words:
        expected = expected.replace(word, word.upper(), 1)
    assert translated(post) == expected


def test_the_encoding_of_a_page_is_kept() -> None:
    for head, encoding in (
        ('<meta charset="windows-1251">', "windows-1251"),
        ('<meta http-equiv=Content-Type content="text/html; charset=iso-8859-1">', "windows-1252"),
        ("\ufeff", "utf-16-le"),
        ("", "utf-8"),
        ('<?xml version="1.0" encoding="latin-1"?>', "windows-1252"),
    ):
        text = f"{head}<p>Привет" if "1251" in head else f"{head}<p>Größe – x"
        data = text.encode(encoding)
        catalogue = parse_catalogue("a.html", data)
        assert catalogue.filled({}) == data
        assert catalogue.filled(fill(catalogue, str.upper)).decode(encoding) == head + text[len(head) :].replace(
            text[len(head) + 3 :], text[len(head) + 3 :].upper()
        )
    latin = parse_catalogue("a.htm", b'<meta charset="latin-1"><p>word')
    assert latin.filled(fill(latin, lambda _: "слово")).endswith(b"<p>&#1089;&#1083;&#1086;&#1074;&#1086;")


def test_elements_of_xml_are_ignored_and_part_sentences_on_request() -> None:
    text = 'Take <x id="7"></x> <Keep>this one</Keep>.<s>Now &quot;go&quot;</s>'
    catalogue = xml_catalogue(text, ignore_tags=["x", "Keep"], splitting_tags=["s"])
    assert [segment.text for segment in catalogue.segments] == ["Take  .", 'Now "go"']
    filled = catalogue.filled(fill(catalogue, shouting, aligned=True)).decode()
    assert filled == 'TAKE <x id="7"></x> <Keep>this one</Keep>.<s>NOW "GO"</s>'


_markup = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("<p>", "</p>", "<b>", "</b>", "<i>", "</i>", "<br>", "<code>", "</code>", "<script>", "</script>"),
                *("<ul>", "<li>", "</ul>", "<a>", "</a>", "<pre>", "</pre>", "<svg/>", "</", "&lt;", "<", ">", '"'),
                *(
                    '<span title="a b">',
                    "</span>",
                    "<img alt=x>",
                    "<!--",
                    "-->",
                    "<![CDATA[",
                    "]]>",
                    "<p translate=no>",
                ),
            ]
        ),
        nasty.line(most=2, longest=20),
        st.sampled_from(["one ", " two", " ", "\n", "three"]),
    ),
    max_size=14,
).map("".join)


@given(text=st.one_of(_markup, nasty.texts()), engine=st.sampled_from([reversed_words, shouting, lambda _: '<b> & "']))
def test_broken_html_never_raises_and_tokens_are_the_text(text: str, engine: Engine) -> None:
    for is_xml in (False, True):
        tokens = list(markup_tokens(text, is_xml=is_xml))
        assert "".join(text[token.start : token.end] for token in tokens) == text
    for catalogue in (html_catalogue(text), xml_catalogue(text, ignore_tags=["b"], splitting_tags=["p"])):
        assert catalogue.filled({}).decode() == text
        filled = catalogue.filled(fill(catalogue, engine, aligned=True)).decode()
        kinds = ("open", "close", "empty")
        names = [sorted(token.name for token in markup_tokens(each) if token.kind in kinds) for each in (text, filled)]
        assert names[0] == names[1]


@given(data=nasty.files())
def test_any_file_is_read_or_refused(data: bytes) -> None:
    for name in ("a.html", "a.txt"):
        try:
            catalogue = parse_catalogue(name, data)
        except SeqloomError:
            continue
        assert catalogue.filled({}) == data
        catalogue.filled(fill(catalogue, shouting))


@pytest.mark.parametrize(
    "piece", ["<a ", "<a b='", "<!--", "<![CDATA[", "<p translate=no>", "</b>", "<b>", "<a>", "x<br>"]
)
def test_broken_pages_take_linear_time(piece: str) -> None:
    html_catalogue(piece * 1_000 + "x")


_words = {"one": "ONE", "Two": "TWO", "three,": "THREE,", "four.": "FOUR.", "caf&eacute;": "CAFÉ", "&amp;": "&amp;"}
_kept = (
    *("{0}", "[X7X]", "https://x.y/z", "<img src=x>", "<code>ls</code>", "<!-- no -->", '<x id="0"></x>'),
    *("<span translate=no>a</span>", "<a><img src=y></a>"),
)
_inline = st.recursive(
    st.one_of(st.sampled_from(sorted(_words.items())), st.sampled_from(_kept).map(lambda text: (text, text))),
    lambda inner: st.tuples(st.sampled_from(["b", "em", "a"]), st.lists(inner, min_size=1, max_size=4)).map(
        lambda drawn: _element(drawn[0], drawn[1])
    ),
    max_leaves=8,
)
_blocks = st.tuples(st.sampled_from(["p", "div", "li"]), st.lists(_inline, min_size=1, max_size=6))
_pages = st.lists(_blocks.map(lambda drawn: _element(drawn[0], drawn[1], space="\n ")), max_size=4)


def _element(name: str, inner: Sequence[tuple[str, str]], *, space: str = "") -> tuple[str, str]:
    """An element with these words inside, and what it is in capitals."""
    before, after = (f"<{name}>{space}{' '.join(each)}</{name}>" for each in zip(*inner, strict=True))
    return before, after


@given(blocks=_pages)
def test_nothing_but_words_changes(blocks: list[tuple[str, str]]) -> None:
    page = "\n".join(before for before, _ in blocks)
    assert translated(page, str) == page
    assert translated(page) == "\n".join(after for _, after in blocks)
