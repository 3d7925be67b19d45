"""XLIFF 1.2 and 2: what is read, and that filling changes nothing else."""

from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from seqloom.text.formats.readers import open_catalogue
from seqloom.text.formats.segments import Code, Filling
from seqloom.text.formats.xliff import read_xliff
from text.formats.samples import XLIFF_1, XLIFF_2, fill, shouting, write


def _xliff(folder: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path = folder / "a.xlf"
    path.write_bytes(text.encode(encoding))
    return path


def test_units_are_read_with_state_and_place(tmp_path: Path) -> None:
    catalogue = read_xliff(write(tmp_path, "page.xlf"))
    assert catalogue.languages == ("en", "de")
    assert [(each.line, each.state, each.text) for each in catalogue.segments] == [
        (7, "translated", "Hello"),
        (8, "untranslated", "Click here  to <b>save</b> %s."),
        (12, "untranslated", "Tom & Jerry"),
        (14, "fuzzy", "First line\nsecond line"),
        (20, "untranslated", "One. Two."),
        (24, "untranslated", "slanted text"),
    ]


def test_only_the_targets_of_a_first_file_change(tmp_path: Path) -> None:
    catalogue = read_xliff(write(tmp_path, "page.xlf"))
    out = catalogue.filled(fill(catalogue, shouting, aligned=True), target="de").decode()
    new = [
        (
            "</source>\n        <alt",
            '<target>CLICK <g id="1">HERE <x id="2"/></g> TO &lt;b&gt;SAVE&lt;/b&gt; %s.</target>',
        ),
        ("</seg-source>\n", '<target><mrk mtype="seg" mid="1">ONE.</mrk> <mrk mtype="seg" mid="2">TWO.</mrk></target>'),
    ]
    expected = XLIFF_1.replace('<target state="new" />', '<target state="translated">TOM &amp; JERRY</target>')
    for place, target in new:
        head, tail = place.split(">", 1)
        expected = expected.replace(place, f"{head}>\n        {target}{tail}")
    slanted = '<target><bpt id="1">&lt;i></bpt>SLANTED<ept id="1">&lt;/i></ept> TEXT</target>'
    expected = expected.replace(" text</source>", f" text</source>{slanted}")
    assert out == expected


def test_only_the_targets_of_a_second_file_change(tmp_path: Path) -> None:
    catalogue = read_xliff(write(tmp_path, "page2.xliff"))
    assert catalogue.languages == ("en-US", None)
    assert [each.state for each in catalogue.segments] == ["untranslated", "untranslated", "translated"]
    out = catalogue.filled(fill(catalogue, shouting, aligned=True), target="de").decode()
    press = '<target>PRESS <pc id="1">THE <ph id="2" dataRef="d1"/> KEY</pc>.</target>'
    expected = XLIFF_2.replace('srcLang="en-US"', 'srcLang="en-US" trgLang="de"')
    expected = expected.replace('state="initial"', 'state="translated"')
    expected = expected.replace('<segment id="s2">', '<segment state="translated" id="s2">')
    expected = expected.replace("</pc>.</source>", f"</pc>.</source>\n    {press}")
    expected = expected.replace(
        "<target></target>", '<target>THEN <sc id="3"/>WAIT<ec startRef="3"/> FOR {0}.</target>'
    )
    assert out == expected


@pytest.mark.parametrize("name", ["page.xlf", "page2.xliff"])
def test_doubt_is_written_as_a_state_and_read_as_fuzzy(tmp_path: Path, name: str) -> None:
    catalogue = read_xliff(write(tmp_path, name))
    doubtful = {
        number: Filling(("?",), is_fuzzy=True)
        for number, each in enumerate(catalogue.segments)
        if each.state == "untranslated"
    }
    assert doubtful
    path = tmp_path / f"again-{name}"
    path.write_bytes(catalogue.filled(doubtful, target="de"))
    again = read_xliff(path)
    assert {number for number, each in enumerate(again.segments) if (each.state, each.target) == ("fuzzy", "?")} == {
        *doubtful
    }
    surely = read_xliff(path).filled({number: Filling(("!",)) for number in doubtful})
    path.write_bytes(surely)
    assert all(read_xliff(path).segments[number].state == "translated" for number in doubtful)


def test_codes_are_told_from_text(tmp_path: Path) -> None:
    text = XLIFF_2.replace("Press ", '<mrk id="m" translate="no">Loom</mrk> <![CDATA[<a>&amp;]]><!-- c --><?pi?>')
    assert read_xliff(_xliff(tmp_path, text)).segments[0].source[:4] == (
        Code('<mrk id="m" translate="no">Loom</mrk>'),
        " ",
        "<a>&amp;",
        Code("<?pi?>"),
    )


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig"])
def test_the_encoding_is_kept_and_what_it_lacks_is_written_as_a_reference(tmp_path: Path, encoding: str) -> None:
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    text = XLIFF_1.replace("UTF-8", name)
    path = _xliff(tmp_path, text, encoding=encoding)
    catalogue = read_xliff(path)
    assert catalogue.filled({}) == path.read_bytes()
    path.write_bytes(catalogue.filled({2: Filling(("Том & <Джерри>",))}))
    assert read_xliff(path).segments[2].target == "Том & <Джерри>"


def test_prefixes_and_quotes_of_all_kinds(tmp_path: Path) -> None:
    text = (
        "<x:xliff xmlns:x='urn:oasis:names:tc:xliff:document:1.2' version='1.2'><x:file source-language='en' a=\"'>\">"
        "<x:body><x:trans-unit id='1>'><x:source>a &gt; b</x:source></x:trans-unit></x:body></x:file></x:xliff>"
    )
    out = read_xliff(_xliff(tmp_path, text)).filled({0: Filling(("c\x00 > d",), is_fuzzy=True)}, target="de").decode()
    target = '<x:target state="needs-review-translation">c &gt; d</x:target>'
    expected = text.replace("</x:source>", f"</x:source>{target}").replace("='en'", "='en' target-language=\"de\"")
    assert out == expected


BOMB = """<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>
<xliff version="1.2"><file>&b;</file></xliff>"""
OUTSIDE = """<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<xliff version="1.2"><file>&a;</file></xliff>"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "a.xlf:1: the file declares entities or refers to other files, which is not read"),
        (OUTSIDE, "a.xlf:1: the file declares entities or refers to other files, which is not read"),
        ("<xliff version='1.2'>\n<file>", "a.xlf:2:7: not well-formed XML: no element found"),
        ("<xliff version='1.2'>\n <a></b>", "a.xlf:2:7: not well-formed XML: mismatched tag"),
        ("", "a.xlf:1:1: not well-formed XML: no element found"),
        ("<html/>", "XLIFF 1.2 or 2 is expected, but this is <html"),
        ("<xliff version='3'/>", "version='3'"),
        ("<a>" * 600, "a.xlf:1: more than 500 elements inside each other"),
        ("<xliff>&nbsp;</xliff>", "not well-formed XML: undefined entity"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_xliff(_xliff(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["page2.xliff", "memory.tmx"])
def test_a_language_is_written_as_xml_needs_it(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    catalogue = open_catalogue(path, languages=("en", 'xx"<&'))
    data = catalogue.filled(fill(catalogue, shouting, aligned=True), target='xx"<&')
    assert b'="xx&quot;&lt;&amp;"' in data
    path.write_bytes(data)
    assert open_catalogue(path, languages=("en", 'xx"<&')).languages[1] in ('xx"<&', "de-DE")
