"""Message catalogues: what is read, and that filling changes nothing else."""

import time
from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from seqloom.text.formats.po import plural_forms, read_po, read_strings, write_strings
from seqloom.text.formats.segments import Filling
from text.formats.samples import PO, fill, shouting, write

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def _po(folder: Path, text: str, *, encoding: str = "utf-8") -> Path:
    path = folder / "a.po"
    path.write_bytes(text.encode(encoding))
    return path


def _lines(old: str, new: str) -> tuple[set[str], set[str]]:
    """Lines that went, and lines that came."""
    return set(old.split("\n")) - set(new.split("\n")), set(new.split("\n")) - set(old.split("\n"))


def test_messages_are_read_with_state_context_and_place(tmp_path: Path) -> None:
    catalogue = read_po(write(tmp_path, "messages.po"))
    assert catalogue.languages == (None, "de")
    shown = [(each.line, each.state, each.text, each.target, each.context) for each in catalogue.segments[:4]]
    assert shown == [
        (14, "translated", "Open file", "Datei öffnen", ""),
        (19, "untranslated", 'Cannot open "%s": %m\n', "", ""),
        (22, "untranslated", "Open", "", "menu"),
        (28, "fuzzy", "%d file", "%d Dokument", ""),
    ]
    assert "Close" not in [each.text for each in catalogue.segments]  # it is obsolete


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_the_translations_change(tmp_path: Path, line_end: str) -> None:
    path = write(tmp_path, "messages.po", line_end=line_end)
    catalogue = read_po(path)
    assert catalogue.filled({}) == path.read_bytes()
    out = catalogue.filled(fill(catalogue, shouting, aligned=True)).decode().replace(line_end, "\n")
    gone, come = _lines(PO, out)
    assert gone == {'msgstr[0] ""', 'msgstr[1] ""'}  # the other empty one begins a longer text
    assert come == {
        'msgstr "CANNOT OPEN \\"%s\\": %m\\n"',
        'msgstr "OPEN"',
        'msgstr[0] "{count} THREAD OF <b>{name}</b>"',
        'msgstr[1] "{count} THREADS OF <b>{name}</b>"',
        '"A RATHER LONG TEXT THAT GOES ON OVER SEVERAL LINES, BECAUSE NOBODY WANTS TO "',
        '"READ LINES THAT ARE LONGER THAN THEIR WINDOW.\\n"',
        '"SEE https://example.org/%s FOR MORE."',
    }


def test_a_fuzzy_filling_is_marked_and_a_good_one_clears_the_mark(tmp_path: Path) -> None:
    catalogue = read_po(write(tmp_path, "messages.po"))
    texts = [each.text for each in catalogue.segments]
    flagged, plain, old = (texts.index(text) for text in ('Cannot open "%s": %m\n', "Open", "%d file"))
    out = catalogue.filled(
        {
            flagged: Filling(("x %s %m\n",), is_fuzzy=True),
            plain: Filling(("y",), is_fuzzy=True),
            old: Filling(("%d Datei",)),
            old + 1: Filling(("%d Dateien",)),
        }
    ).decode()
    assert '#, fuzzy, c-format\nmsgid "Cannot' in out
    assert '#, fuzzy\nmsgctxt "menu"' in out
    assert '#, c-format\nmsgid "%d file"\n' in out  # neither the flag nor the earlier source
    assert _lines(PO, out)[0] >= {'#| msgid "%d document"', "#, c-format, fuzzy"}


def test_half_of_a_fuzzy_message_stays_fuzzy(tmp_path: Path) -> None:
    catalogue = read_po(write(tmp_path, "messages.po"))
    number = [each.text for each in catalogue.segments].index("%d file")
    out = catalogue.filled({number: Filling(("%d Datei",))}).decode()
    assert "#, c-format, fuzzy\n#| msgid" in out


def test_a_lonely_fuzzy_flag_goes_with_its_line(tmp_path: Path) -> None:
    text = HEAD + '# keep\n#, fuzzy\nmsgid "a"\nmsgstr "b"\n'
    out = read_po(_po(tmp_path, text)).filled({0: Filling(("c",))}).decode()
    assert out == HEAD + '# keep\nmsgid "a"\nmsgstr "c"\n'


def test_every_fuzzy_flag_goes_and_indentation_stays(tmp_path: Path) -> None:
    indented = '  #, fuzzy, c-format\nmsgid "a"\nmsgstr "b"\n\n'
    twice = '#, fuzzy\n#, no-wrap\n\t#, c-format, fuzzy\nmsgid "c"\nmsgstr "d"\n'
    catalogue = read_po(_po(tmp_path, HEAD + indented + twice))
    out = catalogue.filled({0: Filling(("B",)), 1: Filling(("D",))}).decode()
    expected = indented.replace("fuzzy, ", "").replace('"b"', '"B"')
    expected += '#, no-wrap\n\t#, c-format\nmsgid "c"\nmsgstr "D"\n'
    assert out == HEAD + expected
    again = read_po(_po(tmp_path, out))
    assert [each.state for each in again.segments] == ["translated"] * 2
    marked = again.filled({0: Filling(("B",), is_fuzzy=True)}).decode()
    assert "  #, fuzzy, c-format\n" in marked


@pytest.mark.parametrize(
    ("charset", "written"), [("UTF-8", r"\303\244"), ("UTF-8", r"\xc3\xa4"), ("ISO-8859-1", r"\344")]
)
def test_escaped_bytes_are_in_the_encoding_of_the_file(tmp_path: Path, charset: str, written: str) -> None:
    text = HEAD.replace("UTF-8", charset) + f'msgid "{written}pfel"\nmsgstr "ü \\101\\x142\\x09"\n'
    segment = read_po(_po(tmp_path, text, encoding=charset)).segments[0]
    assert (segment.text, segment.target) == ("äpfel", "ü AB\t")


def test_a_character_may_be_escaped_over_two_strings(tmp_path: Path) -> None:
    assert read_po(_po(tmp_path, HEAD + 'msgid "\\303"\n"\\244"\nmsgstr ""\n')).segments[0].text == "ä"


def test_escaped_bytes_that_are_no_text_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.po:4:7: msgid has escaped bytes that are not valid UTF-8"):
        read_po(_po(tmp_path, HEAD + 'msgid "\\344pfel"\nmsgstr ""\n'))


def test_flags_say_which_messages_are_formats(tmp_path: Path) -> None:
    entries = [f'#, {flag}\nmsgid "{flag} % d"\nmsgstr ""\n\n' for flag in ("c-format", "no-c-format", "qt-format")]
    segments = read_po(_po(tmp_path, HEAD + "".join(entries))).segments
    assert [each.is_format for each in segments] == [True, False, False]


def test_plurals_get_as_many_forms_as_the_header_says(tmp_path: Path) -> None:
    forms = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);"
    head = HEAD.replace("\\n", f"\\nPlural-Forms: {forms}\\n")
    text = head + 'msgid "One file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n\nmsgid "last"\nmsgstr ""\n'
    catalogue = read_po(_po(tmp_path, text))
    # The first form is also that of 21 files, so it needs the number.
    assert [each.text for each in catalogue.segments] == ["%d files", "%d files", "%d files", "last"]
    out = catalogue.filled({number: Filling((f"%d {number}",)) for number in range(3)}).decode()
    assert out == text.replace('msgstr[0] ""', 'msgstr[0] "%d 0"\nmsgstr[1] "%d 1"\nmsgstr[2] "%d 2"')


@pytest.mark.parametrize(
    ("forms", "sources"),
    [
        ("nplurals=2; plural=(n != 1);", ["One file", "%d files"]),
        ("nplurals=2; plural=n>1;", ["%d files", "%d files"]),  # none is written like one
        ("nplurals=1; plural=0;", ["%d files"]),
        ("nplurals=INTEGER; plural=EXPRESSION;", ["One file", "%d files"]),  # a template: as many as there are
        ("nplurals=2; plural=__import__('os');", ["One file", "%d files"]),
        ("nplurals=999999; plural=n;", ["One file", "%d files"]),
    ],
)
def test_the_form_of_one_is_made_from_the_singular(tmp_path: Path, forms: str, sources: list[str]) -> None:
    head = HEAD.replace("\\n", f"\\nPlural-Forms: {forms}\\n")
    text = head + 'msgid "One file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    assert [each.text for each in read_po(_po(tmp_path, text)).segments] == sources


def test_plural_forms_that_divide_by_nothing_are_no_forms() -> None:
    assert plural_forms("Plural-Forms: nplurals=2; plural=1/(n-n);") is None
    assert plural_forms("Plural-Forms: nplurals=2; plural=7;") is None


def test_the_encoding_of_the_header_is_kept(tmp_path: Path) -> None:
    text = HEAD.replace("UTF-8", "ISO-8859-1") + 'msgid "ä"\nmsgstr ""\n'
    catalogue = read_po(_po(tmp_path, text, encoding="latin-1"))
    assert catalogue.segments[0].text == "ä"
    assert catalogue.filled({0: Filling(("ö",))}) == text.replace('msgstr ""\n', 'msgstr "ö"\n').replace(
        'msgid "ö"', 'msgid "ä"'
    ).encode("latin-1")
    with pytest.raises(DataError, match="which iso-8859-1 cannot write; convert the file to UTF-8"):
        catalogue.filled({0: Filling(("ж",))})


def test_bytes_of_another_encoding_are_told_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_bytes(HEAD.encode() + b'msgid "\xe4"\n')
    with pytest.raises(DataError, match=r"a\.po:4:8: invalid UTF-8 byte 0xE4"):
        read_po(path)


@pytest.mark.parametrize("encoding", ["punycode", "idna", "unicode_escape", "undefined", "hex", "klingon"])
def test_an_encoding_that_is_none_of_files_is_refused(tmp_path: Path, encoding: str) -> None:
    path = _po(tmp_path, HEAD.replace("UTF-8", encoding) + 'msgid "a"\nmsgstr "b"\n')
    with pytest.raises(DataError, match=rf"a\.po: (unsupported encoding|the file is not valid) '{encoding}'"):
        read_po(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a"\nmsgid "b"\nmsgstr ""\n', "a.po:5:1: msgid comes twice in one entry"),
        ('msgid "a\nmsgstr ""\n', "a.po:4:6: a string in quotes is expected and nothing else: '\"a'"),
        ('msgid "a" b\nmsgstr ""\n', "a.po:4:6: a string in quotes"),
        ('#~ msgid "old"\n"lost"\n', "a.po:5:1: a string that belongs to no keyword"),
        ('msgid "a"\n\n', "a.po:4:1: this entry has no msgstr"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr "c"\n', "a.po:4:1: this entry has no msgstr[0]"),
        (
            'msgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\nmsgstr[7] "d"\n',
            "a.po:4:1: this entry has a msgstr[7] but no msgstr[1]",
        ),
        ('# new\nmsgstr "a"\n', "a.po:5:1: this entry has no msgid"),
        ("hello\n", "a.po:4:1: neither a keyword, a string nor a comment: 'hello'"),
        ('msgid\nmsgstr ""\n', "a.po:4:1: msgid has no string after it"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_po(_po(tmp_path, HEAD + text))
    assert message in str(caught.value)


def test_the_first_five_problems_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="and 4 more problems like these"):
        read_po(_po(tmp_path, HEAD + "bad\n" * 9))


def test_entries_need_no_blank_lines_and_strings_may_begin_below(tmp_path: Path) -> None:
    text = '\ufeffmsgid ""\nmsgstr ""\n"Language: fr_CA\\n"\nmsgid\n"a" "b"\nmsgstr ""\nmsgid "c"\nmsgstr "d"'
    catalogue = read_po(_po(tmp_path, text))
    assert [each.text for each in catalogue.segments] == ["ab", "c"]
    assert catalogue.languages == (None, "fr_CA")
    assert catalogue.filled({0: Filling(("x",))}).decode() == text.replace('msgstr ""\nmsgid', 'msgstr "x"\nmsgid')


@pytest.mark.parametrize("text", ["", "plain", 'a"b\\c\td\x07\x00\x7fé\n', "one\ntwo\n", "\n", "a " * 200, "x" * 300])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_strings_say_what_was_written(text: str, is_wrapped: bool) -> None:
    written = write_strings(text, column=7, is_wrapped=is_wrapped)
    values = [read_strings(line) for line in written.split("\n")]
    assert "".join(value for value, _ in values) == text
    assert all(end == len(line) for (_, end), line in zip(values, written.split("\n"), strict=True))
    if is_wrapped and " " in text:
        assert max(map(len, written.split("\n"))) <= 79


def test_a_file_without_wrapping_gets_none(tmp_path: Path) -> None:
    long = "word " * 40
    text = HEAD + f'msgid "{long}"\nmsgstr ""\n'
    assert read_po(_po(tmp_path, text)).filled({0: Filling((long,))}).decode() == text.replace(
        'msgstr ""\n', f'msgstr "{long}"\n'
    )


def test_a_charset_that_cannot_be_read_back_exactly_is_refused(tmp_path: Path) -> None:
    text = HEAD.replace("UTF-8", "utf-7")
    with pytest.raises(DataError, match="convert the file to UTF-8 first"):
        read_po(_po(tmp_path, text + 'msgid "a+AOQ-b+-"\nmsgstr "~"\n'))
    with pytest.raises(DataError, match="'no-such'"):
        read_po(_po(tmp_path, HEAD.replace("UTF-8", "no-such")))


def test_an_entry_of_many_lines_takes_linear_time(tmp_path: Path) -> None:
    path = _po(tmp_path, HEAD + 'msgid ""\n' + f'"{"word " * 14}"\n' * 80_000 + 'msgstr ""\n')
    begin = time.process_time()
    (segment,) = read_po(path).segments
    assert len(segment.text) == 70 * 80_000
    assert time.process_time() - begin < 3  # 7 seconds if each line is joined to all before it
