"""`seqloom translate` with documents: a real model, the real program."""

import re
import zipfile
from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny
from seqloom.text.formats.readers import parse_catalogue
from text.formats.test_documents import PAGE, SRT, VTT, body_of, word_file

BODY = (
    '<w:p><w:r><w:t xml:space="preserve">The cat </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>sleeps</w:t></w:r></w:p>'
    "<w:tbl><w:tc><w:p><w:r><w:t>a red house</w:t></w:r></w:p></w:tc></w:tbl><w:sectPr/>"
)


def test_a_page_is_translated_and_keeps_its_markup(tiny: Tiny, tmp_path: Path) -> None:
    path, out = tmp_path / "page.html", tmp_path / "out.html"
    path.write_text(PAGE, encoding="utf-8")
    called = call("translate", tiny.run, path, "--out", out)
    assert called.code == 0, called.err
    count = len(parse_catalogue("a.html", PAGE.encode()).segments)
    assert f"{path}: {count} of {count} segments translated" in called.err
    written = out.read_text(encoding="utf-8")
    assert written != PAGE
    tags = [
        re.findall("<[^<>]*>", re.sub('(?:alt|placeholder)=(?:"[^"]*"|[A-Za-z]+)', "", text))
        for text in (PAGE, written)
    ]
    assert sorted(tags[0]) == sorted(tags[1])
    for kept in ("p {color: red}", "a < b && c", "<!-- a Comment -->", "<code>ls -L</code>", "translate=no>Eleven"):
        assert kept in written
    assert call("translate", tiny.run, path).out == written


def test_a_word_document_is_translated_and_keeps_the_rest(tiny: Tiny, tmp_path: Path) -> None:
    path, out = tmp_path / "a.docx", tmp_path / "b.docx"
    path.write_bytes(word_file(BODY, **{"word/media/image1.png": "\x89PNG", "word/styles.xml": "<x/>"}))
    called = call("translate", tiny.run, path, "--out", out, "--json")
    assert called.code == 0, called.err
    assert called.records[0]["segments"] == called.records[0]["filled"] == 2
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out) as new:
        assert old.namelist() == new.namelist()
        assert {name for name in old.namelist() if old.read(name) != new.read(name)} == {"word/document.xml"}
    body = body_of(out.read_bytes())
    assert re.sub("<w:t[ >].*?</w:t>", "", body).count("<w:b/>") == 1
    assert body.endswith("</w:tc></w:tbl><w:sectPr/>")
    assert "cat" not in body


@pytest.mark.parametrize(("name", "text"), [("a.srt", SRT), ("a.vtt", VTT)])
def test_subtitles_are_translated_and_keep_their_times(tiny: Tiny, tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    called = call("translate", tiny.run, path)
    assert called.code == 0, called.err
    assert re.findall(".*-->.*", called.out) == re.findall(".*-->.*", text)
    assert "never" not in called.out


def test_options_of_catalogues_are_refused_for_documents(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("<p>The cat", encoding="utf-8")
    for option, reason in (
        ("--in-place", "the original text would be lost; use --out"),
        ("--review", "it is for catalogues (.po, .xlf, .xliff, .tmx, .jsonl)"),
        ("--tags", "it is for text with one sentence per line"),
    ):
        called = call("translate", tiny.run, path, option)
        assert (called.code, called.out) == (2, "")
        assert f"{option} is not supported with a document: {reason}" in " ".join(called.err.split())
    called = call("translate", path, tiny.run)
    assert called.code == 2
    assert "is a document; name the model before it" in " ".join(called.err.split())
    damaged = tmp_path / "a.docx"
    damaged.write_bytes(b"PK\x03\x04")
    called = call("translate", tiny.run, damaged)
    assert called.code == 3
    assert "cannot be read: File is not a zip file" in " ".join(called.err.split())
