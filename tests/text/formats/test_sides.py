"""Texts of one language out of translators' files."""

import gzip
from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from seqloom.text.formats.readers import SideReader
from text.formats.samples import NAMES, write


def _texts(path: Path, language: str | None = None) -> list[str]:
    return list(SideReader(path, language=language))


def test_a_memory_gives_the_variants_in_a_language(tmp_path: Path) -> None:
    path = write(tmp_path, "memory.tmx")
    assert _texts(path, "fr") == ["La couleur est rouge."]
    assert _texts(path, "de") == ["Die Farbe ist rot."]
    assert _texts(path, "en")[1:] == ["Save all files & quit", "Over         two lines"]
    reader = SideReader(path, language="fr")
    assert list(reader) == list(reader)
    assert reader.lines == 1
    assert [notice.split(": ")[1] for notice in reader.notices()] == [
        "1 texts in fr are read",
        "2 segments without a text, or with a fuzzy one, left out",
    ]


def test_fuzzy_variants_are_no_example(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    mark = '<prop type="x-fuzzy">{}</prop>'
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{n}</seg></tuv><tuv xml:lang="de">{mark.format(said)}<seg>{n}</seg></tuv></tu>'
        for n, said in (("eins", "true"), ("zwei", "false"))
    )
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>')
    assert _texts(path, "de") == ["zwei"]
    assert _texts(path, "en") == ["eins", "zwei"]


@pytest.mark.parametrize(
    ("name", "there", "last"), [("memory.tmx", "en, de and fr", "fr"), ("page.xlf", "en and de", "de")]
)
def test_a_file_of_several_languages_asks_which(tmp_path: Path, name: str, there: str, last: str) -> None:
    with pytest.raises(DataError, match=rf"holds texts in {there}; choose one of them: data\.target={last}"):
        SideReader(write(tmp_path, name))


def test_catalogues_give_the_side_that_is_in_the_language(tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    assert _texts(path, "de") == ["Datei öffnen"] == _texts(path)
    english = _texts(path, "en")
    assert english[:2] == ["Open file", 'Cannot open "%s": %m']
    assert len(english) == 8
    assert SideReader(path, language="en").notices()[0].endswith("0 texts of the source side are read")
    other = write(tmp_path, "page.xlf")
    assert _texts(other, "de-AT") == ["Hallo"]
    assert _texts(other, "en")[0] == "Hello"
    with pytest.raises(DataError, match=r"page\.xlf has no text in fr: its languages are en and de"):
        SideReader(other, language="fr")


def test_records_give_text_or_one_side(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    records = [
        '{"text": "One\\ttext", "target": "no"}',
        '{"translation": {"en": "Two", "de": "Zwei"}}',
        '{"source": "Three", "target": "Drei"}',
        '{"source": "Four"}',
        '{"source": "Five", "target": "Fünf", "fuzzy": true}',
    ]
    path.write_bytes(gzip.compress("\n".join(records).encode()))
    assert _texts(path, "en") == ["One text", "Two", "Drei", "Four"]
    with pytest.raises(DataError, match=r"a\.jsonl\.gz:2:1: no member 'text'; there are en, de; name its language"):
        _texts(path)
    path.write_bytes(gzip.compress(b'{"text": 5}\n{"text": "a"}\nplain\n'))
    with pytest.raises(DataError, match=r"jsonl\.gz:1:1: text is expected, not 5\n.*jsonl\.gz:3:1: not JSON"):
        _texts(path)


def test_every_sample_has_a_side(tmp_path: Path) -> None:
    for name in NAMES:
        assert _texts(write(tmp_path, name), "en")
