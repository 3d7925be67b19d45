"""Texts of one language: lines and paragraphs, again and again, with the places they come from."""

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given

import nasty
from seqloom.core.errors import DataError, UsageError
from seqloom.data.plain_text import TextCorpus, TextLine


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    one, other = tmp_path / "one.txt", tmp_path / "other.txt.gz"
    one.write_bytes(b"\xef\xbb\xbffirst line\r\nsecond\r\n\r\nlast\r\n")
    other.write_bytes(gzip.compress("  \nand ünother\n  of two\n\n\n".encode()))
    return [one, other]


def test_lines_of_several_files_come_again_and_again(files: list[Path]) -> None:
    corpus = TextCorpus(files)
    texts = ["first line", "second", "", "last", "  ", "and ünother", "  of two", "", ""]
    expected = [TextLine(at, int(at > 4), text) for at, text in enumerate(texts, start=1)]
    assert list(corpus) == expected == list(corpus)
    assert len(corpus) == 9
    assert corpus.place(2) == f"{files[0]}:2"
    assert corpus.place(6) == f"{files[1]}:2"
    assert [notice.split(": ")[1] for notice in corpus.notices] == [
        "the byte-order mark at the start was left out",
        "carriage returns at the ends of lines were left out",
    ]


def test_paragraphs_are_the_lines_up_to_an_empty_one(files: list[Path]) -> None:
    corpus = TextCorpus(files, unit="paragraph")
    assert list(corpus) == [
        TextLine(1, 0, "first line second"),
        TextLine(4, 0, "last"),
        TextLine(6, 1, "and ünother of two"),
    ]
    assert len(corpus) == 3
    assert corpus.place(6) == f"{files[1]}:2"


def test_names_with_stars_stand_for_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"zwei\n\ndrei\n"))
    (tmp_path / "a.jsonl").write_text('{"text": "eins"}\n{"text": "noch eins"}\n')
    (tmp_path / "c.tmx").write_text(
        '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>four</seg></tuv>'
        '<tuv xml:lang="de"><seg>vier</seg></tuv></tu></body></tmx>'
    )
    corpus = TextCorpus([tmp_path / "*"], language="de", unit="paragraph")
    assert [line.text for line in corpus] == ["eins", "noch eins", "zwei", "drei", "vier"]
    assert (corpus.place(2), corpus.place(5)) == (f"{tmp_path}/a.jsonl, text 2", f"{tmp_path}/b.txt.xz:3")
    with pytest.raises(UsageError, match=r"\*\.gz: no file has such a name"):
        TextCorpus([tmp_path / "*.gz"])
    with pytest.raises(DataError, match=r"c\.tmx: no text in fr among 1 segments, expected at least one"):
        TextCorpus([tmp_path / "c.tmx"], language="fr")
    (tmp_path / "d.txt").write_text("quatre\n")
    among = TextCorpus([tmp_path / "c.tmx", tmp_path / "d.txt"], language="fr")
    assert ([line.text for line in among], among.place(1)) == (["quatre"], f"{tmp_path / 'd.txt'}:1")
    assert among.notices[0].startswith("1 of 2 files skipped, which have nothing to learn from: ")
    with pytest.raises(DataError, match=r"c\.tmx holds texts in en and de; choose one"):
        TextCorpus([tmp_path / "c.tmx"])


def test_the_fingerprint_is_that_of_the_text(files: list[Path], tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_bytes(gzip.decompress(files[1].read_bytes()))
    assert TextCorpus([plain]).fingerprint() == TextCorpus([files[1]]).fingerprint()
    plain.write_text("other words")
    assert TextCorpus([plain]).fingerprint() != TextCorpus([files[1]]).fingerprint()


def test_empty_files_are_named(tmp_path: Path) -> None:
    empty, blank = tmp_path / "empty.txt", tmp_path / "blank.txt"
    empty.write_text("")
    blank.write_text("\n \n")
    with pytest.raises(DataError, match=r"empty\.txt: empty; expected at least one line of text"):
        TextCorpus([empty])
    with pytest.raises(DataError, match=r"blank\.txt: 2 lines, all of them blank"):
        TextCorpus([blank], unit="paragraph")
    with pytest.raises(UsageError, match="no text file was given"):
        TextCorpus([])


@given(nasty.good_files(fewest=1, without="\0"))
def test_any_lines_of_a_text_come_as_they_are(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(data)
    expected = nasty.lines_of(data)
    corpus = TextCorpus([path])
    assert [line.text for line in corpus] == expected
    assert [line.number for line in corpus] == list(range(1, len(expected) + 1))
