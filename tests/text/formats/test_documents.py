"""Documents: words are replaced, everything else stays; other readers find the same things in the result."""

import io
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.text.formats.docx import parse_docx
from seqloom.text.formats.readers import TRANSLATABLE, parse_catalogue
from seqloom.text.formats.segments import Filling
from seqloom.text.formats.subtitles import wrap
from text.formats.samples import Engine, fill, inventing, reversed_words, shouting

SRT = """\ufeff1
00:00:01,000 --> 00:00:02,000
{\\an8}<i>He was never
there, my friend.</i>

2
00:00:03,500 --> 00:00:04,000 X1:10 X2:20
- Hello <b>you</b>.
- Who are
  you?

3
00:00:05,000 --> 00:00:06,000
42
♪

4
00:00:07,000 --> 00:00:08,000
<font color="#fff">A < B</font>
"""
VTT = """WEBVTT - a title

NOTE not
this

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.000 align:start
<v.loud Bob>It is <c.red>red &amp;
very</c> warm, <00:01.500>isn't
it?</v>

00:03.000 --> 00:04.000
我们在海边。
他不在。
"""
_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
BOLD = "<w:rPr><w:b/></w:rPr>"


def word_file(body: str, **others: str) -> bytes:
    """A document with a body, and other members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?>\r\n<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>'
        )
        archive.writestr("word/document.xml", text)
        for name, content in others.items():
            archive.writestr(name, content)
    return file.getvalue()


def body_of(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        text = archive.read("word/document.xml").decode()
    return text.partition("<w:body>")[2].partition("</w:body>")[0]


def translated(name: str, data: bytes, engine: Engine = shouting) -> bytes:
    catalogue = parse_catalogue(name, data)
    return catalogue.filled(fill(catalogue, engine, aligned=True))


def test_text_files_keep_everything_between_paragraphs() -> None:
    text = "\ufeffOne two,\nthree.\r\nFour %s.\n\n  \n 5\n\nThe end\r\n\n\r"
    upper = "\ufeffONE TWO,\nTHREE.\r\nFOUR %s.\n\n  \n 5\n\nTHE END\r\n\n\r"
    assert translated("a.txt", text.encode()).decode() == upper
    assert [each.text for each in parse_catalogue("a.txt", text.encode()).segments] == [
        "One two,\nthree.\r\nFour %s.",
        "The end",
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_subtitles_keep_times_and_lines(line_end: str) -> None:
    text = SRT.replace("\n", line_end)
    expected = text.replace("He was never", "HE WAS NEVER").replace("there, my friend", "THERE, MY FRIEND")
    for word in ("Hello", "you", "Who are"):
        expected = expected.replace(word, word.upper())
    expected = expected.replace("  YOU?", "YOU?").replace(">A < B<", ">A < B<")
    assert translated("a.srt", text.encode()).decode() == expected
    text = VTT.replace("\n", line_end)
    expected = text
    for word in ("It is", "red &amp;", "very", "warm", "isn't", "it?<"):
        expected = expected.replace(word, word.upper().replace("AMP", "amp"))
    lines = expected.split(line_end)
    at = lines.index("VERY</c> WARM, <00:01.500>ISN'T")  # the words are shared out again
    lines[at : at + 2] = ["VERY</c> WARM,", "<00:01.500>ISN'T IT?</v>"]
    assert translated("a.vtt", text.encode()).decode() == line_end.join(lines)


def test_a_cue_is_wrapped_to_its_lines() -> None:
    def lines(text: str, count: int) -> list[str]:
        (wrapped,) = wrap((text,), lines=count, line_end="\n")
        assert isinstance(wrapped, str)
        return wrapped.split("\n")

    assert lines("one two three four", 2) == ["one two", "three four"]
    assert lines("one", 3) == ["one"]
    assert lines("extraordinary a b", 3) == ["extraordinary", "a", "b"]
    assert lines("我们在海边。", 2) == ["我们在", "海边。"]


@given(
    words=st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=9), min_size=1, max_size=12),
    count=st.integers(1, 4),
)
def test_wrapping_loses_no_word_and_is_as_narrow_as_can_be(words: list[str], count: int) -> None:
    (text,) = wrap((" ".join(words),), lines=count, line_end="\n")
    assert isinstance(text, str)
    lines = text.split("\n")
    assert "".join(text.split()) == "".join(words)
    if all(word.isascii() for word in words):
        assert len(lines) == min(count, len(words))
        assert max(map(len, lines)) == _least_width(words, count)


def _least_width(words: list[str], count: int) -> int:
    """By trying everything."""
    if count == 1 or len(words) == 1:
        return len(" ".join(words))
    return min(max(len(" ".join(words[:cut])), _least_width(words[cut:], count - 1)) for cut in range(1, len(words)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<w:r><w:t>one</w:t></w:r>", "<w:r><w:t>ONE</w:t></w:r>"),
        (  # runs that look alike are joined, whatever the last spelling check left between them
            '<w:r w:rsidR="1"><w:t xml:space="preserve">one </w:t></w:r><w:proofErr w:type="spellStart"/>'
            '<w:r><w:rPr><w:lang w:val="en"/></w:rPr><w:t>two</w:t></w:r>',
            '<w:r w:rsidR="1"><w:t>ONE TWO</w:t></w:r>',
        ),
        (
            f'<w:r><w:t xml:space="preserve">one more </w:t></w:r><w:r>{BOLD}<w:t>two</w:t></w:r>',
            f'<w:r><w:t xml:space="preserve">ONE MORE </w:t></w:r><w:r>{BOLD}<w:t>TWO</w:t></w:r>',
        ),
        (
            "<w:r><w:t>one</w:t><w:tab/><w:t>two</w:t><w:br/><w:t>Three</w:t></w:r>",
            "<w:r><w:t>ONE</w:t></w:r><w:r><w:tab/></w:r><w:r><w:t>TWO</w:t></w:r><w:r><w:br/></w:r>"
            "<w:r><w:t>THREE</w:t></w:r>",
        ),
        (
            '<w:pPr><w:b/></w:pPr><w:bookmarkStart w:id="0"/>'
            '<w:r><w:t xml:space="preserve">A small </w:t></w:r><w:hyperlink w:id="x"><w:r>'
            f"{BOLD}<w:t>link</w:t></w:r></w:hyperlink><w:r><w:t>.</w:t></w:r><w:bookmarkEnd/>",
            '<w:pPr><w:b/></w:pPr><w:bookmarkStart w:id="0"/>'
            '<w:r><w:t xml:space="preserve">A SMALL </w:t></w:r><w:hyperlink w:id="x"><w:r>'
            f"{BOLD}<w:t>LINK</w:t></w:r></w:hyperlink><w:r><w:t>.</w:t></w:r><w:bookmarkEnd/>",
        ),
        (
            '<w:r><w:t xml:space="preserve">page </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>REF x</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>the</w:t>'
            '</w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t xml:space="preserve"> end</w:t></w:r>',
            '<w:r><w:t xml:space="preserve">PAGE </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>REF x</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>the</w:t>'
            '</w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t xml:space="preserve"> END</w:t></w:r>',
        ),
        (
            '<w:r><w:t xml:space="preserve">see </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>HYPERLINK "x"</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r>'
            '<w:t>the page</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t>.</w:t></w:r>',
            '<w:r><w:t xml:space="preserve">SEE </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r>'
            '<w:instrText>HYPERLINK "x"</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r>'
            '<w:t>THE PAGE</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t>.</w:t></w:r>',
        ),
        (
            '<w:r><w:t xml:space="preserve">a </w:t></w:r><w:r><w:pict><w:p><w:r><w:t>box</w:t></w:r></w:p></w:pict>'
            '<w:t xml:space="preserve"> b</w:t></w:r><w:del><w:r><w:delText>old</w:delText></w:r></w:del>',
            '<w:r><w:t xml:space="preserve">A </w:t></w:r><w:r><w:pict><w:p><w:r><w:t>BOX</w:t></w:r></w:p></w:pict>'
            '</w:r><w:r><w:t xml:space="preserve"> B</w:t></w:r><w:del><w:r><w:delText>old</w:delText></w:r></w:del>',
        ),
    ],
)
def test_paragraphs_of_word_documents(before: str, after: str) -> None:
    data = word_file(f"<w:p>{before}</w:p>")
    assert body_of(translated("a.docx", data)) == f"<w:p>{after}</w:p>"


def test_formatting_follows_its_words() -> None:
    data = word_file(
        f'<w:p><w:r><w:t xml:space="preserve">the old </w:t></w:r><w:r>{BOLD}<w:t>red</w:t></w:r>'
        '<w:r><w:t xml:space="preserve"> house</w:t></w:r></w:p>'
    )
    moved = translated("a.docx", data, {"the old red house": "house the red old"}.__getitem__)
    assert body_of(moved) == (
        '<w:p><w:r><w:t xml:space="preserve">house the </w:t></w:r>'
        f'<w:r>{BOLD}<w:t>red</w:t></w:r><w:r><w:t xml:space="preserve"> old</w:t></w:r></w:p>'
    )


def test_a_translation_whose_pairs_are_not_nested_is_not_written() -> None:
    data = word_file(
        '<w:p><w:r><w:t xml:space="preserve">the </w:t></w:r><w:hyperlink><w:r><w:t>page</w:t></w:r></w:hyperlink>'
        "<w:r><w:t>.</w:t></w:r></w:p>"
    )
    catalogue = parse_catalogue("a.docx", data)
    content = catalogue.segments[0].source
    assert catalogue.filled({0: Filling(content[::-1])}) == data
    assert catalogue.filled({0: Filling(("Die ", *content[1:]))}) != data


_RUNS = (
    *(
        "<w:r><w:t>one</w:t></w:r>",
        '<w:r><w:t xml:space="preserve"> two </w:t></w:r>',
        f"<w:r>{BOLD}<w:t>Red</w:t></w:r>",
    ),
    *("<w:r><w:tab/><w:t>x</w:t></w:r>", "<w:r><w:br/></w:r>", "<w:r><w:footnoteReference/></w:r>", "<w:bookmarkEnd/>"),
    *('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'),
    *('<w:r><w:fldChar w:fldCharType="end"/></w:r>', "<w:r><w:instrText>HYPERLINK x</w:instrText></w:r>"),
    *("<w:r><w:pict><w:p><w:r><w:t>box</w:t></w:r></w:p></w:pict><w:t>a &amp; {0}</w:t></w:r>", "<w:proofErr/>"),
)
_inline = st.recursive(
    st.lists(st.sampled_from(_RUNS), max_size=4).map("".join),
    lambda inner: st.lists(
        st.one_of(
            inner,
            inner.map(lambda text: f"<w:hyperlink>{text}</w:hyperlink>"),
            inner.map(lambda text: f"<w:sdt><w:sdtPr/><w:sdtContent>{text}</w:sdtContent></w:sdt>"),
        ),
        max_size=4,
    ).map("".join),
    max_leaves=6,
)


@given(
    paragraph=_inline,
    engine=st.sampled_from([reversed_words, shouting, inventing, lambda _: "a b & <c>"]),
    aligned=st.booleans(),
)
def test_word_documents_stay_well_formed_with_every_element(paragraph: str, engine: Engine, aligned: bool) -> None:
    data = word_file(f"<w:p><w:pPr/>{paragraph}</w:p><w:sectPr/>")
    catalogue = parse_docx(data, Path("a.docx"))
    assert catalogue.filled({}) == data
    filled = catalogue.filled(fill(catalogue, engine, aligned=aligned))
    parse_docx(filled, Path("b.docx"))  # well-formed
    for name in ("hyperlink", "sdtContent", "footnoteReference", "bookmarkEnd", "tab", "br", "pict", "p", "sectPr"):
        pattern = rf"<w:{name}\b"
        assert len(re.findall(pattern, body_of(filled))) == len(re.findall(pattern, body_of(data))), name
    kinds = re.findall('fldCharType="(.*?)"', body_of(data))
    assert sorted(re.findall('fldCharType="(.*?)"', body_of(filled))) == sorted(kinds)


@given(
    name=st.sampled_from(["a.srt", "a.vtt", "a.docx", "a.txt"]),
    data=nasty.files(),
    engine=st.sampled_from([shouting, inventing]),
)
def test_any_file_is_read_or_refused(name: str, data: bytes, engine: Engine) -> None:
    heads = {"a.srt": b"1\n00:00:01,000 --> 00:00:02,000\n", "a.vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\n"}
    for whole in (data, heads.get(name, b"") + data):
        try:
            catalogue = parse_catalogue(name, whole)
        except SeqloomError:
            continue
        assert catalogue.filled({}) == whole
        again = catalogue.filled(fill(catalogue, engine))
        assert len(re.findall(b"-->", again)) <= len(re.findall(b"-->", whole))


@given(text=nasty.line(longest=30, without="\r"))
@settings(max_examples=30)
def test_any_text_in_a_word_document_is_written_well_formed(text: str) -> None:
    from seqloom.text.formats.xml import escape

    data = word_file(f'<w:p><w:r><w:t xml:space="preserve">so {escape(text)}</w:t></w:r></w:p>')
    parse_catalogue("b.docx", translated("a.docx", data, lambda line: f"{line} {text}"))


@pytest.mark.parametrize("name", ["a.srt", "a.vtt", "a.txt", "a.html"])
@pytest.mark.parametrize("piece", [" ", "1"])
def test_long_runs_take_linear_time(name: str, piece: str) -> None:
    head = {"a.srt": "1\n00:00:01,000 --> 00:00:02,000\n", "a.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n"}.get(name, "")
    began = time.process_time()
    translated(name, f"{head}a{piece * 60_000}b\n{piece * 60_000}".encode())
    assert time.process_time() - began < 5  # a pattern that tries a run from each of its characters takes 15 to 40


def test_other_formats_and_damaged_files_are_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match=r"'a\.odt' is not in a supported format; supported are \.docx, .*\.xliff"):
        parse_catalogue("../a.odt", b"")
    assert {".txt", ".html", ".srt", ".vtt", ".docx", ".po", ".xlf", ".tmx", ".jsonl"} <= set(TRANSLATABLE)
    with pytest.raises(DataError, match=r"a\.docx cannot be read: File is not a zip file"):
        parse_catalogue("a.docx", b"PK")
    with pytest.raises(DataError, match="not a Word document"):
        parse_catalogue("a.docx", word_file("").replace(b"word/document.xml", b"word/dokument.xml"))
    with pytest.raises(DataError, match="not well-formed XML"):
        parse_catalogue("a.docx", word_file("<w:p>"))
    with pytest.raises(DataError, match="would grow from"):
        parse_catalogue("a.docx", word_file("<!--" + " " * (4 << 20) + "-->"))
    for name in ("a.html", "a.xlf"):
        with pytest.raises(DataError, match=r"more than 1,000,000 tags \(1,000,001\)"):
            parse_catalogue(name, b"<" * 1_000_001)
    with pytest.raises(DataError, match="declares entities"):
        parse_catalogue("a.docx", word_file("", **{"word/header1.xml": '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'}))
    with pytest.raises(DataError, match="it does not begin with WEBVTT"):
        parse_catalogue("a.vtt", b"1\n00:01.000 --> 00:02.000\nx")
    with pytest.raises(DataError, match="it has no line such as"):
        parse_catalogue("a.srt", b"words")
    with pytest.raises(DataError, match="invalid UTF-8 byte 0xE4"):
        parse_catalogue("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nM\xe4dchen")


# --- what other readers see ------------------------------------------------------------------------------------------


def _check_with(see: Callable[[bytes], Any], name: str, data: bytes) -> None:
    """What another reader sees is the same once capitals are small again; a byte lost from the file is seen."""
    filled = translated(name, data)
    assert filled != data
    assert see(filled) == see(data)


@pytest.mark.parity
def test_subtitles_reopen_in_other_readers() -> None:
    srt = pytest.importorskip("srt")
    webvtt = pytest.importorskip("webvtt")

    def cues(data: bytes) -> list[tuple[Any, ...]]:
        found = list(srt.parse(data.decode("utf-8-sig")))
        return [(each.index, each.start, each.end, each.proprietary, each.content.lower().split()) for each in found]

    def captions(data: bytes) -> list[tuple[Any, ...]]:
        found = webvtt.from_string(data.decode())
        assert len(found.captions) == 2
        cues = [(each.identifier, each.start, each.end, each.raw_text.lower().split()) for each in found.captions]
        return [*cues, *(each.text for each in found.styles)]

    _check_with(cues, "a.srt", SRT.encode())
    _check_with(captions, "a.vtt", VTT.encode())
    assert cues(SRT.replace(",500", ",501").encode()) != cues(SRT.encode())
    assert captions(VTT.replace("c.red", "c.blue").encode()) != captions(VTT.encode())


PAGE = """<!DOCTYPE html>
<html lang=en><head><title>A page &amp; more</title><meta charset=utf-8><style>p {color: red}</style>
<script>if (a < b && c) document.write("<p>no</p>")</script></head>
<body class="Main"><!-- a Comment --><h1>Hello <em>you</em></h1>
<p>One <b>two <i>three</b> four</i> <img src=A.png alt="A key"> five.<br>Six<p>seven &eacute; &lt; 2
<ul><li>eight<li>Nine <code>ls -L</code></ul><table><tr><td>ten<td translate=no>Eleven</table>
<pre>twelve
  thirteen</pre><textarea placeholder=Name>Keep</textarea><svg viewBox="0 0 1 1"><title>Keep</title></svg></body></html>
"""


@pytest.mark.parity
def test_pages_reopen_in_html5lib() -> None:
    html5lib = pytest.importorskip("html5lib")

    def tree(data: bytes) -> list[tuple[Any, ...]]:
        walker = html5lib.getTreeWalker("etree")
        found: list[tuple[Any, ...]] = []
        for token in walker(html5lib.parse(data.decode())):
            text = str(token.get("data") if token["type"] in ("Characters", "Comment") else token.get("name", ""))
            words = ("readable", *text.lower().split()) if token["type"] == "Characters" else (text,)
            readable = ("alt", "placeholder")
            attributes = (
                {
                    name: value.lower() if name[1] in readable else value
                    for name, value in (token.get("data") or {}).items()
                }
                if token["type"] in ("StartTag", "EmptyTag")
                else {}
            )
            found.append((token["type"], words, sorted(attributes.items())))
        return found

    _check_with(tree, "a.html", PAGE.encode())
    assert tree(PAGE.replace("A.png", "a.png").encode()) != tree(PAGE.encode())
    assert tree(PAGE.replace("<li>eight", "eight").encode()) != tree(PAGE.encode())


@pytest.mark.parity
def test_word_documents_reopen_in_python_docx() -> None:
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("The title", 1)
    paragraph = document.add_paragraph("Take ")
    paragraph.add_run("this nice").bold = True
    paragraph.add_run(" key, ").italic = True
    paragraph.add_run("now.\nThen\tgo home.")
    document.add_paragraph("a point", style="List Bullet")
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(1, 1).text = "cell one", "cell two"
    document.sections[0].header.paragraphs[0].text = "a header"
    document.sections[0].footer.paragraphs[0].text = "page footer"
    file = io.BytesIO()
    document.save(file)

    def contents(data: bytes) -> list[Any]:
        opened = docx.Document(io.BytesIO(data))
        section = opened.sections[0]
        cells = [cell for row in opened.tables[0].rows for cell in row.cells]
        places = [opened, section.header, section.footer, *cells]
        return [
            (paragraph.style.name, paragraph.text.lower(), *_looks(paragraph))
            for place in places
            for paragraph in place.paragraphs
        ]

    def _looks(paragraph: Any) -> list[tuple[Any, ...]]:
        """Each letter with its formatting, however runs are cut; spaces belong to either side."""
        return [(each, run.bold, run.italic) for run in paragraph.runs for each in "".join(run.text.lower().split())]

    _check_with(contents, "a.docx", file.getvalue())
    filled = translated("a.docx", file.getvalue())
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(io.BytesIO(filled)) as new:
        assert old.namelist() == new.namelist()
        changed = {name for name in old.namelist() if old.read(name) != new.read(name)}
    assert changed == {"word/document.xml", "word/header1.xml", "word/footer1.xml"}
    paragraph.runs[1].bold = None
    other = io.BytesIO()
    document.save(other)
    assert contents(other.getvalue()) != contents(file.getvalue())
