"""From bytes to lines: bytes that are no text, and characters that are there without being seen."""

from pathlib import Path

import pytest

from seqloom.core import files
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import LineReader
from seqloom.core.text_files import HiddenCharacters, LineDecoder, OnBad

BAD = b"gut\nsch\xf6n \xfc\n\xc3\xa4\n\xe9"


def read(
    content: bytes, tmp_path: Path, on_bad: OnBad = "error", encoding: str = "utf-8"
) -> tuple[list[str], LineReader]:
    path = tmp_path / "text.de"
    path.write_bytes(content)
    reader = LineReader(path, encoding, on_bad=on_bad)
    return list(reader), reader


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
def test_all_bad_lines_are_told_at_once_with_the_first_byte_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    with pytest.raises(DataError) as caught:
        read(BAD, tmp_path)
    first, last = caught.value.problems
    assert (first.line, first.column, last.line, last.column) == (2, 4, 4, 1)
    hints = "; if it is Latin-1, add --encoding latin-1; --on-bad-utf8 skip leaves such lines out"
    assert (first.message, last.message) == (f"invalid UTF-8 byte 0xF6{hints}", "invalid UTF-8 byte 0xE9")


@pytest.mark.parametrize("chunk", [7, 1 << 20])
@pytest.mark.parametrize("content", [b"sch\xc3\xb6n\nsch\xf6n\n", b"sch\xf6n\nsch\xc3\xb6n\n", b"sch\xc3\xb6n \xf6\n"])
def test_some_bad_lines_of_utf8_are_not_taken_for_latin1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, content: bytes
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    with pytest.raises(DataError) as caught:
        read(content, tmp_path)
    hint = "; --on-bad-utf8 skip leaves such lines out, replace puts U+FFFD in place of each such byte"
    assert [problem.message for problem in caught.value.problems] == [f"invalid UTF-8 byte 0xF6{hint}"]
    with pytest.raises(DataError, match="if it is Latin-1, add --encoding latin-1"):
        read(content + b"gr\xfcn\n" * 2, tmp_path)


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    ("on_bad", "lines", "said"),
    [
        ("replace", ["gut", "sch\ufffdn \ufffd", "ä", "\ufffd"], "have U+FFFD in place of each such byte"),
        ("skip", ["gut", "", "ä", ""], "are read as empty"),
    ],
)
def test_bad_lines_are_repaired_or_skipped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, on_bad: OnBad, lines: list[str], said: str
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    found, reader = read(BAD, tmp_path, on_bad)
    assert found == lines
    assert list(reader.decoder.bad) == [2, 4]
    (notice,) = reader.notices()
    assert notice.endswith(f"text.de: 2 lines with bytes that are not UTF-8 (lines 2, 4) {said}")


def test_good_text_is_the_same_whatever_is_done_about_bad(tmp_path: Path) -> None:
    content = "grün \ufffd \U0001f600\n\nlast".encode()
    for on_bad in ("error", "replace", "skip"):
        found, reader = read(content, tmp_path, on_bad)
        assert found == ["grün \ufffd \U0001f600", "", "last"]
        assert (reader.notices(), list(reader.decoder.bad)) == ([], [])


def test_other_encodings_mend_and_skip_too(tmp_path: Path) -> None:
    assert read(b"a\x81b\nc\n", tmp_path, "replace", "cp1252")[0] == ["a\ufffdb", "c"]
    assert read(b"a\x81b\nc\n", tmp_path, "skip", "cp1252")[0] == ["", "c"]
    with pytest.raises(DataError, match=r"text\.de:1:2: invalid CP1252 byte 0x81"):
        read(b"a\x81b\nc\n", tmp_path, "error", "cp1252")


def test_more_bad_lines_than_are_listed_are_counted() -> None:
    decoder = LineDecoder("x")
    assert decoder.feed(b"\xff\n" * 1_500) == []
    with pytest.raises(DataError) as caught:
        decoder.require_good()
    assert len(caught.value.problems) == 1_000
    assert str(caught.value).split("\n")[-1] == "… and 1,495 more problems like these"


@pytest.mark.parametrize("encoding", ["", " ", "hex", "rot13", "undefined", "caf\udce9", "a\0b", "x" * 5_000])
def test_what_is_no_encoding_of_text_is_refused(encoding: str) -> None:
    with pytest.raises(UsageError, match=r"unknown encoding .*; try utf-8, latin-1 or utf-16"):
        LineDecoder("x", encoding)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_what_is_not_seen_is_counted_wherever_chunks_end(size: int) -> None:
    text = "a\u200bb\u00ad\nc\u202ed\u202c\n\u2066x\u2069 \ufeff – „ö“ \u00bf…\nz" + "\u0301" * 6 + "a\u0301\u0302\n"
    data = text.encode()
    odd, lines = HiddenCharacters(), 0
    for begin in range(0, len(data), size):
        odd.count(data[begin : begin + size], lines=lines)
        lines += data[begin : begin + size].count(b"\n")
    assert (odd.counts["invisible"], odd.first["invisible"]) == (3, 1)
    assert (odd.counts["turning"], odd.first["turning"]) == (4, 2)
    if size == 1000:  # a pile of accents is not followed over the border of chunks
        assert (odd.counts["piled"], odd.first["piled"]) == (1, 4)


def test_a_mark_at_the_start_is_not_odd_and_one_further_on_is(tmp_path: Path) -> None:
    _, reader = read("\ufeffa\n\ufeffb\n".encode(), tmp_path)
    mark, odd = reader.notices()
    assert mark.endswith("the byte-order mark at the start was left out")
    assert odd.endswith(
        "text.de: 1 invisible character such as zero-width spaces, soft hyphens and byte-order marks; the first is in "
        "line 2"
    )


def test_what_is_not_seen_is_counted_in_other_encodings_too(tmp_path: Path) -> None:
    _, reader = read("a\nb\u202ec\n".encode("utf-16"), tmp_path, encoding="utf-16")
    assert any("turn the direction of writing" in sentence and "line 2" in sentence for sentence in reader.notices())


@pytest.mark.parametrize("data", [b"\0\n\0\n", b"\n\0\n\0", b"\0 \0\n\0\n\0\n"])
def test_nuls_among_line_ends_are_no_wide_encoding(data: bytes) -> None:
    decoder = LineDecoder("in", nul_is_space=True)
    found = [line for chunk in (data, b"") for line in decoder.feed(chunk)]
    assert "".join(found).strip() == ""
    assert any(" " in line for line in found)


@pytest.mark.parametrize("name", ["idna", "punycode", "unicode_escape", "undefined"])
def test_codecs_that_are_not_of_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="unknown encoding"):
        read(b"der Hund\nKatze\n", tmp_path, encoding=name)


def test_half_a_character_is_reported_with_its_place_or_repaired(tmp_path: Path) -> None:
    data = b"good\nab+2AA-c\n"  # UTF-7 writes units of UTF-16, and nobody sees to it that they come in pairs
    with pytest.raises(DataError, match=r"text\.de:2:3: half of a character \(the lone surrogate U\+D800\)"):
        read(data, tmp_path, "error", "utf-7")
    assert read(data, tmp_path, "replace", "utf-7")[0] == ["good", "ab\ufffdc"]
    assert read(data, tmp_path, "skip", "utf-7")[0] == ["good", ""]


def one_by_one(data: bytes) -> tuple[list[str], LineDecoder]:
    """What comes out where every chunk is a byte."""
    decoder = LineDecoder("x")
    return [line for byte in data for line in decoder.feed(bytes([byte]))], decoder


def test_a_mark_is_known_though_a_pipe_brings_its_bytes_one_by_one() -> None:
    for data, name in (("ab\n".encode("utf-16"), "UTF-16"), ("\ufeffab\n".encode("utf-32-be"), "UTF-32")):
        with pytest.raises(DataError, match=f"this is {name}, not UTF-8"):
            one_by_one(data)
    lines, decoder = one_by_one("ab\n".encode("utf-8-sig"))
    assert (lines, decoder.had_mark) == (["ab"], True)


@pytest.mark.parametrize("data", [b"\xff", b"\xfe", b"\xff\xfe", b"\xff\xfe\0"])
def test_the_bytes_of_half_a_mark_at_the_end_are_not_lost(data: bytes) -> None:
    decoder = LineDecoder("x")
    with pytest.raises(DataError):
        decoder.feed(data), decoder.feed(b""), decoder.require_good()
