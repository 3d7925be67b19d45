"""Corpora of translators' files."""

import lzma
from pathlib import Path

import pytest

from seqloom.core.errors import DataError, UsageError
from seqloom.data.corpus import open_corpus
from seqloom.data.corpus_files import languages_from
from text.formats.samples import TMX, write

EN_DE = ("en", "de")


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("messages.po", ("Open file", "Datei öffnen")),
        ("page.xlf", ("Hello", "Hallo")),
        ("page2.xliff", ("Done", "Fertig")),
        ("memory.tmx", ("The colour is red.", "Die Farbe ist rot.")),
        ("pairs.jsonl", ("Hello", "Hallo")),
    ],
)
def test_the_translated_pairs_of_every_format(tmp_path: Path, name: str, pair: tuple[str, str]) -> None:
    corpus = open_corpus([write(tmp_path, name)], languages=EN_DE)
    for _ in range(2):
        assert [(line.source, line.target) for line in corpus] == [pair]
    assert len(corpus) == 1
    assert "without a translation, or with a fuzzy one, left out" in corpus.notices[-1]
    assert (corpus.notices[0] == f"{tmp_path / name}: pairs from en to de are read") is (name == "memory.tmx")
    assert corpus.place(1) == f"{tmp_path / name}, pair 1"


def test_the_fingerprint_is_that_of_the_same_text_in_other_files(tmp_path: Path) -> None:
    memory = tmp_path / "memory.tmx.xz"
    memory.write_bytes(lzma.compress(TMX.encode()))
    table = tmp_path / "a.tsv"
    table.write_text("The colour is red.\tDie Farbe ist rot.\n", encoding="utf-8")
    assert open_corpus([memory], languages=EN_DE).fingerprint() == open_corpus([table]).fingerprint()


def test_line_ends_and_tabs_become_spaces_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"source": "a\\nb\\tc", "target": "d"}\n{"source": "e\\n", "target": "f"}\n')
    corpus = open_corpus([path])
    assert [(line.source, line.target) for line in corpus] == [("a b c", "d"), ("e", "f")]
    assert corpus.notices == (f"{path}: line ends and tabs inside 1 pairs were read as spaces",)


def test_languages_come_from_the_files(tmp_path: Path) -> None:
    memory = write(tmp_path, "memory.tmx")
    assert languages_from([memory]) is None  # it has three
    memory.write_text(TMX.replace('"fr"', '"de"'), encoding="utf-8")
    assert languages_from([memory]) == EN_DE
    assert languages_from([write(tmp_path, "page.xlf")]) == EN_DE
    assert languages_from([write(tmp_path, "messages.po")]) is None  # it names one
    assert languages_from([Path("corpus.en-de.jsonl")]) == EN_DE


def test_names_may_stand_for_several_files(tmp_path: Path) -> None:
    for name, text in (("a.de", "eins\n"), ("b.de", "zwei\n"), ("a.en", "one\n"), ("b.en", "two\n")):
        (tmp_path / name).write_text(text)
    corpus = open_corpus([tmp_path / "*.de", tmp_path / "*.en"])
    assert [(line.source, line.target) for line in corpus] == [("eins", "one"), ("zwei", "two")]
    (tmp_path / "c.de").write_text("drei\n")
    with pytest.raises(UsageError, match=r"matches 3 files, but .*\*\.en for 2"):
        open_corpus([tmp_path / "*.de", tmp_path / "*.en"])
    with pytest.raises(UsageError, match="no file has such a name"):
        open_corpus([tmp_path / "*.tmx"])
    (tmp_path / "[x].tsv").write_text("a\tb\n")
    assert len(open_corpus([tmp_path / "[x].tsv"])) == 1


def test_a_memory_without_the_languages_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "memory.tmx")
    with pytest.raises(
        DataError, match=r"no pair to learn from among 3 segments, expected at least one in en and vi; data"
    ):
        open_corpus([path], languages=("en", "vi"))


def test_tables_and_pairs_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a table of both sides"):
        open_corpus([write(tmp_path, "memory.tmx"), tmp_path / "a.de"])
